"""Encodes a column for a table in memory: narrow integers over a minimum, sorted dictionaries, or as it is.

The encoding is chosen once per column from all of its values, so that one kernel serves all blocks of a table.
"""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa

from tsql.kernels.codegen.kir import BYTES
from tsql.kernels.emit.batch import Dictionary, Layout, SourceColumn, arrow_layout, round_range
from tsql.kernels.expr.statistics import ColumnStatistics
from tsql.kernels.expr.types import Type
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.process.quick_dataclass import dataclass

BLOCK_ROWS = 1 << 16
FINE_ROWS = 1 << 11
"""Progressive queries read a table in smaller units than blocks, and know bounds of so many rows each."""
SAMPLE_ROWS = 20_000
LARGEST_DICTIONARY = 1 << 16
LARGEST_DOMAIN = 1 << 26
_DIGITS = Context(prec=40)


@dataclass
class BlockColumn:
    """An encoded column: contiguous memory, and for each block the bounds of its values.

    data: the stored values (an Arrow array for strings, booleans and intervals; a numpy array otherwise).
    lows, highs: per block, in stored form; None where the type has no zone map.
    origin: where the column is on disk (file, name in it, first row), once it is.
    fine: lows and highs per FINE_ROWS rows, of a column that was encoded in this process.
    """

    source: SourceColumn
    data: np.ndarray | pa.Array
    validity: pa.Buffer | None
    statistics: ColumnStatistics
    lows: np.ndarray | None = None
    highs: np.ndarray | None = None
    origin: tuple[str, str, int] | None = None
    fine: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def bytes(self) -> int:
        return self.data.nbytes + (self.validity.size if self.validity is not None else 0)

    @property
    def is_sorted(self) -> bool:
        """Whether no value is smaller than the previous one, and none is NULL. Zone maps answer this for most columns,
        and the first block for most of the others: checking all rows at once would take a byte for each."""
        if (
            self.lows is None
            or self.highs is None
            or self.validity is not None
            or not isinstance(self.data, np.ndarray)
            or self.source.type.is_float
        ):
            return False
        few = self.data[:64]
        if np.any(few[:-1] > few[1:]) or np.any(self.highs[:-1] > self.lows[1:]):
            return False
        blocks = (self.data[start : start + BLOCK_ROWS] for start in range(0, len(self.data), BLOCK_ROWS))
        return all(bool(np.all(block[:-1] <= block[1:])) for block in blocks)

    def addresses(self, start: int) -> tuple[int, int, int, int]:
        """The words of a morsel record for the rows from `start` on."""
        validity = self.validity.address if self.validity is not None else 0
        if isinstance(self.data, np.ndarray):
            return self.data.ctypes.data + start * self.data.itemsize, 0, validity, start
        buffers = self.data.buffers()
        kind = self.source.layout.kind
        if kind == "bits":
            return buffers[1].address, 0, validity, start
        width = 16 if kind == "interval" else BYTES[self.source.layout.machine]
        text = buffers[2].address if len(buffers) > 2 and buffers[2] is not None else 0
        return buffers[1].address + start * width, text, validity, start


def encode(name: str, t: Type, column: pa.ChunkedArray) -> BlockColumn:
    """The best encoding of a column."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    nulls = column.null_count
    validity = validity_of(column) if nulls else None
    if t.is_string:
        return _encode_strings(name, t, column, validity, nulls)
    if t.is_float:
        values = np.ascontiguousarray(column.fill_null(0.0).to_numpy()).astype(
            np.float32 if t.name == "FLOAT" else np.float64
        )
        source = SourceColumn(name, t, Layout("fixed", t.parts[0], bool(nulls)))
        return BlockColumn(source, values, validity, _float_statistics(column, nulls), fine=fine_zones(values))
    if t.name in ("BOOLEAN", "INTERVAL"):
        array = one_array(column)
        return BlockColumn(
            SourceColumn(name, t, arrow_layout(t, array.type, bool(nulls))),
            array,
            validity,
            ColumnStatistics(nulls=nulls),
        )
    return _encode_integers(name, t, column, validity, nulls)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """All chunks as one array that starts at offset 0."""
    if column.num_chunks == 0:
        return pa.array([], column.type)
    array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    return array if array.offset == 0 else pa.concat_arrays([array, array.slice(0, 0)])


def validity_of(column: pa.ChunkedArray) -> pa.Buffer:
    """The bitmap of a column that has NULLs."""
    return one_array(column.is_valid()).buffers()[1]


def _float_statistics(column: pa.ChunkedArray, nulls: int) -> ColumnStatistics:
    return ColumnStatistics(nulls=nulls)


def stored_integers(t: Type, column: pa.ChunkedArray) -> np.ndarray | None:
    """Values as int64 in stored form; None if some need 128 bits."""
    if pa.types.is_decimal(column.type):
        words = [
            np.frombuffer(c.buffers()[1], np.int64)[c.offset * 2 : (c.offset + len(c)) * 2]
            for c in column.chunks
            if len(c)
        ]
        all_words = np.concatenate(words) if words else np.zeros(0, np.int64)
        low, high = all_words[0::2], all_words[1::2]
        if column.null_count:
            valid = one_array(column.is_valid()).to_numpy(zero_copy_only=False)
            low, high = np.where(valid, low, 0), np.where(valid, high, 0)
        return low.copy() if np.array_equal(high, low >> 63) else None
    if t.name == "UBIGINT":
        unsigned = np.asarray(column.fill_null(0).to_numpy())
        return unsigned.astype(np.int64) if len(unsigned) == 0 or unsigned.max() < 2**63 else None
    physical = {"DATE": pa.int32(), "TIME": pa.int64(), "TIMESTAMP": pa.int64(), "TIMESTAMPTZ": pa.int64()}.get(t.name)
    if physical is not None:
        column = pa.chunked_array([c.view(physical) for c in column.chunks], physical)
    whole = column.fill_null(0) if column.null_count else column
    return np.asarray(whole.to_numpy()).astype(np.int64)


def wide_statistics(t: Type, array: pa.Array) -> ColumnStatistics:
    """Bounds and NULLs of integers and decimals of which some need more than 64 bits."""
    bounds = pc.min_max(array).as_py()
    if bounds["min"] is None:
        return ColumnStatistics(nulls=array.null_count, distinct=0)
    low, high = (
        int(value.scaleb(t.scale, _DIGITS)) if isinstance(value, Decimal) else int(value)
        for value in (bounds["min"], bounds["max"])
    )
    return ColumnStatistics(low, high, array.null_count, exact=True)


def _encode_integers(
    name: str, t: Type, column: pa.ChunkedArray, validity: pa.Buffer | None, nulls: int
) -> BlockColumn:
    values = stored_integers(t, column)
    if values is None:
        array = one_array(column)
        return BlockColumn(
            SourceColumn(name, t, arrow_layout(t, array.type, bool(nulls))), array, validity, wide_statistics(t, array)
        )
    present = values if not nulls else values[one_array(column.is_valid()).to_numpy(zero_copy_only=False)]
    if len(present) == 0:
        source = SourceColumn(name, t, Layout("fixed", "i8", bool(nulls), True, 0), (0, 0))
        return BlockColumn(source, np.zeros(len(values), np.uint8), validity, ColumnStatistics(nulls=nulls, distinct=0))
    low, high = int(present.min()), int(present.max())
    if nulls:
        values = np.where(one_array(column.is_valid()).to_numpy(zero_copy_only=False), values, low)
    fine = fine_zones(values)
    lows, highs = zone_map(values)
    span = high - low
    statistics = ColumnStatistics(low, high, nulls, _distinct(present, low, span), True)
    bounds = round_range(low, high)
    for bits in (8, 16, 32):
        if span < 2**bits:
            stored = (values - low).astype(f"u{bits // 8}")
            return BlockColumn(
                SourceColumn(name, t, Layout("fixed", f"i{bits}", bool(nulls), True, low), bounds),
                stored,
                validity,
                statistics,
                lows,
                highs,
                fine=fine,
            )
    source = SourceColumn(name, t, Layout("fixed", "i64", bool(nulls)), bounds)
    return BlockColumn(source, values, validity, statistics, lows, highs, fine=fine)


def zone_map(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest stored value of each block."""
    starts = np.arange(0, len(values), BLOCK_ROWS)
    return np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)


def fine_zones(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest value of each FINE_ROWS rows. Runs with NaN, which is above all numbers, have no
    bounds."""
    whole = len(values) // FINE_ROWS * FINE_ROWS
    runs = values[:whole].reshape(-1, FINE_ROWS)
    lows, highs = runs.min(axis=1), runs.max(axis=1)
    if whole < len(values):
        lows, highs = np.append(lows, values[whole:].min()), np.append(highs, values[whole:].max())
    if values.dtype.kind == "f":
        unknown = np.isnan(lows) | np.isnan(highs)
        return np.where(unknown, -np.inf, lows).astype(np.float64), np.where(unknown, np.inf, highs).astype(np.float64)
    return lows.astype(np.int64), highs.astype(np.int64)


def _distinct(values: np.ndarray, low: int, span: int) -> int:
    """The number of distinct values: exact for a small domain, estimated from a sample otherwise."""
    if span < LARGEST_DOMAIN:
        seen = np.zeros(span + 1, np.bool_)
        seen[values - low] = True
        return int(np.count_nonzero(seen))
    sample = values[:: max(1, len(values) // SAMPLE_ROWS)]
    return _estimate(len(np.unique(sample)), len(sample), len(values))


def _estimate(distinct: int, sample: int, rows: int) -> int:
    """Estimate the distinct values of all rows from a sample: few repeats in the sample mean that new rows bring new
    values."""
    if sample == 0:
        return 0
    ratio = distinct / sample
    return max(distinct, int(rows * ratio)) if ratio > 0.9 else max(distinct, int(distinct / max(1.0 - ratio, 0.05)))


def _encode_strings(name: str, t: Type, column: pa.ChunkedArray, validity: pa.Buffer | None, nulls: int) -> BlockColumn:
    rows = len(column)
    step = max(1, rows // SAMPLE_ROWS)
    sample = column.take(pa.array(np.arange(0, rows, step))) if rows else column
    sampled = pc.count_distinct(sample).as_py() if rows else 0
    if rows and sampled <= LARGEST_DICTIONARY // 4 and (sampled < len(sample) * 0.5 or rows <= 256):
        encoded = _encode_dictionary(name, t, column, validity, nulls)
        if encoded is not None:
            return encoded
    estimate = _estimate(sampled, len(sample), rows)
    size = sum(c.nbytes for c in column.chunks)
    if size < 2**31 - 2**20:
        array = one_array(column.cast(pa.binary() if t.name == "BLOB" else pa.string()))
    else:
        array = one_array(column.cast(pa.large_binary() if t.name == "BLOB" else pa.large_string()))
    source = SourceColumn(name, t, arrow_layout(t, array.type, bool(nulls)))
    return BlockColumn(source, array, validity, ColumnStatistics(nulls=nulls, distinct=estimate))


def _encode_dictionary(
    name: str, t: Type, column: pa.ChunkedArray, validity: pa.Buffer | None, nulls: int
) -> BlockColumn | None:
    """Codes of a sorted dictionary, so that the order of codes is the order of strings."""
    encoded = one_array(column).dictionary_encode()
    values = encoded.dictionary
    if len(values) > LARGEST_DICTIONARY or len(values) == 0:
        return None
    order = pc.sort_indices(values)
    rank = np.empty(len(order), np.uint32)
    rank[np.asarray(order)] = np.arange(len(order), dtype=np.uint32)
    codes = rank[np.asarray(encoded.indices.fill_null(0))].astype(np.uint8 if len(values) <= 256 else np.uint16)
    dictionary = Dictionary(values.take(order).cast(pa.binary() if t.name == "BLOB" else pa.string()))
    source = SourceColumn(name, t, Layout("codes", f"i{codes.itemsize * 8}", bool(nulls), True), None, dictionary)
    statistics = ColumnStatistics(
        dictionary.values[0].as_py(), dictionary.values[-1].as_py(), nulls, len(dictionary), True
    )
    lows, highs = zone_map(codes)
    return BlockColumn(source, codes, validity, statistics, lows, highs, fine=fine_zones(codes))
