"""Casts between column types, for files that differ from the schema of the first one (as DuckDB reads a list of files).

`ParquetSource` and `IpcSource` call `convert` per batch. It raises ValueError (pa.ArrowInvalid is one) with the value
that does not fit. `castable` tells beforehand whether there is a cast at all."""

from __future__ import annotations

import pyarrow as pa

from tsql.backends.io.text import from_stored, parser
from tsql.kernels.expr.types import VARCHAR, Type
from tsql.kernels.process.arrow_compute import pc


def castable(source: Type, target: Type) -> bool:
    """Whether values of `source` may be read as `target`."""
    if source == target:
        return True
    if not source.is_readable or not target.is_readable:
        return False
    if source == VARCHAR:
        return target.name not in ("INTERVAL", "BLOB")
    if source.is_numeric or source.name == "BOOLEAN":
        return target.is_numeric or target.name == "BOOLEAN" or (target == VARCHAR and source.is_integer)
    if source.is_temporal:
        return (target.is_temporal and "TIME" not in (source.name, target.name)) or (
            target == VARCHAR and source.name == "DATE"
        )
    return False


def convert(array: pa.Array, source: Type, target: Type) -> pa.Array:
    """`array`, in the Arrow type of `source`, as the Arrow type of `target`."""
    if source == target:
        return array
    if not castable(source, target):
        raise ValueError(f"no cast from {source} to {target}")
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if source == VARCHAR:
        return _from_text(array, target)
    arrow = target.to_arrow()
    if source.is_float and (target.is_integer or target.is_decimal):
        digits = target.scale if target.is_decimal else 0
        return (
            pc.round(array, ndigits=digits, round_mode="half_to_even")
            .cast(pa.decimal128(38, digits) if target.is_decimal else arrow)
            .cast(arrow)
        )
    if source.is_decimal and target.is_integer:
        return pc.round(array, round_mode="half_towards_infinity").cast(arrow)
    if source.is_decimal and target.is_decimal and target.scale < source.scale:
        return pc.round(array, ndigits=target.scale, round_mode="half_towards_infinity").cast(arrow)
    if source.is_integer and target.is_decimal:
        return array.cast(pa.decimal128(38, target.scale)).cast(arrow)
    return array.cast(arrow, safe=target.name not in ("FLOAT", "DOUBLE", "DATE"))


def _from_text(array: pa.Array, target: Type) -> pa.Array:
    read = parser(target)
    values = []
    for text in array.to_pylist():
        value = None if text is None else read(text)
        if text is not None and value is None:
            raise ValueError(f"could not convert '{text[:60]}' to {target}")
        values.append(value)
    return from_stored(values, target)
