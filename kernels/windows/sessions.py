"""Data-defined windows as functions over the rows of a key in time order: sessions and count windows.

`session_start(time, gap, largest)` and `session_end` give the bounds of a row's session; lengths are in microseconds,
and `largest` is 0 if a session has no maximum length. `rows_start(time, rows)` and `rows_end` give the bounds of a
row's count window, and `rows_number(rows)` its number, from 0; all are NULL in a window that is not full. Required:
rows in the order of `time`, which is never NULL, and far enough from the end of TIMESTAMP that every bound is valid. A
session is searched once, at its start; a walk that begins inside of a partition goes through its sessions from the
first."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.windows.base import MOST_ROWS, Evaluator, Place, SortedRows


class SessionEvaluator(Evaluator):
    """The session of the current row: its first time, its end, and the number of the row after its last."""

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        self.first, self.last, self.behind = (k.var(k.i64(0)) for _ in range(3))

    def partition(self, k: PipelineKernel, place: Place) -> None:
        if not place.inside:
            self.behind.set(place.row)
            return
        self.behind.set(place.start)
        with k.forever() as loop:
            loop.stop_if(self.behind.value >= place.row)
            self._find(k, place, self.behind.value)

    def _time(self, k: PipelineKernel, place: Place, row: Val) -> Val:
        return place.rows.value(k, self.call.args[0], row).value.to("i64")

    def _find(self, k: PipelineKernel, place: Place, row: Val) -> None:
        """The session that begins with a row."""
        gap, largest = (place.rows.value(k, arg, row).value.to("i64") for arg in self.call.args[1:])
        first = self._time(k, place, row)
        self.first.set(first)
        self.last.set(first)
        self.behind.set(row + 1)
        with k.forever() as loop:
            number = self.behind.value
            loop.stop_if(number >= place.end)
            time = self._time(k, place, number)
            # Times never decrease, so their differences, which may wrap, are correct as unsigned numbers.
            loop.stop_if((time - self.last.value).ugt(gap) | ((largest > 0) & (time - first).uge(largest)))
            self.last.set(time)
            self.behind.set(number + 1)

    def _enter(self, k: PipelineKernel, place: Place) -> None:
        with k.when(place.row >= self.behind.value):
            self._find(k, place, place.row)


class SessionStart(SessionEvaluator):
    """The time of the first row."""

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        self._enter(k, place)
        return Datum(self.call.type, (self.first.value,))


class SessionEnd(SessionEvaluator):
    """The time of the last row plus the gap, limited by the largest size."""

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        self._enter(k, place)
        gap, largest = (place.rows.value(k, arg, place.row).value.to("i64") for arg in self.call.args[1:])
        left = k.select(largest > 0, largest - (self.last.value - self.first.value), gap)
        return Datum(self.call.type, (self.last.value + k.min(gap, left),))


def _rows(k: PipelineKernel, place: Place, expr: Expr) -> Val:
    """The rows of a window: at least one, and no more than can be added to a row number."""
    return k.min(k.max(place.rows.value(k, expr, place.row).value.to("i64"), k.i64(1)), k.i64(MOST_ROWS))


class RowsWindow(Evaluator):
    """Base of the bounds of count windows."""

    behind = 0

    def _row(self, first: Val, size: Val) -> Val:
        """The row whose time is the bound, of the window that begins with a row."""
        raise NotImplementedError

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        time, rows = self.call.args
        size = _rows(k, place, rows)
        first = place.row - (place.row - place.start) % size
        full = first + size <= place.end
        bound = place.rows.value(k, time, k.select(full, self._row(first, size), place.row)).value.to("i64")
        return Datum(self.call.type, (bound + self.behind,), full)


class RowsStart(RowsWindow):
    """The time of the first row."""

    def _row(self, first: Val, size: Val) -> Val:
        return first


class RowsEnd(RowsWindow):
    """One microsecond after the time of the last row."""

    behind = 1

    def _row(self, first: Val, size: Val) -> Val:
        return first + size - 1


class RowsNumber(Evaluator):
    """The number of the window."""

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        size = _rows(k, place, self.call.args[0])
        number = (place.row - place.start) // size
        return Datum(BIGINT, (number,), place.start + (number + 1) * size <= place.end)


SESSIONS: dict[str, type[Evaluator]] = {
    "session_start": SessionStart,
    "session_end": SessionEnd,
    "rows_start": RowsStart,
    "rows_end": RowsEnd,
    "rows_number": RowsNumber,
}
