"""filter: rows for which a predicate is true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tsql.kernels.expr.nodes import Expr
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Filter(Step):
    """Keeps placement and order. `how=select`, directly above a scan: a cheap part of the condition is decided for a
    run of rows before any of them is looked at further, which pays where few rows pass; anywhere else it changes
    nothing."""

    predicate: Expr | None = None
    how: str = "branch"

    op = "filter"
    label = "filtered"

    def attributes(self) -> list[tuple[str, str]]:
        return ([("how", self.how)] if self.how != "branch" else []) + [("where", f"({self.predicate})")]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        attributes.text("where")
        return cls(
            inputs,
            predicate=attributes.condition("where", inputs[0].schema),
            how=attributes.choice("how", ("branch", "select"), "branch"),
        )
