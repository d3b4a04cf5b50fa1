"""Turns result columns (Arrow arrays with their SQL types) into text in DuckDB's form and into Python values.

`display.py` shows the texts, `Relation.fetchall` returns the values. Temporal columns go through their stored integers,
since Arrow's own conversion refuses years that Python's datetime cannot hold.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tsql.backends.io import value_text
from tsql.kernels.expr.types import Type
from tsql.kernels.process.arrow_compute import pc

FEW_ROWS = 1000
"""Importing Arrow's casts takes longer than formatting this many values."""
_DAY_US = 86_400_000_000
_MAX_DAYS = dt.timedelta.max.days - 110_000
"""The limit of an interval's days; its time part may add another 106,751 days."""
_EPOCH_ORDINAL = 719_163
_MIN_DAY, _MAX_DAY = dt.date.min.toordinal() - _EPOCH_ORDINAL, dt.date.max.toordinal() - _EPOCH_ORDINAL


def texts(column: pa.Array) -> list[str | None]:
    """Each value as DuckDB's cast to VARCHAR writes it; None for NULL."""
    kind = column.type
    if len(column) <= FEW_ROWS and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    return value_text.texts(column).to_pylist()


def python_values(column: pa.Array, sql_type: Type) -> list[Any]:
    """Each value as the Python object that stands for it; None for NULL. What Python cannot hold comes as text."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if sql_type.name == "DATE":
        column = column.cast(pa.int32())
    elif sql_type.name in ("TIME", "TIMESTAMP", "TIMESTAMPTZ"):
        column = column.cast(pa.int64())
    read = _READERS.get(sql_type.name)
    values = column.to_pylist()
    return values if read is None else [None if value is None else read(value) for value in values]


def _date(days: int) -> dt.date | str:
    if _MIN_DAY <= days <= _MAX_DAY:
        return dt.date.fromordinal(days + _EPOCH_ORDINAL)
    return value_text.date_text(days)


def _timestamp(us: int) -> dt.datetime | str:
    days, rest = divmod(us, _DAY_US)
    if not _MIN_DAY <= days <= _MAX_DAY:
        return value_text.stamp_text(us)
    return dt.datetime.fromordinal(days + _EPOCH_ORDINAL) + dt.timedelta(microseconds=rest)


def _timestamptz(us: int) -> dt.datetime | str:
    value = _timestamp(us)
    if isinstance(value, str):
        return value if value.endswith("infinity") else f"{value}+00"
    return value.replace(tzinfo=dt.UTC)


def _time(us: int) -> dt.time | str:
    if not 0 <= us < _DAY_US:
        return value_text.clock_text(us)
    return (dt.datetime.min + dt.timedelta(microseconds=us)).time()


def _interval(value: Any) -> dt.timedelta | str:
    """A month counts 30 days, as in DuckDB's client."""
    months, days, nanoseconds = value
    if abs(days + 30 * months) > _MAX_DAYS:
        return value_text.interval_text(months, days, nanoseconds // 1000)
    return dt.timedelta(days=days + 30 * months, microseconds=nanoseconds // 1000)


_HELD = {
    "DATE": (pa.int32(), _MIN_DAY, _MAX_DAY),
    "TIME": (pa.int64(), 0, _DAY_US - 1),
    "TIMESTAMPTZ": (pa.int64(), _MIN_DAY * _DAY_US, (_MAX_DAY + 1) * _DAY_US - 1),
}
"""Types whose values pandas shows as Python objects, with the range of these objects. (pandas has its own TIMESTAMP,
which holds all of ours.)"""

# The first and the last day that polars can show; beyond it panics.
_POLARS_DAYS = -96_465_292, 95_026_236
_POLARS = {
    "DATE": (pa.int32(), *_POLARS_DAYS),
    "TIME": (pa.int64(), 0, _DAY_US - 1),
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMPTZ"),
        (pa.int64(), _POLARS_DAYS[0] * _DAY_US, min((_POLARS_DAYS[1] + 1) * _DAY_US, 2**63) - 1),
    ),
}


def beyond_python(column: pa.ChunkedArray, sql_type: Type) -> bool:
    """Whether a column has values that pandas would turn into Python objects that do not exist: the year 10000,
    24:00:00."""
    return _outside(column, _HELD.get(sql_type.name)) is not None


def beyond_polars(column: pa.ChunkedArray, sql_type: Type) -> str | None:
    """The text of a value that polars cannot hold; None if it can hold all."""
    found = _outside(column, _POLARS.get(sql_type.name))
    if found is None:
        return None
    return (
        value_text.date_text
        if sql_type.name == "DATE"
        else value_text.clock_text
        if sql_type.name == "TIME"
        else value_text.stamp_text
    )(found)


def _outside(column: pa.ChunkedArray, held: tuple[pa.DataType, int, int] | None) -> int | None:
    if held is None or not len(column):
        return None
    stored, low, high = held
    found = pc.min_max(column.cast(stored)).as_py()
    return next(
        (value for value in (found["max"], found["min"]) if value is not None and not low <= value <= high), None
    )


_READERS: dict[str, Callable[[Any], Any]] = {
    "HUGEINT": int,
    "DATE": _date,
    "TIME": _time,
    "TIMESTAMP": _timestamp,
    "TIMESTAMPTZ": _timestamptz,
    "INTERVAL": _interval,
}
