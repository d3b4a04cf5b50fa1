"""Searches of a row in a table sorted within groups of equal keys (`runtime/sorted_table.py`): its group, and places in
it. Used by `Probe` (hash_join.py) and `AsofProbe` (sorted_join.py)."""

from __future__ import annotations

from typing import Any

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, both
from tsql.kernels.emit.keys import KeyField
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.runtime.calendar import TIMESTAMP_INFINITY
from tsql.kernels.runtime.join_table import first_place
from tsql.kernels.runtime.sorted_table import CURSOR, SLOT_WORDS, group_slot, place_near

NumberBound = tuple[str, Expr, int]
"""A number n of a table satisfies `n + shift op expression`: the operator, the expression of the other side, and the
shift in microseconds."""


def shifted(k: PipelineKernel, value: Val, shift: int) -> Val:
    """A time so much earlier, not beyond the finite times. Infinity stays."""
    if not shift:
        return value
    limit = TIMESTAMP_INFINITY - 1
    inside = k.max(value, k.i64(shift - limit)) if shift > 0 else k.min(value, k.i64(shift + limit))
    is_infinite = (value == TIMESTAMP_INFINITY) | (value == -TIMESTAMP_INFINITY)
    return k.select(is_infinite, value, inside - shift)


def entry_at(k: PipelineKernel, probe: Any, place: Val) -> Val:
    """The entry at a place of a probe's table. Where rows were put in order, it has no header to read."""
    rows, build = probe._record(k, 2, "ptr"), probe.build
    if not build.row_words:
        return k.load("ptr", rows, place)
    return k.offset(rows, place * (build.row_words * 8) - build.header_bytes)


def number_of(k: PipelineKernel, probe: Any, data: list[Datum]) -> Val:
    """The single key of a row, a number."""
    return KeyField("", probe.keys[0].type, True)._words(k, data[0])[0]


def fetch_group(k: PipelineKernel, probe: Any, data: list[Datum], stage: int) -> None:
    """Prefetch what a row's search reads: its group's place in the directory, the group's first number, and its first
    row. Most groups are small, so the rest is nearby."""
    if stage == 0:
        if probe.table.dense:
            place = number_of(k, probe, data) - probe._record(k, 7)
        else:
            place = (probe.build.group_word(k, probe.keys, data) & probe._record(k, 6)) * SLOT_WORDS
        k.prefetch(k.element("i64", probe._record(k, 5, "ptr"), place))
        return
    group = SortedSearch(probe, k, data)
    k.prefetch(k.element("i64", group.orders, group.start) if stage == 1 else group.entry(group.start))


class SortedSearch:
    """The group of a row, from `start` up to `end`, and places in it."""

    def __init__(self, probe: Any, k: PipelineKernel, data: list[Datum]):
        self.probe, self.k = probe, k
        self.orders = probe._record(k, 0, "ptr")
        if not probe.keys:
            self.start, self.end = k.i64(0), probe._record(k, 1)
            return
        directory, present = probe._record(k, 5, "ptr"), probe._present(data)
        if probe.table.dense:
            number = number_of(k, probe, data) - probe._record(k, 7)
            present = both(present, number.ult(probe._record(k, 6)))
            at = k.element("i64", directory, k.select(present, number, k.i64(0)))
            self.start, self.end = k.load("i64", at), k.load("i64", at, 1)
            self._cursor = lambda: k.element("i64", probe._record(k, 3, "ptr"), k.select(present, number, k.i64(0)))
        else:
            slot = group_slot(k, directory, probe._record(k, 6), probe.build.group_word(k, probe.keys, data))
            at = k.element("i64", directory, slot * SLOT_WORDS)
            self.start, self.end = k.load("i64", at, 1), k.load("i64", at, 2)
            self._cursor = lambda: k.element("i64", at, CURSOR)
        if present is not None:
            self.end = k.select(present, self.end, self.start)

    @property
    def cursor(self) -> Val:
        """Where the group remembers the place at which the last search ended."""
        return self._cursor()

    def entry(self, place: Val) -> Val:
        """The entry at a place."""
        return entry_at(self.k, self.probe, place)

    def place(self, value: Val, after: bool) -> Val:
        """The first place whose number is not less than a value; with `after`, that is greater."""
        k = self.k
        return self.start + first_place(
            k, k.element("i64", self.orders, self.start), self.end - self.start, value, k.i64(int(after))
        )

    def place_behind(self, hint: Val, value: Val, after: bool, is_least: bool = False) -> Val:
        """As `place`, for a place expected slightly after a hint, or not before it (`is_least`)."""
        low = hint if is_least else self.start
        return place_near(self.k, self.orders, low, self.end, hint, value, self.k.i64(int(after)))
