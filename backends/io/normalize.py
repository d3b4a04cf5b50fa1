"""Converts Arrow columns of any type to the engine's types: `engine_field` decides, `normalize` converts.

Every source of Arrow data (in-memory tables, Parquet, IPC) uses this module, so a batch passed to a kernel has only the
types of `Schema.to_arrow()`, or VARCHAR and BLOB as a dictionary with int8, int16 or int32 indices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import HUGEINT, INTERVAL, TIMESTAMP, Type, from_arrow, unreadable
from tsql.kernels.process.arrow_compute import pc

_UNIT_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_MAX_OFFSET = 2**31 - 1
_EMPTY = pa.struct([])
TWELVE_BYTES = pa.binary(12)
"""The Arrow type of old Parquet timestamps (INT96, see `parquet_footer`) and of Parquet intervals."""
_EPOCH_JULIAN, _MAX_DAYS, _DAY_US = 2_440_588, 106_000_000, 86_400_000_000
_INTERVAL = np.dtype([("months", "i4"), ("days", "i4"), ("nanos", "i8")])


def engine_type(arrow: pa.DataType) -> Type:
    """The SQL type of an Arrow type; raises ValueError where there is none."""
    if isinstance(arrow, pa.JsonType):
        return engine_type(arrow.storage_type)
    if pa.types.is_dictionary(arrow):
        return engine_type(arrow.value_type)
    if pa.types.is_run_end_encoded(arrow):
        return engine_type(arrow.value_type)
    if pa.types.is_duration(arrow):
        return INTERVAL
    return from_arrow(arrow)


def engine_schema(schema: pa.Schema, origin: str) -> Schema:
    """The engine's schema for an Arrow schema. Names are made unique as in DuckDB (`a`, `a_1`). A column without a SQL
    type gets a placeholder type that says what it is (`unreadable`)."""
    try:
        return Schema(
            tuple(
                Field(name, _shown_type(field.type), True)
                for name, field in zip(unique_names(schema.names), schema, strict=True)
            )
        )
    except UnicodeDecodeError as error:
        raise SourceError(f"{origin}: the name of a column is not UTF-8: {error.object!r}") from None


def _shown_type(arrow: pa.DataType) -> Type:
    try:
        return engine_type(arrow)
    except ValueError:
        return unreadable(spelled(arrow))


_DEEPEST = 30


def spelled(arrow: pa.DataType, depth: int = 0) -> str:
    """An Arrow type in DuckDB's spelling, for types that DuckDB has and that cannot be read here; otherwise Arrow's own
    name."""
    if depth > _DEEPEST:
        return ".."
    below = depth + 1
    if isinstance(arrow, pa.UuidType):
        return "UUID"
    if isinstance(arrow, pa.OpaqueType):
        return arrow.type_name.upper()
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return spelled(arrow.value_type, below)
    if pa.types.is_fixed_size_list(arrow):
        return f"{spelled(arrow.value_type, below)}[{arrow.list_size}]"
    if pa.types.is_map(arrow):
        return f"MAP({spelled(arrow.key_type, below)}, {spelled(arrow.item_type, below)})"
    if pa.types.is_struct(arrow) or pa.types.is_union(arrow):
        inside = ", ".join(
            f"{quote(field.name)} {spelled(field.type, below)}" for field in map(arrow.field, range(arrow.num_fields))
        )
        return f"{'STRUCT' if pa.types.is_struct(arrow) else 'UNION'}({inside})"
    if isinstance(arrow, pa.ListType | pa.LargeListType | pa.ListViewType | pa.LargeListViewType):
        return f"{spelled(arrow.value_type, below)}[]"
    try:
        kind = engine_type(arrow)
    except ValueError:
        return str(arrow)
    return "TIMESTAMP WITH TIME ZONE" if kind.name == "TIMESTAMPTZ" else str(kind)


def unique_names(names: list[str]) -> list[str]:
    """Names with `_1`, `_2`, .. where one repeats; case does not count (SQL names are compared without it)."""
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    unique = []
    for name in names:
        candidate, number = name, numbers.get(name.lower(), 0)
        while candidate.lower() in taken:
            number += 1
            candidate = f"{name}_{number}"
        taken.add(candidate.lower())
        numbers[name.lower()] = number
        unique.append(candidate)
    return unique


Lost = Callable[[], None]
"""Called if values had more digits than the type holds: nanoseconds."""


def normalize(column: pa.ChunkedArray | pa.Array, kind: Type, lost: Lost = lambda: None) -> list[pa.Array]:
    """The column as arrays of `kind`'s Arrow type (strings may stay dictionaries). Raises pa.ArrowInvalid if a value
    does not fit, such as a timestamp in seconds beyond the range of microseconds. Nanoseconds are rounded down, so that
    a time stays in its second, its window and its day; `lost` is then called."""
    if not kind.is_readable:
        raise pa.ArrowInvalid(f"a {kind} cannot be read")
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [part for chunk in chunks for part in _normalize_chunk(chunk, kind, lost)]


def _normalize_chunk(array: pa.Array, kind: Type, lost: Lost) -> list[pa.Array]:
    arrow, target = array.type, kind.to_arrow()
    if arrow == target:
        return [array if kind != INTERVAL else _whole_micros(array, lost)]
    if isinstance(arrow, pa.ExtensionType):
        return _normalize_chunk(array.storage, kind, lost)
    if pa.types.is_dictionary(arrow):
        return _normalize_dictionary(array, kind, lost)
    if pa.types.is_run_end_encoded(arrow):
        return _normalize_chunk(pc.run_end_decode(array), kind, lost)
    if pa.types.is_null(arrow):
        return [pa.nulls(len(array), target)]
    if pa.types.is_duration(arrow):
        return [_interval(array, lost)]
    if (pa.types.is_timestamp(arrow) or pa.types.is_time64(arrow)) and arrow.unit == "ns":
        return [_micros(array, target, lost)]
    if arrow == TWELVE_BYTES and kind == TIMESTAMP:
        return [_from_int96(array, target, lost)]
    if arrow == TWELVE_BYTES and kind == INTERVAL:
        return [_from_parquet_interval(array)]
    if pa.types.is_date64(arrow):
        return [
            pc.cast(pc.floor(pc.divide(pc.cast(array.view(pa.int64()), pa.float64()), 86_400_000.0)), pa.int32()).view(
                target
            )
        ]
    if kind == HUGEINT and pa.types.is_decimal256(arrow):
        return [_low_half(array)]
    if kind.is_string and arrow not in (pa.string(), pa.binary()):
        return [part.cast(target) for part in _small_parts(array)]
    return [array.cast(target)]


def _normalize_dictionary(array: pa.DictionaryArray, kind: Type, lost: Lost) -> list[pa.Array]:
    if not kind.is_string:
        return _normalize_chunk(array.dictionary_decode(), kind, lost)
    values = _normalize_chunk(array.dictionary, kind, lost)
    if len(values) != 1 or len(array.dictionary) > _MAX_OFFSET or array.dictionary.null_count:
        return _normalize_chunk(array.dictionary_decode(), kind, lost)
    indices = array.indices
    if indices.type not in (pa.int8(), pa.int16(), pa.int32()):
        indices = indices.cast(pa.int32())
    if indices is array.indices and values[0] is array.dictionary:
        return [array]
    return [pa.DictionaryArray.from_arrays(indices, values[0], safe=False)]


def _small_parts(array: pa.Array) -> list[pa.Array]:
    """Slices of a string array whose bytes fit 32-bit offsets, each with offsets that start at zero."""
    if array.nbytes <= _MAX_OFFSET or len(array) <= 1:
        return [array]
    half = len(array) // 2
    halves = (pa.concat_arrays([array[:half]]), pa.concat_arrays([array[half:]]))
    return [part for piece in halves for part in _small_parts(piece)]


def _micros(array: pa.Array, target: pa.DataType, lost: Lost) -> pa.Array:
    """Nanoseconds as microseconds, rounded down."""
    return _floored(np.asarray(array.view(pa.int64()).fill_null(0)), array, lost).view(target)


def _floored(nanos: np.ndarray, array: pa.Array, lost: Lost) -> pa.Array:
    """Nanoseconds as microseconds, with the NULLs of `array`, under which the nanoseconds are 0."""
    micros = nanos // 1000
    if (micros * 1000 != nanos).any():
        lost()
    return pa.array(micros, pa.int64(), mask=np.asarray(array.is_null()) if array.null_count else None)


def _from_int96(array: pa.Array, target: pa.DataType, lost: Lost) -> pa.Array:
    """Timestamps of old Parquet files: the nanoseconds of a day, and its Julian day number."""
    parts = np.frombuffer(
        array.buffers()[1], dtype=[("nanos", "<i8"), ("day", "<i4")], count=len(array), offset=12 * array.offset
    )
    valid = np.asarray(array.is_valid())
    nanos, days = np.where(valid, parts["nanos"], 0), np.where(valid, parts["day"] - np.int64(_EPOCH_JULIAN), 0)
    if (np.abs(days) > _MAX_DAYS).any():
        raise pa.ArrowInvalid("a timestamp (INT96) is out of the range of TIMESTAMP")
    return pc.add(_floored(nanos, array, lost), pa.array(days * _DAY_US)).view(target)


def _from_parquet_interval(array: pa.Array) -> pa.Array:
    """Parquet intervals: months, days and milliseconds, as unsigned 4-byte integers."""
    stored = np.frombuffer(array.buffers()[1], "<u4", 3 * len(array), 12 * array.offset).reshape(-1, 3)
    stored = np.where(np.asarray(array.is_valid())[:, None], stored, 0)
    if (stored[:, :2] > _MAX_OFFSET).any():
        raise pa.ArrowInvalid("an interval is out of the range of INTERVAL")
    parts = np.zeros(len(array), dtype=_INTERVAL)
    parts["months"], parts["days"], parts["nanos"] = (
        stored[:, 0],
        stored[:, 1],
        stored[:, 2].astype(np.int64) * 1_000_000,
    )
    mask = pc.is_valid(array).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(INTERVAL.to_arrow(), len(array), [mask, pa.py_buffer(parts)], array.null_count)


def _low_half(array: pa.Array) -> pa.Array:
    """HUGEINTs from 256-bit numbers. Arrow's cast checks the digits, of which a HUGEINT may have 39."""
    words = np.frombuffer(array.buffers()[1], np.int64, 4 * len(array), 32 * array.offset).reshape(-1, 4)
    valid = np.asarray(array.is_valid())
    if ((words[:, 2:] != (words[:, 1:2] >> 63)).any(axis=1) & valid).any():
        raise pa.ArrowInvalid("a number is out of the range of HUGEINT")
    mask = pc.is_valid(array).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(
        HUGEINT.to_arrow(), len(array), [mask, pa.py_buffer(np.ascontiguousarray(words[:, :2]))], array.null_count
    )


def _interval(array: pa.Array, lost: Lost) -> pa.Array:
    """A duration as an INTERVAL with only a time part."""
    counts = np.asarray(array.view(pa.int64()).fill_null(0))
    scale = _UNIT_NANOS[array.type.unit]
    if len(counts) and max(abs(int(counts.min())), abs(int(counts.max()))) > (2**63 - 1) // scale:
        raise pa.ArrowInvalid(f"a {array.type} is out of the range of INTERVAL")
    parts = np.zeros(len(counts), dtype=_INTERVAL)
    parts["nanos"] = counts * scale
    mask = None
    if array.null_count:
        mask = pc.is_valid(array).buffers()[1]
    return _whole_micros(
        pa.Array.from_buffers(pa.month_day_nano_interval(), len(counts), [mask, pa.py_buffer(parts)], array.null_count),
        lost,
    )


def _whole_micros(array: pa.Array, lost: Lost) -> pa.Array:
    """An INTERVAL with its time in whole microseconds, as kernels store it."""
    if not len(array):
        return array
    parts = np.frombuffer(
        array.buffers()[1], dtype=_INTERVAL, count=len(array), offset=_INTERVAL.itemsize * array.offset
    )
    over = parts["nanos"] % 1000
    if array.null_count:
        over = np.where(np.asarray(array.is_valid()), over, 0)
    if not over.any():
        return array
    lost()
    cut = parts.copy()
    cut["nanos"] -= over
    valid = pc.is_valid(array).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(array.type, len(array), [valid, pa.py_buffer(cut)], array.null_count)


def batch_of(arrays: list[pa.Array], names: tuple[str, ...], rows: int) -> pa.RecordBatch:
    """A batch of these columns; with no columns it still has `rows` rows."""
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(_EMPTY, rows, [None]))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))
