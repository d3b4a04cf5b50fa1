"""Checks the arguments of the public API. A wrong type gives one clear message instead of an internal traceback."""

from __future__ import annotations

import os
import sys
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


def _shown(value: Any) -> str:
    return "None" if value is None else type(value).__name__


_BETWEEN = frozenset((__name__, "tsql.session", "tsql.statements.script_runner", "tsql.statements.perform"))
"""The modules between the caller of a session and the analysis of its text."""


def is_variable_of_caller(name: str) -> bool:
    """Whether the code that called a session has a Python variable of this name. Its value is not looked at."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    # The command line and the shell have variables too, but they mean nothing to the user who types a query.
    if frame is None or str(frame.f_globals.get("__name__", "")).startswith("tsql."):
        return False
    return name in frame.f_locals or name in frame.f_globals
