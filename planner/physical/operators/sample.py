"""sample: some of the rows, at random."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.generating import SAMPLE_METHODS
from tsql.planner.physical.estimate import Estimate, Machine
from tsql.planner.physical.properties import ONCE, SINGLE, Properties, Requirement
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Sample(Step):
    """A percentage of the rows, decided per row (bernoulli) or per run of rows (system) in any shard; or an exact
    number or percentage of them (reservoir), on one shard. The same `seed` gives the same rows."""

    method: str = "bernoulli"
    rows: int | None = None
    percent: float | None = None
    seed: int | None = None

    op = "sample"
    label = "sampled"

    @property
    def is_exact(self) -> bool:
        return self.rows is not None or self.method == "reservoir"

    def requires(self) -> tuple[Requirement, ...]:
        return (SINGLE if self.is_exact else ONCE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return replace(given[0], shards=1, order=()) if self.is_exact else given[0]

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used(*wanted)

    @property
    def depends_on_order(self) -> bool:
        return True

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        if self.rows is not None:
            return min(given[0].rows, float(self.rows))
        return given[0].rows * (self.percent or 0.0) / 100

    def attributes(self) -> list[tuple[str, str]]:
        text = [("method", self.method)]
        text.append(("rows", str(self.rows)) if self.rows is not None else ("percent", repr(self.percent)))
        return text + ([("seed", str(self.seed))] if self.seed is not None else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        method = attributes.choice("method", SAMPLE_METHODS, "bernoulli")
        rows, percent = attributes.integer("rows", 0), attributes.real("percent", 0, 100)
        if (rows is None) == (percent is None):
            raise context.error("a sample takes rows or percent")
        if method == "bernoulli" and rows is not None:
            raise attributes.error("rows", "method=bernoulli takes percent, not rows")
        return cls(inputs, method=method, rows=rows, percent=percent, seed=attributes.integer("seed"))
