"""Aggregates over sliding frames from which rows can be removed exactly (counts, sums of integers and decimals, ..).

The frame is one run of rows, or two where EXCLUDE cuts it; each end only moves forward, so a row is added once and
removed once. Where ends may move back (offsets that depend on the row) the strategy is not chosen."""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateState
from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.windows.base import Place, SortedRows
from tsql.kernels.windows.folds import FrameFold
from tsql.kernels.windows.running import OverFrame, copy_state, registers


class SlidingRun:
    """The state of a run of rows whose ends only move forward. Rows are removed from it (compare `FrameStacks` in
    stacks.py)."""

    def __init__(self, k: PipelineKernel, fold: FrameFold):
        self.fold = fold
        self.state = registers(k, fold.fields)
        self.low, self.high = k.var(k.i64(0)), k.var(k.i64(0))

    def restart(self, k: PipelineKernel, row: Val) -> None:
        """Empty the run; it begins at a row."""
        self.low.set(row)
        self.high.set(row)
        self.fold.init(k, self.state)

    def move(self, k: PipelineKernel, start: Val, end: Val) -> None:
        """Make it the run `[start, end)`."""
        with k.when(start >= self.high.value):
            self.restart(k, start)
        for var, until, change in ((self.low, start, self.fold.remove), (self.high, end, self.fold.add)):
            with k.forever() as loop:
                row = var.value
                loop.stop_if(row >= until)
                change(k, self.state, row)
                var.set(row + 1)

    def give(self, k: PipelineKernel, start: Val, result: AggregateState, first: bool) -> None:
        """Put the state of the run into an empty result."""
        assert first
        copy_state(self.fold.fields, self.state, result)

    def free(self, k: PipelineKernel) -> None:
        """There is nothing to free."""


class Sliding(OverFrame):
    """Adds the rows that enter the frame and removes those that leave."""

    how = "by removal"

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        super().begin(k, rows)
        runs = 2 if self.call.frame.exclude else 1
        self.runs: list[tuple[Var, Var]] = [(k.var(k.i64(0)), k.var(k.i64(0))) for _ in range(runs)]
        # A walk may continue inside of a partition.
        self.fold.init(k, self.state)

    def partition(self, k: PipelineKernel, place: Place) -> None:
        super().partition(k, place)
        for low, high in self.runs:
            if self.fold.lasting:
                self._remove(k, low, high.value)
            low.set(place.start)
            high.set(place.start)
        self.fold.init(k, self.state)

    def _remove(self, k: PipelineKernel, low: Var, until: Val) -> None:
        with k.forever() as loop:
            row = low.value
            loop.stop_if(row >= until)
            self.fold.remove(k, self.state, row)
            low.set(row + 1)

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        pieces = self.frames.pieces(k, place, current=False)
        for (low, high), (start, end) in zip(self.runs, pieces, strict=True):
            self._remove(k, low, k.min(start, high.value))
            # Rows between two disjoint frames are never added.
            low.set(k.max(low.value, start))
            high.set(k.max(high.value, start))
            with k.forever() as loop:
                row = high.value
                loop.stop_if(row >= end)
                self.fold.add(k, self.state, row)
                high.set(row + 1)
        if self.call.frame.exclude != "ties":
            return self.fold.finish(k, self.state, place)
        start, end = self.frames.bounds(k, place)
        itself = (place.row >= start) & (place.row < end)
        with k.when(itself):
            self.fold.add(k, self.state, place.row)
        result = self.fold.finish(k, self.state, place)
        with k.when(itself):
            self.fold.remove(k, self.state, place.row)
        return result
