"""Group keys: how a key is hashed, compared, stored in an entry and read back.

Equality is that of GROUP BY: NULL equals NULL, NaN equals NaN, 0.0 equals -0.0 (the group shows the one it met first),
and intervals are equal if they are equally long."""

from __future__ import annotations

from collections.abc import Sequence

from tsql.kernels.aggregates.base import field_offsets, fields_bytes
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.batch import SourceColumn
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.rows import CodeDatum, dictionary_pointer, dictionary_string
from tsql.kernels.expr.types import Type
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.functions.comparison import interval_order
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.group_table import table_string
from tsql.kernels.runtime.text.strings import mix64, str_eq, str_hash

_NEGATIVE_ZERO = -(2**63)
"""The bits of -0.0."""


@dataclass(frozen=True)
class KeyField:
    """One key column, as the values that reach the sink have it.

    column: set for codes of a table's dictionary; the code is stored instead of the string.
    range: bounds of an exact number, if known.
    stable: strings need no copy.
    """

    name: str
    type: Type
    nullable: bool
    range: tuple[int, int] | None = None
    column: SourceColumn | None = None
    stable: bool = False

    @staticmethod
    def of(name: str, d: Datum) -> KeyField:
        if isinstance(d, CodeDatum) and d.column.dictionary is not None:
            return KeyField(name, d.type, d.valid is not None, (0, max(0, len(d.column.dictionary) - 1)), d.column)
        return KeyField(name, d.type, d.valid is not None, d.range, None, d.stable)

    @property
    def bounds(self) -> tuple[int, int]:
        """The range of a key that has one."""
        if self.range is None:
            raise TypeError(f"{self.name} has no bounds")
        return self.range

    @property
    def exact(self) -> bool:
        return self.column is not None or self.type.is_integer or self.type.is_decimal or self.type.is_temporal

    @property
    def machines(self) -> tuple[str, ...]:
        """The types of the stored words, without the NULL flag."""
        if self.column is not None:
            return ("i64",)
        if self.type.is_string:
            return ("ptr", "i64")
        if self.type.name == "INTERVAL":
            return ("i128", "i32", "i32", "i64")
        if self.type.is_float:
            return ("i64",)
        if self.type.name == "BOOLEAN":
            return ("i64",)
        wide = self.range is None and (self.type.bits == 128 or self.type.name == "UBIGINT")
        wide = wide or (self.range is not None and not (-(2**63) <= self.range[0] and self.range[1] < 2**63))
        return ("i128",) if wide else ("i64",)

    def words(self, k: PipelineKernel, d: Datum) -> tuple[Val, ...]:
        """The value in its stored form; strings are not copied yet. NULL becomes zeros."""
        words = self._words(k, d)
        if d.valid is None:
            return words
        return tuple(k.select(d.valid, w, k.const(w.type, 0)) for w in words)

    def _words(self, k: PipelineKernel, d: Datum) -> tuple[Val, ...]:
        if self.column is not None:
            assert isinstance(d, CodeDatum), "a column of codes"
            return (d.code,)
        if self.type.is_string:
            return d.parts
        if self.type.name == "INTERVAL":
            return (interval_order(k, d), *d.parts)
        if self.type.is_float:
            value = d.value.to("f64")
            return (k.select(value != value, k.f64(float("nan")), value).bits_as("i64"),)
        if self.type.name == "BOOLEAN":
            return (d.value.uto("i64"),)
        return (number(d).value.to(self.machines[0]),)

    def hash_words(self, k: PipelineKernel, words: tuple[Val, ...]) -> list[Val]:
        """i64 words that go into the hash."""
        if self.type.is_string and self.column is None:
            return [str_hash(k, words[0], words[1])]
        first = self.compared(k, words[0])
        return [first.to("i64"), (first >> 64).to("i64")] if first.type == "i128" else [first]

    def equal(self, k: PipelineKernel, stored: tuple[Val, ...], words: tuple[Val, ...]) -> Val:
        if self.type.is_string and self.column is None:
            return str_eq(k, stored[0], stored[1], words[0], words[1])
        return self.compared(k, stored[0]) == self.compared(k, words[0])

    def compared(self, k: PipelineKernel, word: Val) -> Val:
        """The word that is compared: -0.0 becomes 0.0. The group still shows the one it met first."""
        return k.select(word == _NEGATIVE_ZERO, k.i64(0), word) if self.type.is_float and self.column is None else word

    def read(self, k: PipelineKernel, stored: tuple[Val, ...], valid: Val | None) -> Datum:
        """The stored key as a value again."""
        if self.column is not None:
            return dictionary_string(k, self.column, dictionary_pointer(k, self.column), stored[0], valid)
        if self.type.is_string:
            return Datum(self.type, stored, valid, stable=self.stable)
        if self.type.name == "INTERVAL":
            return Datum(self.type, stored[1:], valid)
        if self.type.is_float:
            return Datum(self.type, (stored[0].bits_as("f64").to(self.type.parts[0]),), valid)
        if self.type.name == "BOOLEAN":
            return Datum(self.type, (stored[0] != 0,), valid)
        if self.range is not None:
            return Datum(self.type, stored, valid, self.range)
        return Datum(self.type, (stored[0].to(self.type.parts[0]),), valid)


class KeyLayout:
    """The keys of an entry: a word of NULL flags (if any key may be NULL), then the stored words of each key."""

    def __init__(self, keys: list[KeyField], start: int, equal_hashes: bool = False):
        self.keys, self.equal_hashes = keys, equal_hashes
        self.nulls_at = start if any(f.nullable for f in keys) else None
        at = start + (8 if self.nulls_at is not None else 0)
        self.offsets: list[list[int]] = []
        for f in keys:
            self.offsets.append(field_offsets(f.machines, at))
            at += fields_bytes(f.machines)
        self.end = at

    def words(self, k: PipelineKernel, data: Sequence[Datum]) -> tuple[Val, list[tuple[Val, ...]]]:
        """The NULL flags and the stored words of the key of a row."""
        nulls = k.i64(0)
        for bit, (f, d) in enumerate(zip(self.keys, data, strict=True)):
            if f.nullable and d.valid is not None:
                nulls = nulls | k.select(d.valid, k.i64(0), k.i64(1 << bit))
        return nulls, [f.words(k, d) for f, d in zip(self.keys, data, strict=True)]

    def hash(self, k: PipelineKernel, nulls: Val, words: list[tuple[Val, ...]]) -> Val:
        if self.equal_hashes:
            return k.i64(0x0123_4567_89AB_CDEF)
        h = mix64(k, nulls) if self.nulls_at is not None else k.i64(0x51ED27)
        for f, w in zip(self.keys, words, strict=True):
            for word in f.hash_words(k, w):
                h = mix64(k, (h * -0x61C8864680B583EB) ^ word)
        return h

    def stored(self, k: PipelineKernel, entry: Val, index: int) -> tuple[Val, ...]:
        return tuple(
            k.load(m, k.offset(entry, at)) for m, at in zip(self.keys[index].machines, self.offsets[index], strict=True)
        )

    def equal(self, k: PipelineKernel, entry: Val, nulls: Val, words: list[tuple[Val, ...]]) -> Val:
        same = k.true if self.nulls_at is None else k.load("i64", k.offset(entry, self.nulls_at)) == nulls
        for index, f in enumerate(self.keys):
            same = same & f.equal(k, self.stored(k, entry, index), words[index])
        return same

    def store(self, k: PipelineKernel, table: Val, entry: Val, nulls: Val, words: list[tuple[Val, ...]]) -> None:
        if self.nulls_at is not None:
            k.store(k.offset(entry, self.nulls_at), nulls)
        for index, f in enumerate(self.keys):
            kept = words[index]
            if f.type.is_string and f.column is None and not f.stable:
                kept = (table_string(k, k.ctx, table, kept[0], kept[1]), kept[1])
            for at, word in zip(self.offsets[index], kept, strict=True):
                k.store(k.offset(entry, at), word)

    def read(self, k: PipelineKernel, entry: Val, index: int) -> Datum:
        f = self.keys[index]
        valid = None
        if f.nullable and self.nulls_at is not None:
            valid = (k.load("i64", k.offset(entry, self.nulls_at)) & (1 << index)) == 0
        return f.read(k, self.stored(k, entry, index), valid)
