"""Entries: how the columns of a row are stored one after the other and read back as values.

Unlike group keys (`keys.py`), every value keeps its exact bits. Numbers with known bounds take as few bytes as the
bounds need, so more entries fit the cache. Strings that do not outlive the query are copied into the table's memory.
"""

from __future__ import annotations

from tsql.kernels.codegen.kir import BYTES
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.keys import KeyField
from tsql.kernels.emit.rows import CodeDatum
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.group_table import table_string

NARROW = (("i8", 7), ("i16", 15), ("i32", 31), ("i64", 63))


@dataclass(frozen=True)
class EntryPlace:
    """One column of an entry: its field, the types and offsets of its stored words."""

    field: KeyField
    machines: tuple[str, ...]
    offsets: tuple[int, ...]


def stored_machines(f: KeyField) -> tuple[str, ...]:
    """The types in which a field is stored."""
    if f.column is None:
        if f.type.is_string:
            return ("ptr", "i64")
        if f.type.name == "INTERVAL" or f.type.is_float:
            return f.type.parts
        if f.type.name == "BOOLEAN":
            return ("i8",)
    if f.range is None:
        return f.machines
    return (next((m for m, bits in NARROW if -(1 << bits) <= f.range[0] and f.range[1] < 1 << bits), "i128"),)


class EntryLayout:
    """Columns of an entry from `start` on: a word of NULL flags per 64 columns (if any may be NULL), then the columns,
    the widest first."""

    def __init__(self, fields: list[KeyField], start: int):
        self.fields = fields
        self.index = {f.name: i for i, f in enumerate(fields)}
        self.nulls_at = start
        at = start + 8 * ((len(fields) + 63) // 64 if any(f.nullable for f in fields) else 0)
        machines = [stored_machines(f) for f in fields]
        places: dict[int, EntryPlace] = {}
        for i in sorted(range(len(fields)), key=lambda i: -max(BYTES[m] for m in machines[i])):
            offsets = []
            for m in machines[i]:
                at = -(-at // min(8, BYTES[m])) * min(8, BYTES[m])
                offsets.append(at)
                at += BYTES[m]
            places[i] = EntryPlace(fields[i], machines[i], tuple(offsets))
        self.places = [places[i] for i in range(len(fields))]
        self.end = -(-at // 8) * 8

    def store(self, k: PipelineKernel, table: Val, entry: Val, data: list[Datum]) -> None:
        """Write a row; `table` owns the copies of strings."""
        for first in range(0, len(self.fields) if any(f.nullable for f in self.fields) else 0, 64):
            nulls = k.i64(0)
            for bit, d in enumerate(data[first : first + 64]):
                if d.valid is not None:
                    nulls = nulls | k.select(d.valid, k.i64(0), k.i64(1 << bit))
            k.store(k.offset(entry, self.nulls_at + first // 8), nulls)
        for place, d in zip(self.places, data, strict=True):
            for machine, at, word in zip(place.machines, place.offsets, self._words(k, table, place, d), strict=True):
                k.store(k.offset(entry, at), word if word.type == machine else word.to(machine))

    def _words(self, k: PipelineKernel, table: Val, place: EntryPlace, d: Datum) -> tuple[Val, ...]:
        f = place.field
        if f.column is not None:
            assert isinstance(d, CodeDatum), "a column of codes"
            return (d.code,)
        if f.type.is_string:
            length = d.len if d.valid is None else k.select(d.valid, d.len, k.i64(0))
            return (d.ptr if f.stable else table_string(k, k.ctx, table, d.ptr, length), length)
        if f.type.name == "INTERVAL" or f.type.is_float:
            return d.parts
        if f.type.name == "BOOLEAN":
            return (d.value.uto("i8"),)
        return (number(d).value,)

    def valid(self, k: PipelineKernel, entry: Val, index: int) -> Val | None:
        if not self.fields[index].nullable:
            return None
        flags = k.load("i64", k.offset(entry, self.nulls_at + index // 64 * 8))
        return (flags & (1 << (index % 64))) == 0

    def words(self, k: PipelineKernel, entry: Val, index: int) -> tuple[Val, ...]:
        """The stored words of a column, in the types of its field."""
        place = self.places[index]
        found = tuple(k.load(m, k.offset(entry, at)) for m, at in zip(place.machines, place.offsets, strict=True))
        f = place.field
        if f.column is None and (f.type.is_string or f.type.name == "INTERVAL" or f.type.is_float):
            return found
        wide = "i64" if f.type.name == "BOOLEAN" else f.machines[0]
        return (found[0].to(wide),)

    def read(self, k: PipelineKernel, entry: Val, index: int) -> Datum:
        """A column of an entry as a value."""
        f, words = self.fields[index], self.words(k, entry, index)
        valid = self.valid(k, entry, index)
        if f.column is None and (f.type.name == "INTERVAL" or f.type.is_float):
            return Datum(f.type, words, valid)
        return f.read(k, words, valid)
