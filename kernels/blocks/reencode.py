"""Encodes rows that join a table: in the encoding of the table's column if they fit, so that kernels are shared.

`encode_like` encodes appended, updated and merged rows; `plain` makes the column of a tail, whose memory is Arrow's
own."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from tsql.kernels.blocks.encode import (
    BLOCK_ROWS,
    BlockColumn,
    encode,
    one_array,
    stored_integers,
    validity_of,
    wide_statistics,
    zone_map,
)
from tsql.kernels.blocks.file import FileColumn
from tsql.kernels.codegen.kir import BYTES
from tsql.kernels.emit.batch import Dictionary, SourceColumn, arrow_layout, round_range
from tsql.kernels.expr.statistics import ColumnStatistics
from tsql.kernels.expr.types import Type
from tsql.kernels.process.arrow_compute import pc


class PlainColumn(BlockColumn):
    """Unencoded Arrow memory. Its statistics are computed on first use."""

    def __init__(self, name: str, t: Type, array: pa.Array):
        self.source = SourceColumn(name, t, arrow_layout(t, array.type, array.null_count > 0))
        self.data = array
        self.validity = array.buffers()[0] if array.null_count else None
        self.lows = self.highs = self.origin = None

    @cached_property
    def statistics(self) -> ColumnStatistics:  # type: ignore[override]
        return column_statistics(self.source.type, self.data)


def plain(name: str, t: Type, array: pa.Array) -> PlainColumn:
    """A column of a tail."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type != t.to_arrow():
        array = array.cast(t.to_arrow())
    return PlainColumn(name, t, one_array(pa.chunked_array([array])))


def column_statistics(t: Type, array: pa.Array) -> ColumnStatistics:
    """Bounds and NULLs of Arrow values; the bounds of floating-point columns and of intervals are not kept."""
    nulls = array.null_count
    if t.is_float or t.name in ("BOOLEAN", "INTERVAL"):
        return ColumnStatistics(nulls=nulls)
    if nulls == len(array):
        return ColumnStatistics(nulls=nulls, distinct=0)
    if t.is_string:
        bounds = pc.min_max(array).as_py()
        return ColumnStatistics(bounds["min"], bounds["max"], nulls, pc.count_distinct(array).as_py(), True)
    stored = stored_integers(t, pa.chunked_array([array]))
    if stored is None:
        return wide_statistics(t, array)
    if nulls:
        stored = stored[array.is_valid().to_numpy(zero_copy_only=False)]
    return ColumnStatistics(int(stored.min()), int(stored.max()), nulls, len(np.unique(stored)), True)


def encode_like(like: BlockColumn, column: pa.ChunkedArray) -> BlockColumn:
    """The column in the encoding of another one or, if that cannot hold its values, in one that holds both."""
    return (None if isinstance(like, PlainColumn) else encode_fitting(like, column)) or _wider(like, column)


def encode_fitting(like: BlockColumn, column: pa.ChunkedArray) -> BlockColumn | None:
    """The column in the encoding of another one; None if that cannot hold its values."""
    source = like.source
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if isinstance(like, PlainColumn):
        return plain(source.name, source.type, one_array(column))
    if source.dictionary is not None:
        return _like_dictionary(like, source.dictionary, column)
    if (
        source.layout.kind == "fixed"
        and source.layout.machine in ("i8", "i16", "i32", "i64")
        and isinstance(like.data, np.ndarray)
    ):
        return _like_integers(like, column)
    return None if source.type.is_string else encode(source.name, source.type, column)


def _like_dictionary(like: BlockColumn, dictionary: Dictionary, column: pa.ChunkedArray) -> BlockColumn | None:
    source, values = like.source, dictionary.values
    codes = one_array(pc.index_in(column, value_set=values))
    if codes.null_count != column.null_count:
        return None
    stored = np.asarray(codes.fill_null(0)).astype(np.uint8 if source.layout.machine == "i8" else np.uint16)
    nulls = column.null_count
    statistics = ColumnStatistics(values[0].as_py(), values[-1].as_py(), nulls, len(values), True)
    return BlockColumn(
        _nullable(source, nulls), stored, validity_of(column) if nulls else None, statistics, *zone_map(stored)
    )


def _like_integers(like: BlockColumn, column: pa.ChunkedArray) -> BlockColumn | None:
    source, t = like.source, like.source.type
    values = stored_integers(t, column)
    if values is None:
        return None
    nulls, bits = column.null_count, int(source.layout.machine[1:])
    present = values[one_array(column.is_valid()).to_numpy(zero_copy_only=False)] if nulls else values
    base = source.layout.base
    low, high = (int(present.min()), int(present.max())) if len(present) else (base or 0, base or 0)
    if base is not None and not (base <= low and high - base < 2**bits):
        return None
    if nulls:
        values = np.where(one_array(column.is_valid()).to_numpy(zero_copy_only=False), values, low)
    stored = values if base is None else (values - base).astype(f"u{bits // 8}")
    sample = present[:: max(1, len(present) // BLOCK_ROWS)]
    statistics = ColumnStatistics(
        low, high, nulls, len(np.unique(sample)) * max(1, len(present) // max(1, len(sample))), True
    )
    kept = replace(_nullable(source, nulls), range=round_range(low, high))
    return BlockColumn(kept, stored, validity_of(column) if nulls else None, statistics, *zone_map(values))


def _wider(like: BlockColumn, column: pa.ChunkedArray) -> BlockColumn:
    """A new encoding that also holds the values of the other column, so that the next rows fit it."""
    name, t, known = like.source.name, like.source.type, like.statistics
    if isinstance(like, PlainColumn):
        return encode(name, t, column)
    if like.source.dictionary is not None:
        both = pa.chunked_array([like.source.dictionary.values.cast(t.to_arrow()), *column.cast(t.to_arrow()).chunks])
        found = encode(name, t, both)
        return (
            _without(found, len(like.source.dictionary), column)
            if found.source.dictionary is not None
            else encode(name, t, column)
        )
    if t.is_string or not isinstance(known.minimum, int) or not isinstance(known.maximum, int):
        return encode(name, t, column)
    values = stored_integers(t, column)
    if values is None or not len(values) or column.null_count == len(column):
        return encode(name, t, column)
    found = encode(name, t, column)
    base, machine = _frame(min(known.minimum, found.statistics.minimum), max(known.maximum, found.statistics.maximum))
    wide = BlockColumn(
        replace(
            found.source, layout=replace(found.source.layout, machine=machine, base=base, unsigned=base is not None)
        ),
        np.zeros(0, np.int64),
        None,
        found.statistics,
    )
    return _like_integers(wide, column) or found


def _frame(low: int, high: int) -> tuple[int | None, str]:
    """The base and the machine type of the narrowest frame over these bounds."""
    for bits in (8, 16, 32):
        if high - low < 2**bits:
            return low, f"i{bits}"
    return None, "i64"


def _without(found: BlockColumn, skip: int, column: pa.ChunkedArray) -> BlockColumn:
    """The codes without those of the first `skip` rows, which only brought their strings."""
    stored = found.data[skip:].copy()
    nulls = column.null_count
    return BlockColumn(
        _nullable(found.source, nulls),
        stored,
        validity_of(column) if nulls else None,
        replace(found.statistics, nulls=nulls),
        *zone_map(stored),
    )


def _nullable(source: SourceColumn, nulls: int) -> SourceColumn:
    return replace(source, layout=replace(source.layout, nullable=bool(nulls)))


def view(column: BlockColumn, start: int, rows: int) -> BlockColumn:
    """Rows of a column from the start of a block on, over the same memory."""
    if isinstance(column, FileColumn):
        return column.view(start, rows)
    first, blocks = start // BLOCK_ROWS, -(-rows // BLOCK_ROWS)
    validity = None if column.validity is None else column.validity.slice(start // 8)
    data = (
        column.data[start : start + rows]
        if isinstance(column.data, np.ndarray)
        else _array_view(column, start, rows, validity)
    )
    origin = None if column.origin is None else (*column.origin[:2], column.origin[2] + start)
    if isinstance(column, PlainColumn):
        found: BlockColumn = PlainColumn(column.source.name, column.source.type, data)
        found.origin = origin
        return found
    lows = None if column.lows is None else column.lows[first : first + blocks]
    highs = None if column.highs is None else column.highs[first : first + blocks]
    return BlockColumn(column.source, data, validity, column.statistics, lows, highs, origin)


def renamed(column: BlockColumn, name: str) -> BlockColumn:
    """A column under another name."""
    if column.source.name == name:
        return column
    if isinstance(column, FileColumn):
        return column.renamed(name)
    if isinstance(column, PlainColumn):
        found: BlockColumn = plain(name, column.source.type, column.data)
        found.origin = column.origin
        return found
    return replace(column, source=replace(column.source, name=name))


def _array_view(column: BlockColumn, start: int, rows: int, validity: pa.Buffer | None) -> pa.Array:
    """A slice whose offset is 0, as kernels expect."""
    array: pa.Array = column.data
    kind, buffers = column.source.layout.kind, array.buffers()
    width = 16 if kind == "interval" else BYTES[column.source.layout.machine]
    at = start // 8 if kind == "bits" else start * width
    return pa.Array.from_buffers(array.type, rows, [validity, buffers[1].slice(at), *buffers[2:]])
