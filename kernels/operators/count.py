"""Count: counts the rows that pass, for `explain ANALYZE`. Rows are passed on unchanged."""

from __future__ import annotations

from tsql.kernels.emit.context import PipelineKernel, Slot
from tsql.kernels.emit.pipeline import Operator, Push
from tsql.kernels.emit.rows import CachedRow


class Count(Operator):
    """Adds the rows of a step to a word that the host keeps for each worker."""

    counts = True

    def __init__(self, step: str):
        self.step = step

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        (word,) = k.slot(Slot("count", None, self.step), ("ptr",))
        one = k.i64(1) if row.mask is None else row.mask.uto("i64")
        k.store(word, k.load("i64", word) + one)
        push(k, row)

    def describe(self) -> str:
        return f"count {self.step}"
