"""The source of a pipeline behind a window: walks the sorted rows of a shard once and computes all window functions.

Semantics: rows that agree on `by` are a partition; rows of a partition that agree on `order` are peers. Required: the
rows of a shard in one morsel, sorted by (by, order). State: that of each call (kernels/windows), freed at the end of
the walk. Cost: one pass. The cost per row does not depend on the frame size, except for calls that `explain` shows as
recomputed for each frame. Walks over only a part of the rows are in `window_parts.py`."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.batch import SourceColumn
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.rows import POSITION, CachedRow, ColumnPointers, load_pointers
from tsql.kernels.expr.nodes import Expr, SortKey
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.windows.base import Evaluator, Place, SortedRows
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.evaluators import evaluator

Pointers = dict[str, tuple[SourceColumn, ColumnPointers]]


class WindowRow(CachedRow):
    """A row of the input with the results of the calls."""

    def __init__(self, row: CachedRow, number: Val, results: dict[str, Datum]):
        super().__init__()
        self.row, self.number, self.results = row, number, results

    def make(self, k: PipelineKernel, name: str) -> Datum:
        if name == POSITION:
            return Datum(BIGINT, (self.number,))
        return self.results[name] if name in self.results else self.row.column(k, name)


class WindowScan:
    """Rows in window order, with the columns of the calls."""

    stable = False
    inside = False
    """Whether the walk may begin inside of a partition and must find its bounds."""

    def __init__(
        self,
        columns: tuple[SourceColumn, ...],
        by: tuple[Expr, ...],
        order: tuple[SortKey, ...],
        calls: tuple[tuple[str, WindowCall], ...],
    ):
        self.columns, self.by, self.order, self.calls = columns, by, order, calls

    def produce(self, k: PipelineKernel, record: Val, rows: Val, each: Callable[[CachedRow], None]) -> None:
        pointers = {c.name: (c, load_pointers(k, record, i)) for i, c in enumerate(self.columns)}
        position = k.load("i64", record, 1)
        first, count = self.span(pointers, rows)
        numbered = SortedRows(pointers, count)
        evaluators = {name: evaluator(name, call, self.order) for name, call in self.calls}
        for one in evaluators.values():
            one.begin(k, numbered)
        place = Place(k, numbered, self.inside)
        # If the query's memory limit is reached, the memory is missing: then there is no walk.
        with k.when(k.status.value == 0):
            for one in evaluators.values():
                one.prepare(k, numbered)
            self.resume(k, place, first, list(evaluators.values()))
            with k.rows(rows) as i:
                place.row = i if first is None else first + i
                self._enter(k, place, list(evaluators.values()))
                results = {name: one.value(k, place) for name, one in evaluators.items()}
                each(WindowRow(numbered.at(place.row), position + i, results))
            self.suspend(k, place, list(evaluators.values()))
        for one in evaluators.values():
            one.end(k)

    def span(self, pointers: Pointers, rows: Val) -> tuple[Val | None, Val]:
        """The number of the first row of the walk (None: 0), and the number of rows that are visible."""
        return None, rows

    def resume(self, k: PipelineKernel, place: Place, first: Val | None, evaluators: list[Evaluator]) -> None:
        """Make the walk begin at another row than the first."""

    def suspend(self, k: PipelineKernel, place: Place, evaluators: list[Evaluator]) -> None:
        """Save what the walk over the following rows needs."""

    def _enter(self, k: PipelineKernel, place: Place, evaluators: list[Evaluator]) -> None:
        """At the start of a partition or a group of peers, find its end."""
        row = place.row
        with k.when(row == place.end):
            place.start = self.run_start(k, place, self.by, k.i64(0))
            place.end = self.run_end(k, place, self.by, place.rows.count)
            place.peers_end = row
            place.group = self.groups_before(k, place) if any(one.counts_groups for one in evaluators) else k.i64(-1)
            for one in evaluators:
                one.partition(k, place)
        if any(one.needs_peers for one in evaluators):
            keys = tuple(key.expr for key in self.order)
            with k.when(row == place.peers_end):
                place.peers = self.run_start(k, place, keys, place.start)
                place.peers_end = self.run_end(k, place, keys, place.end)
                place.group = place.group + 1

    def run_start(self, k: PipelineKernel, place: Place, keys: tuple[Expr, ...], limit: Val) -> Val:
        """The first row, not before `limit`, from which on all rows up to the current one agree in the keys. Here the
        current row is the first of its run, or of the walk."""
        return place.row

    def groups_before(self, k: PipelineKernel, place: Place) -> Val:
        """The number of the group of peers before the current row's, which is the first row of its partition or of the
        walk."""
        return k.i64(-1)

    def run_end(self, k: PipelineKernel, place: Place, keys: tuple[Expr, ...], limit: Val) -> Val:
        """The first row after the current one that differs in the keys."""
        if not keys:
            return limit
        at = k.var(place.row + 1)
        with k.forever() as loop:
            number = at.value
            loop.stop_if(number >= limit)
            loop.stop_if(~place.rows.same(k, keys, place.row, number))
            at.set(number + 1)
        return at.value

    def describe(self) -> str:
        ways = {name: evaluator(name, call, self.order).how for name, call in self.calls}
        calls = " ".join(f"{n}={c}{f' ({ways[n]})' if ways[n] else ''}" for n, c in self.calls)
        return f"window by=({', '.join(map(str, self.by))}) order=({', '.join(map(str, self.order))}) {calls}"
