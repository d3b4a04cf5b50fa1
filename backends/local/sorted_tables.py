"""Sorts the entries of a join's table within groups of equal keys: see kernels/runtime/sorted_table.py for what comes out.

In: entries as a `SortedBuild` has collected them. One pass over them, by all threads, finds the groups and writes down what they are
sorted by; numpy does the rest. Rows that come in the order of their numbers, as the rows of a log mostly do, are only sorted by group.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tsql.backends.local.sorting import Workers, integer_order
from tsql.kernels.operators.sorted_join import SortedBuild
from tsql.kernels.runtime.join_table import RECORD_BYTES
from tsql.kernels.runtime.sorted_table import GROUPS_AT, MOST_AT, PLAN_WORDS, SLOT_WORDS

FIRST_SLOTS = 1 << 12
GROWTH = 16
"""Slots for groups at first, and how many times more if they do not do: a table that stays in a core's cache is filled much faster."""

Number = Callable[[int, int, int], None]
"""Runs `number_module`: the address of the plan, that of a chunk's words, rows."""


@dataclass
class SortedEntries:
    """Sorted entries: their numbers, their addresses (with one word more each, which may be read), and the directory of groups."""

    orders: np.ndarray
    addresses: np.ndarray
    directory: np.ndarray

    @property
    def bytes(self) -> int:
        return self.orders.nbytes + self.addresses.nbytes + self.directory.nbytes

    @property
    def slots(self) -> int:
        return len(self.directory)

    def record(self, nulls: int) -> Any:
        """The words by which kernels find it; the last are for the places where searches have ended."""
        rows = len(self.orders) - 1
        words = (self.orders.ctypes.data, rows, self.addresses.ctypes.data, rows, nulls, self.directory.ctypes.data, len(self.directory) - 2)
        return (ctypes.c_int64 * (RECORD_BYTES // 8))(*words)


def sorted_entries(sink: SortedBuild, chunks: list[tuple[int, int]], number: Number, workers: Workers, last_first: bool) -> SortedEntries:
    """The entries of some chunks, (address, rows) pairs, in order. Entries of equal numbers are in the order of the input, or, with
    `last_first`, in its reverse."""
    starts = np.cumsum([0, *(rows for _, rows in chunks)])
    rows = int(starts[-1])
    orders, addresses, slots = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int32)
    places = np.empty(rows if sink.place_at >= 0 else 0, np.int64)
    words = _numbered(sink, chunks, starts, (orders, slots, addresses, places), number, workers)
    if sink.marks and rows and slots.min() < 0:
        kept = np.flatnonzero(slots >= 0)
        orders, addresses, slots = orders[kept], addresses[kept], slots[kept]
        places = places[kept] if len(places) else places
    if len(places) and not _ascends(places):
        orders, addresses, slots = _taken((orders, addresses, slots), np.argsort(places, kind="stable"), workers)
    if last_first:
        orders, addresses, slots = orders[::-1], addresses[::-1], slots[::-1]
    if not sink.keys:
        order = None if _ascends(orders) else integer_order([orders], workers)
        return SortedEntries(*_ended(orders, addresses, order, workers), np.zeros((2, SLOT_WORDS), np.int64))
    used = np.flatnonzero(np.append(words[:-1] != 0, [bool((slots == len(words) - 1).any())]))
    numbers = np.zeros(len(words), np.int32)
    numbers[used] = np.arange(len(used), dtype=np.int32)
    groups = numbers[slots]
    order = integer_order([groups] if _ascends(orders) else [groups, orders], workers)
    ends = np.cumsum(np.bincount(groups, minlength=len(used)))
    directory = np.zeros((len(words), SLOT_WORDS), np.int64)
    directory[used, 0], directory[used, 2] = words[used], ends
    directory[used[1:], 1] = ends[:-1]
    return SortedEntries(*_ended(orders, addresses, order, workers), directory)


def _numbered(sink: SortedBuild, chunks: list[tuple[int, int]], starts: np.ndarray, arrays: tuple[np.ndarray, ...], number: Number, workers: Workers) -> np.ndarray:
    """Fill the arrays; the hash of each slot comes back."""
    size = FIRST_SLOTS if sink.keys else 1
    while True:
        words = np.zeros(size + 1, np.int64)
        given = (words.ctypes.data, size - 1, sink.entry_bytes, sink.hash_at, sink.place_at, sink.marks, *(a.ctypes.data for a in arrays))
        plan = (ctypes.c_int64 * PLAN_WORDS)(*given)
        plan[MOST_AT] = size // 2
        records = [(ctypes.c_int64 * 2)(address, int(start)) for (address, _), start in zip(chunks, starts, strict=False)]

        def work(at: int, plan: Any = plan, records: list[Any] = records) -> None:
            number(ctypes.addressof(plan), ctypes.addressof(records[at]), chunks[at][1])

        workers.run(work, len(chunks))
        if plan[GROUPS_AT] <= size // 2:
            return words
        size *= GROWTH


def _ascends(words: np.ndarray) -> bool:
    """Whether numbers are in order already; the first of them mostly tell."""
    return bool((words[1:64] >= words[:63][: max(len(words) - 1, 0)]).all() and (words[1:] >= words[:-1]).all())


def _taken(arrays: tuple[np.ndarray, ...], order: np.ndarray, workers: Workers) -> list[np.ndarray]:
    """Arrays in another order, by all workers."""
    made = [np.empty(len(order), a.dtype) for a in arrays]
    pieces = workers.pieces(len(order))

    def work(task: int) -> None:
        array, (start, end) = task // len(pieces), pieces[task % len(pieces)]
        np.take(arrays[array], order[start:end], out=made[array][start:end], mode="clip")

    workers.run(work, len(arrays) * len(pieces))
    return made


def _ended(orders: np.ndarray, addresses: np.ndarray, order: np.ndarray | None, workers: Workers) -> tuple[np.ndarray, np.ndarray]:
    """Both in order, with a word behind the last."""
    if order is not None:
        orders, addresses = _taken((orders, addresses), order, workers)
    return np.append(orders, 0), np.append(addresses, 0)
