"""Checks the arguments of the public API. A wrong type gives one clear message instead of an internal traceback."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tsql.kernels.expr.errors import CatalogError


def checked_text(value: Any, what: str) -> str:
    """A text; `what` says what it stands for ("a query")."""
    if not isinstance(value, str):
        raise CatalogError(f"{what} is a text, not {_shown(value)}")
    return value


def optional_text(value: Any, what: str) -> str | None:
    """A text or None."""
    return None if value is None else checked_text(value, what)


def checked_path(value: Any, what: str) -> str:
    """A path as text: one that the file system can have."""
    found = os.fspath(value) if isinstance(value, str | os.PathLike) else value
    if not isinstance(found, str):
        raise CatalogError(f"{what} is a path, not {_shown(value)}")
    try:
        usable = b"\0" not in os.fsencode(found)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise CatalogError(f"{what} is a path, and {found!r} has a character that no path has")
    return found


def checked_count(value: Any, what: str, least: int = 0) -> int:
    """An integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise CatalogError(f"{what} is a whole number, not {_shown(value)}")
    if value < least:
        raise CatalogError(f"{what} is at least {least}, not {value}")
    return value


def checked_mapping(value: Any, what: str) -> Mapping[Any, Any]:
    """A dict or something like it."""
    if not isinstance(value, Mapping):
        raise CatalogError(f"{what} is a dict, not {_shown(value)}")
    return value


def checked_callable(value: Any, what: str) -> Any:
    """A function or something like it."""
    if not callable(value):
        raise CatalogError(f"{what} is a function, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return "None" if value is None else type(value).__name__
