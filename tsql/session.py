"""`Session`: a catalog, its settings and a backend. It turns SQL text into relations. `tsql.connect` makes one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsql import python_scan, registering
from tsql import settings as setting
from tsql.arguments import checked_mapping, checked_path, checked_text, optional_text
from tsql.backend_choice import spark_choice
from tsql.backends import Backend, Settings
from tsql.catalog.catalog import Catalog
from tsql.kernels.expr.errors import CatalogError, TsqlError, UnreadableError
from tsql.kernels.expr.keywords import quote
from tsql.parameters import Parameters, convert_all
from tsql.query_runner import QueryRunner
from tsql.relation import Relation, of_unreadable
from tsql.statements.script_runner import ScriptRunner
from tsql.statements.transactions import CommitStore, Transactions

if TYPE_CHECKING:
    from tsql.catalog.streams import Streams
    from tsql.jobs import Job, Jobs
    from tsql.sharded import Sharded
    from tsql.studio import Studio


class Session:
    """A connection. Several threads may read with it; queries that start later see changes to the catalog.

    Its parts do the work: `QueryRunner` runs queries, `ScriptRunner` analyzes and executes statements, `Transactions`
    commits their changes."""

    def __init__(
        self,
        backend: Backend | str = "local",
        settings: Settings | None = None,
        *,
        spark: Any = None,
        store: CommitStore | None = None,
    ) -> None:
        self.catalog = Catalog()
        self._store = store
        self.transactions = Transactions(self.catalog, store)
        if store is not None:
            store.load(self.catalog)
            self.catalog.database = store.path.stem
        self.watch: Callable[[Callable[[], float | None]], AbstractContextManager[Any]] = lambda progress: nullcontext()
        """A context around each statement that runs at once and may take long (COPY, INSERT, CREATE TABLE AS). It gets
        a function that returns the progress."""
        self._queries = QueryRunner(backend, settings or Settings(), spark, self.transactions.fail)
        self._running = self._queries.running
        self.catalog.run_plan = self._queries.table
        self.catalog.variables = partial(python_scan.find, self._queries)
        if self._queries.target == "spark":
            self.catalog.in_tasks = True
            self.catalog.outer = lambda: self.backend.outer_names()
            self.catalog.sinks = lambda: self.backend.sinks()
            self.catalog.datasets = self._queries.datasets
        self._scripts = ScriptRunner(self)
        self._plans = self._scripts.plans
        self._jobs: Jobs | None = None
        self._queries.start_job = self._start_job
        self._queries.find_streams = self._find_streams
        self._queries.live_streams = self._live_streams

    @property
    def settings(self) -> Settings:
        """The settings that `SET` changes. A query uses the settings of the moment when it was created."""
        return self._queries.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._queries.settings = settings

    @property
    def backend(self) -> Backend:
        """What runs the plans; made at the first use."""
        return self._queries.backend

    @property
    def target(self) -> str:
        """What plans are made for."""
        return self._queries.target

    @property
    def path(self) -> Path | None:
        """The folder of the database; None for one in memory."""
        return None if self._store is None else self._store.path

    def sql(self, text: str, params: Parameters = None, *, origin: str | None = None) -> Relation:
        """The result of the last statement of `text`. A query is lazy: it runs when the relation is consumed. Other
        statements, and every statement before the last, run at once."""
        self._check_open()
        text, origin = checked_text(text, "a query"), optional_text(origin, "the origin of a query")
        return self._scripts.sql(text.removeprefix("\ufeff"), *convert_all(params), origin)

    def statements(self, text: str, params: Parameters = None, *, origin: str | None = None) -> Iterator[Relation]:
        """The results of the statements of a script, one after the other. A statement is analyzed only when its result
        is asked for, so it sees the tables that earlier statements made."""
        self._check_open()
        kinds, values = convert_all(params)
        text, origin = checked_text(text, "a script"), optional_text(origin, "the origin of a script")
        yield from self._scripts.statements(text, kinds, values, origin)

    def execute(self, text: str, params: Parameters = None) -> Relation:
        """Run every statement now, the last one too, and keep its result in memory."""
        relation = self.sql(text, params)
        if not relation.columns:
            return relation
        table = relation.arrow()
        result = Relation(
            tuple(relation.columns), relation.sql_types, lambda run: iter(table.to_batches()), message=relation.message
        )
        return result.tell(relation.notes)

    def register(self, name: str, data: Any, *, time: str | None = None, period: tuple[str, str] | None = None) -> None:
        """Make Arrow data, a dataframe, columns, rows or a relation readable under a name; an older entry is replaced.
        A relation over one whole table or file stays lazy; any other one is computed now. `time` names the column with
        the time of a row, `period` the two columns between which it is valid."""
        self._check_open()
        checked_text(name, "the name of a table")
        entry = registering.timed(registering.as_source(name, data), time, period)
        with self.transactions.lock:  # a statement that fails puts the catalog back
            self.catalog.add(name, entry)

    def stream(
        self,
        name: str,
        data: Any = None,
        *,
        time: str,
        watermark: str | None = None,
        period: tuple[str, str] | None = None,
        idle_timeout: registering.Length | None = None,
        allowed_lateness: registering.Length | None = None,
        on_late: str = "drop",
        late_table: str | None = None,
        connector: str | None = None,
        columns: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Make a stream of files (a path, a pattern, or a list of them), of data in memory, of a function or an
        iterator that gives tables, or (without data) of a `connector`; an older one of the name is replaced. It is
        CREATE STREAM in Python: `time` is the column of WATERMARK FOR, `watermark` the expression behind AS (`time`
        itself unless given), `on_late` one of drop, adjust, error and into (with `late_table`), `columns` maps names to
        types, and `options` are those of the reader.

        A function is called with an offset (0 at first) and gives what comes behind it; an iterator cannot be read
        again after a crash."""
        self._check_open()
        checked_text(name, "the name of a stream")
        optional_text(connector, "a connector")
        columns = None if columns is None else checked_mapping(columns, "columns")
        lateness = {
            "idle_timeout": idle_timeout,
            "allowed_lateness": allowed_lateness,
            "on_late": on_late,
            "late_table": late_table,
        }
        if registering.goes_on(data):
            if connector is not None or options:
                raise CatalogError(f"connector and options are for streams over files, and {name} is one over data")
            entry = registering.stream_of_python(name, data, columns, time, period, watermark, lateness)
            with self.transactions.lock:
                self.catalog.add(name, entry)
            return
        if data is not None and not registering.is_path(data):
            if columns is not None or connector is not None or options:
                raise CatalogError(
                    f"columns, connector and options are for streams over files, and {name} is one over data"
                )
            entry = registering.stream_over(registering.as_source(name, data), time, period, watermark, lateness)
            with self.transactions.lock:
                self.catalog.add(name, entry)
            return
        try:
            self.sql(
                registering.stream_text(name, data, connector, columns, time, period, watermark, lateness, options)
            )
        except TsqlError as error:
            error.position = None  # a place in a text that the caller has not written
            raise

    def unregister(self, name: str) -> None:
        """Forget a name."""
        self._check_open()
        with self.transactions.lock:
            self.catalog.drop(checked_text(name, "the name of a table"))
        self._plans.clear()

    def table(self, name: str) -> Relation:
        """A relation over a table or view of the catalog."""
        self._check_open()
        entry = self.catalog.require(checked_text(name, "the name of a table"))
        try:
            return self.sql(f"SELECT * FROM {quote(name)}")
        except UnreadableError as error:
            if not hasattr(entry, "schema"):
                raise
            return of_unreadable(entry, UnreadableError(error.message, hint=error.hint))

    def tables(self) -> list[str]:
        """The names of the tables and views."""
        self._check_open()
        return self.catalog.names()

    def sharded(
        self,
        table: str | os.PathLike[str] | Relation,
        columns: Sequence[str] | None = None,
        *,
        shards: int | None = None,
        params: Parameters = None,
    ) -> Sharded:
        """A table, a file or a relation over one as a dataset in shards, from which a plan is built step by step.
        `shards` are as many as threads unless given; without `columns`, those that later steps use are read; `params`
        are for `$name`."""
        from tsql.sharded import start

        self._check_open()
        return start(self, table, columns, shards, params)

    def read_parquet(self, path: str | os.PathLike[str] | Sequence[str], **options: Any) -> Relation:
        """A relation over Parquet files: a path, a pattern, or a list of them."""
        return self._read(path, "parquet", options)

    def read_csv(self, path: str | os.PathLike[str] | Sequence[str], **options: Any) -> Relation:
        """A relation over CSV files."""
        return self._read(path, "csv", options)

    def read_json(self, path: str | os.PathLike[str] | Sequence[str], **options: Any) -> Relation:
        """A relation over files with a JSON object per line."""
        return self._read(path, "json", options)

    def read_ipc(self, path: str | os.PathLike[str] | Sequence[str], **options: Any) -> Relation:
        """A relation over Arrow IPC files."""
        return self._read(path, "ipc", options)

    def _read(self, path: str | os.PathLike[str] | Sequence[str], kind: str, options: dict[str, Any]) -> Relation:
        where, options = registering.checked_files(path), {n: v for n, v in options.items() if v is not None}
        try:
            return self.sql(registering.read_text(where, kind, options))
        except UnreadableError as error:
            source = self.catalog.open_file(where, kind, options)
            return of_unreadable(source, UnreadableError(error.message, hint=error.hint))
        except TsqlError as error:
            error.position = None  # a place in a text that the caller has not written
            raise

    def jobs(self) -> list[Job]:
        """The jobs that were started in this session, and the last ones that are over."""
        return [] if self._jobs is None else self._jobs.all()

    def _live_streams(self) -> Streams:
        from tsql.catalog.streams import Streams

        return Streams(self.catalog)

    def _find_streams(self, plan: Callable[[], Any]) -> bool | None:
        if not self.catalog.has_streams():
            return None  # a plan that was found on disk is not analyzed for this
        from tsql.catalog.streams import endless

        return endless(plan(), self.catalog)

    def _start_job(self, query: Any, *given: Any, **more: Any) -> Any:
        """Start a job (`tsql.jobs.Query`), or compare its checkpoint."""
        from tsql.jobs import Jobs

        self._check_open()
        with self.transactions.lock:
            if self._jobs is None:
                self._jobs = Jobs(self)
        return self._jobs.start(query, *given, **more)

    def studio(self, *, port: int = 0, host: str = "127.0.0.1", read_only: bool = False) -> Studio:
        """Serve the studio over this session, in background threads: `.address` opens its page, `.close()` ends it."""
        from tsql.studio import serve

        return serve(self, port=port, host=host, read_only=read_only)

    def close(self) -> None:
        """Cancel running queries, which get a CancelledError, and free the tables, the plans and the backend's workers.
        Using the session afterwards is an error."""
        with ExitStack() as later:  # all of it, also if one raises, or Ctrl-C comes
            later.callback(self._queries.close_backend)
            if self._store is not None:
                later.callback(self._store.close)
            if self._jobs is not None:
                self._jobs.close()
            self._running.close()
            self._plans.clear()
            before, self.catalog = self.catalog, Catalog()
            for catalog in (before, self.catalog):
                catalog.pipes.close()  # a thread that is still analyzing may have either

    def _check_open(self) -> None:
        self._running.check()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    backend: str = "local",
    threads: int | None = None,
    memory_limit: int | str | None = None,
    spark: Any = None,
    master: str | None = None,
    conf: Mapping[str, Any] | None = None,
    read_only: bool = False,
    **settings: Any,
) -> Session:
    """Open a session, in memory or on a database at `path` (a folder, made if it is not there); `read_only` needs one.

    backend: "local" (the cores of this machine), "interp" (slow and obvious) or "spark"; `spark=` takes a running
    SparkSession (of Spark Connect, too) and implies the last; `master` and `conf` are for the session that is started
    without one. threads: 0 or None means all cores. memory_limit: bytes, or a text such as "2GB".
    Other settings are those of `SET`.
    """
    backend, spark = spark_choice(backend, spark, master, conf)
    chosen = setting.from_values({"threads": threads, "memory_limit": memory_limit, **settings})
    store = None
    if path is not None and checked_path(path, "a database") != ":memory:":
        from tsql.storage import Database

        store = Database(path, read_only=read_only)
    elif read_only:
        raise CatalogError("a session in memory cannot be read-only", hint="connect(path, read_only=True)")
    try:
        return Session(backend, chosen, spark=spark, store=store)
    except BaseException:
        if store is not None:
            store.close()
        raise
