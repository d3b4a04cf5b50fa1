"""Options of connectors: WITH (connector = .., name = value, ..) as checked values, with defaults.

`connectors` lists them; readers get the values of `checked`. An unknown name, a missing one or a value of another type
is a `SourceError` that names the option. Values of secret options are never shown."""

from __future__ import annotations

import datetime as dt
import difflib
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tsql.kernels.expr.errors import SourceError
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.fold import parse_interval

_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Option:
    """An option of a connector. `kind` is one of

    text    a string                 count   a whole number, zero or more
    flag    true or false            length  a length of time; readers get seconds
    choice  one of `choices`         paths   a path, or a list of them
    object  anything that is not text: it can be given from Python only
    """

    kind: str
    about: str
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()
    secret: bool = False


def checked(
    connector: str,
    options: Mapping[str, Any],
    known: Mapping[str, Option],
    others: Collection[str] = (),
    prefix: str = "",
) -> dict[str, Any]:
    """The values of all known options. Names in `others`, and those that begin with `prefix`, are handed on as they
    are, in the order in which they were given."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        lowered = name.lower()
        if value is None:
            raise SourceError(f"option {name} is NULL", hint="leave it out for the default")
        if lowered in known:
            found[lowered] = _value(lowered, value, known[lowered])
        elif lowered in others or (prefix and lowered.startswith(prefix)):
            found[lowered] = value
        else:
            raise _unknown(connector, name, [*known, *others, *([f"{prefix}.."] if prefix else [])])
    for name, option in known.items():
        if name not in found:
            if option.required:
                raise SourceError(f'connector {connector} needs the option "{name}": {option.about}')
            if option.default is not None:
                found[name] = _value(name, option.default, option)
    return found


def _unknown(connector: str, name: str, known: Sequence[str]) -> SourceError:
    close = difflib.get_close_matches(name.lower(), known)
    return SourceError(
        f"unknown option {name} for connector {connector}",
        hint=f"did you mean {close[0]}?" if close else f"options are {', '.join(known)}",
    )


def _value(name: str, value: Any, option: Option) -> Any:
    shown = "another value" if option.secret else repr(value)
    match option.kind:
        case "text":
            if not isinstance(value, str) or not value or "\0" in value:
                raise SourceError(f"option {name} is a string, not {shown}")
            return value
        case "choice":
            if not isinstance(value, str) or value.lower() not in option.choices:
                raise SourceError(f"option {name} is one of {', '.join(option.choices)}, not {shown}")
            return value.lower()
        case "count":
            return _count(name, value)
        case "flag":
            if not isinstance(value, bool) and str(value).lower() not in ("true", "false"):
                raise SourceError(f"option {name} is true or false, not {shown}")
            return str(value).lower() == "true"
        case "length":
            return seconds_of(name, value)
        case "paths":
            return _paths(name, value)
        case "object":
            if isinstance(value, str | bytes | int | float):
                raise SourceError(f"option {name} is a Python object, and can be given from Python only")
            return value
    raise TypeError(f"an option of kind {option.kind}")


def _count(name: str, value: Any) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SourceError(f"option {name} is a number of at least 0, not {value!r}")
    return value


def seconds_of(name: str, value: Any) -> float:
    """A length of time, such as '5 seconds', INTERVAL '5 seconds' or timedelta(seconds=5), in seconds."""
    parts: tuple[int, int, int] | None = None
    if isinstance(value, dt.timedelta):
        parts = (0, 0, value // dt.timedelta(microseconds=1))
    elif isinstance(value, pa.MonthDayNano):
        parts = (value.months, value.days, value.nanoseconds // 1000)
    elif isinstance(value, str):
        parts = parse_interval(value)
    if parts is None or parts[0] or parts[1] < 0 or parts[2] < 0:
        raise SourceError(f"option {name} is a length of time, such as '5 seconds', not {value!r}")
    return (parts[1] * _DAY_US + parts[2]) / 1e6


def _paths(name: str, value: Any) -> tuple[str, ...]:
    given = [value] if isinstance(value, str | os.PathLike) else value
    if not isinstance(given, Sequence) or not given:
        raise SourceError(f"option {name} is a path or a list of paths, not {value!r}")
    paths = []
    for one in given:
        text = os.fspath(one) if isinstance(one, str | os.PathLike) else ""
        if not isinstance(text, str) or not text or "\0" in text:
            raise SourceError(f"option {name} is a path or a list of paths, not {value!r}")
        paths.append(text)
    return tuple(paths)
