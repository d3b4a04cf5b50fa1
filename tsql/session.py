"""`Session`: a catalog, settings and a backend; it turns SQL text into relations. `tsql.connect` makes one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tsql import plan_store
from tsql import settings as setting
from tsql.arguments import checked_mapping, checked_path, checked_text, is_variable_of_caller, optional_text
from tsql.backends import Backend, Run, Settings
from tsql.catalog.catalog import Catalog, FileUse, as_source
from tsql.costs import calibrated
from tsql.interrupt import Interruptible
from tsql.kernels.expr.errors import (
    CatalogError,
    ParseError,
    PlanError,
    TransactionError,
    TsqlError,
    UnknownTableError,
    UnreadableError,
)
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.types import VARCHAR, Type
from tsql.kernels.process import garbage
from tsql.parameters import Parameters, check_names, convert_all, literal
from tsql.planner import PhysicalPlan, make_plan
from tsql.prepared import InsertCache, PlanCache, Prepared, RepeatedInsert
from tsql.relation import Relation, of_table, of_text, of_unreadable, too_much
from tsql.running import AtWork, Running
from tsql.statements.named import NamedStatements
from tsql.statements.script import Piece, split
from tsql.statements.transactions import CommitStore, Transactions

if TYPE_CHECKING:
    from tsql import registering
    from tsql.planner.logical import nodes as logical
    from tsql.sharded import Sharded
    from tsql.statements import kinds as statements

BACKENDS = ("local", "interp", "spark")


class Session:
    """A connection. Use it from several threads for reading; changes to the catalog are seen by queries that start
    later."""

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
        self.settings = settings or Settings()
        self._backend = backend
        self._spark = spark
        self._plans = PlanCache()
        self._inserts = InsertCache()
        self._named = NamedStatements()
        self._running = Running()
        self.watch: Callable[[Callable[[], float | None]], AbstractContextManager[Any]] = lambda progress: nullcontext()
        """Around each statement that runs at once and may last (COPY, INSERT, CREATE TABLE AS), with what tells how far
        it is."""
        self.catalog.run_plan = self._run_plan
        self.catalog.database = self._database_name
        if isinstance(backend, str) and backend.partition("=")[0] not in BACKENDS:
            raise CatalogError(f"unknown backend {backend}", hint=f"backends are {', '.join(BACKENDS)}")
        if not isinstance(backend, str) and not hasattr(backend, "run"):
            raise CatalogError(
                f"a backend is the name of one, not {backend!r}", hint=f"backends are {', '.join(BACKENDS)}"
            )

    @property
    def backend(self) -> Backend:
        """What runs the plans; made at the first use."""
        if isinstance(self._backend, str):
            self._backend = _make_backend(self._backend, self._spark)
        return self._backend

    @property
    def target(self) -> str:
        """What plans are made for."""
        name = self._backend if isinstance(self._backend, str) else self._backend.name
        return "spark" if name.startswith("spark") else "local"

    @property
    def _shards(self) -> int | None:
        """The number of shards that the backend would choose; None leaves it to the settings."""
        return None if self.target == "local" or self.settings.shards else self.backend.shards

    def sql(self, text: str, params: Parameters = None, *, origin: str | None = None) -> Relation:
        """The result of the last statement of `text`. A query is lazy: it runs when the relation is consumed. Other
        statements, and every statement before the last, run at once."""
        self._check_open()
        text, origin = checked_text(text, "a query"), optional_text(origin, "the origin of a query")
        return self._sql(text.removeprefix("\ufeff"), *convert_all(params), origin)

    def _sql(self, text: str, kinds: dict[str, Type], values: dict[str, Any], origin: str | None) -> Relation:
        """`sql` with the types and the stored values of the parameters."""
        key = (text, origin, tuple(kinds.items()), self.catalog.version, setting.key_of(self.settings))
        prepared = self._plans.find(key)
        if prepared is not None:
            self.transactions.check(prepared)
            return self._relation(prepared, values, cached=True)
        again = self._inserts.find((text, origin, key[2]), self.catalog)
        if again is not None:
            return self._insert_again(again, values)
        stored = self._stored(text, origin, kinds, values)
        if stored is not None:
            self.transactions.check(stored)
            self._plans.keep(key, self.catalog.version, stored)
            return self._relation(stored, values)
        pieces = _split(text, origin, values)
        for piece in pieces[:-1]:
            for _ in self._statement(piece, kinds, values).batches():
                pass
        return self._statement(pieces[-1], kinds, values, key if len(pieces) == 1 else None)

    def _stored(self, text: str, origin: str | None, kinds: dict[str, Type], values: dict[str, Any]) -> Prepared | None:
        """A query whose plan an earlier process has left on disk."""
        if self.target != "local" or not plan_store.is_on():
            return None
        begun = time.perf_counter()
        with garbage.paused():
            found = plan_store.find(self._stored_key(text, kinds), self.catalog, kinds)
        if found is None:
            return None
        parameters, start, length, plan = found
        check_names(values, parameters)
        piece = Piece(text[start : start + length], start, text, origin, parameters)
        before, mine = self.catalog.snapshot(), {name: kinds[name] for name in parameters}

        def analyze() -> statements.Query:
            from tsql.analyze.statements import analyze as analyze_text

            catalog = Catalog.of(before)
            catalog.database = self._database_name
            (statement,) = analyze_text(piece.text, catalog, mine, piece.origin)
            return statement

        fields = plan.root.schema
        spent = {"parse": (time.perf_counter() - begun) * 1000, "plan": 0.0}
        return Prepared(piece, analyze, plan.names, tuple(fields[c].type for c in plan.columns), (), spent, plan)

    def _stored_key(self, text: str, kinds: dict[str, Type]) -> str:
        return plan_store.key_of(text, kinds, (*setting.key_of(self.settings), self._database_name), calibrated())

    def _keeper(
        self, piece: Piece, kinds: dict[str, Type], asked: dict[tuple[str, str], None]
    ) -> Callable[[PhysicalPlan], None] | None:
        """What writes the plan of a query for later processes."""
        if self.target != "local" or not plan_store.is_on():
            return None
        key, version = self._stored_key(piece.whole, kinds), self.catalog.version

        def keep(plan: PhysicalPlan) -> None:
            # A catalog that has changed since says other things than the analysis was told.
            if self.catalog.version == version:
                plan_store.keep(key, self.catalog, asked, piece.parameters, piece.start, len(piece.text), plan)

        return keep

    def _insert_again(self, known: RepeatedInsert, values: dict[str, Any]) -> Relation:
        check_names(values, list(known.piece.parameters))
        with AtWork(Run(settings=self.settings), self._running):
            try:
                self.transactions.check(known.statement)
                return self._perform(known.statement, known.piece, values, None, (), {})
            except TsqlError as error:
                self.transactions.fail()
                raise known.piece.relocate(error) from error.__cause__

    def statements(self, text: str, params: Parameters = None, *, origin: str | None = None) -> Iterator[Relation]:
        """The results of the statements of a script, one after the other; the next statement is looked at only when its
        result is asked for, so it sees the tables that those before it have made."""
        self._check_open()
        kinds, values = convert_all(params)
        text, origin = checked_text(text, "a script"), optional_text(origin, "the origin of a script")
        pieces = _split(text, origin, values)
        if len(pieces) == 1:
            yield self._sql(text, kinds, values, origin)
            return
        for piece in pieces:
            yield self._statement(piece, kinds, values)

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

    def _statement(self, piece: Piece, kinds: dict[str, Type], values: dict[str, Any], key: Any = None) -> Relation:
        with AtWork(Run(settings=self.settings), self._running):
            return self._analyzed(piece, kinds, values, key)

    def _analyzed(self, piece: Piece, kinds: dict[str, Type], values: dict[str, Any], key: Any) -> Relation:
        from tsql.analyze.statements import analyze
        from tsql.statements import kinds as statements

        mine = {name: kinds[name] for name in piece.parameters}
        begun, version = time.perf_counter(), self.catalog.version
        with self.catalog.record_files() as recorder, garbage.paused():
            try:
                found = analyze(piece.text, self.catalog, mine, piece.origin)
            except TsqlError as error:
                self.transactions.fail()
                if (
                    isinstance(error, UnknownTableError)
                    and error.table
                    and is_variable_of_caller(error.table, __name__)
                ):
                    error.hint = (
                        f'there is a Python variable of this name: db.register("{error.table}", {error.table}) '
                        "makes it a table"
                    )
                raise piece.relocate(error) from error.__cause__
            except (RecursionError, MemoryError) as error:
                raise piece.relocate(too_much(error)) from error
        if len(found) != 1:
            raise PlanError(
                f"expected one statement, found {len(found)}",
                position=piece.start,
                text=piece.whole,
                origin=piece.origin,
            )
        spent = {"parse": (time.perf_counter() - begun) * 1000}
        used = {name: values[name] for name in piece.parameters}
        try:
            self.transactions.check(found[0])
            if not isinstance(found[0], statements.Change):
                return self._perform(
                    found[0],
                    piece,
                    used,
                    key,
                    tuple(recorder.files),
                    spent,
                    None if key is None else self._keeper(piece, kinds, recorder.asked),
                )
            with self.transactions.lock:
                if self.catalog.version != version:
                    # Another thread has changed the catalog since: places of rows, say, would be those of an older
                    # version.
                    found = analyze(piece.text, self.catalog, mine, piece.origin)
                result = self._perform(found[0], piece, used, None, tuple(recorder.files), spent)
                if key is not None:
                    self._inserts.keep(key[:3], piece, found[0], self.catalog)
                return result
        except TransactionError as error:
            raise piece.relocate(error) from error.__cause__
        except TsqlError as error:
            self.transactions.fail()
            if error.text is None and error.position is None:
                error.position = getattr(found[0], "position", None)
            raise piece.relocate(error) from error.__cause__

    def _perform(
        self,
        statement: Any,
        piece: Piece,
        values: dict[str, Any],
        key: Any,
        files: tuple[FileUse, ...],
        spent: dict[str, float],
        keep: Callable[[PhysicalPlan], None] | None = None,
    ) -> Relation:
        from tsql.statements import changes, copying, introspect
        from tsql.statements import kinds as statements

        def query(inner: statements.Query) -> Prepared:
            return _prepare(piece, inner, files, spent)

        match statement:
            case statements.Query():
                prepared = query(statement)
                if key is not None:
                    prepared.keep = keep if prepared.source is None else None
                    self._plans.keep(key, self.catalog.version, prepared)
                return self._relation(prepared, values)
            case statements.Explain():
                level, prepared = (statement.level or "physical").lower(), query(statement.query)
                return of_text(
                    f"{level}_plan",
                    lambda: self._explain(prepared, values, level),
                    ("explain_key", "explain_value"),
                    VARCHAR,
                )
            case statements.CompilePlan():
                from tsql.loaded import save_plan

                text = query(statement.query).make_plan(self.settings, self.target, self._shards).text()
                save_plan(text, statement.path)
            case statements.ExecutePlan():
                from tsql.loaded import load_plan

                return load_plan(statement.path).run(self)
            case statements.Prepare():
                self._named.prepare(statement)
            case statements.Execute():
                known, kinds, given = self._named.find(statement, lambda inner: self._relation(query(inner), values))
                return self._sql(known.text, kinds, given, f'prepared statement "{known.name}"')
            case statements.Deallocate():
                self._named.deallocate(statement)
            case statements.Set():
                setting.change(self.settings, statement.name, statement.value)
            case statements.ShowTables():
                return (
                    introspect.show_all_tables(self.catalog, self._database_name, self._columns_of)
                    if statement.all
                    else introspect.show_tables(self.catalog)
                )
            case statements.ShowStreams():
                return introspect.show_streams(self.catalog)
            case statements.Describe():
                names, types = zip(*statement.columns, strict=True)
                return introspect.describe(
                    names, types, None if statement.table is None else self.catalog.entry(statement.table)
                )
            case statements.Summarize():
                return self._summarize(statement.query, query, values)
            case statements.CopyTo():
                relation = self._relation(query(statement.query), values)
                with self.watch(lambda: relation.progress):
                    rows = copying.copy_to(relation, statement.path, statement.options, statement.places)
                return changes.counted(rows).tell(relation.notes)
            case _ if isinstance(statement, statements.Change):
                return self._change(statement, query, values)
            case _:
                raise PlanError(f"{type(statement).__name__} statements cannot run here")
        return of_table((), (), [], message="ok")

    def _change(self, statement: Any, query: Any, values: dict[str, Any]) -> Relation:
        from tsql.statements import changes
        from tsql.statements import kinds as statements

        relate = (
            self._local_relation
            if isinstance(statement, statements.Update | statements.Delete | statements.Alter)
            else self._relation
        )
        if not isinstance(statement, statements.Insert):
            self._inserts.clear()
        ran: list[Relation] = []

        def related(inner: statements.Query) -> Relation:
            ran.append(relate(query(inner), values))
            return ran[-1]

        with self.watch(lambda: ran[-1].progress if ran else None):
            result = changes.perform(self, statement, related, values)
        self._plans.clear()
        return result.tell(note for relation in ran if relation is not result for note in relation.notes)

    def _summarize(self, inner: statements.Query, query: Any, values: dict[str, Any]) -> Relation:
        from tsql.analyze.changes import Overlay
        from tsql.analyze.statements import Analyzer
        from tsql.grammar.parser.statements import parse
        from tsql.statements import introspect

        relation = self._relation(query(inner), values)
        rows = as_source(
            "#summarized", relation.arrow().rename_columns([f"c{i}" for i in range(len(relation.columns))])
        )

        def run(text: str) -> pa.Table:
            (parsed,) = parse(text)
            found = Analyzer(parsed, Overlay(self.catalog, **{"#summarized": rows}), None).query(parsed.node, text)
            return self._relation(query(found), {}).arrow()

        return introspect.summarize(tuple(relation.columns), relation.sql_types, run)

    def _columns_of(self, name: str) -> tuple[tuple[str, ...], tuple[Type, ...]]:
        from tsql.analyze.statements import analyze

        (found,) = analyze(f"DESCRIBE {quote(name)}", self.catalog, {}, None)
        return tuple(column for column, _ in found.columns), tuple(kind for _, kind in found.columns)

    @property
    def path(self) -> Path | None:
        """The folder of the database; None for one in memory."""
        return None if self._store is None else self._store.path

    @property
    def _database_name(self) -> str:
        return "memory" if self._store is None else self._store.path.stem

    def _local_relation(self, prepared: Prepared, values: dict[str, Any]) -> Relation:
        """A relation that is computed in this process whatever the backend is: places of rows mean nothing
        elsewhere."""
        if self.target == "local":
            return self._relation(prepared, values)
        backend, settings = _make_backend("local", None), replace(self.settings)
        plan = prepared.make_plan(settings, "local")
        return Relation(
            prepared.names,
            prepared.types,
            lambda run: backend.run(plan, run),
            lambda: Run(settings=settings, parameters=values),
            relocate=lambda error: self._failed(prepared, error),
            running=self._running,
        )

    def _relation(self, prepared: Prepared, values: dict[str, Any], *, cached: bool = False) -> Relation:
        settings = replace(self.settings)

        def new_run() -> Run:
            spent = {"parse": 0.0, "plan": 0.0} if cached else dict(prepared.timings_ms)
            return Run(settings=settings, parameters=values, timings_ms=spent)

        def plan_for(run: Run) -> PhysicalPlan:
            fresh = prepared.physical is None
            run.planning = True
            try:
                plan = prepared.make_plan(settings, self.target, self._shards)
            finally:
                run.planning = False
            if fresh:
                run.timings_ms["plan"] = prepared.timings_ms["plan"]
            return plan

        def start_all(run: Run) -> Any:
            run_all = getattr(self.backend, "run_all", self.backend.run)
            return run_all(plan_for(run), run)

        def frame(run: Run) -> Any:
            return self.backend.frame(prepared.make_plan(settings, self.target, self._shards), run)

        return Relation(
            prepared.names,
            prepared.types,
            lambda run: self.backend.run(plan_for(run), run),
            new_run,
            describe_plan=lambda level: self._explain(prepared, values, level),
            source=prepared.source,
            relocate=lambda error: self._failed(prepared, error),
            frame=frame if self.target == "spark" else None,
            start_all=start_all,
            running=self._running,
        )

    def _failed(self, prepared: Prepared, error: TsqlError) -> TsqlError:
        self.transactions.fail()
        return prepared.piece.relocate(error)

    def _run_plan(self, plan: logical.Output) -> pa.Table:
        """The result of a logical plan that the analyzer asks for."""
        physical = make_plan(plan, self.settings, "", self.target, self._shards)
        run = Run(settings=replace(self.settings))
        with Interruptible(run, self._running):
            return pa.Table.from_batches(self.backend.run(physical, run), physical.schema)

    def _explain(self, prepared: Prepared, values: dict[str, Any], level: str) -> str:
        run = Run(settings=replace(self.settings), parameters=values)
        with AtWork(run, self._running):
            return self._explained(prepared, level, run)

    def _explained(self, prepared: Prepared, level: str, run: Run) -> str:
        if level == "logical":
            from tsql.planner.logical import nodes as logical

            return logical.show(prepared.query.plan)
        if level.startswith("candidates"):
            from tsql.planner.cost.candidates import listing

            return listing(
                prepared.candidates(self.settings, self.target, self._shards), int(level.partition(" ")[2] or 0)
            )
        plan = prepared.make_plan(self.settings, self.target, self._shards)
        if level == "file":
            return plan.text()
        from tsql.loaded import explain_plan

        run.timings_ms = dict(prepared.timings_ms)
        return explain_plan(self, plan, level, run)

    def register(self, name: str, data: Any, *, time: str | None = None, period: tuple[str, str] | None = None) -> None:
        """Make Arrow data, a dataframe, columns, rows or a relation readable under a name; an older entry is replaced.
        A relation over one whole table or file stays lazy; any other one is computed now. `time` names the column with
        the time of a row, `period` the two columns between which it is valid."""
        self._check_open()
        checked_text(name, "the name of a table")
        from tsql import registering

        entry = registering.timed(self._source(name, data), time, period)
        with self.transactions.lock:  # a statement that fails puts the catalog back
            self.catalog.add(name, entry)

    def _source(self, name: str, data: Any) -> Any:
        if isinstance(data, Relation):
            data = data.source if data.source is not None else data.arrow()
        elif type(data).__module__.startswith("pyspark."):
            data = _spark_source(name, data)
        return as_source(name, data)

    def stream(
        self,
        name: str,
        data: Any,
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
        """Make a stream of files (a path, a pattern, or a list of them) or of data in memory; an older one of the name
        is replaced. It is CREATE STREAM in Python: `time` is the column of WATERMARK FOR, `watermark` the expression
        behind AS (`time` itself unless given), `on_late` one of drop, adjust, error and into (with `late_table`),
        `columns` maps names to types, and `options` are those of the reader."""
        from tsql import registering

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
        if not registering.is_path(data):
            if columns is not None or connector is not None or options:
                raise CatalogError(
                    f"columns, connector and options are for streams over files, and {name} is one over data"
                )
            entry = registering.stream_over(self._source(name, data), time, period, watermark, lateness)
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
        options = {name: value for name, value in options.items() if value is not None}
        several = isinstance(path, Sequence) and not isinstance(path, str | bytes)
        where = (
            [checked_path(one, "the name of a file") for one in path]
            if several
            else checked_path(path, "the name of a file")
        )
        arguments = [literal(where), *(f"{name} => {literal(value)}" for name, value in options.items())]
        try:
            return self.sql(f"FROM read_{kind}({', '.join(arguments)})")
        except UnreadableError as error:
            return of_unreadable(
                self.catalog.open_file(where, kind, options), UnreadableError(error.message, hint=error.hint)
            )
        except TsqlError as error:
            error.position = None  # a place in a text that the caller has not written
            raise

    def close(self) -> None:
        """End the queries that run, which get a CancelledError, and free the tables, the plans and the backend's
        workers. What needs the session afterwards is an error."""
        with ExitStack() as later:  # all of it, also if one raises, or Ctrl-C comes
            if not isinstance(self._backend, str) and hasattr(self._backend, "close"):
                later.callback(self._backend.close)
            if self._store is not None:
                later.callback(self._store.close)
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


def _split(text: str, origin: str | None, values: dict[str, Any]) -> list[Piece]:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ParseError(
            "half of a surrogate pair is no character", position=error.start, text=text, origin=origin
        ) from error
    pieces = split(text, origin)
    if not pieces:
        raise CatalogError("there is no statement in the text")
    places = {
        name: place
        for piece in reversed(pieces)
        for name, place in zip(reversed(piece.parameters), reversed(piece.places), strict=True)
    }
    check_names(values, [name for piece in pieces for name in piece.parameters], places, text, origin)
    return pieces


def _prepare(piece: Piece, query: statements.Query, files: tuple[FileUse, ...], spent: dict[str, float]) -> Prepared:
    from tsql.planner.logical import nodes as logical

    scan, names = query.plan.input, tuple(query.plan.names)
    source = (
        scan.source if isinstance(scan, logical.Scan) and scan.columns == scan.source.schema.names == names else None
    )
    return Prepared(piece, lambda: query, names, tuple(f.type for f in query.plan.schema), files, spent, source=source)


def _make_backend(name: str, spark: Any) -> Backend:
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


def _spark_source(name: str, data: Any) -> Any:
    """A DataFrame of Spark as a source, which its cluster reads; anything else as it is."""
    from tsql.backends.spark.backend import source_of

    return source_of(data, name) or data


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    backend: str = "local",
    threads: int | None = None,
    memory_limit: int | str | None = None,
    spark: Any = None,
    read_only: bool = False,
    **settings: Any,
) -> Session:
    """Open a session, in memory or on a database at `path` (a folder, made if it is not there); `read_only` needs one.

    backend: "local" (the cores of this machine), "interp" (slow and obvious) or "spark"; `spark=` takes a running
    SparkSession and implies the last. threads: 0 or None means all cores. memory_limit: bytes, or a text such as "2GB".
    Other settings are those of `SET`.
    """
    chosen = setting.from_values({"threads": threads, "memory_limit": memory_limit, **settings})
    store = None
    if path is not None and checked_path(path, "a database") != ":memory:":
        from tsql.storage import Database

        store = Database(path, read_only=read_only)
    elif read_only:
        raise CatalogError("a session in memory cannot be read-only", hint="connect(path, read_only=True)")
    try:
        return Session("spark" if spark is not None else backend, chosen, spark=spark, store=store)
    except BaseException:
        if store is not None:
            store.close()
        raise
