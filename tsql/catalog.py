"""The catalog of a session: names to sources and views, and the files that queries name directly.

`analyze` asks it for `lookup`, `open_file` and `names`; the session changes it. Every change raises `version`, which is
part of the plan cache's key.
"""

from __future__ import annotations

import difflib
import glob
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tsql.backends.sources import Source
from tsql.kernels.errors import CatalogError, SourceError


@dataclass(frozen=True)
class View:
    """A named query, kept as text and analyzed again wherever it is used."""

    name: str
    text: str


@dataclass(frozen=True)
class FileUse:
    """A file source that was opened for a query, and what its files looked like then."""

    path: str | tuple[str, ...]
    print: tuple[Any, ...]

    def is_current(self) -> bool:
        """Whether the path still stands for the same files of the same size and time."""
        return fingerprint(self.path) == self.print


def fingerprint(path: str | Sequence[str]) -> tuple[Any, ...]:
    """Names, sizes and modification times of the files that a path, a pattern or a list of them stands for."""
    paths = [path] if isinstance(path, str) else list(path)
    found: list[Any] = []
    for one in paths:
        names = sorted(glob.glob(one, recursive=True)) if glob.has_magic(one) and not os.path.exists(one) else [one]
        for name in names:
            if os.path.isdir(name):
                names_below = sorted(os.path.join(folder, file) for folder, _, files in os.walk(name) for file in files)
                found += [_stat(file) for file in names_below]
            else:
                found.append(_stat(name))
    return tuple(found)


def _stat(path: str) -> tuple[str, int, int] | tuple[str]:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return (path,)
    return path, status.st_mtime_ns, status.st_size


class Catalog:
    """Names are kept as they were written and found without regard to case."""

    def __init__(self) -> None:
        self.version = 0
        self._entries: dict[str, tuple[str, Source | View]] = {}
        self._lock = threading.Lock()
        self._opened: list[FileUse] | None = None
        self.run_plan: Callable[[Any], Any] | None = None
        """How the session runs a logical plan; it gives an Arrow table."""

    def fetch(self, plan: Any) -> list[Any]:
        """The values of the only column of a plan, for a query whose columns depend on data (PIVOT)."""
        if self.run_plan is None:
            raise CatalogError("PIVOT without a list of values needs a session that can look for them", hint="say ON column IN (..)")
        return self.run_plan(plan).column(0).to_pylist()

    def lookup(self, name: str) -> Source | View | None:
        entry = self._entries.get(name.lower())
        return None if entry is None else entry[1]

    def names(self) -> list[str]:
        """The names of all tables and views, sorted."""
        return sorted((shown for shown, _ in list(self._entries.values())), key=str.lower)

    def open_file(self, path: str | Sequence[str], kind: str | None = None, options: Mapping[str, Any] | None = None) -> Source:
        """Open a file, a pattern or a list of files as a source; the kind is that of the extension unless given."""
        from tsql.backends.sources.open import open_source

        where = path if isinstance(path, str) else tuple(path)
        before = fingerprint(where)
        source = open_source(where if isinstance(where, str) else list(where), kind, dict(options or {}))
        if self._opened is not None:
            self._opened.append(FileUse(where, before))
        return source

    def record_files(self) -> FileRecorder:
        """A context that collects the files opened inside it."""
        return FileRecorder(self)

    def add(self, name: str, entry: Source | View, *, replace: bool = True) -> None:
        """Bind a name; without `replace` a name that is taken is an error."""
        if not name:
            raise CatalogError("a table needs a name")
        with self._lock:
            taken = self._entries.get(name.lower())
            if taken is not None and not replace:
                raise CatalogError(f"{_kind(taken[1])} {taken[0]} is already there", hint="use CREATE OR REPLACE, or IF NOT EXISTS")
            self._entries[name.lower()] = (name, entry)
            self.version += 1

    def drop(self, name: str, *, kind: str | None = None, if_exists: bool = False) -> None:
        """Forget a name; `kind` (table or view) must fit what it stands for."""
        with self._lock:
            entry = self._entries.get(name.lower())
            if entry is None:
                if if_exists:
                    return
                raise CatalogError(f"unknown {(kind or 'table').lower()} {name}", hint=self._nearest(name))
            if kind is not None and _kind(entry[1]) != kind.lower():
                raise CatalogError(f"{entry[0]} is a {_kind(entry[1])}", hint=f"use DROP {_kind(entry[1]).upper()}")
            del self._entries[name.lower()]
            self.version += 1

    def require(self, name: str) -> Source | View:
        """The entry of a name, or an error that suggests the nearest one."""
        entry = self.lookup(name)
        if entry is None:
            raise CatalogError(f"unknown table {name}", hint=self._nearest(name))
        return entry

    def _nearest(self, name: str) -> str | None:
        close = difflib.get_close_matches(name.lower(), list(self._entries), 1)
        return f"did you mean {self._entries[close[0]][0]}?" if close else None


class FileRecorder:
    """Collects in `files` what `Catalog.open_file` opens while the context is active."""

    def __init__(self, catalog: Catalog) -> None:
        self.files: list[FileUse] = []
        self._catalog = catalog
        self._outer: list[FileUse] | None = None

    def __enter__(self) -> FileRecorder:
        self._outer, self._catalog._opened = self._catalog._opened, self.files
        return self

    def __exit__(self, *_: object) -> None:
        self._catalog._opened = self._outer
        if self._outer is not None:
            self._outer.extend(self.files)


def _kind(entry: Source | View) -> str:
    return "view" if isinstance(entry, View) else "table"


_ARROW_WAYS = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")


def as_source(name: str, data: Any) -> Source:
    """A source over anything that Python code may register: Arrow data, a dataframe, a dict of columns, a list of dicts."""
    import pyarrow as pa

    from tsql.backends.sources.arrow import ArrowSource

    if all(hasattr(data, needed) for needed in ("schema", "statistics", "splits", "read")):
        return data
    try:
        if isinstance(data, Mapping):
            data = pa.table(dict(data))
        elif isinstance(data, list) and all(isinstance(row, Mapping) for row in data):
            data = pa.Table.from_pylist([dict(row) for row in data])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SourceError(f"the data of {name} does not make a table: {error}") from error
    if not isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader) and not any(hasattr(data, way) for way in _ARROW_WAYS):
        raise SourceError(
            f"a Python {type(data).__name__} cannot be registered as table {name}",
            hint="pass an Arrow table, a pandas or polars frame, a dict of columns, a list of dicts, or anything with __arrow_c_stream__",
        )
    return ArrowSource(data)
