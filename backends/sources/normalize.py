"""Arrow columns of any type as columns of the engine's types: `engine_field` decides, `normalize` converts.

Every source that reads Arrow data (tables in memory, Parquet, IPC) goes through here, so that a batch handed to a kernel
has only the types of `Schema.to_arrow()`, or VARCHAR and BLOB as a dictionary with int8, int16 or int32 indices.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsql.kernels.errors import SourceError
from tsql.kernels.schema import Field, Schema
from tsql.kernels.types import INTERVAL, Type, from_arrow

_UNIT_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_MAX_OFFSET = 2**31 - 1
_EMPTY = pa.struct([])


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
    """The engine's schema of an Arrow schema; names made unique as DuckDB does (`a`, `a_1`)."""
    fields = []
    for name, field in zip(unique_names(schema.names), schema, strict=True):
        try:
            fields.append(Field(name, engine_type(field.type), True))
        except ValueError:
            raise SourceError(f"{origin}: column {name} has type {field.type}, which has no SQL type here", hint="lists, structs and maps are not supported: flatten the column or leave it out before reading") from None
    return Schema(tuple(fields))


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


def normalize(column: pa.ChunkedArray | pa.Array, kind: Type) -> list[pa.Array]:
    """The column as arrays of `kind`'s Arrow type (strings may stay dictionaries). Raises pa.ArrowInvalid where a value
    does not fit, such as a timestamp in seconds beyond the range of microseconds."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [part for chunk in chunks for part in _normalize_chunk(chunk, kind)]


def _normalize_chunk(array: pa.Array, kind: Type) -> list[pa.Array]:
    arrow, target = array.type, kind.to_arrow()
    if arrow == target:
        return [array]
    if isinstance(arrow, pa.ExtensionType):
        return _normalize_chunk(array.storage, kind)
    if pa.types.is_dictionary(arrow):
        return _normalize_dictionary(array, kind)
    if pa.types.is_run_end_encoded(arrow):
        return _normalize_chunk(pc.run_end_decode(array), kind)
    if pa.types.is_null(arrow):
        return [pa.nulls(len(array), target)]
    if pa.types.is_duration(arrow):
        return [_interval(array)]
    if pa.types.is_timestamp(arrow) and arrow.unit == "ns":
        return [_micros(array, target)]
    if kind.is_string and arrow not in (pa.string(), pa.binary()):
        return [part.cast(target) for part in _small_parts(array)]
    return [array.cast(target, safe=not pa.types.is_date64(arrow))]


def _normalize_dictionary(array: pa.DictionaryArray, kind: Type) -> list[pa.Array]:
    if not kind.is_string:
        return _normalize_chunk(array.dictionary_decode(), kind)
    values = _normalize_chunk(array.dictionary, kind)
    if len(values) != 1 or len(array.dictionary) > _MAX_OFFSET or array.dictionary.null_count:
        return _normalize_chunk(array.dictionary_decode(), kind)
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


def _micros(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Nanoseconds as microseconds, rounded half away from zero: DuckDB's cast of TIMESTAMP_NS."""
    nanos = np.asarray(array.view(pa.int64()).fill_null(0))
    micros = (np.abs(nanos) // 500 + 1) // 2 * np.sign(nanos)
    mask = np.asarray(array.is_null()) if array.null_count else None
    return pa.array(micros, pa.int64(), mask=mask).view(target)


def _interval(array: pa.Array) -> pa.Array:
    """A duration as an INTERVAL of no months, no days and its time."""
    counts = np.asarray(array.view(pa.int64()).fill_null(0))
    scale = _UNIT_NANOS[array.type.unit]
    if len(counts) and max(abs(int(counts.min())), abs(int(counts.max()))) > (2**63 - 1) // scale:
        raise pa.ArrowInvalid(f"a {array.type} is out of the range of INTERVAL")
    parts = np.zeros(len(counts), dtype=[("months", "i4"), ("days", "i4"), ("nanos", "i8")])
    parts["nanos"] = counts * scale
    mask = None
    if array.null_count:
        mask = pc.is_valid(array).buffers()[1]
    return pa.Array.from_buffers(pa.month_day_nano_interval(), len(counts), [mask, pa.py_buffer(parts)], array.null_count)


def batch_of(arrays: list[pa.Array], names: tuple[str, ...], rows: int) -> pa.RecordBatch:
    """A batch of these columns; with no columns it still has `rows` rows."""
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(_EMPTY, rows, [None]))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))
