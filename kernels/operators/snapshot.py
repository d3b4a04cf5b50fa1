"""The source of a pipeline behind a grouping of lifetimes: walks the sorted rows of a shard once and gives one row per
group and maximal time in which the results of its aggregates do not change.

Semantics: a row is alive in `[start, end)`. Neither is NULL; an end of infinity is open. Times in which no row of a
group is alive give nothing. Required: the rows of a shard in one morsel, sorted by (by, start). State, all of the
current group: the alive rows with their ends (kernels/windows/lifetime_ends.py), the states of the aggregates
(kernels/windows/lifetime_folds.py), and the pending result row, which the next may continue. Cost: one step per start
and per end.

A live run would be fed in the order of starts: `consume` puts rows into a heap by (start); `punctuate(t)` walks up to t
and gives what ends before it. The state to keep is the rows that are alive or wait to start; the rest follows from
them."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.batch import SourceColumn
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.rows import POSITION, CachedRow, load_pointers
from tsql.kernels.expr.nodes import Aggregate, Column
from tsql.kernels.expr.types import BIGINT, TIMESTAMP
from tsql.kernels.functions.comparison import not_distinct
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.windows.base import SortedRows
from tsql.kernels.windows.lifetime_ends import ENDS, INFINITY, Ends
from tsql.kernels.windows.lifetime_folds import AliveFold, fold_of
from tsql.kernels.windows.running import KeptStates

CHECK_STEPS = 4096


@dataclass(frozen=True)
class SnapshotShape:
    """What a grouping of lifetimes computes: groups by the columns `by`, of rows alive from `start` to `end`; results
    have the lifetime `span`. ends: "any", "in_order" (rows end in the order of their starts) or "none" (they never
    end)."""

    by: tuple[Column, ...]
    start: Column
    end: Column
    span: tuple[str, str]
    aggregates: tuple[tuple[str, Aggregate], ...]
    ends: str


class SnapshotRow(CachedRow):
    """A result: the keys are those of a row of its group."""

    def __init__(self, row: CachedRow, number: Val, results: dict[str, Datum]):
        super().__init__()
        self.row, self.number, self.results = row, number, results

    def make(self, k: PipelineKernel, name: str) -> Datum:
        if name == POSITION:
            return Datum(BIGINT, (self.number,))
        return self.results[name] if name in self.results else self.row.column(k, name)


class WaitingRows:
    """The pending result."""

    def __init__(self, k: PipelineKernel, shape: SnapshotShape):
        self.there = k.var(k.false)
        self.start, self.end, self.row = (k.var(k.i64(0)) for _ in range(3))
        self.values = {name: KeptStates(k, call.type) for name, call in shape.aggregates}

    def continued_by(self, k: PipelineKernel, now: Val, values: dict[str, KeptStates]) -> Val:
        """i1: whether the pending result ends now and has these values."""
        same = self.there.value & (self.end.value == now)
        for name, kept in self.values.items():
            same = same & not_distinct(k, kept.get(), values[name].get())
        return same

    def results(self, span: tuple[str, str]) -> dict[str, Datum]:
        found = {name: kept.get() for name, kept in self.values.items()}
        return found | {
            name: Datum(TIMESTAMP, (time.value,)) for name, time in zip(span, (self.start, self.end), strict=True)
        }


class SnapshotScan:
    """Results in the order of (by, start)."""

    stable = False

    def __init__(self, columns: tuple[SourceColumn, ...], shape: SnapshotShape):
        self.columns, self.shape = columns, shape

    def produce(self, k: PipelineKernel, record: Val, rows: Val, each: Callable[[CachedRow], None]) -> None:
        pointers = {c.name: (c, load_pointers(k, record, i)) for i, c in enumerate(self.columns)}
        position = k.load("i64", record, 1)
        numbered = SortedRows(pointers, rows)
        ends = ENDS[self.shape.ends](k, numbered, self.shape.end)
        folds = [fold_of(call, self.shape.ends) for _, call in self.shape.aggregates]
        for fold in folds:
            fold.begin(k, numbered, ends)
        waiting = WaitingRows(k, self.shape)
        now_values = {name: KeptStates(k, call.type) for name, call in self.shape.aggregates}
        # If the query's memory limit is reached, the memory is missing: then there is no walk.
        with k.when(k.status.value == 0):
            SnapshotWalk(k, self.shape, numbered, ends, folds, waiting, now_values, position).run(k, each)
        for kept in (*waiting.values.values(), *now_values.values()):
            kept.free(k)
        for fold in folds:
            fold.free(k)
        ends.free(k)

    def describe(self) -> str:
        shape = self.shape
        calls = " ".join(f"{name}={call} ({fold_of(call, shape.ends).how})" for name, call in shape.aggregates)
        return (
            f"snapshot by=({', '.join(map(str, shape.by))}) lifetime=({shape.start}, {shape.end}) "
            f"ends={shape.ends} {calls}"
        ).rstrip()


class SnapshotWalk:
    """One walk over the rows: each step goes to the next start or end of the group."""

    def __init__(
        self,
        k: PipelineKernel,
        shape: SnapshotShape,
        rows: SortedRows,
        ends: Ends,
        folds: list[AliveFold],
        waiting: WaitingRows,
        values: dict[str, KeptStates],
        position: Val,
    ):
        self.shape, self.rows, self.ends, self.folds, self.waiting, self.values, self.position = (
            shape,
            rows,
            ends,
            folds,
            waiting,
            values,
            position,
        )
        self.row, self.group, self.group_end, self.alive, self.now, self.given, self.steps = (
            k.var(k.i64(0)) for _ in range(7)
        )

    def run(self, k: PipelineKernel, each: Callable[[CachedRow], None]) -> None:
        with k.forever() as loop:
            row = self.row.value
            starts = row < self.group_end.value
            time = self._next(k, row, starts)
            idle = ~starts & (self.alive.value == 0)
            lives = (self.alive.value > 0) & (self.now.value < time.value)
            with k.when(lives):
                for (name, _), fold in zip(self.shape.aggregates, self.folds, strict=True):
                    self.values[name].keep(k, fold.value(k, self.now.value, row))
            same = k.var(k.false)
            with k.when(lives):
                same.set(self.waiting.continued_by(k, self.now.value, self.values))
            self._give(k, self.waiting.there.value & (idle | (lives & ~same.value)), each)
            self._wait(k, lives, same.value, time.value)
            loop.stop_if(idle & (row >= self.rows.count))
            with k.when(idle):
                self._enter(k, row)
            with k.otherwise():
                self._step(k, row, starts, time.value)
            self.steps.set(self.steps.value + 1)
            with k.when((self.steps.value & (CHECK_STEPS - 1)) == 0):
                k.check()
            loop.stop_if(k.status.value != 0)

    def _next(self, k: PipelineKernel, row: Val, starts: Val) -> Var:
        """The time of the next start or end; infinity if there is none."""
        time = k.var(self.ends.next(k, row))
        with k.when(starts):
            time.set(k.min(time.value, self._start(k, row)))
        return time

    def _start(self, k: PipelineKernel, row: Val) -> Val:
        return self.rows.value(k, self.shape.start, row).wide().value

    def _give(self, k: PipelineKernel, condition: Val, each: Callable[[CachedRow], None]) -> None:
        """Give the pending result: nothing continues it."""
        with k.when(condition):
            results = self.waiting.results(self.shape.span)
            each(SnapshotRow(self.rows.at(self.waiting.row.value), self.position + self.given.value, results))
            self.given.set(self.given.value + 1)
            self.waiting.there.set(k.false)

    def _wait(self, k: PipelineKernel, lives: Val, same: Val, time: Val) -> None:
        waiting = self.waiting
        with k.when(lives & same):
            waiting.end.set(time)
        with k.when(lives & ~same):
            waiting.there.set(k.true)
            waiting.start.set(self.now.value)
            waiting.end.set(time)
            waiting.row.set(self.group.value)
            for name, kept in waiting.values.items():
                kept.keep(k, self.values[name].get())

    def _enter(self, k: PipelineKernel, row: Val) -> None:
        """The next group begins with this row."""
        self.group.set(row)
        end = k.var(row + 1 if self.shape.by else self.rows.count)
        if self.shape.by:
            with k.forever() as loop:
                loop.stop_if(end.value >= self.rows.count)
                loop.stop_if(~self.rows.same(k, self.shape.by, row, end.value))
                end.set(end.value + 1)
        self.group_end.set(end.value)
        self.ends.clear(k, row)
        for fold in self.folds:
            fold.clear(k, row, end.value)

    def _step(self, k: PipelineKernel, row: Val, starts: Val, time: Val) -> None:
        """A row ends or starts at this time; or only rows that never end are left."""
        self.now.set(time)
        ends = k.var(self.ends.next(k, row) == time)
        with k.when(time == INFINITY):
            self.alive.set(0)
            self.row.set(self.group_end.value)
        with k.otherwise():
            with k.when(ends.value):
                gone = self.ends.pop(k)
                for fold in self.folds:
                    fold.remove(k, gone)
                self.alive.set(self.alive.value - 1)
            with k.otherwise():
                self.ends.push(k, row)
                for fold in self.folds:
                    fold.add(k, row)
                self.alive.set(self.alive.value + 1)
                self.row.set(row + 1)
