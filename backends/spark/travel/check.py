"""Looks at the Python packages of the executors once per session, sends this package if they lack it, and says what
else does not fit."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from tsql.backends.spark.failures import SPARK_ERRORS
from tsql.backends.spark.travel import look
from tsql.backends.spark.travel.package import zipped
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.process import forks

PARTS = {"python": 2, "tsql": 3, "pyarrow": 1, "numpy": 1, "llvmlite": 2, "sqlglot": 2}
"""How many parts of a version must be equal here and there."""

Versions = dict[str, str | None]
"""Versions by package; None for one that is missing."""

_ready: set[str] = set()
_locks: dict[str, Any] = {}
_lock = forks.lock()


def make_ready(session: str, ask: Callable[[tuple[str, ...]], list[str]], send: Callable[[str], None]) -> None:
    """Check the executors of a session, unless that was done. `ask` runs `look.versions` in them, `send` gives them a
    package in a file."""
    # A session whose cluster has no free slot waits for its job, and no other session waits for that.
    with _lock_of(session):
        if session in _ready:
            return
        ours = here()
        found = _asked(ask, ours)
        odd = misfits(ours, found)
        if odd:
            raise odd
        if any(one["tsql"] is None for one in found):
            send(_package())
        _ready.add(session)


def _lock_of(session: str) -> Any:
    with _lock:
        return _locks.setdefault(session, forks.lock())


def _package() -> str:
    """The zip file, which one session makes for all."""
    with _lock:
        return zipped()


def is_this_python(command: str) -> bool:
    """Whether executors on this machine start the Python that runs here."""
    found = shutil.which(command)
    return found is not None and Path(found).absolute() == Path(sys.executable).absolute()


def here() -> Versions:
    """The versions of this process."""
    found: Versions = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in PARTS:
        if name != "python":
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = "unknown"
    return found


def _asked(ask: Callable[[tuple[str, ...]], list[str]], ours: Versions) -> list[Versions]:
    # By value: where the package is missing, nothing of it can be imported. It stays so, since another session may be
    # asking at this time.
    cloudpickle.register_pickle_by_value(look)
    try:
        return [json.loads(text) for text in dict.fromkeys(ask(tuple(name for name in PARTS if name != "python")))]
    except SPARK_ERRORS as error:
        missing = _missing(str(error), ours)
        if missing is None:
            raise
        raise _misfit([missing]) from error


def _missing(report: str, ours: Versions) -> tuple[str, str | None, str | None] | None:
    """What PySpark itself did not find in the executors, or found in another version."""
    other = re.search(r"different version: \(?'?(\d+)[., ']+(\d+)\S* than that in driver", report)
    if other:
        return "python", f"{other.group(1)}.{other.group(2)}", ours["python"]
    module = re.search(r"No module named '([A-Za-z_]+)", report) or re.search(
        r"\[PACKAGE_NOT_INSTALLED\] (\w+)", report, re.IGNORECASE
    )
    if module is None:
        return None
    return module.group(1), None, ours.get(module.group(1))


def misfits(ours: Versions, found: list[Versions]) -> CatalogError | None:
    """One error about all packages that do not fit; None if all do. A missing tsql can be sent."""
    odd: dict[str, tuple[str, str | None, str | None]] = {}
    for theirs in found:
        for name, parts in PARTS.items():
            mine, other = ours[name], theirs.get(name)
            if other is None and name == "tsql":
                continue
            if other is None or not _fits(mine, other, parts):
                odd.setdefault(name, (name, other, mine))
    return _misfit(list(odd.values())) if odd else None


def _fits(mine: str | None, other: str, parts: int) -> bool:
    if "unknown" in (mine, other) or mine is None:
        return True
    return mine.split(".")[:parts] == other.split(".")[:parts]


def _misfit(odd: list[tuple[str, str | None, str | None]]) -> CatalogError:
    told = [
        f"{_called(name)} is {'missing' if other is None else other} there" + (f" and {mine} here" if mine else "")
        for name, other, mine in odd
    ]
    packages = [f"{name}=={mine}" if mine else name for name, _, mine in odd if name != "python"]
    hints = [f"pip install {' '.join(packages)} on every executor"] if packages else []
    hints += [f"set PYSPARK_PYTHON to a Python {mine} of the executors" for name, _, mine in odd if name == "python"]
    return CatalogError(f"the executors of Spark cannot run tsql: {', '.join(told)}", hint="; ".join(hints))


def _called(name: str) -> str:
    return "Python" if name == "python" else name
