"""Python variables as tables: `FROM df` reads the variable `df` of the code that called the session.

The analyzer asks for a name (`Catalog.variable`) that is no table, no view and no file. Locals of the caller come
before its globals; nothing else is looked at: no callers of the caller, no builtins. The command line and plan files
have no caller with variables. `SET python_scan = false` turns it off."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from tsql import registering
from tsql.backends.names import FoundTable, NeverKept
from tsql.relation import Relation

if TYPE_CHECKING:
    from tsql.query_runner import QueryRunner

_ARROW_WAYS = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")
_SESSION = "tsql.session"
_PLAN_FILES = "tsql.loaded"
_NOTHING = object()


def find(queries: QueryRunner, name: str) -> FoundTable | None:
    """The caller's variable of this name as a table; None if there is none, or it holds no table. Its plan is not kept:
    the variable may hold something else at the next call, and the plan would keep its data alive."""
    value = _value(name) if queries.settings.python_scan else _NOTHING
    if value is _NOTHING or not is_table(value):
        return None
    source: Any = registering.as_source(name, value)
    if hasattr(source, "resolved"):  # a DataFrame of Spark
        source = source.resolved().source
    source.catalog_name = name.lower()
    return FoundTable(source, NeverKept())


def hint(name: str, is_on: bool) -> str | None:
    """What to say of a variable with the name of a table that does not exist."""
    value = _value(name)
    if value is _NOTHING or not (is_table(value) or _is_data(value)):
        return None
    if is_table(value):
        also = "" if is_on else ", and so does SET python_scan = true"
        return f'there is a Python variable of this name: db.register("{name}", {name}) makes it a table{also}'
    return f"the Python variable {name} is of type {type(value).__name__}, which is no table"


def is_table(value: Any) -> bool:
    """Whether a value is one that `register` takes, as far as its type tells."""
    if isinstance(value, type):
        return False
    if isinstance(value, Relation) or any(hasattr(type(value), way) for way in _ARROW_WAYS):
        return True
    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(key, str) and hasattr(one, "__len__") for key, one in value.items())
    if isinstance(value, list):
        return bool(value) and all(isinstance(row, Mapping) for row in value)
    return type(value).__module__.startswith("pyspark.") and hasattr(value, "toArrow")


def _is_data(value: Any) -> bool:
    """Whether a value could be taken for a table, and not for a function or a module."""
    return not callable(value) and not isinstance(value, type(sys))


def _value(name: str) -> Any:
    frame = _caller()
    if frame is None:
        return _NOTHING
    return frame.f_locals.get(name, frame.f_globals.get(name, _NOTHING))


def _caller() -> FrameType | None:
    """The frame that called the session; None if tsql itself did (the command line), or a plan file is read."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame) != _SESSION:
        if _module(frame) == _PLAN_FILES:
            return None
        frame = frame.f_back
    while frame is not None and _module(frame) == _SESSION:
        frame = frame.f_back
    return None if frame is None or _module(frame).partition(".")[0] == "tsql" else frame


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
