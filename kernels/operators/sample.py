"""Randomize: adds a random number to each row, from its position and a seed; `sample` filters and orders by it."""

from __future__ import annotations

from tsql.kernels.emit.context import PipelineKernel, Slot
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.pipeline import Operator, Push
from tsql.kernels.emit.rows import POSITION, CachedRow
from tsql.kernels.expr.types import BIGINT

RANDOM = "#random"
RANDOM_BITS = 62
RUN_BITS = 11
"""A system sample decides for runs of 2,048 rows."""


class RandomRow(CachedRow):
    """A row with its random number."""

    def __init__(self, parent: CachedRow, seed: str, by_run: bool):
        super().__init__()
        self.parent, self.seed, self.by_run = parent, seed, by_run
        self.mask = parent.mask

    def make(self, k: PipelineKernel, name: str) -> Datum:
        if name != RANDOM:
            return self.parent.column(k, name)
        position = self.parent.column(k, POSITION).value
        if self.by_run:
            position = position.ushr(RUN_BITS)
        (seed,) = k.slot(Slot("parameter", BIGINT, self.seed), ("i64",))
        # The finalizer of splitmix64, over a step of the golden ratio.
        z = (position + seed * -0x61C8864680B583EB) * -0x61C8864680B583EB
        for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
            z = (z ^ z.ushr(shift)) * factor
        z = z ^ z.ushr(31)
        return Datum(BIGINT, (z.ushr(64 - RANDOM_BITS),), None, (0, 2**RANDOM_BITS - 1))


class Randomize(Operator):
    """Adds the column `#random`, uniform over 62 bits. `seed` names a parameter of the run. `by_run`: adjacent rows get
    the same number."""

    def __init__(self, seed: str, by_run: bool = False):
        self.seed, self.by_run = seed, by_run

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        push(k, RandomRow(row, self.seed, self.by_run))

    def describe(self) -> str:
        return "randomize" + (" by run" if self.by_run else "")
