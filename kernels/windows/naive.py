"""Aggregates over frames for which nothing better is known: each frame is folded from scratch.

A frame equal to the previous one reuses its result. The cost is proportional to the frame sizes. Used for: string_agg
(whose results are as long), entropy, mad, mode and quantiles where ends move back, and distinct values of aggregates
from which rows cannot be removed."""

from __future__ import annotations

from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.windows.base import Place, SortedRows
from tsql.kernels.windows.running import KeptStates, OverFrame


class Naive(OverFrame):
    """Folds every frame from scratch."""

    how = "anew for each frame"

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        super().begin(k, rows)
        self.kept = KeptStates(k, self.call.type)
        pieces = {"": 1, "ties": 3}.get(self.call.frame.exclude, 2)
        self.last = [(k.var(k.i64(-1)), k.var(k.i64(-1))) for _ in range(pieces)]
        # A row may take long: the kernel checks after each whether to stop.
        k.uses_scratch = True

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        pieces = self.frames.pieces(k, place)
        same = k.true
        for (low, high), (start, end) in zip(self.last, pieces, strict=True):
            same = same & (low.value == start) & (high.value == end)
        with k.when(~same):
            self.fold.init(k, self.state)
            for (low, high), (start, end) in zip(self.last, pieces, strict=True):
                with k.range(end, start) as row:
                    self.fold.add(k, self.state, row)
                low.set(start)
                high.set(end)
            self.kept.keep(k, self.fold.finish(k, self.state, place))
            self.fold.release(k, self.state)
        return self.kept.get()

    def end(self, k: PipelineKernel) -> None:
        self.kept.free(k)
        super().end(k)
