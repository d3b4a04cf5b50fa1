"""What runs in an executor that may lack this package: the versions of Python and of packages, as JSON.

PySpark sends these functions as code and not as names (`register_pickle_by_value`), so they import nothing of tsql."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def versions(names: Iterable[str]) -> str:
    """The version of each package, and of Python; null for one that is missing."""
    import importlib.metadata
    import importlib.util
    import json
    import sys

    found: dict[str, str | None] = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in names:
        try:
            # A folder of this name is not yet the package.
            spec = importlib.util.find_spec("tsql.backends" if name == "tsql" else name)
        except ImportError:
            spec = None
        if spec is None:
            found[name] = None
            continue
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return json.dumps(found)


def looked_rows(names: tuple[str, ...]) -> Callable[[Iterable[Any]], Iterator[str]]:
    """A function of a task of an RDD."""
    return lambda rows: iter([versions(names)])


def looked_batches(names: tuple[str, ...]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function of `mapInArrow`."""

    def look(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        yield pa.record_batch([pa.array([versions(names)])], names=["found"])

    return look
