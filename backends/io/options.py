"""Options of text files (`read_csv`, `read_json`, WITH (..)): their names, types and defaults, checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.types import Type, parse_type


def flag(options: Mapping[str, Any], name: str, default: bool | None = False) -> bool | None:
    """A true-or-false option."""
    value = options.get(name)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false", "1", "0"):
        return str(value).lower() in ("true", "1")
    raise SourceError(f"option {name} is true or false, not {value!r}")


def count(options: Mapping[str, Any], name: str, default: int) -> int:
    """An option that is a whole number, zero or more."""
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SourceError(f"option {name} is a number of at least 0, not {value!r}")
    return value


def text(options: Mapping[str, Any], *names: str) -> str | None:
    """An option that is a string, under any of its names."""
    for name in names:
        value = options.get(name)
        if value is not None:
            if not isinstance(value, str):
                raise SourceError(f"option {name} is a string, not {value!r}")
            return value
    return None


def character(options: Mapping[str, Any], *names: str) -> str | None:
    """An option that is one character, or empty to switch it off."""
    value = text(options, *names)
    if value is not None:
        value = "\t" if value == "\\t" else value
        if len(value.encode()) > 1:
            raise SourceError(f"option {names[0]} is one plain character, not {value!r}")
        if value in ("\n", "\r"):
            raise SourceError(f"option {names[0]} is the end of a line")
    return value


def check_marks(
    delimiter: str | None, quote: str | None, escape: str | None, comment: str | None = None, nulls: Sequence[str] = ()
) -> None:
    """Check that no character of a CSV file has two meanings. Only the quote may also be the escape. An empty one, or
    None, is no character."""
    marks = {"delim": delimiter, "quote": quote, "escape": escape, "comment": comment}
    stated = [(name, mark) for name, mark in marks.items() if mark]
    for i, (name, mark) in enumerate(stated):
        for other, same in stated[i + 1 :]:
            if mark == same and (name, other) != ("quote", "escape"):
                raise SourceError(f"options {name} and {other} are the same character, {mark!r}")
    if delimiter and any(delimiter in null for null in nulls):
        raise SourceError(f"option nullstr holds the delimiter, {delimiter!r}")


def check_names(option: str, names: Sequence[str]) -> None:
    """Check that column names differ, ignoring case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise SourceError(f'option {option}: the name "{name}" is repeated')
        seen.add(name.lower())


def column_names(options: Mapping[str, Any], name: str) -> list[str]:
    """An option that names columns; empty if it is not given."""
    found = texts(options, name) or []
    if not all(map(str.strip, found)):
        raise SourceError(f"option {name}: the name of a column is empty")
    check_names(name, found)
    return found


def texts(options: Mapping[str, Any], name: str) -> list[str] | None:
    """An option that is a string or a list of strings."""
    value = options.get(name)
    if value is None:
        return None
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Sequence) or not all(isinstance(item, str) for item in values):
        raise SourceError(f"option {name} is a string or a list of strings, not {value!r}")
    return list(values)


def column_types(options: Mapping[str, Any], name: str) -> dict[str, Type] | None:
    """An option that maps column names to SQL types."""
    value = options.get(name)
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise SourceError(f"option {name} maps column names to types, not {value!r}")
    check_names(name, [str(column) for column in value])
    return {str(column): one_type(name, kind) for column, kind in value.items()}


def one_type(option: str, value: Any) -> Type:
    """A type in an option, as a Type or by its SQL name."""
    if isinstance(value, Type):
        found = value
    else:
        try:
            found = parse_type(str(value))
        except ValueError as error:
            raise SourceError(f"option {option}: {error}") from None
    if found.name in ("INTERVAL", "NULL"):
        raise SourceError(f"option {option}: no column of a text file can have type {found}")
    return found


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as plain data, so that they can be written into a plan file."""
    return {name: _plain(value) for name, value in options.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Type) else value
