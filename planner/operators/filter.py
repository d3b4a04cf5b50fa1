"""filter: rows for which a predicate is true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tsql.kernels.expr import Expr
from tsql.kernels.types import BOOLEAN
from tsql.planner.step import Step


@dataclass(frozen=True)
class Filter(Step):
    """Keeps placement and order."""

    predicate: Expr | None = None

    op = "filter"
    label = "filtered"

    def attributes(self) -> list[tuple[str, str]]:
        return [("where", f"({self.predicate})")]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        predicate = context.expression(attributes.text("where"), inputs[0].schema)
        if predicate.type != BOOLEAN:
            raise context.error(f"where is {predicate.type}, not BOOLEAN")
        return cls(inputs, predicate=predicate)
