"""`Relation`: the lazy result of a query. It runs each time it is consumed and caches nothing."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from tsql.arguments import checked_callable, checked_count, checked_path, checked_text, optional_text
from tsql.backends import Run
from tsql.backends.backend import not_on_spark
from tsql.interrupt import Interruptible
from tsql.kernels.codegen.object_cache import take_notes
from tsql.kernels.expr.errors import CatalogError, OutOfMemoryError, PlanError, SourceError, TsqlError
from tsql.kernels.expr.types import Type
from tsql.kernels.process import forks
from tsql.running import Running
from tsql.values import python_values

if TYPE_CHECKING:
    import pandas
    import polars

    from tsql.backends.live.jobs.resume import Comparison
    from tsql.jobs import Job
    from tsql.snapshots import Snapshot, Snapshots
    from tsql.watching import Watch

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".ndjson": "json",
    ".jsonl": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
"""The file extensions from which `write` infers the format."""

_REPR_ROWS = 10_000

Start = Callable[[Run], Iterator[pa.RecordBatch]]


class Relation:
    """A result that is computed when it is asked for.

    `start` hands out the batches of one run, `start_all` those of one that is wanted as a whole; `describe_plan(level)`
    gives the texts of `explain`, or is None where there is no plan (the results of statements such as SHOW TABLES).
    `message` is set for statements without a result of their own (DDL), `text` where the result is one long text
    (EXPLAIN)."""

    def __init__(
        self,
        names: tuple[str, ...],
        types: tuple[Type, ...],
        start: Start,
        new_run: Callable[[], Run] = Run,
        *,
        describe_plan: Callable[[str], str] | None = None,
        source: Any = None,
        message: str | None = None,
        text: Callable[[], str] | None = None,
        relocate: Callable[[TsqlError], TsqlError] = lambda error: error,
        frame: Callable[[Run], Any] | None = None,
        start_all: Start | None = None,
        running: Running | None = None,
        snapshots: Callable[[Run], Iterator[Any]] | None = None,
        is_progressive: Callable[[], bool] = lambda: False,
        start_job: Callable[..., Job] | None = None,
        reads_streams: Callable[[], bool] = lambda: False,
        is_endless: Callable[[], bool] = lambda: False,
    ) -> None:
        self._names, self._types = names, types
        self._start, self._start_all, self._new_run = start, start_all, new_run
        self._describe_plan = describe_plan
        self._relocate = relocate
        self._frame = frame
        self._running = running
        self._snapshots, self._is_progressive = snapshots, is_progressive
        self._start_job, self._reads_streams, self._is_endless = start_job, reads_streams, is_endless
        self._runs: weakref.WeakSet[_Handle] = weakref.WeakSet()
        self._last: Run | None = None
        self._told: list[str] = []
        self._cursor: Iterator[tuple[Any, ...]] | None = None
        self._fetching = forks.lock()
        self.source = source
        self._refused: TsqlError | None = None
        self.message = message
        self.text = text

    @property
    def columns(self) -> list[str]:
        """The names of the columns; they may repeat."""
        return list(self._names)

    @property
    def types(self) -> list[str]:
        """The SQL types of the columns."""
        return [str(t) for t in self._types]

    @property
    def sql_types(self) -> tuple[Type, ...]:
        """The types of the columns as `kernels.types.Type` values."""
        return self._types

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result, known without running the query."""
        if self._refused is not None:
            raise self._refused
        return pa.schema([pa.field(name, t.to_arrow()) for name, t in zip(self._names, self._types, strict=True)])

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Run the query and hand out its batches as they come."""
        return self._batches(self._start)

    def _batches(self, start: Start) -> Generator[pa.RecordBatch, None, None]:
        run = self._new_run()
        if self._running is not None:
            self._running.begin(run)
        handle = _Handle(run)
        self._runs.add(handle)
        self._last = run
        schema = self.schema
        begun = time.perf_counter()
        stream: Iterator[pa.RecordBatch] | None = None
        try:
            with Interruptible(run, self._running):
                found = start(run)
            stream = iter(found)
            at_hand = isinstance(found, list)
            while True:
                if at_hand:
                    run.check()
                    batch = next(stream, None)
                else:
                    with Interruptible(run, self._running):
                        batch = next(stream, None)
                if batch is None:
                    break
                yield batch if batch.schema.equals(schema) else _fit(batch, schema)
        except TsqlError as error:
            raise self._relocate(error) from error.__cause__
        except (RecursionError, MemoryError) as error:
            raise self._relocate(too_much(error)) from error
        except (GeneratorExit, KeyboardInterrupt):
            run.cancel()
            raise
        finally:
            if hasattr(stream, "close"):
                stream.close()
            self._runs.discard(handle)
            run.activity = ""
            run.timings_ms.setdefault("run", (time.perf_counter() - begun) * 1000)
            run.notes += take_notes()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    def reader(self) -> pa.RecordBatchReader:
        """The batches as an Arrow reader, for libraries that take one."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    def arrow(self) -> pa.Table:
        """The whole result as an Arrow table."""
        return pa.Table.from_batches(list(self._batches(self._start_all or self._start)), schema=self.schema)

    def pandas(self, **options: Any) -> pandas.DataFrame:
        """The whole result as a pandas frame; the options are those of `pyarrow.Table.to_pandas`. A column with dates
        or times that Python does not have (the year 10000, 24:00:00) has the values of `fetchall`."""
        from tsql.dataframes import to_pandas

        return to_pandas(self.arrow(), self._types, options)

    def polars(self) -> polars.DataFrame:
        """The whole result as a polars frame."""
        from tsql.dataframes import to_polars

        return to_polars(self.arrow(), self._types)

    @property
    def is_progressive(self) -> bool:
        """Whether it has snapshots before the result is known."""
        return self._is_progressive()

    def snapshots(self) -> Snapshots:
        """What is known of the result while it is computed, for a query with PROGRESSIVE behind it: for `for` or `async
        for`. Other queries have one snapshot, their result."""
        from tsql.snapshots import Snapshots

        if self._snapshots is None:
            raise CatalogError("this statement has no snapshots", hint="only queries have")
        if self._running is not None:
            self._running.check()
        run = self._new_run()
        handle = _Handle(run)
        self._runs.add(handle)
        self._last = run
        return Snapshots(run, self.schema, self._types, self._snapshots, self._running, self._relocate, handle)

    def watch(self, callback: Callable[[Snapshot], object]) -> Watch:
        """Run the query in the background, and call a function with each snapshot, in the thread of the run. The result
        pauses, stops, finishes and waits for it."""
        from tsql.watching import Watch

        return Watch(self.snapshots(), checked_callable(callback, "what is called with snapshots"))

    @property
    def reads_streams(self) -> bool:
        """Whether the query reads a stream, so that it can run as a job."""
        return self._reads_streams()

    @property
    def is_endless(self) -> bool:
        """Whether the query reads a stream that does not end."""
        return self._is_endless()

    def start(
        self,
        sink: Any = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        interval: float = 1.0,
        name: str | None = None,
        replay: float | None = None,
        until: Any = None,
    ) -> Job:
        """Run the query over its streams in the background, until they end or the job is stopped.

        sink: where the rows go: a folder (Parquet files), the name of an .ndjson file or of a table, a function that
        gets Arrow batches, or a sink object; without one the job keeps them (`job.table()`). checkpoint: a folder in
        which the job survives; the same call in a new process goes on where it was. interval: seconds between
        checkpoints. name: of the job. replay: feed files by the times of their rows, so many times as fast as they
        happened (0: as fast as they can be read). until: leave out rows at this time or later."""
        if self._start_job is None:
            raise CatalogError("this statement cannot run as a job", hint="only queries over streams can")
        if self._running is not None:
            self._running.check()
        try:
            return self._start_job(
                sink, checkpoint=checkpoint, interval=interval, name=name, replay=replay, until=until
            )
        except TsqlError as error:
            raise self._relocate(error) from error.__cause__

    def compare_checkpoint(self, checkpoint: str | os.PathLike[str]) -> Comparison:
        """What would become of a checkpoint if the query went on from it: what is kept, dropped, changed, and why it is
        refused, if it is."""
        if self._start_job is None:
            raise CatalogError("this statement cannot run as a job", hint="only queries over streams can")
        try:
            return self._start_job(None, checkpoint=checkpoint, compares=True)
        except TsqlError as error:
            raise self._relocate(error) from error.__cause__

    def _ipython_display_(self) -> None:
        """A progressive query as the last expression of a notebook's cell: its snapshots, in place."""
        from tsql.notebook import display_or_tell, shows_in_place

        if self._snapshots is None or not shows_in_place():
            raise NotImplementedError  # IPython shows it as any other object
        try:
            is_progressive = self.is_progressive
        except TsqlError:
            is_progressive = False  # its text tells why
        if not is_progressive:
            raise NotImplementedError
        display_or_tell(self.snapshots())

    def to_spark(self) -> Any:
        """The result as a lazy Spark DataFrame; for sessions on the Spark backend."""
        if self._frame is None:
            raise not_on_spark()
        try:
            return self._frame(self._new_run())
        except TsqlError as error:
            raise self._relocate(error) from error.__cause__

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples of Python values; the rest of them after `fetchone`."""
        with self._fetching:
            rows, self._cursor = self._cursor, None
            return list(self._rows() if rows is None else rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row as a tuple, None after the last. The first call runs the query. If several threads call it, each
        gets different rows."""
        with self._fetching:
            if self._cursor is None:
                self._cursor = self._rows()
            return next(self._cursor, None)

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        for batch in self.batches():
            columns = [python_values(column, t) for column, t in zip(batch.columns, self._types, strict=True)]
            yield from zip(*columns, strict=True)

    def show(self, max_rows: int | None = None, max_width: int | None = None) -> None:
        """Print the result as a table, cut to the terminal (or to `max_rows` and `max_width`)."""
        from tsql.cli.display import print_table

        for given, what in ((max_rows, "max_rows"), (max_width, "max_width")):
            if given is not None:
                checked_count(given, what)
        print_table(self, max_rows=max_rows, max_width=max_width)

    def __repr__(self) -> str:
        from tsql.cli.display import table_text

        if not self._names:
            return self.message or "ok"
        return table_text(self, max_rows=20, read_rows=_REPR_ROWS)

    def explain(self, level: str = "physical") -> str:
        """The plan as text: logical, physical, pipelines, kir, llvm, asm, analyze (which runs the query), or time (what
        each step of a live query holds, and until when)."""
        if self._describe_plan is None:
            raise CatalogError("this statement has no plan")
        try:
            return self._describe_plan(checked_text(level, "a level of EXPLAIN").lower())
        except TsqlError as error:
            raise self._relocate(error) from error.__cause__
        except (RecursionError, MemoryError) as error:
            raise self._relocate(too_much(error)) from error

    def plan(self) -> str:
        """The text of the plan file: what `tsql plan` prints and `tsql run` takes."""
        return self.explain("file")

    def candidates(self, count: int = 3) -> str:
        """The best plans that the query could have, as plan files with their costs, the cheapest first."""
        return self.explain(f"candidates {checked_count(count, 'the number of candidates', 1)}")

    def write(self, path: str | os.PathLike[str], format: str | None = None) -> int:
        """Write the result to a file, batch by batch, and return the number of rows. The format is that of the name
        unless given. The file appears, or is replaced, only once it is complete."""
        target = checked_path(path, "the target of a file")
        kind = optional_text(format, "a format") or FORMATS.get(Path(target).suffix.lower())
        if kind is None:
            raise SourceError(
                f"the name {Path(target).name} does not say in which format to write",
                hint="name the format: csv, json, arrow or parquet",
            )
        return self.write_to(target, kind)

    def write_to(self, target: str | Path | BinaryIO, kind: str) -> int:
        """Write the result to a path or an open binary stream as csv, json, arrow or parquet."""
        from tsql.backends.io.writers import write

        return write(self.batches(), self.schema, kind, target)

    def cancel(self) -> None:
        """End every run of this relation; the threads that wait for one get a CancelledError within 100 ms."""
        for handle in list(self._runs):
            handle.run.cancel()

    @property
    def progress(self) -> float | None:
        """How much of its input the latest run has read, 0 to 1; None where that is not known."""
        return None if self._last is None else self._last.progress

    @property
    def last_run(self) -> Run | None:
        """The handle of the latest run: what it has read so far, by pipeline."""
        return self._last

    @property
    def activity(self) -> str:
        """What a cluster does for the run now: its stage and tasks. Empty on other backends."""
        return "" if self._last is None else self._last.activity

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds of the stages of the latest run."""
        return {} if self._last is None else dict(self._last.timings_ms)

    @property
    def notes(self) -> list[str]:
        """Messages of the latest run for the user, such as rows that were left out. For a statement that ran at once
        (COPY, CREATE TABLE AS), the messages of its queries and its commit."""
        return [*self._told, *([] if self._last is None else self._last.told())]

    def tell(self, notes: Iterable[str]) -> Relation:
        """Add notes of the statement that this is the result of, each once; the relation itself."""
        self._told = list(dict.fromkeys((*self._told, *notes)))
        return self

    @property
    def counts(self) -> dict[str, int]:
        """Rows of the latest run that its result does not show, by what became of them: {"rows without a time": 3}."""
        return {} if self._last is None else dict(self._last.counts)


def too_much(error: BaseException) -> TsqlError:
    """What Python's own limits mean to the user of a query."""
    if isinstance(error, MemoryError):
        return OutOfMemoryError("the system has no memory left for this query", hint="select fewer rows or columns")
    return PlanError("the query is nested too deeply, or an expression in it is too long")


class _Handle:
    """A run with an identity (Run compares by value, so it cannot stand in a set)."""

    __slots__ = ("__weakref__", "run")

    def __init__(self, run: Run) -> None:
        self.run = run


def _fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the names and types that the relation has promised."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def of_table(
    names: tuple[str, ...], types: tuple[Type, ...], columns: list[list[Any]], message: str | None = None
) -> Relation:
    """A relation over rows that are already there: what SHOW TABLES, DESCRIBE and DDL statements give."""
    schema = pa.schema([pa.field(name, t.to_arrow()) for name, t in zip(names, types, strict=True)])

    def start(run: Run) -> Iterator[pa.RecordBatch]:
        if columns:
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
            )

    return Relation(names, types, start, message=message)


def of_unreadable(source: Any, refused: TsqlError) -> Relation:
    """A relation over a source with unreadable columns. It can be registered; reading its rows is an error."""
    relation = Relation(source.schema.names, tuple(f.type for f in source.schema), lambda run: iter(()), source=source)
    relation._refused = refused
    return relation


def of_text(key: str, compute: Callable[[], str], names: tuple[str, str], varchar: Type) -> Relation:
    """A relation of one row, (key, text), whose text is computed when it is asked for: what EXPLAIN gives."""

    def start(run: Run) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array([key]), pa.array([compute()])], names=list(names))

    return Relation(names, (varchar, varchar), start, text=compute)
