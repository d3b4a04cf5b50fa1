"""Turns result columns (Arrow arrays with their SQL types) into text in DuckDB's form and into Python values.

`display.py` shows the texts, `Relation.fetchall` returns the values. Both go through the stored integers of temporal
columns, since Arrow's own conversion refuses years that Python's datetime cannot hold.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.kernels.types import Type

_DAY_US = 86_400_000_000
_INFINITE_DAYS = 2**31 - 1
_INFINITE_US = 2**63 - 1
_MIN_DAY, _MAX_DAY = dt.date.min.toordinal() - 719_163, dt.date.max.toordinal() - 719_163


def texts(column: pa.Array | pa.ChunkedArray, sql_type: Type) -> list[str | None]:
    """Each value as DuckDB's cast to VARCHAR writes it; None for NULL."""
    write = _writer(sql_type)
    return [None if value is None else write(value) for value in _stored(column, sql_type)]


def python_values(column: pa.Array | pa.ChunkedArray, sql_type: Type) -> list[Any]:
    """Each value as the Python object that stands for it; None for NULL. What Python cannot hold comes as text."""
    read = _READERS.get(sql_type.name)
    values = _stored(column, sql_type)
    return values if read is None else [None if value is None else read(value) for value in values]


def _stored(column: pa.Array | pa.ChunkedArray, sql_type: Type) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if sql_type.name == "DATE":
        column = column.cast(pa.int32())
    elif sql_type.name in ("TIME", "TIMESTAMP", "TIMESTAMPTZ"):
        column = column.cast(pa.int64())
    return column.to_pylist()


def _writer(sql_type: Type) -> Callable[[Any], str]:
    if sql_type.is_decimal:
        return lambda value: f"{value:f}"
    return _WRITERS.get(sql_type.name, str)


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day number since 1970-01-01, in the proleptic Gregorian calendar, for any year.

    Howard Hinnant's algorithm over eras of 400 years: https://howardhinnant.github.io/date_algorithms.html
    """
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def date_text(days: int) -> str:
    if abs(days) == _INFINITE_DAYS:
        return "infinity" if days > 0 else "-infinity"
    year, month, day = civil(days)
    return f"{year:04}-{month:02}-{day:02}" if year > 0 else f"{1 - year:04}-{month:02}-{day:02} (BC)"


def time_text(us: int) -> str:
    seconds, fraction = divmod(us, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return text + (f".{fraction:06}".rstrip("0") if fraction else "")


def timestamp_text(us: int) -> str:
    if abs(us) == _INFINITE_US:
        return "infinity" if us > 0 else "-infinity"
    days, rest = divmod(us, _DAY_US)
    return f"{date_text(days)} {time_text(rest)}"


def timestamptz_text(us: int) -> str:
    text = timestamp_text(us)
    return text if text.endswith("infinity") else text + "+00"


def interval_text(months: int, days: int, us: int) -> str:
    """An interval as DuckDB writes it: `1 year 2 months 3 days 04:05:06.7`."""
    years, months = int(months / 12), months - 12 * int(months / 12)
    parts = [f"{count} {unit}{'s' if abs(count) != 1 else ''}" for count, unit in ((years, "year"), (months, "month"), (days, "day")) if count]
    if us or not parts:
        parts.append(("-" if us < 0 else "") + time_text(abs(us)))
    return " ".join(parts)


def blob_text(value: bytes) -> str:
    """Printable ASCII as it is, every other byte, quotes and backslashes as `\\xNN`."""
    return "".join(chr(b) if 32 <= b < 127 and b not in b"\"'\\" else f"\\x{b:02X}" for b in value)


def float32_text(value: float) -> str:
    """The shortest digits that give the FLOAT back, with exponents where DOUBLE has them (numpy's own places differ)."""
    if not np.isfinite(value) or value == 0:
        return repr(float(value))
    mantissa, _, exponent = np.format_float_scientific(np.float32(value), unique=True, trim="0").partition("e")
    if -4 <= int(exponent) < 16:
        return np.format_float_positional(np.float32(value), unique=True, trim="0")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+03}"


def _date_value(days: int) -> dt.date | str:
    if _MIN_DAY <= days <= _MAX_DAY:
        return dt.date.fromordinal(days + 719_163)
    return date_text(days)


def _timestamp_value(us: int) -> dt.datetime | str:
    days, rest = divmod(us, _DAY_US)
    if not _MIN_DAY <= days <= _MAX_DAY:
        return timestamp_text(us)
    return dt.datetime.fromordinal(days + 719_163) + dt.timedelta(microseconds=rest)


def _timestamptz_value(us: int) -> dt.datetime | str:
    value = _timestamp_value(us)
    return timestamptz_text(us) if isinstance(value, str) else value.replace(tzinfo=dt.UTC)


def _time_value(us: int) -> dt.time | str:
    if not 0 <= us < _DAY_US:
        return time_text(us)
    return (dt.datetime.min + dt.timedelta(microseconds=us)).time()


def _interval_value(value: Any) -> dt.timedelta:
    """A month counts 30 days, as in DuckDB's client."""
    months, days, nanoseconds = value
    return dt.timedelta(days=days + 30 * months, microseconds=nanoseconds // 1000)


_WRITERS: dict[str, Callable[[Any], str]] = {
    "BOOLEAN": lambda value: "true" if value else "false",
    "HUGEINT": lambda value: f"{value:f}",
    "FLOAT": float32_text,
    "DOUBLE": repr,
    "BLOB": blob_text,
    "DATE": date_text,
    "TIME": time_text,
    "TIMESTAMP": timestamp_text,
    "TIMESTAMPTZ": timestamptz_text,
    "INTERVAL": lambda value: interval_text(value[0], value[1], value[2] // 1000),
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "HUGEINT": int,
    "DATE": _date_value,
    "TIME": _time_value,
    "TIMESTAMP": _timestamp_value,
    "TIMESTAMPTZ": _timestamptz_value,
    "INTERVAL": _interval_value,
}
