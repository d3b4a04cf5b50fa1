"""values: a literal relation, on one shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tsql.kernels.expr import Expr
from tsql.kernels.schema import Schema
from tsql.planner.operators.input import Given, read_fields
from tsql.planner.step import Step


@dataclass(frozen=True)
class Values(Given):
    """Rows of constant expressions. With no columns it is `count` empty rows (SELECT without FROM)."""

    rows: tuple[tuple[Expr, ...], ...] = ()

    op = "values"
    label = "constants"

    def attributes(self) -> list[tuple[str, str]]:
        rows = ", ".join(f"({', '.join(map(str, row))})" for row in self.rows)
        return [self.columns(), ("rows", f"({rows})")]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        fields = read_fields(attributes, context)
        rows = []
        for item in attributes.items("rows"):
            cells = context.split(item.strip()[1:-1])
            if len(cells) != len(fields):
                raise context.error(f"a row of {len(cells)} values for {len(fields)} columns")
            rows.append(tuple(context.expression(c, Schema(())) for c in cells))
        return cls((), rows=tuple(rows), fields=fields)
