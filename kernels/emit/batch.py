"""Column memory: layouts, and the morsel records through which kernels find columns.

A morsel record is `rows, position` (i64), then four words per source column: data, auxiliary data (string bytes or a
dictionary), validity bitmap, and the bit offset of the first row in the bitmaps. The host writes the record from Arrow
arrays or blocks and keeps these alive while a kernel runs. Kernels only read.
"""

from __future__ import annotations

import struct
from dataclasses import field
from functools import cached_property
from typing import Any

import pyarrow as pa

from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass

HEADER_BYTES = 16
COLUMN_BYTES = 32


@dataclass(frozen=True)
class Layout:
    """The shape of a column's memory.

    kind: "fixed": machine values; "bits": Arrow booleans; "offsets": strings by `machine` (i32 or i64) offsets;
    "codes": dictionary codes of `machine` type, with the dictionary (offsets and bytes of its strings) as auxiliary
    data; "interval": Arrow month-day-nano intervals; "position": no memory, the value is the row's position. base: for
    "fixed" columns stored as differences from a minimum (frame of reference): value = base + stored. unsigned: stored
    values are unsigned."""

    kind: str
    machine: str = "i64"
    nullable: bool = True
    unsigned: bool = False
    base: int | None = None
    wide_dictionary: bool = False


@dataclass(frozen=True)
class SourceColumn:
    """A column as a pipeline's source delivers it: type, layout, and what is known of its values.

    range: bounds that hold for every row, rounded outwards to powers of two so that kernels are shared.
    dictionary: for a column of codes, the dictionary that holds for all rows; None if each batch has its own."""

    name: str
    type: Type
    layout: Layout
    range: tuple[int, int] | None = None
    dictionary: Dictionary | None = None


@dataclass(frozen=True, eq=False)
class Dictionary:
    """The sorted distinct strings of a table's column, shared by all of its blocks. A string's code is its rank."""

    values: pa.Array
    tables: dict[Any, pa.Buffer] = field(default_factory=dict, repr=False)
    """Results of predicates over the strings by predicate, one byte per string."""

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def sort_keys(self) -> list[bytes]:
        """The strings as bytes. Their order is that of the codes."""
        return [v.encode() if isinstance(v, str) else v for v in self.values.to_pylist()]

    @cached_property
    def record(self) -> pa.Buffer:
        """The (offsets, bytes, number of strings) record that kernels read."""
        return dictionary_record(self.values)


def dictionary_record(values: pa.Array) -> pa.Buffer:
    """The addresses of the offsets and of the bytes of an array of strings, and their number."""
    buffers = values.buffers()
    width = 8 if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type) else 4
    offsets = buffers[1].address + values.offset * width if buffers[1] is not None else 0
    return pa.py_buffer(struct.pack("<QQQ", offsets, buffers[2].address if buffers[2] is not None else 0, len(values)))


FAR = 16
"""Values are far from zero if their distance from it is more than this many times their span."""


def round_range(low: int, high: int) -> tuple[int, int]:
    """Bounds widened so that few distinct kernels arise, and still tight enough to choose arithmetic and dense arrays.

    Small bounds are widened to powers of two, large ones to a sixteenth of one. Values that are close together and far
    from zero, such as times, are widened by up to an eighth of their span's power of two."""
    span = high - low + 1
    if low > FAR * span:
        grid = max(1, (1 << (span - 1).bit_length()) // 8)
        return low // grid * grid, (high // grid + 1) * grid - 1
    top = _widened(high + 1) - 1 if high >= 0 else -1
    bottom = 0 if low >= 0 else -_widened(-low)
    return bottom, max(top, bottom)


def _widened(count: int) -> int:
    """The count rounded up to a power of two, or to a sixteenth of one if it is large."""
    power = 1 << (count - 1).bit_length()
    grid = power // 16
    return power if grid < 64 else -(-count // grid) * grid


_MACHINE = {8: "i8", 16: "i16", 32: "i32", 64: "i64", 128: "i128"}


def arrow_layout(type: Type, arrow: pa.DataType, nullable: bool) -> Layout:
    """The layout of an Arrow column that holds a SQL type."""
    if pa.types.is_dictionary(arrow):
        wide = pa.types.is_large_string(arrow.value_type) or pa.types.is_large_binary(arrow.value_type)
        return Layout(
            "codes",
            _MACHINE[arrow.index_type.bit_width],
            nullable,
            not pa.types.is_signed_integer(arrow.index_type),
            wide_dictionary=wide,
        )
    if type.is_string:
        large = pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow)
        return Layout("offsets", "i64" if large else "i32", nullable)
    if type.name == "BOOLEAN":
        return Layout("bits", "i8", nullable)
    if type.name == "INTERVAL":
        return Layout("interval", "i64", nullable)
    if pa.types.is_floating(arrow):
        return Layout("fixed", "f32" if type.name == "FLOAT" else "f64", nullable)
    return Layout("fixed", _MACHINE[arrow.bit_width], nullable, type.is_unsigned)


def source_columns(names: tuple[str, ...], types: tuple[Type, ...], arrays: list[pa.Array]) -> tuple[SourceColumn, ...]:
    """The columns of one Arrow batch, with no statistics."""
    return tuple(
        SourceColumn(n, t, arrow_layout(t, a.type, a.null_count > 0))
        for n, t, a in zip(names, types, arrays, strict=True)
    )


_ones = pa.py_buffer(b"\xff" * 16384)


def all_ones(rows: int) -> pa.Buffer:
    """A bitmap of at least `rows` ones; one buffer is shared and grows."""
    global _ones
    if _ones.size * 8 < rows + 8:
        _ones = pa.py_buffer(b"\xff" * (rows // 4 + 16))
    return _ones


@dataclass
class Morsels:
    """Morsel records in host memory, and what must stay alive with them."""

    columns: int
    data: bytearray = field(default_factory=bytearray)
    count: int = 0
    rows: int = 0
    keep: list[object] = field(default_factory=list)

    @property
    def record_bytes(self) -> int:
        return HEADER_BYTES + COLUMN_BYTES * self.columns

    def part(self, start: int, count: int) -> Morsels:
        """The records from `start` on, at most `count` of them."""
        size = self.record_bytes
        data = self.data[start * size : (start + count) * size]
        return Morsels(self.columns, data, len(data) // size, self.rows, [self])

    def add(self, rows: int, position: int, columns: list[tuple[int, int, int, int]]) -> None:
        """Append a record; each column is (data, auxiliary, validity, bit offset)."""
        self.data += struct.pack("<qq", rows, position)
        for column in columns:
            self.data += struct.pack("<QQQq", *column)
        self.count += 1
        self.rows += rows

    def add_arrays(self, arrays: list[pa.Array], position: int, rows: int | None = None) -> None:
        """Append the record of one Arrow batch."""
        if rows is None:
            rows = len(arrays[0]) if arrays else 0
        self.add(rows, position, [self.column(a) for a in arrays])
        self.keep.append(arrays)

    def _all_valid(self, rows: int) -> int:
        """A bitmap of ones, so that a nullable column always has a bitmap."""
        ones = all_ones(rows)
        self.keep.append(ones)
        return ones.address

    def column(self, array: pa.Array) -> tuple[int, int, int, int]:
        """The words of a column."""
        buffers = array.buffers()
        validity = buffers[0].address if buffers[0] is not None else self._all_valid(len(array) + array.offset)
        data = buffers[1].address if buffers[1] is not None else 0
        offset = array.offset
        arrow = array.type
        if pa.types.is_dictionary(arrow):
            width = arrow.index_type.bit_width // 8
            return data + offset * width, self._dictionary(array.dictionary), validity, offset
        if pa.types.is_boolean(arrow):
            return data, 0, validity, offset
        if len(buffers) > 2:
            width = 8 if pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow) else 4
            text = buffers[2].address if buffers[2] is not None else 0
            return data + offset * width, text, validity, offset
        return data + offset * (arrow.bit_width // 8), 0, validity, offset

    def _dictionary(self, dictionary: pa.Array) -> int:
        """The address of the record of a dictionary that belongs to one batch."""
        record = dictionary_record(dictionary)
        self.keep.append((dictionary, record))
        return record.address


class RecordWriter:
    """Writes the records of Arrow batches of one schema, each as `Morsels.add_arrays` would: what the types say is
    found out once."""

    def __init__(self, widths: list[int]):
        self.widths = widths
        self.pack = struct.Struct("<qq" + "QQQq" * len(widths)).pack

    @staticmethod
    def of(types: list[pa.DataType]) -> RecordWriter | None:
        """The writer for columns of these types; None if one of them has dictionaries."""
        widths = []
        for arrow in types:
            if pa.types.is_dictionary(arrow):
                return None
            if pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow):
                widths.append(8)
            elif pa.types.is_string(arrow) or pa.types.is_binary(arrow):
                widths.append(4)
            else:
                widths.append(0 if pa.types.is_boolean(arrow) else arrow.bit_width // 8)
        return RecordWriter(widths)

    def write(self, batch: pa.RecordBatch, position: int) -> Morsels:
        """The record of a batch whose first row has this position."""
        rows, ones = batch.num_rows, None
        words: list[int] = []
        keep: list[object] = []
        for array, width in zip(batch.columns, self.widths, strict=True):
            buffers, offset = array.buffers(), array.offset
            validity, data = buffers[0], buffers[1]
            if validity is None:
                if ones is None or ones.size * 8 < rows + offset + 8:
                    ones = all_ones(rows + offset)
                    keep.append(ones)
                validity = ones
            text = buffers[2].address if len(buffers) > 2 and buffers[2] is not None else 0
            words += (0 if data is None else data.address + offset * width, text, validity.address, offset)
        keep.append(batch)
        return Morsels(len(self.widths), bytearray(self.pack(rows, position, *words)), 1, rows, keep)


def joined_morsels(parts: list[Morsels]) -> Morsels:
    """The records of several lists of morsels of one layout, one after the other."""
    return Morsels(
        parts[0].columns,
        bytearray().join(p.data for p in parts),
        sum(p.count for p in parts),
        sum(p.rows for p in parts),
        list(parts),
    )
