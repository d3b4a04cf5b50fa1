"""values: a literal relation, on one shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.attributes import as_value
from tsql.planner.physical.estimate import Estimate, Machine
from tsql.planner.physical.operators.input import Given, read_fields
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Values(Given):
    """Rows of constant expressions. With no columns it is `count` empty rows (SELECT without FROM)."""

    rows: tuple[tuple[Expr, ...], ...] = ()

    op = "values"
    label = "constants"

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return float(len(self.rows))

    def attributes(self) -> list[tuple[str, str]]:
        rows = ", ".join(f"({', '.join(map(str, row))})" for row in self.rows)
        return [self.columns(), ("rows", f"({rows})")]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        fields = read_fields(attributes, context)
        rows = []
        for item in attributes.items("rows"):
            cells = attributes.parts("rows", item)
            if len(cells) != len(fields):
                raise attributes.error("rows", f"a row of {len(cells)} values for {len(fields)} columns")
            rows.append(tuple(_value(c, f, attributes, context) for c, f in zip(cells, fields, strict=True)))
        return cls((), rows=tuple(rows), fields=fields)


def _value(text: str, field: Field, attributes: Attributes, context: LineContext) -> Expr:
    found = context.constant(text)
    value = as_value(found, field.type)
    if value is None:
        raise attributes.error(
            "rows", f"{text} is {found.type}, and no value of the column {field}", hint="write the cast that is meant"
        )
    return value
