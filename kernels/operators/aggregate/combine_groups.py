"""The source of a pipeline behind panes in arrays: windows of groups that were never moved, written or sorted.

A dense aggregation leaves one array per worker, in which key and pane give the place of a group. This source goes from
key to key, lists the existing panes of a key from all workers, and walks over the list as `CombineScan` does over
sorted rows.

A morsel is a run of keys. Its column holds the address of the array addresses, the number of the first key, the number
of keys and the number of arrays. Memory: the list of one key; the host owns the arrays. Cost: every place of the arrays
is read once. The panes of a key are far apart if the pane is not the last key, but a cache line holds those of several
neighbouring keys, and the lines of the next keys are prefetched."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.batch import Layout, SourceColumn
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.expressions import emit
from tsql.kernels.emit.pipeline import Operator
from tsql.kernels.emit.rows import CachedRow
from tsql.kernels.expr.nodes import Aggregate, Expr
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.operators.aggregate.combine import CombineScan, Windows
from tsql.kernels.operators.aggregate.groups import LINE_BYTES, DenseAggregate, GroupRow
from tsql.kernels.windows.base import Memory, SortedRows


class PaneRow(GroupRow):
    """A pane of the current key; its number precedes its states."""

    def __init__(self, panes: GroupPanes, at: Val):
        super().__init__(panes.sink, at + 8, panes.first, at.k.i64(0))
        self.panes, self.at = panes, at

    def _key(self, k: PipelineKernel, index: int) -> Datum:
        if index != self.panes.pane:
            return super()._key(k, index)
        field = self.sink.grouping.fields[index]
        return field.read(k, (k.load("i64", self.at) + field.bounds[0],), None)


class GroupPanes(SortedRows):
    """The panes of one key after the other."""

    def __init__(
        self, k: PipelineKernel, sink: DenseAggregate, pane: int, counts: list[Operator], arrays: Val, workers: Val
    ):
        self.columns = {}
        self.sink, self.pane, self.counts, self.arrays, self.workers = sink, pane, counts, arrays, workers
        self.panes, self.below = sink.cards[pane], prod(sink.cards[pane + 1 :])
        self.record_bytes = 8 + sink.entry_bytes
        self.memory = Memory(k, k.i64(self.panes * self.record_bytes))
        self._count, self._first = k.var(k.i64(0)), k.var(k.i64(0))

    count = property(lambda self: self._count.value)
    first = property(lambda self: self._first.value)
    """The number of the group of the current key and the first possible pane."""

    def at(self, number: Val) -> PaneRow:
        return PaneRow(self, self.memory.address + number * self.record_bytes)

    def value(self, k: PipelineKernel, expr: Expr, number: Val) -> Datum:
        return emit(k, expr, self.at(number))

    def load(self, k: PipelineKernel, key: Val) -> None:
        """List the panes of a key."""
        sink = self.sink
        self._first.set(key.udiv(self.below) * (self.panes * self.below) + key.urem(self.below))
        self._count.set(k.i64(0))
        last = k.var(k.i64(-1))
        with k.range(k.i64(self.panes)) as pane:
            place = (self.first + pane * self.below) * sink.entry_bytes
            with k.range(self.workers) as worker:
                entry = k.load("ptr", self.arrays, worker) + place
                k.prefetch(entry + LINE_BYTES)
                with k.when(sink.occupied(k, entry)):
                    self._take(
                        k, GroupRow(sink, entry, self.first, k.i64(0)), 0, lambda: self._add(k, entry, pane, last)
                    )

    def _take(self, k: PipelineKernel, row: CachedRow, number: int, then: Callable[[], None]) -> None:
        if number == len(self.counts):
            then()
        else:
            self.counts[number].consume(k, row, lambda k, row: self._take(k, row, number + 1, then))

    def _add(self, k: PipelineKernel, entry: Val, pane: Val, last: Var) -> None:
        """List a group, or merge it into the listed group of another worker."""
        grouping = self.sink.grouping
        with k.when(last.value == pane):
            listed = self.memory.address + ((self.count - 1) * self.record_bytes + 8)
            for item in grouping.updated:
                with k.guarded(None, item.call.position):
                    item.body.absorb(
                        k, grouping.state(k, item, listed), item.body.export(k, grouping.state(k, item, entry))
                    )
        with k.otherwise():
            record = self.memory.address + self.count * self.record_bytes
            k.store(record, pane)
            for offset in range(0, self.sink.entry_bytes, 8):
                k.store(record + (8 + offset), k.load("i64", entry + offset))
            self._count.set(self.count + 1)
            last.set(pane)


class GroupCombineScan(CombineScan):
    """Windows of the groups in arrays, in the order of (key, start)."""

    def __init__(
        self,
        sink: DenseAggregate,
        pane: int,
        counts: list[Operator],
        calls: tuple[tuple[str, Aggregate], ...],
        windows: Windows,
    ):
        super().__init__((SourceColumn("#arrays", BIGINT, Layout("fixed", "i64", False)),), (), calls, windows)
        self.sink, self.pane, self.counts = sink, pane, counts

    @property
    def signature(self) -> object:
        """What its code depends on besides its step: the array layout of the sink that made the groups."""
        return id(self.sink), tuple(o.signature for o in self.counts)

    def produce(self, k: PipelineKernel, record: Val, rows: Val, each: Callable[[CachedRow], None]) -> None:
        arrays, first, keys, workers = (
            k.load("ptr", record, 2),
            k.load("i64", record, 3),
            k.load("i64", record, 4),
            k.load("i64", record, 5),
        )
        panes = GroupPanes(k, self.sink, self.pane, self.counts, arrays, workers)
        walk = self.walk(k, panes)
        position, key = k.var(k.load("i64", record, 1)), k.var(first)
        with k.when(k.status.value == 0), k.forever() as loop:
            loop.stop_if((key.value >= first + keys) | (k.status.value != 0))
            panes.load(k, key.value)
            walk.all(k, position, each)
            key.set(key.value + 1)
        walk.end(k)
        panes.memory.free(k)

    def describe(self) -> str:
        return f"{super().describe()} over groups of {self.sink.describe()}"
