"""Turns Python values into typed SQL parameters in the stored form of `kernels.expr.Literal`; `Session.sql` calls
it."""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from tsql.kernels.expr import types
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.types import Type

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_INTEGERS = (types.INTEGER, types.BIGINT, types.UBIGINT, types.HUGEINT)

Parameters = Sequence[Any] | Mapping[str, Any] | None


def convert(value: Any) -> tuple[Type, Any]:
    """The SQL type that a Python value has as a parameter, as in DuckDB, and its stored form."""
    match value:
        case None:
            return types.NULL, None
        case bool():
            return types.BOOLEAN, value
        case int():
            for t in _INTEGERS:
                if t.bounds[0] <= value <= t.bounds[1]:
                    return t, value
            raise BindError(f"the integer parameter {value} does not fit HUGEINT")
        case float():
            return types.DOUBLE, value
        case str():
            return types.VARCHAR, _unicode(value)
        case bytes() | bytearray() | memoryview():
            return types.BLOB, bytes(value)
        case Decimal():
            return _decimal(value)
        case dt.datetime():
            if value != value:
                return types.NULL, None  # NaT of pandas, which is a datetime without a date
            if value.tzinfo is None:
                return types.TIMESTAMP, (value - _EPOCH) // _MICROSECOND
            return types.TIMESTAMPTZ, (value - _EPOCH_UTC) // _MICROSECOND
        case dt.date():
            return types.DATE, (value - _EPOCH.date()).days
        case dt.time():
            if value.tzinfo is not None:
                raise BindError(
                    "a time of day with a time zone has no SQL type here",
                    hint="pass a time without tzinfo, or a datetime",
                )
            return types.TIME, ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        case dt.timedelta():
            return types.INTERVAL, (0, value.days, value.seconds * 1_000_000 + value.microseconds)
    if value is getattr(sys.modules.get("pandas"), "NA", None):
        return types.NULL, None
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return convert(value.item())  # a numpy scalar
    raise BindError(
        f"a Python {type(value).__name__} cannot be a parameter",
        hint="pass an int, float, Decimal, str, bytes, bool, date, datetime, time, timedelta or None",
    )


def _unicode(text: str) -> str:
    """The text itself. Refuses half of a surrogate pair: Python allows it, but it has no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BindError(
            f"the text is not Unicode: character {error.start + 1} is {text[error.start]!r}, half of a surrogate pair"
        ) from None
    return text


def _decimal(value: Decimal) -> tuple[Type, Any]:
    if not value.is_finite():
        return types.DOUBLE, float(value)
    sign, digits, exponent = value.as_tuple()
    unscaled = int("".join(map(str, digits)) or "0")
    if exponent > 0:
        unscaled, exponent = unscaled * 10**exponent, 0
    scale = -exponent
    # DuckDB counts the digit before the point, so 0.001 is DECIMAL(4,3).
    width = max(len(str(unscaled)), scale + 1)
    if width > 38:
        return types.DOUBLE, float(value)
    return types.DECIMAL(width, scale), -unscaled if sign else unscaled


def convert_all(params: Parameters) -> tuple[dict[str, Type], dict[str, Any]]:
    """Types and stored values by name: `1`, `2`, .. for a sequence, the keys for a mapping."""
    if not params:
        return {}, {}
    if isinstance(params, Mapping):
        items = [(str(name), value) for name, value in params.items()]
    elif isinstance(params, str | bytes) or not isinstance(params, Sequence):
        raise BindError(f"parameters are a list, a tuple or a dict, not {type(params).__name__}")
    else:
        items = [(str(i), value) for i, value in enumerate(params, 1)]
    kinds: dict[str, Type] = {}
    values: dict[str, Any] = {}
    for name, value in items:
        try:
            kinds[name], values[name] = convert(value)
        except BindError as error:
            raise BindError(f"the parameter ${name}: {error.message}", hint=error.hint) from None
    return kinds, values


def check_names(
    given: Mapping[str, Any],
    named: Sequence[str],
    places: Mapping[str, int] | None = None,
    text: str | None = None,
    origin: str | None = None,
) -> None:
    """Refuse parameters that the text does not name, and names without a value; `places` says where in the text these
    are."""
    missing = list(dict.fromkeys(name for name in named if name not in given))
    if missing:
        position = (places or {}).get(missing[0])
        raise BindError(
            f"no value for the parameter{'s' * (len(missing) > 1)} {_listing(missing)}",
            position=position,
            text=text,
            origin=origin,
        )
    excess = [name for name in given if name not in named]
    if excess:
        raise BindError(f"the query has no parameter {_listing(excess)}")


def _listing(names: Sequence[str]) -> str:
    return ", ".join(f"${name}" for name in names)


def literal(value: Any) -> str:
    """A Python value as a constant in SQL text, for the options of table functions: text, numbers, lists, dicts."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return str(value)
        case str():
            return "'" + value.replace("'", "''") + "'"
        case list() | tuple():
            return f"[{', '.join(map(literal, value))}]"
        case Mapping():
            return "{" + ", ".join(f"{literal(str(key))}: {literal(item)}" for key, item in value.items()) + "}"
    raise BindError(f"a Python {type(value).__name__} cannot be an option")


_TYPED = re.compile(r"(DATE|TIMESTAMPTZ|TIMESTAMP|TIME)\s*'([^']*)'", re.IGNORECASE)
_READERS = {"DATE": dt.date, "TIME": dt.time, "TIMESTAMP": dt.datetime, "TIMESTAMPTZ": dt.datetime}


def parse_value(text: str) -> Any:
    """The Python value of a parameter on the command line: a number, true, false, null, DATE '..' and the like; else
    text."""
    stripped = text.strip()
    if re.fullmatch(r"[+-]?\d+", stripped):
        return int(stripped)
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+)", stripped):
        return Decimal(stripped)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+", stripped):
        return float(stripped)
    if stripped.lower() in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[stripped.lower()]
    if len(stripped) >= 2 and stripped[0] == stripped[-1] == "'":
        return stripped[1:-1].replace("''", "'")
    if typed := _TYPED.fullmatch(stripped):
        kind, body = typed.group(1).upper(), typed.group(2)
        try:
            value = _READERS[kind].fromisoformat(body)
        except (ValueError, InvalidOperation) as error:
            raise BindError(f"{body!r} is no {kind}") from error
        if kind == "TIMESTAMPTZ" and value.tzinfo is None:
            value = value.replace(tzinfo=dt.UTC)
        return value
    return text
