"""input: rows from elsewhere, in place of a step that was cut off. It exists only in plans that are sent to workers.

A backend that runs a plan in pieces (Spark) sends the plan's text to its workers with every scan replaced by an input,
so that a worker needs no catalog to read it. The planner never produces one."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import parse_type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.properties import Properties, Requirement
from tsql.planner.physical.step import Step
from tsql.planner.physical.text import identifier

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Given(Step):
    """Base of the steps without inputs whose columns the plan states; on one shard."""

    fields: Schema = field(default=Schema(()), kw_only=True)

    arity = (0, 0)

    @property
    def schema(self) -> Schema:
        return self.fields

    def requires(self) -> tuple[Requirement, ...]:
        return ()

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(1)

    def columns(self) -> tuple[str, str]:
        """The attribute `columns=(name TYPE, ..)`."""
        return "columns", f"({', '.join(f'{identifier(f.name)} {f.type}' for f in self.fields)})"


@dataclass(frozen=True)
class Input(Given):
    """Rows with these columns, in any shard. Rows of files that cannot pass `where` need not be read."""

    where: Expr | None = None

    op = "input"
    label = "given"
    is_planned = False

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(shards)

    def attributes(self) -> list[tuple[str, str]]:
        return [self.columns(), *([("where", f"({self.where})")] if self.where is not None else [])]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        if context.catalog is not None:
            raise context.error(
                "input stands for rows that another part of a running plan sends; a plan file reads them with scan"
            )
        fields = read_fields(attributes, context)
        return cls((), fields=fields, where=attributes.condition("where", fields))


def read_fields(attributes: Attributes, context: LineContext) -> Schema:
    """`columns=(name TYPE, ..)`."""
    fields = []
    for item in attributes.items("columns"):
        name, type_text = context.split_name(item)
        try:
            fields.append(Field(name, parse_type(type_text)))
        except ValueError as error:
            raise context.error(str(error)) from None
    return Schema(tuple(fields))
