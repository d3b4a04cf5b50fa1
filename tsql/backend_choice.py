"""The names of backends, the target of their plans, and the backends themselves, which are loaded on demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tsql.arguments import checked_mapping, checked_text
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
    """The backend of a name (`spark=MASTER` has a master), on a SparkSession if one is given. `spark` may also be the
    settings of the session that is started."""
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
    if spark is None or isinstance(spark, dict):
        return SparkBackend(master or "local[*]", spark)
    return SparkBackend(spark)


def spark_choice(backend: str, spark: Any, master: str | None, conf: Mapping[str, Any] | None) -> tuple[str, Any]:
    """The backend and what it is made with, of the arguments of `connect` that are about Spark."""
    if spark is None and (master is not None or conf is not None) and str(backend).partition("=")[0] != "spark":
        raise CatalogError("master and conf are for the Spark backend", hint='backend="spark"')
    if spark is not None:
        for name, value in (("master", master), ("conf", conf)):
            if value is not None:
                raise CatalogError(
                    f"{name} is for a Spark session that tsql starts, and this one runs already",
                    hint="set it when the session is built",
                )
        return "spark", spark
    if master is not None:
        if "=" in backend:
            raise CatalogError(f"backend={backend} names a master already", hint='backend="spark"')
        backend = f"spark={checked_text(master, 'the master of Spark')}"
    if conf is not None:
        conf = dict(checked_mapping(conf, "conf"))
    return backend, conf
