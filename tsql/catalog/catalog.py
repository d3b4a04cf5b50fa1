"""The catalog of a session: names to sources and views, and the files that queries name directly.

`analyze` asks it for `lookup`, `open_file` and `names`; the session changes it. Every change raises `version`, which is
part of the plan cache's key.
"""

from __future__ import annotations

import glob
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from tsql.backends.io import Source, remote
from tsql.backends.io.pipes import Pipe, Pipes, is_fifo
from tsql.backends.names import Absent, FoundTable, NeverKept, OuterNames, StandIn, Use
from tsql.catalog.definition import Macro, Table, View
from tsql.catalog.external import SINK, External, Files
from tsql.kernels.expr.errors import CatalogError, SourceError
from tsql.kernels.process import forks
from tsql.kernels.process.quick_dataclass import dataclass

if TYPE_CHECKING:
    from tsql.backends.datasets import Datasets, KeptDataset
    from tsql.backends.io.csv.rejects import CsvRejects, RejectTables
    from tsql.backends.sinks import Sinks


@dataclass(frozen=True)
class FileUse:
    """A file source that was opened for a query, and what its files looked like then."""

    path: str | tuple[str, ...]
    print: tuple[Any, ...]

    def is_current(self) -> bool:
        """Whether the path still stands for the same files of the same size and time."""
        return fingerprint(self.path) == self.print


def fingerprint(path: str | Sequence[str]) -> tuple[Any, ...]:
    """Names, sizes and times of change of the files that a path, a pattern or a list of them stands for."""
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


SETTLED_NS = 1_000_000_000
"""A file that changed within this time may change again without a new timestamp: file systems count in ticks."""


def _is_settled(found: tuple[Any, ...]) -> bool:
    """Whether the `fingerprint` of files will differ from that of any later version of them."""
    now = time.time_ns()
    return all(len(file) == 4 and max(file[1:3]) <= now - SETTLED_NS for file in found)


def _stat(path: str) -> tuple[Any, ...]:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return (path,)
    if is_fifo(path):
        return path, object()  # what comes next is always something else
    return path, status.st_mtime_ns, status.st_ctime_ns, status.st_size


Entry = Source | View | Table | External | StandIn


@dataclass(frozen=True)
class CatalogSnapshot:
    """The content of a catalog at one time."""

    entries: dict[str, tuple[str, Entry]]
    macros: dict[str, Macro]


class Catalog:
    """Names are kept as they were written and found without regard to case."""

    def __init__(self) -> None:
        self.version = 0
        self._entries: dict[str, tuple[str, Entry]] = {}
        self._macros: dict[str, Macro] = {}
        self._sources: dict[str, tuple[External, FileUse, Source]] = {}
        self._streams: dict[str, tuple[External, Source]] = {}
        self._rejects: RejectTables | None = None
        self.pipes = Pipes()
        self._lock = forks.lock()
        self._asking = threading.local()
        self.database = "memory"
        self.run_plan: Callable[[Any], Any] | None = None
        """Runs a logical plan in the session and returns an Arrow table."""
        self.datasets: Callable[[], Datasets | None] = lambda: None
        """What the cluster of the session keeps by name, found behind the names of the catalog."""
        self.sinks: Callable[[], Sinks | None] = lambda: None
        """What the cluster of the session writes."""
        self.outer: Callable[[], OuterNames | None] = lambda: None
        """Tables that the backend knows: they are found behind those of the catalog."""
        self.in_tasks = False
        """Whether the tasks of a cluster read files, and not this process."""
        self.variables: Callable[[str], FoundTable | None] = lambda name: None
        """Tables in variables of the code that called the session."""

    def fetch(self, plan: Any) -> list[Any]:
        """The values of the only column of a plan, for a query whose columns depend on data (PIVOT)."""
        if self.run_plan is None:
            raise CatalogError(
                "PIVOT without a list of values needs a session that can look for them", hint="say ON column IN (..)"
            )
        self._ask("fetch", "")
        return self.run_plan(plan).column(0).to_pylist()

    def lookup(self, name: str) -> Source | View | None:
        """What a query reads under this name: the present version of a table, another source, or a view."""
        entry = self.entry(name)
        if entry is None:
            return self.lookup_outer((name,))
        if isinstance(entry, External):
            return self._source_of(name.lower(), entry)
        if name.lower() not in self._entries:
            self.record(cast(Use, entry))  # another session may drop the dataset
            return cast(Source, entry)
        return entry.data if isinstance(entry, Table) else self._resolved(name, entry)

    def _resolved(self, name: str, source: Any) -> Any:
        """What a query of now reads of a source that may stand for others: a DataFrame of Spark's for its files."""
        if not hasattr(source, "resolved"):
            return source
        found = source.resolved()
        self.record(found.use)
        found.source.catalog_name = name.lower()  # plan files say the name
        return found.source

    def lookup_outer(self, parts: tuple[str, ...]) -> Source | None:
        """A table that the backend knows by this name, which may be qualified. The plan cache is told of the answer:
        the name may mean something else at the next query."""
        names = self.outer()
        if names is None:
            return None
        self._ask("outer", ".".join(parts))
        found = names.find(parts)
        self.record(Absent(names, parts) if found is None else found.use)
        return None if found is None else found.source

    def variable(self, name: str) -> Source | None:
        """The table in a variable of the code that called the session. Only queries ask for it: plan files and views
        mean the same whoever calls."""
        found = self.variables(name)
        if found is None:
            return None
        self._ask("variable", name)
        self.record(found.use)
        return found.source

    def record(self, use: Use) -> None:
        """Tell the plan cache what a query has read."""
        opened: list[Use] | None = getattr(self._asking, "opened", None)
        if opened is not None:
            opened.append(use)

    def outer_names(self) -> list[str]:
        """Names of the backend's tables, to suggest beside a wrong one."""
        names = self.outer()
        return [] if names is None else names.names()

    def _source_of(self, key: str, entry: External) -> Source:
        """The files of a stream as they are now; files that have not changed are not opened again."""
        self._ask("file", key)
        if entry.files is None and entry.connection is not None:
            return self._connected(key, entry)
        if entry.files is None:
            return self._resolved(key, entry.data)
        paths = entry.files.paths
        if entry.connection is not None and not _has_files(entry.files):
            self.record(NeverKept())
            return self._connected(key, entry)
        use = FileUse(paths, fingerprint(paths))
        is_empty = not any(map(remote.is_remote, paths)) and not any(len(file) == 4 for file in use.print)
        if entry.connection is not None and is_empty:
            self.record(use)
            return self._connected(key, entry)  # its first file is yet to come
        known = self._sources.get(key)
        if known is None or known[0] is not entry or known[1] != use or any(map(remote.is_remote, paths)):
            known = self._sources[key] = (entry, use, self.open_file(list(paths), entry.files.kind, entry.options()))
            known[2].catalog_name = key  # plan files say the name, and not the files behind it
        else:
            self.record(use)
        return known[2]

    def _connected(self, key: str, entry: External) -> Source:
        """A stream that only jobs can read: there are no files of it, or none yet."""
        if entry.kind == SINK:
            raise CatalogError(f'"{self.shown_name(key)}" is a sink: jobs write to it, and nothing can be read from it')
        from tsql.catalog.streams import stream_source

        known = self._streams.get(key)
        if known is None or known[0] is not entry:
            known = self._streams[key] = (entry, stream_source(self.shown_name(key), entry))
        return known[1]

    def entry(self, name: str) -> Entry | None:
        """The entry of a name."""
        self._ask("entry", name)
        found = self._entries.get(name.lower())
        return self.dataset(name) if found is None else found[1]

    def dataset(self, name: str) -> KeptDataset | None:
        """The dataset that the cluster keeps under a name; None if the catalog has the name, or nobody."""
        kept = None if name.lower() in self._entries else self.datasets()
        return None if kept is None else kept.find(name)

    def _dataset_names(self) -> list[str]:
        kept = self.datasets()
        return [] if kept is None else [one.name for one in kept.all() if one.name.lower() not in self._entries]

    def has_streams(self) -> bool:
        """Whether there is any stream."""
        return any(isinstance(entry, External) and entry.kind == "stream" for _, entry in self._entries.values())

    def shown_name(self, name: str) -> str:
        """A name as it was written when it was bound."""
        return self._entries[name.lower()][0]

    def entries(self) -> list[tuple[str, Entry]]:
        """All names with what they are bound to, sorted."""
        kept = [(name, self.dataset(name)) for name in self._dataset_names()]
        there = [*self._entries.values(), *((name, one) for name, one in kept if one is not None)]
        return sorted(there, key=lambda pair: pair[0].lower())

    def _ask(self, kind: str, name: str) -> None:
        """Record a lookup for those who track what an analysis depends on, in this thread."""
        for asked in getattr(self._asking, "recorders", ()):
            asked.setdefault((kind, name.lower()), [])

    def _tell_opened(self, question: str, source: Source, use: FileUse) -> None:
        for asked in getattr(self._asking, "recorders", ()):
            asked.setdefault(("open", question), []).append((source, use))

    def macro(self, name: str) -> Macro | None:
        self._ask("macro", name)
        return self._macros.get(name.lower())

    def macros(self) -> list[Macro]:
        return [self._macros[name] for name in sorted(self._macros)]

    def put_macro(self, name: str, macro: Macro | None) -> None:
        """Define a macro; None forgets it."""
        with self._lock:
            self._macros.pop(name.lower(), None)
            if macro is not None:
                self._macros[name.lower()] = macro
            self.version += 1

    def snapshot(self) -> CatalogSnapshot:
        """Everything that is bound now; what it holds is immutable, so this is a copy of two maps."""
        with self._lock:
            return CatalogSnapshot(dict(self._entries), dict(self._macros))

    @staticmethod
    def of(snapshot: CatalogSnapshot) -> Catalog:
        """A catalog that holds what another one held."""
        catalog = Catalog()
        catalog.restore(snapshot)
        return catalog

    def restore(self, snapshot: CatalogSnapshot) -> None:
        """Put back what was bound at the time of a snapshot."""
        with self._lock:
            self._entries, self._macros = dict(snapshot.entries), dict(snapshot.macros)
            self.version += 1

    def names(self) -> list[str]:
        """The names of all tables and views, sorted."""
        return sorted((*(shown for shown, _ in list(self._entries.values())), *self._dataset_names()), key=str.lower)

    def know_store(self, *paths: str) -> None:
        """Take the credentials for files elsewhere from the backend's settings, if it has some."""
        elsewhere = list(filter(remote.is_remote, paths))
        names = self.outer() if elsewhere else None
        if names is not None:
            names.remember(elsewhere)

    def open_file(
        self, path: str | Sequence[str], kind: str | None = None, options: Mapping[str, Any] | None = None
    ) -> Source:
        """Open a file, a pattern or a list of files as a source; the kind is that of the extension unless given."""
        from tsql.backends.io.open import open_source, rejects_of
        from tsql.backends.io.snapshot import OtherReader

        where = path if isinstance(path, str) else tuple(path)
        try:
            question = json.dumps([path if isinstance(path, str) else list(path), kind, dict(options or {})])
        except (TypeError, ValueError):
            question = None
        before = fingerprint(where)
        elsewhere = any(map(remote.is_remote, [where] if isinstance(where, str) else where))
        settled = _is_settled(before) and not elsewhere
        names = self.outer()
        self.know_store(*([where] if isinstance(where, str) else where))
        fifos: dict[Any, Pipe] | None = getattr(self._asking, "fifos", None)
        try:
            source = open_source(
                where if isinstance(where, str) else list(where),
                kind,
                dict(options or {}),
                lambda path: self.pipes.path(path, fifos),
            )
            if self.in_tasks and hasattr(source, "read_in_tasks"):
                source.read_in_tasks()
        except OtherReader:
            self._ask("file", str(where))
            found = None if names is None else names.scan(kind or "", where, dict(options or {}))
            if found is None:
                raise
            self.record(found.use)
            return found.source
        except BaseException:
            self._ask("file", str(where))
            raise
        use = FileUse(where, before)
        if question is None or not settled:
            self._ask("file", str(where))
        else:
            self._tell_opened(question, source, use)
        self.record(NeverKept() if elsewhere else use)
        rejects = rejects_of(source)
        if rejects is not None:
            self._show_rejects(rejects)
        return source

    def _show_rejects(self, rejects: CsvRejects) -> None:
        """Make the rows that a source leaves out readable under the names that its options give."""
        from tsql.backends.io.csv.rejects import RejectTable, RejectTables

        for name in (rejects.table, rejects.scan):
            taken = self._entries.get(name.lower())
            if taken is not None and not isinstance(taken[1], RejectTable):
                raise CatalogError(
                    f'store_rejects: "{taken[0]}" exists already',
                    hint="rejects_table => '..' and rejects_scan => '..' name other tables",
                )
        self._rejects = self._rejects or RejectTables()
        for table in self._rejects.add(rejects):
            self.add(table.name, table)

    def record_files(self) -> FileRecorder:
        """A context that collects the files opened inside it, and the names that are asked for in this thread."""
        return FileRecorder(self)

    def add(self, name: str, entry: Entry, *, replace: bool = True) -> None:
        """Bind a name; without `replace` a name that is taken is an error."""
        if not name:
            raise CatalogError("a table needs a name")
        with self._lock:
            taken = self._entries.get(name.lower())
            if taken is not None and not replace:
                raise CatalogError(
                    f'{kind_of(taken[1]).capitalize()} with name "{taken[0]}" already exists',
                    hint="use CREATE OR REPLACE, or IF NOT EXISTS",
                )
            self._entries[name.lower()] = (name, entry)
            self.version += 1

    def drop(self, name: str, *, kind: str | None = None, if_exists: bool = False) -> None:
        """Forget a name; `kind` (table, view or stream) must fit what it stands for."""
        with self._lock:
            entry = self._entries.get(name.lower())
            if entry is None:
                if if_exists:
                    return
                raise CatalogError(
                    f'{(kind or "table").capitalize()} with name "{name}" does not exist', hint=self._nearest(name)
                )
            if kind is not None and kind_of(entry[1]) != kind.lower():
                kinds = kind_of(entry[1]).capitalize(), kind.capitalize()
                raise CatalogError(
                    f'Existing object "{entry[0]}" is of type {kinds[0]}, trying to drop type {kinds[1]}',
                    hint=f"use DROP {kind_of(entry[1]).upper()}",
                )
            del self._entries[name.lower()]
            self._sources.pop(name.lower(), None)
            self._streams.pop(name.lower(), None)
            self.version += 1

    def require(self, name: str) -> Source | View:
        """The entry of a name, or an error that suggests the nearest one."""
        entry = self.lookup(name)
        if entry is None:
            raise CatalogError(f"unknown table {name}", hint=self._nearest(name))
        return entry

    def _nearest(self, name: str) -> str | None:
        import difflib

        close = difflib.get_close_matches(name.lower(), list(self._entries), 1)
        return f"did you mean {self._entries[close[0]][0]}?" if close else None


Asked = dict[tuple[str, str], list[tuple[Source, FileUse]]]


class FileRecorder:
    """Collects the sources that `Catalog.open_file` opens in `files`, and every lookup in the catalog in `asked`:
    ("entry" | "macro" | "file" | "fetch", name), and ("open", arguments as JSON) with the sources of each call."""

    def __init__(self, catalog: Catalog) -> None:
        self.files: list[Use] = []
        self.asked: Asked = {}
        self._catalog = catalog
        self._outer: list[Use] | None = None
        self._fifos: dict[Any, Pipe] | None = None

    def __enter__(self) -> FileRecorder:
        asking = self._catalog._asking
        self._outer, asking.opened = getattr(asking, "opened", None), self.files
        asking.recorders = (*getattr(asking, "recorders", ()), self.asked)
        if getattr(asking, "fifos", None) is None:
            # One statement reads a FIFO once, however often it names it.
            asking.fifos = self._fifos = {}
        return self

    def __exit__(self, *_: object) -> None:
        asking = self._catalog._asking
        asking.recorders = tuple(asked for asked in asking.recorders if asked is not self.asked)
        if self._fifos is not None:
            asking.fifos = self._fifos = None
        asking.opened = self._outer
        if self._outer is not None:
            self._outer.extend(self.files)


def kind_of(entry: Entry) -> str:
    """What an entry is called in a statement: table, view or stream."""
    if isinstance(entry, View):
        return "view"
    return getattr(entry, "kind", None) or "table"


_ARROW_WAYS = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")


def as_source(name: str, data: Any) -> Source:
    """A source over anything that Python code may register: Arrow data, a dataframe, a dict of columns, a list of
    dicts."""
    import pyarrow as pa

    from tsql.backends.io.arrow import ArrowSource
    from tsql.backends.io.frames import table_of_columns, table_of_rows

    if all(hasattr(data, needed) for needed in ("schema", "statistics", "splits", "read")):
        return data
    try:
        if isinstance(data, Mapping):
            data = table_of_columns(data)
        elif isinstance(data, list) and all(isinstance(row, Mapping) for row in data):
            data = table_of_rows(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SourceError(f"the data of {name} does not make a table: {error}") from error
    if not isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader) and not any(
        hasattr(data, way) for way in _ARROW_WAYS
    ):
        raise SourceError(
            f"a Python {type(data).__name__} cannot be registered as table {name}",
            hint=(
                "pass an Arrow table, a pandas or polars frame, a dict of columns, a list of dicts, or "
                "anything with __arrow_c_stream__"
            ),
        )
    return ArrowSource(data)


def _has_files(files: Files) -> bool:
    """Whether there are files to be read now."""
    from tsql.backends.live.sources.found_files import found_files

    return any(map(remote.is_remote, files.paths)) or any(True for _ in found_files(files.paths, files.kind))
