"""tsql: temporal SQL, compiled. This is the public API; everything else may change between versions.

Names are loaded at first use: workers import kernels and planner without the front end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsql.kernels.expr.errors import (
        BindError,
        CancelledError,
        CatalogError,
        ConstraintError,
        ExecutionError,
        OutOfMemoryError,
        ParseError,
        PlanError,
        SourceError,
        StorageError,
        TransactionError,
        TsqlError,
    )
    from tsql.loaded import LoadedPlan, load_plan, load_plan_text
    from tsql.relation import Relation
    from tsql.session import Session, connect
    from tsql.sharded import Sharded

_ERRORS = "tsql.kernels.expr.errors"
_HOMES = {
    "BindError": _ERRORS,
    "CancelledError": _ERRORS,
    "CatalogError": _ERRORS,
    "ConstraintError": _ERRORS,
    "ExecutionError": _ERRORS,
    "OutOfMemoryError": _ERRORS,
    "ParseError": _ERRORS,
    "PlanError": _ERRORS,
    "SourceError": _ERRORS,
    "StorageError": _ERRORS,
    "TransactionError": _ERRORS,
    "TsqlError": _ERRORS,
    "Relation": "tsql.relation",
    "LoadedPlan": "tsql.loaded",
    "Session": "tsql.session",
    "Sharded": "tsql.sharded",
    "connect": "tsql.session",
    "load_plan": "tsql.loaded",
    "load_plan_text": "tsql.loaded",
}

__all__ = [
    "BindError",
    "CancelledError",
    "CatalogError",
    "ConstraintError",
    "ExecutionError",
    "LoadedPlan",
    "OutOfMemoryError",
    "ParseError",
    "PlanError",
    "Relation",
    "Session",
    "Sharded",
    "SourceError",
    "StorageError",
    "TransactionError",
    "TsqlError",
    "__version__",
    "connect",
    "load_plan",
    "load_plan_text",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            found: Any = version("tsql")
        except PackageNotFoundError:
            found = "0"
    elif name in _HOMES:
        from tsql.kernels.process import garbage

        with garbage.paused():  # modules are no garbage, and the search for some takes a fifth of the time
            found = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'tsql' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
