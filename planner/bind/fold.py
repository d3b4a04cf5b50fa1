"""Folds casts of constants while binding: `fold(literal, type)` gives the literal of the other type.

Only exact casts that cannot fail are folded, in plain Python. For any other, `fold` returns None and the cast stays in
the plan: a kernel computes it and reports errors.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
from typing import Any

from tsql.kernels.expr.nodes import Literal
from tsql.kernels.expr.types import Type

_EPOCH = datetime.date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000
_DATE = re.compile(r"(\d{4,6})-(\d{1,2})-(\d{1,2})")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?")
_INTEGER = re.compile(r"-?\d{1,60}")
_DECIMAL = re.compile(r"(-?)(\d{0,60})(?:\.(\d{0,60}))?")
_FLOAT = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
_INTERVAL_PART = re.compile(r"\s*([+-]?\d+)\s*([a-zA-Z]+)\s*")
INTERVAL_UNITS: dict[str, tuple[int, int, int]] = {
    "microsecond": (0, 0, 1), "millisecond": (0, 0, 1_000), "second": (0, 0, 1_000_000), "minute": (0, 0, 60_000_000),
    "hour": (0, 0, 3_600_000_000), "day": (0, 1, 0), "week": (0, 7, 0), "month": (1, 0, 0), "quarter": (3, 0, 0),
    "year": (12, 0, 0), "decade": (120, 0, 0), "century": (1200, 0, 0), "millennium": (12000, 0, 0),
}  # fmt: skip
_UNIT_NAMES = {name: unit for unit in INTERVAL_UNITS for name in (unit, unit + "s")} | {
    "centuries": "century", "millennia": "millennium", "us": "microsecond", "usec": "microsecond",
    "usecs": "microsecond", "ms": "millisecond", "msec": "millisecond", "msecs": "millisecond", "s": "second",
    "sec": "second", "secs": "second", "m": "minute", "min": "minute", "mins": "minute", "h": "hour", "hr": "hour",
    "hrs": "hour", "d": "day", "w": "week", "mon": "month", "mons": "month", "y": "year", "yr": "year", "yrs": "year",
}  # fmt: skip


def fold(literal: Literal, target: Type) -> Literal | None:
    """The literal cast to `target`, or None where the cast must stay."""
    if literal.value is None:
        return Literal(None, target, literal.position)
    value = _convert(literal.value, literal.dtype, target)
    return None if value is None else Literal(value, target, literal.position)


def fold_exact(literal: Literal, target: Type) -> Literal | None:
    """As `fold`, but only where the value stays the very same number (used to compare in the column's own type)."""
    source = literal.dtype
    if source.is_decimal and literal.value is not None and not target.is_float:
        if literal.value % 10 ** max(0, source.scale - (target.scale if target.is_decimal else 0)):
            return None
    elif source.name == "VARCHAR" and target.is_decimal and literal.value is not None:
        if len(literal.value.strip().partition(".")[2].rstrip("0")) > target.scale:
            return None
    elif source.is_float and source != target:
        return None
    if (
        target.name == "BOOLEAN"
        and (source.is_integer or source.is_decimal)
        and literal.value not in (None, 0, 10**source.scale)
    ):
        return None
    return fold(literal, target)


def _convert(value: Any, source: Type, target: Type) -> Any:
    if source == target:
        return value
    if source.name == "VARCHAR":
        return _from_text(value, target)
    if target.name == "VARCHAR":
        return _to_text(value, source)
    if source.name == "BOOLEAN" and (target.is_integer or target.is_decimal):
        source, value = Type("UTINYINT"), int(value)
    if source.is_integer or source.is_decimal:
        return _from_number(value, source.scale, target)
    if source.name == "FLOAT" and target.name == "DOUBLE":
        return value
    if source.name == "DOUBLE" and target.name == "FLOAT":
        return _single(value)
    if source.name == "DATE" and target.name in ("TIMESTAMP", "TIMESTAMPTZ"):
        return _in_bounds(value * _DAY_US, target)
    if source.name == "TIMESTAMP" and target.name == "TIMESTAMPTZ":
        return value
    return None


def _from_number(value: int, scale: int, target: Type) -> Any:
    if target.name == "BOOLEAN":
        return value != 0
    if target.is_integer:
        return _in_bounds(_rescale(value, scale, 0), target)
    if target.is_decimal:
        return _in_bounds(_rescale(value, scale, target.scale), target)
    if target.name == "DOUBLE" and abs(value) < 2**53 and scale <= 22:
        return value / 10**scale
    if target.name == "FLOAT" and abs(value) < 2**24 and scale <= 10:
        return struct.unpack("f", struct.pack("f", value / 10**scale))[0]
    return None


def _single(value: float) -> float | None:
    """A DOUBLE that FLOAT holds exactly."""
    try:
        rounded = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return None
    return rounded if rounded == value or math.isnan(value) else None


def _rescale(value: int, scale: int, target_scale: int) -> int:
    """Change the number of digits after the point; halves are rounded away from zero, as DuckDB does."""
    if target_scale >= scale:
        return value * 10 ** (target_scale - scale)
    unit = 10 ** (scale - target_scale)
    rounded = (abs(value) + unit // 2) // unit
    return rounded if value >= 0 else -rounded


def _in_bounds(value: int, target: Type) -> int | None:
    low, high = target.bounds
    return value if low <= value <= high else None


def _from_text(text: str, target: Type) -> Any:
    stripped = text.strip()
    if target.is_integer:
        return _in_bounds(int(stripped), target) if _INTEGER.fullmatch(stripped) else None
    if target.is_decimal:
        match = _DECIMAL.fullmatch(stripped)
        if match is None or not (match[2] or match[3]):
            return None
        digits = match[3] or ""
        value = int((match[2] or "0") + digits)
        return _in_bounds(_rescale(-value if match[1] else value, len(digits), target.scale), target)
    match target.name:
        case "DOUBLE" | "FLOAT" if stripped in ("inf", "-inf", "nan"):
            return float(stripped)
        case "DOUBLE":
            value = float(stripped) if _FLOAT.fullmatch(stripped) else None
            return value if value is not None and math.isfinite(value) else None
        case "BOOLEAN":
            return {"true": True, "false": False}.get(stripped.lower())
        case "DATE":
            return _date(stripped)
        case "TIME":
            match = _TIME.fullmatch(stripped)
            return None if match is None or match[3] is None else _time_us(match)
        case "TIMESTAMP":
            return _timestamp(stripped)
        case "TIMESTAMPTZ":
            return _timestamp(re.sub(r"(\+00|Z)( \(BC\))?$", r"\2", stripped))
        case "INTERVAL":
            return parse_interval(stripped)
        case "BLOB":
            return _blob(text)
    return None


def _date(text: str) -> int | None:
    if text in ("infinity", "-infinity"):
        return 2**31 - 1 if text[0] == "i" else 1 - 2**31
    plain, before_christ = text.removesuffix(" (BC)"), text.endswith(" (BC)")
    match = _DATE.fullmatch(plain)
    return None if match is None else _days(match, before_christ)


def _days(match: re.Match[str], before_christ: bool) -> int | None:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, for any year."""
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if before_christ:
        year = 1 - year
    if not 1 <= month <= 12 or not 1 <= day <= 31 or day > _month_days(year, month):
        return None
    shifted = year - (month <= 2)
    era, of_era = divmod(shifted, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    days = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + day_of_year - 719_468
    return days if abs(days) < 2**31 - 1 else None


def _month_days(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _time_us(match: re.Match[str]) -> int | None:
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((match[4] or "").ljust(6, "0") or 0)


def _timestamp(text: str) -> int | None:
    if text in ("infinity", "-infinity"):
        return 2**63 - 1 if text[0] == "i" else 1 - 2**63
    before_christ = text.endswith(" (BC)")
    text = text.removesuffix(" (BC)")
    date = _DATE.match(text)
    days = None if date is None else _days(date, before_christ)
    if date is None or days is None:
        return None
    rest = text[date.end() :]
    time = _TIME.fullmatch(rest[1:]) if rest else None
    if rest and (rest[0] not in " T" or time is None):
        return None
    us = _time_us(time) if time is not None else 0
    value = None if us is None else days * _DAY_US + us
    return value if value is not None and abs(value) < 2**63 - 1 else None


def parse_interval(text: str) -> tuple[int, int, int] | None:
    """(months, days, microseconds) of `1 year 3 days 04:05:06`; None for other spellings."""
    months = days = us = 0
    end = 0
    while (part := _INTERVAL_PART.match(text, end)) is not None:
        unit = _UNIT_NAMES.get(part[2].lower())
        if unit is None:
            return None
        step = INTERVAL_UNITS[unit]
        count = int(part[1])
        months, days, us = months + step[0] * count, days + step[1] * count, us + step[2] * count
        end = part.end()
    rest = text[end:].strip()
    if rest:
        sign, rest = (-1, rest[1:]) if rest.startswith("-") else (1, rest)
        time = re.fullmatch(r"(\d{1,9}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?", rest)
        if time is None or int(time[2]) > 59 or int(time[3] or 0) > 59:
            return None
        seconds = (int(time[1]) * 60 + int(time[2])) * 60 + int(time[3] or 0)
        us += sign * (seconds * 1_000_000 + int((time[4] or "").ljust(6, "0") or 0))
    elif end == 0:
        return None
    fits = abs(months) < 2**31 and abs(days) < 2**31 and abs(us) < 2**63
    return (months, days, us) if fits else None


def _blob(text: str) -> bytes | None:
    if not text.isascii():
        return None
    out = bytearray()
    index = 0
    while index < len(text):
        if text[index] != "\\":
            out.append(ord(text[index]))
            index += 1
            continue
        digits = text[index + 2 : index + 4]
        if text[index + 1 : index + 2] != "x" or not re.fullmatch(r"[0-9a-fA-F]{2}", digits):
            return None
        out.append(int(digits, 16))
        index += 4
    return bytes(out)


def _to_text(value: Any, source: Type) -> str | None:
    if source.name == "BOOLEAN":
        return "true" if value else "false"
    if source.is_integer:
        return str(value)
    if source.is_decimal:
        text = decimal_text(value, source.scale)
        # DuckDB writes no zero before the point where the type has no digit there.
        return text.replace("0.", ".", 1) if source.scale == source.width else text
    if source.name == "DATE" and 1 <= value + _EPOCH <= datetime.date.max.toordinal():
        return datetime.date.fromordinal(value + _EPOCH).isoformat()
    return None


def decimal_text(value: int, scale: int) -> str:
    """A decimal with exactly `scale` digits after the point."""
    if scale == 0:
        return str(value)
    digits = str(abs(value)).rjust(scale + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"
