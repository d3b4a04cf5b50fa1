"""filter: rows for which a predicate is true."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Expr
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.cost import constants as cost
from tsql.planner.physical.estimate import Estimate, Machine
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Filter(Step):
    """Keeps placement and order. `how=select`, directly above a scan: a cheap part of the condition is evaluated for a
    run of rows first, which pays off where few rows pass. Elsewhere it has no effect."""

    predicate: Expr
    how: str = "branch"

    op = "filter"
    label = "filtered"
    is_stateless = True

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used(*wanted)

    @property
    def streamed(self) -> int | None:
        return 0

    def follows(self, column: str) -> tuple[int, str] | None:
        return 0, column

    def promised(self, below: list[Progress]) -> Progress:
        return below[0]

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return given[0].rows * given[0].selectivity(self.predicate)

    def spares(self, left: float, rows: float) -> bool:
        return left <= cost.LATE_WORTH * rows

    def attributes(self) -> list[tuple[str, str]]:
        return ([("how", self.how)] if self.how != "branch" else []) + [("where", f"({self.predicate})")]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        attributes.text("where")
        predicate = attributes.condition("where", inputs[0].schema)
        assert predicate is not None
        return cls(
            inputs,
            predicate=predicate,
            how=attributes.choice("how", ("branch", "select"), "branch"),
        )
