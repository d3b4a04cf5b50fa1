"""Rows that wait for their groups: an array of groups larger than a core's cache is updated some rows late.

In: for each row the address of its group and what the aggregates take from it. Out: the same updates in the same order,
each `ROWS` rows later. The group's memory is prefetched at once and has arrived by then. Without this a core waits for
distant groups: it looks only a few rows ahead.

Memory: a buffer of the worker, with a ring of places for rows, and a dummy group to which empty places belong. `end`
adds the remaining rows. Cost: a place is written and read for each row, in the nearest cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tsql.kernels.aggregates.base import Body, MemoryState, field_offsets
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.process.quick_dataclass import dataclass

ROWS = 64
"""This many rows wait: slightly more than the memory lines that a core can fetch at once."""


@dataclass(frozen=True, eq=False)
class Taken:
    """What an aggregate takes from a row: its arguments, and whether it takes the row at all (None: always)."""

    body: Body
    offset: int
    args: tuple[Datum, ...]
    mask: Val | None

    @property
    def values(self) -> list[Val]:
        return [v for d in self.args for v in (*d.parts, d.valid) if v is not None] + (
            [] if self.mask is None else [self.mask]
        )

    def read(self, values: list[Val]) -> Taken:
        """The same with other values."""
        left = iter(values)
        args = tuple(
            replace(d, parts=tuple(next(left) for _ in d.parts), valid=None if d.valid is None else next(left))
            for d in self.args
        )
        return replace(self, args=args, mask=None if self.mask is None else next(left))


class Waiting:
    """The ring of one kernel. `group_bytes`: the size of a group. `row_bytes`: the most that the values of a row need.
    `meet` initialises the states of a new group."""

    def __init__(
        self, k: PipelineKernel, group_bytes: int, row_bytes: int, meet: Callable[[PipelineKernel, Val], None]
    ):
        self.place_bytes, self.meet = 8 + row_bytes, meet
        self.ring, self.row = k.buffer(ROWS * self.place_bytes + group_bytes), k.var(k.i64(0))
        self.taken: list[Taken] = []
        nobody = k.offset(self.ring, ROWS * self.place_bytes)
        k.call("memset", self.ring, 0, ROWS * self.place_bytes + group_bytes)
        with k.range(k.i64(ROWS)) as number:
            k.store(self._place(k, number), nobody)

    def _place(self, k: PipelineKernel, number: Val) -> Val:
        return k.offset(self.ring, number * self.place_bytes)

    def take(self, k: PipelineKernel, group: Val, taken: list[Taken]) -> None:
        """Queue a row, and add the one whose place it takes."""
        assert not self.taken, "one place in a kernel leads to its sink, so that all rows have values of the same types"
        self.taken = taken
        k.prefetch(group)
        place = self._place(k, self.row.value & (ROWS - 1))
        self.row.set(self.row.value + 1)
        self._take_in(k, place)
        k.store(place, group)
        values = [v.uto("i8") if v.type == "i1" else v for t in taken for v in t.values]
        for offset, value in zip(field_offsets(tuple(v.type for v in values), 8), values):
            k.store(k.offset(place, offset), value)

    def _take_in(self, k: PipelineKernel, place: Val) -> None:
        types = ["i8" if v.type == "i1" else v.type for t in self.taken for v in t.values]
        stored = (k.load(type, k.offset(place, offset)) for offset, type in zip(field_offsets(tuple(types), 8), types))
        group = k.load("ptr", place)
        self.meet(k, group)
        for t in self.taken:
            read = t.read([next(stored) != 0 if v.type == "i1" else next(stored) for v in t.values])
            t.body.update(k, MemoryState(k, group, t.body.fields, t.offset), read.args, read.mask)

    def end(self, k: PipelineKernel) -> None:
        """Add the rows that still wait, the oldest first."""
        with k.range(k.i64(ROWS)) as number:
            self._take_in(k, self._place(k, (self.row.value + number) & (ROWS - 1)))
