"""limit: at most `count` rows after skipping `offset`, in the order of the input, on one shard."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Expr
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.estimate import Cost, Estimate, Machine, row_count
from tsql.planner.physical.properties import SINGLE, Properties, Requirement
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Limit(Step):
    """Both are constants or parameters of BIGINT; a count of None means all, a count of DOUBLE is a percentage of the
    rows."""

    count: Expr | None = None
    offset: Expr | None = None

    op = "limit"
    label = "limited"

    @property
    def is_percentage(self) -> bool:
        return self.count is not None and self.count.type.is_float

    def requires(self) -> tuple[Requirement, ...]:
        return (SINGLE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return replace(given[0], shards=1)

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used(*wanted)

    @property
    def depends_on_order(self) -> bool:
        return True

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        count = row_count(self.count)
        return given[0].rows if count is None else min(given[0].rows, count)

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        return Cost()

    def attributes(self) -> list[tuple[str, str]]:
        pairs = (("percent" if self.is_percentage else "count", self.count), ("offset", self.offset))
        return [(name, f"({e})") for name, e in pairs if e is not None]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        count, percent = attributes.count("count"), attributes.percentage("percent")
        if count is not None and percent is not None:
            raise attributes.error("percent", "limit takes count or percent, not both")
        return cls(inputs, count=percent if count is None else count, offset=attributes.count("offset"))
