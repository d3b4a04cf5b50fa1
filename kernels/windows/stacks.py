"""Aggregates over sliding frames whose states merge but cannot drop a row (min, max, sums of floats, variances, ..):
two stacks.

A run of rows is `[start, middle)` and `[middle, end)`. The first part has the state of each of its suffixes, the second
one growing state. When the start passes the middle, the suffix states of the whole run are recomputed. Each row takes
part in that once, so a row costs a constant number of merges however large the frame is. EXCLUDE cuts the frame into
two runs."""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateState, MemoryState, fields_bytes
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.windows.base import GrowingMemory, Place, SortedRows
from tsql.kernels.windows.folds import FrameFold
from tsql.kernels.windows.running import OverFrame, copy_state, registers


class FrameStacks:
    """Two stacks for a run of rows whose ends only move forward."""

    def __init__(self, k: PipelineKernel, fold: FrameFold):
        self.fold = fold
        self.state, self.spare = registers(k, fold.fields), registers(k, fold.fields)
        self.suffixes = GrowingMemory(k)
        self.base, self.middle, self.added = (k.var(k.i64(0)) for _ in range(3))
        self.bytes = fields_bytes(fold.fields)

    def restart(self, k: PipelineKernel, row: Val) -> None:
        """Empty both parts; they begin at a row."""
        for var in (self.base, self.middle, self.added):
            var.set(row)
        self.fold.init(k, self.state)

    def _suffix(self, k: PipelineKernel, row: Val) -> AggregateState:
        """The state of the rows from this one up to the middle."""
        return MemoryState(
            k, k.offset(self.suffixes.pointer.value, (row - self.base.value) * self.bytes), self.fold.fields, 0
        )

    def move(self, k: PipelineKernel, start: Val, end: Val) -> None:
        """Make it the run `[start, end)`."""
        with k.when(start >= self.added.value):
            self.restart(k, start)
        with k.forever() as loop:
            row = self.added.value
            loop.stop_if(row >= end)
            self.fold.add(k, self.state, row)
            self.added.set(row + 1)
        with k.when(start > self.middle.value):
            self._turn(k, start)

    def _turn(self, k: PipelineKernel, start: Val) -> None:
        """Compute the suffix states of all rows of the run. The second part is then empty."""
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
            self.fold.init(k, self.spare)
            self.fold.add(k, self.spare, row)
            with k.when(row + 1 < end):
                self.fold.merge(k, self.spare, self._suffix(k, row + 1))
            copy_state(self.fold.fields, self.spare, suffix)
        self.fold.init(k, self.state)

    def give(self, k: PipelineKernel, start: Val, result: AggregateState, first: bool) -> None:
        """Put the state of the run, which begins at `start`, into a result; into an empty one if it is the `first`."""
        if first:
            copy_state(self.fold.fields, self.state, result)
            with k.when(start < self.middle.value):
                copy_state(self.fold.fields, self._suffix(k, start), result)
                self.fold.merge(k, result, self.state)
            return
        with k.when(start < self.middle.value):
            self.fold.merge(k, result, self._suffix(k, start))
        self.fold.merge(k, result, self.state)

    def free(self, k: PipelineKernel) -> None:
        self.suffixes.free(k)


class TwoStacks(OverFrame):
    """For each run of the frame, merges the state of a suffix with the state of the later rows."""

    how = "two stacks"

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        super().begin(k, rows)
        self.runs = [FrameStacks(k, self.fold) for _ in range(2 if self.call.frame.exclude else 1)]

    def end(self, k: PipelineKernel) -> None:
        for run in self.runs:
            run.free(k)
        super().end(k)

    def partition(self, k: PipelineKernel, place: Place) -> None:
        super().partition(k, place)
        for run in self.runs:
            run.restart(k, place.start)

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        pieces = self.frames.pieces(k, place)
        itself = pieces.pop(1) if self.call.frame.exclude == "ties" else None
        for number, (run, (start, end)) in enumerate(zip(self.runs, pieces, strict=True)):
            run.move(k, start, end)
            run.give(k, start, self.state, number == 0)
            if number == 0 and itself is not None:
                with k.when(itself[0] < itself[1]):
                    self.fold.add(k, self.state, place.row)
        return self.fold.finish(k, self.state, place)
