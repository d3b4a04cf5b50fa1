"""Sorts the entries of a join table within groups of equal keys. The result is described in
kernels/runtime/sorted_table.py.

In: entries as collected by a `SortedBuild`. Threads find the groups and place the entries of each group together, in
input order. Rows that arrive ordered by their numbers, such as those of a log, need no further sort; others are sorted
by numpy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from tsql.backends.local.sort.greatest import LEAST, Greatest
from tsql.backends.local.sort.sorting import Workers, integer_order
from tsql.kernels.codegen import memory
from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.llvm import compiler
from tsql.kernels.operators.join.sorted_join import SortedBuild
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.join_table import RECORD_BYTES
from tsql.kernels.runtime.sorted_table import (
    AHEAD,
    BY_HASH,
    BY_NUMBER,
    DENSE,
    GROUPS_AT,
    LEAST_AT,
    MODE_AT,
    MOST_AT,
    PLAN_WORDS,
    SECOND_AT,
    SECONDS,
    SLOT_WORDS,
    count_module,
    number_module,
    place_module,
)

FIRST_SLOTS = 1 << 12
GROWTH = 8
"""The first number of slots for groups, and the growth factor if they are too few. A table that fits in a core's cache
is filled much faster."""

MOST_SEGMENTS = 4096
"""Entries in more runs than this are sorted by position."""

WORKING_BYTES, SECOND_BYTES = 28, 8
"""Working memory per entry, besides the result: its number, slot, address and position; and its second number."""

Bounds = tuple[int, int]
"""The minimum and maximum key."""

Segment = tuple[int, int]
"""A range of entry numbers: (start, end)."""


@dataclass
class SortedEntries:
    """Sorted entries: their numbers and their rows (each with one more element, which may be read), and the directory
    of groups."""

    orders: np.ndarray
    rows: np.ndarray
    directory: np.ndarray
    least: int | None = None
    """For a dense directory: the key of its first place."""

    seconds: np.ndarray | None = None
    """Of a table of intervals: their ends, in the order of their starts."""

    greatest: Greatest | None = None

    @property
    def bytes(self) -> int:
        levels = 0 if self.greatest is None else self.greatest.bytes
        return self.orders.nbytes + self.rows.nbytes + self.directory.nbytes + levels

    @property
    def kept(self) -> list[np.ndarray]:
        """The arrays that the record points to."""
        return [self.orders, self.rows, self.directory, *([] if self.greatest is None else self.greatest.levels)]

    def record(self, nulls: int) -> Any:
        """The record through which kernels find the table."""
        count = len(self.orders) - 1
        size = len(self.directory) - (2 if self.least is None else 1)
        words = (
            self.orders.ctypes.data,
            count,
            self.rows.ctypes.data,
            count,
            nulls,
            self.directory.ctypes.data,
            size,
            self.least or 0,
            0 if self.greatest is None else self.greatest.address,
        )
        return (ctypes.c_int64 * (RECORD_BYTES // 8))(*words)


def working_bytes(sink: SortedBuild) -> int:
    """The working memory per entry of a table."""
    return WORKING_BYTES + (SECOND_BYTES if sink.second_at >= 0 else 0)


class EntrySorter:
    """Sorts entries on the threads of `workers`. With `interpret`, the kernels are interpreted."""

    def __init__(self, workers: Workers, interpret: bool):
        self.workers, self.interpret = workers, interpret

    def sort(
        self, sink: SortedBuild, contexts: list[list[tuple[int, int]]], last_first: bool, dense: Bounds | None = None
    ) -> SortedEntries:
        """Sort the entries of some contexts, each a list of chunks as (address, rows) pairs. Entries with equal numbers
        stay in input order, or are reversed with `last_first`. `dense`: the minimum and maximum key, if each possible
        key is a group."""
        chunks = [chunk for context in contexts for chunk in context]
        ends = np.cumsum([sum(rows for _, rows in context) for context in contexts], dtype=np.int64).tolist()
        rows = ends[-1] if ends else 0
        orders, addresses, slots = _words(rows), _words(rows), memory.empty(rows + 2 * AHEAD, np.int32)
        slots[rows:] = 0
        places, seconds = _words(rows if sink.place_at >= 0 else 0), _words(rows if sink.second_at >= 0 else 0)
        words = self._number(sink, chunks, (orders, slots, addresses, places), seconds, dense)
        size = len(words) if dense is None else dense[1] - dense[0] + 1
        segments = [(start, end) for start, end in zip([0, *ends], ends, strict=False) if start < end]
        if sink.place_at >= 0:
            merged = in_input_order(places, segments)
            if merged is None:
                order = np.argsort(places, kind="stable")
                (orders, addresses), slots[:rows] = _taken((orders, addresses), order, self.workers), slots[order]
                seconds = seconds[order] if len(seconds) else seconds
                merged = [(0, rows)]
            segments = merged
        elif len(segments) > 1:
            # Rows that arrive ordered by their numbers stay ordered in each group, if the segments are taken in that
            # order.
            segments = in_input_order(orders, segments) or segments
        if sink.marks:
            # Entries that never find a match are placed after all groups.
            slots[:rows][slots[:rows] < 0] = size
        counts, placed = self._placed(sink, (orders, addresses, slots), seconds, segments, size + 1)
        kept, counts = rows - int(counts[size]), counts[:size]
        directory = _directory(words, counts) if dense is None else _starts(counts)
        found = SortedEntries(
            placed[0][: kept + 1], placed[1][: kept + 1], directory, None if dense is None else dense[0]
        )
        if sink.second_at >= 0:
            found.seconds = placed[2][: kept + 1]
        self._sort_groups(found, counts, last_first)
        if found.seconds is not None:
            found.greatest = Greatest.of(found.seconds[:-1] if kept else found.seconds)
        return found

    def _number(
        self,
        sink: SortedBuild,
        chunks: list[tuple[int, int]],
        arrays: tuple[np.ndarray, ...],
        seconds: np.ndarray,
        dense: Bounds | None,
    ) -> np.ndarray:
        """Fill the arrays. Returns the hash of each slot."""
        mode = DENSE if dense is not None else BY_NUMBER if sink.is_by_number else BY_HASH
        starts = np.cumsum([0, *(rows for _, rows in chunks)]).tolist()
        number, size = self._routine(number_module, starts[-1]), FIRST_SLOTS if sink.keys else 1
        while True:
            words = np.zeros(size + 1, np.int64)
            plan = (ctypes.c_int64 * PLAN_WORDS)(
                words.ctypes.data,
                size - 1,
                sink.entry_bytes,
                sink.hash_at,
                sink.place_at,
                sink.marks,
                *(a.ctypes.data for a in arrays),
            )
            plan[MOST_AT], plan[MODE_AT], plan[LEAST_AT] = size // 2, mode, 0 if dense is None else dense[0]
            plan[SECOND_AT], plan[SECONDS] = sink.second_at, seconds.ctypes.data
            records = [
                (ctypes.c_int64 * 2)(address, start) for (address, _), start in zip(chunks, starts, strict=False)
            ]

            def work(task: int, plan: Any = plan, records: list[Any] = records) -> None:
                for at in range(task, len(chunks), self.workers.number):
                    number(ctypes.addressof(plan), ctypes.addressof(records[at]), chunks[at][1])

            self.workers.run(work, min(self.workers.number, len(chunks)))
            if plan[GROUPS_AT] <= size // 2:
                return words
            size *= GROWTH

    def _placed(
        self,
        sink: SortedBuild,
        arrays: tuple[np.ndarray, ...],
        seconds: np.ndarray,
        segments: list[Segment],
        size: int,
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """How many entries each slot has; and the numbers, rows and second numbers, grouped by slot, in the order of
        the segments. Each worker takes some of the segments and fills its own places in each slot."""
        orders, _, slots = arrays
        parts = _parts(segments, self.workers.number if len(orders) > size else 1)
        counts, firsts = (_words(len(parts) * size).reshape(len(parts), size) for _ in range(2))
        counts[:] = 0
        count, place = (self._routine(module, len(orders)) for module in (count_module, place_module))

        def counting(part: int) -> None:
            for start, end in parts[part]:
                count(counts[part].ctypes.data, slots[start:].ctypes.data, end - start)

        self.workers.run(counting, len(parts))
        total = counts.sum(axis=0)
        firsts[0] = _starts(total)[:-1]
        for part in range(1, len(parts)):
            np.add(firsts[part - 1], counts[part - 1], out=firsts[part])
        width = max(1, sink.row_words)
        made = _words(len(orders) + 1), _words((len(orders) + 1) * width).reshape(len(orders) + 1, width)
        made[0][-1] = made[1][-1] = 0
        ends = _words(len(orders) + 1 if sink.second_at >= 0 else 0)
        ends[-1:] = LEAST
        addresses = (seconds.ctypes.data, ends.ctypes.data) if len(ends) else (0, 0)

        def placing(part: int) -> None:
            plan = (ctypes.c_int64 * 10)(
                *(a.ctypes.data for a in (*arrays, *made, firsts[part])), sink.row_words, sink.header_bytes, *addresses
            )
            for start, end in parts[part]:
                place(ctypes.addressof(plan), start, end - start)

        self.workers.run(placing, len(parts))
        return total, (*made, ends)

    def _sort_groups(self, found: SortedEntries, counts: np.ndarray, last_first: bool) -> None:
        """Sort the groups that are not in order, and reverse entries of equal numbers if the last is to come first."""
        orders, rows = found.orders[:-1], found.rows[:-1]
        is_first = np.zeros(len(orders) + 1, bool)
        is_first[_starts(counts)] = True
        if ((orders[1:] < orders[:-1]) & ~is_first[1:-1]).any():
            groups = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
            order = integer_order([groups, orders], self.workers)
            if found.seconds is not None:
                (found.seconds[:-1],) = _taken((found.seconds[:-1],), order, self.workers)
            orders[:], rows[:] = _taken((orders, rows), order, self.workers)
        if last_first and len(orders):
            is_first[1:-1] |= orders[1:] != orders[:-1]
            firsts = np.flatnonzero(is_first[:-1])
            if len(firsts) < len(orders):
                lengths = np.diff(np.append(firsts, len(orders)))
                turned = np.repeat(2 * firsts + lengths - 1, lengths) - np.arange(len(orders))
                rows[:] = rows[turned]

    def _routine(self, module: Callable[[], Module], rows: int) -> Callable[[int, int, int], Any]:
        if not self.interpret:
            return compiler().routine(module, rows=rows)
        from tsql.kernels.codegen.interp import Interpreter

        interpreter = Interpreter(module())
        return lambda *args: interpreter("main", *args)


def in_input_order(places: np.ndarray, lists: list[Segment]) -> list[Segment] | None:
    """The segments of all lists of entries, in input order. Each list is mostly ordered, since a worker takes morsels
    from the front, and consists of few long runs whose ends are found by binary search. None if that is not so."""
    if not all(_ascends(places[start:end]) for start, end in lists):
        return None
    if len(lists) < 2:
        return lists
    found: list[Segment] = []
    heads = [start for start, _ in lists]
    while len(found) < MOST_SEGMENTS:
        left = [(int(places[head]), number) for number, head in enumerate(heads) if head < lists[number][1]]
        if not left:
            return found
        left.sort()
        number, start = left[0][1], heads[left[0][1]]
        end = lists[number][1]
        if len(left) > 1:
            end = start + max(1, int(np.searchsorted(places[start:end], left[1][0])))
        found.append((start, end))
        heads[number] = end
    return None


def _parts(segments: list[Segment], number: int) -> list[list[Segment]]:
    """The segments, in order, in `number` parts of about equal size. A segment may be split."""
    rows = sum(end - start for start, end in segments)
    parts: list[list[Segment]] = [[] for _ in range(max(1, number))]
    done = 0
    for start, end in segments:
        while start < end:
            part = min(done * len(parts) // max(rows, 1), len(parts) - 1)
            limit = rows if part == len(parts) - 1 else -(-(part + 1) * rows // len(parts))
            size = min(end - start, max(limit - done, 1))
            parts[part].append((start, start + size))
            start, done = start + size, done + size
    return parts


def _words(count: int) -> np.ndarray:
    """Memory for `count` words, from the pool: touching fresh pages would cost more than the work itself."""
    return memory.empty(count, np.int64) if count else np.empty(0, np.int64)


def _starts(counts: np.ndarray) -> np.ndarray:
    """The start of each run, if the runs are adjacent, and the end of the last."""
    starts = _words(len(counts) + 1)
    starts[0] = 0
    np.cumsum(counts, out=starts[1:])
    return starts


def _directory(words: np.ndarray, counts: np.ndarray) -> np.ndarray:
    ends = np.cumsum(counts)
    used = np.flatnonzero(counts)
    directory = np.zeros((len(words), SLOT_WORDS), np.int64)
    directory[used, 0], directory[used, 1], directory[used, 2] = words[used], ends[used] - counts[used], ends[used]
    return directory


def _ascends(words: np.ndarray) -> bool:
    return bool((words[1:] >= words[:-1]).all())


def _taken(arrays: tuple[np.ndarray, ...], order: np.ndarray | None, workers: Workers) -> list[np.ndarray]:
    """The arrays in another order, permuted by all workers."""
    if order is None:
        return list(arrays)
    made = [np.empty((len(order), *a.shape[1:]), a.dtype) for a in arrays]
    pieces = workers.pieces(len(order))

    def work(task: int) -> None:
        array, (start, end) = task // len(pieces), pieces[task % len(pieces)]
        np.take(arrays[array], order[start:end], axis=0, out=made[array][start:end], mode="clip")

    workers.run(work, len(arrays) * len(pieces))
    return made
