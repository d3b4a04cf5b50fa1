"""The source of a pipeline behind a window: walks the sorted rows of a shard once and computes all window functions on the way.

Semantics: rows that agree on `by` are a partition, rows of it that agree on `order` are peers. Required: the rows of a shard in
one morsel, sorted by (by, order). State: what each call keeps (kernels/windows), freed at the end of the walk. Cost: one pass;
what a row costs does not depend on the size of its frame, but for the calls that `explain` shows as made anew for each frame.
"""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.batch import SourceColumn
from tsql.kernels.codegen.lang import Val
from tsql.kernels.context import PipelineKernel
from tsql.kernels.datum import Datum
from tsql.kernels.expr import Expr, SortKey
from tsql.kernels.rows import POSITION, CachedRow, load_pointers
from tsql.kernels.types import BIGINT
from tsql.kernels.windows.base import Place, SortedRows
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.choose import evaluator


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

    def __init__(self, columns: tuple[SourceColumn, ...], by: tuple[Expr, ...], order: tuple[SortKey, ...], calls: tuple[tuple[str, WindowCall], ...]):
        self.columns, self.by, self.order, self.calls = columns, by, order, calls

    def produce(self, k: PipelineKernel, record: Val, rows: Val, each: Callable[[CachedRow], None]) -> None:
        pointers = {c.name: (c, load_pointers(k, record, i)) for i, c in enumerate(self.columns)}
        first = k.load("i64", record, 1)
        numbered = SortedRows(pointers, rows)
        evaluators = {name: evaluator(name, call, self.order) for name, call in self.calls}
        for one in evaluators.values():
            one.begin(k, numbered)
        place = Place(k, numbered)
        # Memory that the query may not have is not there: then there is no walk.
        with k.when(k.status.value == 0):
            for one in evaluators.values():
                one.prepare(k, numbered)
            with k.rows(rows) as i:
                place.row = i
                self._enter(k, place, list(evaluators.values()))
                results = {name: one.value(k, place) for name, one in evaluators.items()}
                each(WindowRow(numbered.at(i), first + i, results))
        for one in evaluators.values():
            one.end(k)

    def _enter(self, k: PipelineKernel, place: Place, evaluators: list) -> None:
        """Where a partition or a group of peers begins, find its end."""
        row = place.row
        with k.when(row == place.end):
            place.start = row
            place.end = self._run_end(k, place, self.by, place.rows.count)
            place.peers_end = row
            place.group = k.i64(-1)
            for one in evaluators:
                one.partition(k, place)
        if any(one.needs_peers for one in evaluators):
            with k.when(row == place.peers_end):
                place.peers = row
                place.peers_end = self._run_end(k, place, tuple(key.expr for key in self.order), place.end)
                place.group = place.group + 1

    def _run_end(self, k: PipelineKernel, place: Place, keys: tuple[Expr, ...], limit: Val) -> Val:
        """The first row behind the current one that differs from it in the keys."""
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
