"""stitch_chain(end): which rows of a partition follow each other in time without a gap, for STITCH.

Rows are lifetimes, in the order of (start, end). A row continues the chain that ends where it starts; among several,
the one that began first. The result is the number of the row that began the chain. State: the ends of all chains, in a
heap."""

from __future__ import annotations

from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.nodes import SortKey
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.windows.base import Evaluator, Place, SortedRows
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.heap import Heap


class StitchChain(Evaluator):
    """Adds the rows one by one; a walk that begins inside of a partition adds those before it first."""

    def __init__(self, call: WindowCall, order: tuple[SortKey, ...]):
        super().__init__(call)
        self.start = order[0].expr

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        self.heap = Heap(k, rows.count)
        self.added, self.chain = k.var(k.i64(0)), k.var(k.i64(0))

    def partition(self, k: PipelineKernel, place: Place) -> None:
        self.heap.clear(k)
        self.added.set(place.start)

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        with k.forever() as loop:
            row = self.added.value
            loop.stop_if(row > place.row)
            start = place.rows.value(k, self.start, row).wide().value
            end = place.rows.value(k, self.call.args[0], row).wide().value
            with k.forever() as ended:
                ended.stop_if(self.heap.size.value == 0)
                ended.stop_if(self.heap.top_key(k) >= start)
                self.heap.pop(k)
            self.chain.set(row)
            goes_on = k.var(k.false)
            with k.when(self.heap.size.value > 0):
                goes_on.set(self.heap.top_key(k) == start)
            with k.when(goes_on.value):
                self.chain.set(self.heap.top_tag(k))
                self.heap.replace_top(k, end, self.chain.value)
            with k.when(~goes_on.value):
                self.heap.push(k, end, row)
            self.added.set(row + 1)
        return Datum(BIGINT, (self.chain.value,))

    def end(self, k: PipelineKernel) -> None:
        self.heap.free(k)
