"""Turns result columns (Arrow arrays with their SQL types) into text in DuckDB's form and into Python values.

`display.py` shows the texts, `Relation.fetchall` returns the values. Temporal columns go through their stored integers,
since Arrow's own conversion refuses years that Python's datetime cannot hold.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tsql.backends import value_text
from tsql.kernels.types import Type

_DAY_US = 86_400_000_000
_EPOCH_ORDINAL = 719_163
_MIN_DAY, _MAX_DAY = dt.date.min.toordinal() - _EPOCH_ORDINAL, dt.date.max.toordinal() - _EPOCH_ORDINAL


def texts(column: pa.Array) -> list[str | None]:
    """Each value as DuckDB's cast to VARCHAR writes it; None for NULL."""
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

_LONGEST_DAYS = 999_000_000
"""Longer intervals, like dates that Python does not have, are given as text."""


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
    if abs(days + 30 * months) >= _LONGEST_DAYS:
        return value_text.interval_text(months, days, nanoseconds // 1000)
    return dt.timedelta(days=days + 30 * months, microseconds=nanoseconds // 1000)


_READERS: dict[str, Callable[[Any], Any]] = {
    "HUGEINT": int,
    "DATE": _date,
    "TIME": _time,
    "TIMESTAMP": _timestamp,
    "TIMESTAMPTZ": _timestamptz,
    "INTERVAL": _interval,
}
