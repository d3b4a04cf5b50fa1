"""sort: rows in order, on one shard, or shard by shard if they are arranged by the same keys. With `limit`, every shard
keeps only the first rows, without a full sort."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Expr, SortKey
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.estimate import Cost, Estimate, Machine, levels, row_count, width
from tsql.planner.physical.movement import Arrange
from tsql.planner.physical.properties import ONCE, SINGLE, Properties, Requirement
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Sort(Step):
    """A stable sort. `limit` is a constant number of rows; `phase=partial` keeps the first rows of each shard."""

    keys: tuple[SortKey, ...] = ()
    limit: Expr | None = None
    phase: str = "complete"

    op = "sort"

    def suggested_name(self) -> str:
        return "top" if self.limit is not None else "sorted"

    @property
    def is_arranged(self) -> bool:
        """Whether its rows are in shards by ranges of the same keys, so that each shard is sorted by itself."""
        (below,) = self.inputs
        return isinstance(below, Arrange) and below.keys == self.keys and self.limit is None

    def requires(self) -> tuple[Requirement, ...]:
        return (ONCE if self.phase == "partial" or self.is_arranged else SINGLE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        # The first rows of each shard come out of a heap, in no order.
        if self.phase == "partial":
            return replace(given[0], order=())
        if self.is_arranged:
            return replace(given[0], order=self.keys, in_sequence=True)
        return replace(given[0], shards=1, order=self.keys)

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used(*wanted)

    @property
    def depends_on_order(self) -> bool:
        return self.limit is not None

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        count = row_count(self.limit)
        copies = given[0].properties.shards if self.phase == "partial" else 1
        return given[0].rows if count is None else min(given[0].rows, count * copies)

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        whole = self.limit is None
        return machine.work(
            given[0].rows * (levels(given[0]) if whole else 1.0) * machine.costs.sort_ns,
            properties.shards,
            given[0].rows * width(self.schema) if whole else 0.0,
            breaks=True,
        )

    def attributes(self) -> list[tuple[str, str]]:
        text = [] if self.phase == "complete" else [("phase", self.phase)]
        text.append(("by", f"({', '.join(map(str, self.keys))})"))
        return text + ([("limit", f"({self.limit})")] if self.limit is not None else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        schema = inputs[0].schema
        keys = tuple(context.sort_key(item, schema) for item in attributes.items("by"))
        if not keys:
            raise attributes.error(
                "by", "by=() of a sort has no key", hint="by=(column), by=(column desc), or leave the step out"
            )
        limit = attributes.count("limit")
        phase = attributes.choice("phase", ("partial", "complete"), "complete")
        if phase == "partial" and limit is None:
            raise context.error("phase=partial of a sort needs a limit")
        return cls(inputs, keys=keys, limit=limit, phase=phase)
