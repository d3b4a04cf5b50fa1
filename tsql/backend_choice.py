"""The names of backends, the target of their plans, and the backends themselves, which are loaded on demand."""

from __future__ import annotations

from typing import Any

from tsql.backends import Backend
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.process import garbage

TARGETS = {"local": "local", "interp": "local", "spark": "spark"}
"""The target of plans, by the name of the backend."""


def check_backend(backend: Any) -> None:
    """Refuse a value that is neither a backend nor the name of one."""
    known = f"backends are {', '.join(TARGETS)}"
    if isinstance(backend, str):
        if backend.partition("=")[0] not in TARGETS:
            raise CatalogError(f"unknown backend {backend}", hint=known)
    elif not isinstance(backend, Backend):
        raise CatalogError(f"a backend is the name of one, not {backend!r}", hint=known)


def target_of(backend: Backend | str) -> str:
    """What plans are made for; the backend need not be there yet."""
    return TARGETS[backend.partition("=")[0]] if isinstance(backend, str) else backend.target


def make_backend(name: str, spark: Any = None) -> Backend:
    """The backend of a name (`spark=MASTER` has a master), on a SparkSession if one is given."""
    kind, _, master = name.partition("=")
    match kind:
        case "local":
            with garbage.paused():
                from tsql.backends.local import LocalBackend

            return LocalBackend()
        case "interp":
            from tsql.backends.interp import InterpreterBackend

            return InterpreterBackend()
    try:
        from tsql.backends.spark import SparkBackend
    except ImportError as error:
        raise CatalogError(f"the Spark backend needs PySpark: {error}", hint="pip install 'tsql[spark]'") from error
    return SparkBackend(spark if spark is not None else master or "local[*]")
