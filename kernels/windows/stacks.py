"""Aggregates over sliding frames whose states merge but cannot forget a row (min, max, sums of floats, variances, ..): two stacks.

The frame is `[start, middle)` and `[middle, end)`. For the first part there is the state of each of its suffixes, for the second
one state that grows. When the start passes the middle, the suffix states of the whole frame are made anew: each row takes
part once in that, so a row costs a constant number of merges however large the frame is.
"""

from __future__ import annotations

from tsql.kernels.aggregates.base import MemoryState, State, fields_bytes
from tsql.kernels.codegen.lang import Val
from tsql.kernels.context import PipelineKernel
from tsql.kernels.datum import Datum
from tsql.kernels.windows.base import GrowingMemory, Place, SortedRows
from tsql.kernels.windows.running import OverFrame, copy_state, registers


class TwoStacks(OverFrame):
    """Merges the state of a suffix with the state of what came since."""

    how = "two stacks"

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        super().begin(k, rows)
        self.result = registers(k, self.fold.fields)
        self.suffixes = GrowingMemory(k)
        self.base, self.middle, self.added = (k.var(k.i64(0)) for _ in range(3))
        self.bytes = fields_bytes(self.fold.fields)

    def end(self, k: PipelineKernel) -> None:
        self.suffixes.free(k)
        super().end(k)

    def partition(self, k: PipelineKernel, place: Place) -> None:
        super().partition(k, place)
        self._restart(k, place.start)

    def _restart(self, k: PipelineKernel, row: Val) -> None:
        """Both parts are empty, and begin at a row."""
        for var in (self.base, self.middle, self.added):
            var.set(row)
        self.fold.init(k, self.state)

    def _suffix(self, k: PipelineKernel, row: Val) -> State:
        """The state of the rows from this one up to the middle."""
        return MemoryState(k, k.offset(self.suffixes.pointer.value, (row - self.base.value) * self.bytes), self.fold.fields, 0)

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        start, end = self.frames.bounds(k, place)
        with k.when(start >= self.added.value):
            self._restart(k, start)
        with k.forever() as loop:
            row = self.added.value
            loop.stop_if(row >= end)
            self.fold.add(k, self.state, row)
            self.added.set(row + 1)
        with k.when(start > self.middle.value):
            self._turn(k, start)
        copy_state(self.fold.fields, self.state, self.result)
        with k.when(start < self.middle.value):
            copy_state(self.fold.fields, self._suffix(k, start), self.result)
            self.fold.merge(k, self.result, self.state)
        return self.fold.finish(k, self.result, place)

    def _turn(self, k: PipelineKernel, start: Val) -> None:
        """Make the suffix states of all rows of the frame; the second part is empty then."""
        end = self.added.value
        self.suffixes.room(k, (end - start) * self.bytes)
        self.base.set(start)
        self.middle.set(end)
        at = k.var(end)
        with k.forever() as loop:
            loop.stop_if(at.value <= start)
            at.set(at.value - 1)
            row = at.value
            suffix = self._suffix(k, row)
            self.fold.init(k, self.result)
            self.fold.add(k, self.result, row)
            with k.when(row + 1 < end):
                self.fold.merge(k, self.result, self._suffix(k, row + 1))
            copy_state(self.fold.fields, self.result, suffix)
        self.fold.init(k, self.state)
