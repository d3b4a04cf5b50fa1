"""`Snapshot` and `Snapshots`: the result of a PROGRESSIVE query while it is computed.

    for snap in db.sql("SELECT ad, avg(price) AS m FROM clicks GROUP BY ad PROGRESSIVE EVERY 5 PERCENT").snapshots():
        print(snap.progress, snap.table, snap.bounds["m"])

The query runs while the next snapshot is waited for, and rests while one is looked at. `Relation.snapshots` makes them;
`watching.py` has the form that runs in the background, `notebook.py` the one that draws them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.snapshots import Snapshot as Known
from tsql.interrupt import Interruptible
from tsql.kernels.codegen.object_cache import take_notes
from tsql.kernels.expr.errors import CancelledError, CatalogError, ExecutionError, TsqlError
from tsql.kernels.expr.types import Type
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.relation import too_much
from tsql.running import Running

if TYPE_CHECKING:
    import asyncio

    import pandas
    import polars

LOOK_SECONDS = 0.05
"""The longest single wait: Python may miss a signal that arrives just before a thread sleeps."""
STOPPED = "the query was stopped"

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Bounds:
    """The bounds of a column: arrays of doubles, NULL where a value has none yet. note: what else is to say of the
    column."""

    lower: pa.ChunkedArray
    upper: pa.ChunkedArray
    note: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """The result as it is known so far. table: its rows, with estimates for the whole input. progress: the part of the
    input that has been read, 0 to 1. is_final: the table is exact. bounds: of the columns that have them, by name.
    elapsed: seconds since the query began. row_status: for each row "certain" or "possible" (it may leave the result,
    or its place in it), or NULL; None if nothing can be said of any. notes: what else is to say of columns, by name,
    such as "observed so far"."""

    table: pa.Table
    progress: float
    is_final: bool
    rows_read: int
    elapsed: float
    bounds: dict[str, Bounds] = field(default_factory=dict)
    row_status: pa.ChunkedArray | None = None
    notes: dict[str, str] = field(default_factory=dict)
    sql_types: tuple[Type, ...] = ()
    bounds_at: dict[int, Bounds] = field(default_factory=dict)
    """The bounds by place: names may repeat."""

    def relative_error(self, name: str) -> pa.ChunkedArray:
        """Half the distance of the bounds of each value of a column, as a part of the value; NULL where there are none.
        The exact value has none."""
        place = self.table.column_names.index(name) if name in self.table.column_names else None
        if place is None:
            raise CatalogError(f"the result has no column {name}", hint=f"it has {', '.join(self.table.column_names)}")
        if not self.sql_types[place].is_numeric:
            raise CatalogError(f"column {name} has the type {self.sql_types[place]}, and errors are those of numbers")
        value = pc.abs(self.table.column(place).cast(pa.float64(), safe=False))
        if self.is_final:
            return pc.if_else(pc.is_valid(value), 0.0, None)
        bounds = self.bounds_at.get(place)
        if bounds is None:
            return pa.chunked_array([pa.nulls(self.table.num_rows, pa.float64())])
        half = pc.divide(pc.subtract(bounds.upper, bounds.lower), 2.0)
        return pc.if_else(pc.equal(half, 0.0), 0.0, pc.divide(half, value))

    def pandas(self, **options: Any) -> pandas.DataFrame:
        """The rows as a pandas frame; see `Relation.pandas`."""
        from tsql.dataframes import to_pandas

        return to_pandas(self.table, self.sql_types, options)

    def polars(self) -> polars.DataFrame:
        """The rows as a polars frame; see `Relation.polars`."""
        from tsql.dataframes import to_polars

        return to_polars(self.table, self.sql_types)

    def __repr__(self) -> str:
        from tsql.cli.snapshots import text_of

        return text_of(self)

    def _repr_html_(self) -> str:
        from tsql.snapshot_html import html_of

        return html_of(self)


class Snapshots:
    """The snapshots of one run, in order, for `for` or `async for`. Threads that share it share its snapshots, each of
    which comes once.

    `pause` holds the run between two snapshots, `resume` lets it go on. `stop` ends it: the last snapshot stands, and a
    loop over the others ends. `finish` and `skip` leave out what comes before the last snapshot."""

    def __init__(
        self,
        run: Run,
        schema: pa.Schema,
        types: tuple[Type, ...],
        start: Callable[[Run], Iterator[Known]],
        running: Running | None,
        relocate: Callable[[TsqlError], TsqlError],
        handle: object = None,
    ):
        self._run, self._schema, self._types, self._start = run, schema, types, start
        self._running, self._relocate = running, relocate
        self._handle = handle
        """By which the relation knows the run while it lasts."""
        self._found: Iterator[Known] | None = None
        self._begun: float | None = None
        self._taking = threading.RLock()
        self._is_working = self._is_over = self._is_stopped = self._is_complete = self._skips = False
        self._failure: str | None = None
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        # The event alone: this object would live until the next search for garbage if its run referred to it.
        run.on_cancel(self._may_go_on.set)
        self.last: Snapshot | None = None
        """The snapshot that was given last."""

    @property
    def is_over(self) -> bool:
        """Whether there are no further snapshots."""
        return self._is_over

    @property
    def is_complete(self) -> bool:
        """Whether the last snapshot has been given: the run was not stopped before."""
        return self._is_complete

    @property
    def is_paused(self) -> bool:
        """Whether the run is held before its next snapshot."""
        return not (self._may_go_on.is_set() or self._is_over)

    @property
    def progress(self) -> float:
        """How much of the input has been read, 0 to 1, also between two snapshots."""
        known = 0.0 if self.last is None else self.last.progress
        return max(known, self._run.progress or 0.0) if not self._is_over else known

    @property
    def elapsed(self) -> float:
        """Seconds since the query began."""
        return 0.0 if self._begun is None else time.perf_counter() - self._begun

    def __iter__(self) -> Snapshots:
        return self

    def __next__(self) -> Snapshot:
        found = self._take()
        if found is None:
            raise StopIteration
        return found

    def _take(self) -> Snapshot | None:
        """The next snapshot; None after the last."""
        with self._taking:
            while not self._is_over:
                known = self._computed()
                if self._is_stopped:
                    self._end()
                elif known is not None and (known.is_last or not self._skips):
                    self.last = self._shown(known)
                    if known.is_last:
                        self._is_complete = True
                        self._end()
                    return self.last
            return None

    def _computed(self) -> Known | None:
        """What the backend says next; None if that is nothing, and the run is over."""
        self._is_working = True
        try:
            if self._begun is None:
                self._begun = time.perf_counter()
                if self._running is not None:
                    self._running.begin(self._run)
            while not self._may_go_on.wait(LOOK_SECONDS):
                pass
            with Interruptible(self._run, self._running):
                if self._found is None:
                    self._found = iter(self._start(self._run))
                known = next(self._found, None)
            if known is None:
                self._end()
            return known
        except BaseException as error:
            self._run.cancel()
            self._end()
            if self._is_stopped and isinstance(error, CancelledError):
                return None
            if isinstance(error, RecursionError | MemoryError):
                error = too_much(error)
            self._failure = error.message if isinstance(error, TsqlError) else type(error).__name__
            if isinstance(error, TsqlError):
                raise self._relocate(error) from error.__cause__
            raise
        finally:
            self._is_working = False

    def _shown(self, known: Known) -> Snapshot:
        names = self._schema.names
        at = {place: Bounds(*pair, known.notes.get(place)) for place, pair in sorted(known.bounds.items())}
        batches = [pa.RecordBatch.from_arrays(batch.columns, schema=self._schema) for batch in known.batches]
        rows = known.all_rows or 0
        return Snapshot(
            pa.Table.from_batches(batches, schema=self._schema),
            1.0 if known.is_final or not rows else known.rows / rows,
            known.is_final,
            known.rows,
            self.elapsed,
            {names[place]: at[place] for place in reversed(at)},
            known.status,
            {names[place]: note for place, note in sorted(known.notes.items(), reverse=True)},
            self._types,
            at,
        )

    def pause(self) -> None:
        """Hold the run before its next snapshot: what asks for that one waits. A snapshot that is being computed is
        computed to its end."""
        if not self._run.cancelled:
            self._may_go_on.clear()
            if self._run.cancelled:  # by another thread, which may have looked before
                self._may_go_on.set()

    def resume(self) -> None:
        """Let a run that was paused go on."""
        self._may_go_on.set()

    def stop(self) -> None:
        """End the run, from any thread. There are no further snapshots, and a thread that waits for one gets none. When
        this returns, what the run held is free, or will be within a moment."""
        if self._is_over:
            return
        self._is_stopped = True
        self._run.cancel(STOPPED)
        with self._taking:
            # A signal handler may stop what its own thread is computing.
            if not self._is_working and not self._is_over:
                self._end()

    def skip(self) -> None:
        """Let the next snapshot be the last one, whoever asks for it. A run that was paused goes on."""
        self._skips = True
        self.resume()

    def finish(self) -> Snapshot:
        """Run on to the last snapshot, and return it."""
        self.skip()
        while self._take() is not None:
            pass
        if self._is_complete and self.last is not None:
            return self.last
        if self._failure is not None:
            raise ExecutionError(f"the query has failed: {self._failure}")
        raise CancelledError(STOPPED, hint="relation.snapshots() begins again")

    def _end(self) -> None:
        self._is_over = True
        found, self._found = self._found, None
        if found is not None and hasattr(found, "close"):
            found.close()
        self._handle = None
        run = self._run
        run.activity = ""
        run.timings_ms.setdefault("run", self.elapsed * 1000)
        run.notes += take_notes()

    def __enter__(self) -> Snapshots:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __aiter__(self) -> Snapshots:
        return self

    async def __anext__(self) -> Snapshot:
        found = await self._in_thread(self._take)
        if found is None:
            raise StopAsyncIteration
        return found

    async def __aenter__(self) -> Snapshots:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._is_over:
            await self._in_thread(self.stop)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """What `work` returns, computed in a thread of its own. A task that is cancelled meanwhile ends the run."""
        import asyncio

        answer = _answer(work)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._is_stopped = True
            self._run.cancel(STOPPED)
            await asyncio.shield(_answer(self.stop))
            raise

    def display(self) -> None:
        """Show the snapshots in a notebook, each instead of the one before, until the run is over. Elsewhere they are
        shown as by the command line."""
        from tsql.notebook import display

        display(self)


def _answer(work: Callable[[], T]) -> asyncio.Future[T]:
    """What a function returns that runs in a thread, for the event loop of this one."""
    import asyncio

    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody else looks

    def serve() -> None:
        try:
            found = work()
        except BaseException as error:
            settle: Callable[[], None] = lambda error=error: answer.set_exception(error)  # type: ignore[misc]
        else:
            settle = lambda: answer.set_result(found)
        try:
            loop.call_soon_threadsafe(lambda: None if answer.done() else settle())
        except RuntimeError:  # the loop is closed: nobody waits
            pass

    started(serve, "tsql-snapshots")
    return answer


def started(work: Callable[[], None], name: str) -> threading.Thread:
    """A daemon thread at work."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise ExecutionError(
            f"the system lets this process start no more threads; it has {threading.active_count()}",
            hint="raise the limit (ulimit -u)",
        ) from error
    return thread
