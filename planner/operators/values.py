"""values: a literal relation, on one shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tsql.kernels.expr import Expr
from tsql.kernels.schema import Field, Schema
from tsql.kernels.types import parse_type
from tsql.planner.properties import Properties, Requirement
from tsql.planner.step import Step


@dataclass(frozen=True)
class Values(Step):
    """Rows of constant expressions. With no columns it is `count` empty rows (SELECT without FROM)."""

    rows: tuple[tuple[Expr, ...], ...] = ()
    fields: Schema = Schema(())

    op = "values"
    label = "constants"

    @property
    def schema(self) -> Schema:
        return self.fields

    def requires(self) -> tuple[Requirement, ...]:
        return ()

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(1)

    def attributes(self) -> list[tuple[str, str]]:
        from tsql.planner.planfile import identifier

        columns = ", ".join(f"{identifier(f.name)} {f.type}" for f in self.fields)
        rows = ", ".join(f"({', '.join(map(str, row))})" for row in self.rows)
        return [("columns", f"({columns})"), ("rows", f"({rows})")]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        fields = []
        for item in attributes.items("columns"):
            name, type_text = context.split_name(item)
            try:
                fields.append(Field(name, parse_type(type_text)))
            except ValueError as error:
                raise context.error(str(error)) from None
        rows = []
        for item in attributes.items("rows"):
            cells = context.split(item.strip()[1:-1])
            if len(cells) != len(fields):
                raise context.error(f"a row of {len(cells)} values for {len(fields)} columns")
            rows.append(tuple(context.expression(c, Schema(())) for c in cells))
        return cls((), rows=tuple(rows), fields=Schema(tuple(fields)))
