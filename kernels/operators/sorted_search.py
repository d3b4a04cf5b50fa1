"""The searches of one row in a table that is sorted within groups of equal keys (`runtime/sorted_table.py`): its group, and places
in it. `Probe` (join.py) and `AsofProbe` (sorted_join.py) use it."""

from __future__ import annotations

from typing import Any

from tsql.kernels.codegen.lang import Val
from tsql.kernels.context import PipelineKernel
from tsql.kernels.datum import Datum
from tsql.kernels.runtime.join_table import first_place
from tsql.kernels.runtime.sorted_table import SLOT_WORDS, group_slot, place_near


def entry_at(k: PipelineKernel, probe: Any, place: Val) -> Val:
    """The entry at a place of a probe's table; where rows were put in order its header is not there, and not to be read."""
    rows, build = probe._record(k, 2, "ptr"), probe.build
    if not build.row_words:
        return k.load("ptr", rows, place)
    return k.offset(rows, place * (build.row_words * 8) - build.header_bytes)


class SortedSearch:
    """The group of a row, from `start` up to `end`, and places in it; `slot` is that of the group, None for a table without keys."""

    def __init__(self, probe: Any, k: PipelineKernel, data: list[Datum]):
        self.probe, self.k = probe, k
        self.orders = probe._record(k, 0, "ptr")
        self.slot: Val | None = None
        if not probe.keys:
            self.start, self.end = k.i64(0), probe._record(k, 1)
            return
        directory, mask = probe._record(k, 5, "ptr"), probe._record(k, 6)
        self.slot = group_slot(k, directory, mask, probe.build.group_word(k, probe.keys, data))
        at = self.slot * SLOT_WORDS
        self.start, self.end = k.load("i64", directory, at + 1), k.load("i64", directory, at + 2)
        present = probe._present(data)
        if present is not None:
            self.end = k.select(present, self.end, self.start)

    def entry(self, place: Val) -> Val:
        """The entry at a place."""
        return entry_at(self.k, self.probe, place)

    def place(self, value: Val, after: bool) -> Val:
        """The first place whose number is not less than a value; with `after`, that is greater."""
        k = self.k
        return self.start + first_place(k, k.element("i64", self.orders, self.start), self.end - self.start, value, k.i64(int(after)))

    def place_behind(self, hint: Val, value: Val, after: bool) -> Val:
        """The same for a place that is expected a little behind another."""
        return place_near(self.k, self.orders, self.start, self.end, hint, value, self.k.i64(int(after)))
