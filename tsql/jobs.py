"""`Job`: a query over streams that runs in the background until it is stopped, or its streams end.

    job = db.sql("SELECT .. FROM TUMBLE(clicks, ..) GROUP BY .. EMIT FINAL").start(sink="out/", checkpoint="state/")
    job.progress().rate_in
    job.stop()

`Relation.start` makes it, `Session.jobs` lists those of a session. The loop is in `backends/live/jobs`."""

from __future__ import annotations

import os
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tsql.arguments import checked_path, checked_text, optional_text
from tsql.backends import Run
from tsql.backends.live.jobs.checkpoint import Checkpoint, damaged
from tsql.backends.live.jobs.job import JobRun, Spec
from tsql.backends.live.jobs.progress import JobProgress
from tsql.backends.live.jobs.resume import Comparison, Identity, compare
from tsql.backends.live.jobs.streams import StreamSource
from tsql.backends.live.sinks.sink import Sink
from tsql.catalog.definition import Table
from tsql.catalog.external import External
from tsql.catalog.streams import Replay, Streams
from tsql.job_status import Reporter
from tsql.kernels.expr.errors import CancelledError, CatalogError, ExecutionError, PlanError, SourceError, TsqlError
from tsql.kernels.expr.nodes import Parameter
from tsql.kernels.process import forks
from tsql.kernels.process.cores import CORES
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.check import check
from tsql.planner.physical.planfile import parse_plan
from tsql.planner.physical.step import PhysicalPlan
from tsql.running import AtWork

if TYPE_CHECKING:
    from tsql.session import Session

RUNNING, STOPPED, FINISHED, FAILED = "running", "stopped", "finished", "failed"

WAIT_SECONDS = 0.05
"""The longest single wait: Python may miss a signal that arrives just before a thread sleeps."""

STOP_SECONDS = 30.0

MakePlan = Callable[[Streams], PhysicalPlan]
Relocate = Callable[[TsqlError], TsqlError]


@dataclass(frozen=True)
class Query:
    """What a job runs: makes the plan over streams, and says where its errors are in the text. is_planned: the plan is
    made from the text of a query, so a job that goes on may keep the one it had."""

    plan: MakePlan
    is_planned: bool
    values: dict[str, Any]
    relocate: Relocate


class Job:
    """A running query. Its methods may be called by any thread."""

    def __init__(
        self,
        session: Session,
        spec: Spec,
        values: dict[str, Any],
        relocate: Relocate,
        make_run: Callable[[Spec, Run], Any] = JobRun,
    ):
        self.name = spec.name
        self.sink = spec.sink
        self.error: BaseException | None = None
        self._session, self._spec, self._relocate = session, spec, relocate
        self._run = Run(settings=replace(session.settings), parameters=values)
        self._job = make_run(spec, self._run)
        self._state = RUNNING
        self._is_over = threading.Event()
        self._looked: JobProgress | None = None
        self._told: JobProgress | None = None
        self._looking = forks.lock()
        self._generation = forks.generation()
        self._thread = threading.Thread(target=self._work, name=f"tsql-job-{self.name}", daemon=True)

    def _begin(self) -> Job:
        try:
            self._job.begin()
        except BaseException as error:
            self._job.close()
            raise self._relocate(error) if isinstance(error, TsqlError) else error from error.__cause__
        self._session._running.begin(self._run)
        self._thread.start()
        return self

    def _work(self) -> None:
        state = FAILED
        try:
            with AtWork(self._run, self._session._running):
                self._job.run()
            state = STOPPED if self._job.was_stopped else FINISHED
        except CancelledError as error:
            state = STOPPED
            if not self._stops_now:
                self.error = error
        except TsqlError as error:
            self.error = self._relocate(error)
        except BaseException as error:
            self.error = error
        finally:
            self._state = state if self.error is None else FAILED
            self._is_over.set()

    _stops_now = False

    @property
    def state(self) -> str:
        """running, stopped, finished (its streams have ended) or failed."""
        return self._state

    @property
    def is_over(self) -> bool:
        return not self._is_here or self._is_over.is_set()

    @property
    def _is_here(self) -> bool:
        """Whether it runs in this process, and not in the one that this one was forked from."""
        return self._generation == forks.generation()

    def _check_here(self) -> None:
        if not self._is_here:
            raise ExecutionError(f"job {self.name} runs in another process, from which this one was forked")

    @property
    def notes(self) -> list[str]:
        """What there is to say of the job, such as that a stream cannot be read again after a crash."""
        return [*self._job.notes, *self._run.told()]

    def progress(self) -> JobProgress:
        """Rates, lag, watermarks, late rows, held state and epochs, now. Rates are since the last look."""
        with self._looking:
            self._looked = self._job.progress(self.name, self._state, self._looked)
            return self._looked

    def told(self) -> JobProgress:
        """The progress, with the rates since the last time that `tsql jobs` was told."""
        self._told = self._job.progress(self.name, self._state, self._told)
        return self._told

    def metrics(self) -> str:
        """The progress as Prometheus reads it."""
        return self._job.progress(self.name, self._state, None).metrics()

    def table(self) -> pa.Table:
        """The rows that have left, of a job without a sink of its own."""
        found = getattr(self.sink, "table", None)
        if found is None:
            raise self._has_sink()
        return found()

    def result(self) -> pa.Table:
        """The result as it is now, of a job without a sink of its own: changes are folded."""
        found = getattr(self.sink, "result", None)
        if found is None:
            raise self._has_sink()
        return found()

    def _has_sink(self) -> CatalogError:
        return CatalogError(f"job {self.name} has a sink of its own", hint="start() without sink keeps the rows")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job is over, at most `timeout` seconds; whether it is. Raises what has ended it, if that was
        an error."""
        self._check_here()
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._is_over.wait(
            WAIT_SECONDS if deadline is None else max(0.0, min(WAIT_SECONDS, deadline - time.monotonic()))
        ):
            if deadline is not None and time.monotonic() >= deadline:
                return False
        if self.error is not None:
            raise self.error
        return True

    def stop(self, *, drain: bool = False, now: bool = False, timeout: float = STOP_SECONDS) -> None:
        """Stop the job and wait for it. What has been read is computed, and the last epoch is ended: with a checkpoint,
        the job can go on later. drain: take the streams for ended, so that all results become final and leave. now:
        drop what came after the last epoch."""
        if drain and now:
            raise PlanError("a job is drained or stopped at once, not both")
        self._check_here()
        if now:
            self._cancel()
        elif not self.is_over:
            self._job.stop("drain" if drain else "checkpoint")
        if not self.wait(timeout):
            raise ExecutionError(f"job {self.name} does not stop", hint="stop(now=True)")

    def _cancel(self) -> None:
        """Have the job end at once, without an error."""
        self._stops_now = True
        self._run.cancel("the job was stopped")

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_over:
            self.stop(now=True)

    def __repr__(self) -> str:
        return f"<job {self.name}: {self._state}>"


class Jobs:
    """The jobs of a session."""

    def __init__(self, session: Session):
        self._session = session
        self._jobs: list[Job] = []
        self._lock = forks.lock()
        self._reporter = Reporter(self._told)

    def start(
        self,
        query: Query,
        sink: Any = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        interval: float = 1.0,
        name: str | None = None,
        replay: float | None = None,
        until: Any = None,
        compares: bool = False,
    ) -> Job | Comparison:
        """Start a job. See `Relation.start`. compares: only say what would become of the checkpoint."""
        session = self._session
        if not isinstance(interval, int | float) or not interval > 0:
            raise CatalogError(f"interval is a number of seconds above zero, not {interval!r}")
        if session.target != "local" and (replay is not None or until is not None):
            raise CatalogError("replay and until are for one machine", hint="tsql.connect() without backend=")
        folder = None if checkpoint is None else checked_path(checkpoint, "a checkpoint")
        streams = Streams(session.catalog, _replay(replay, until))
        plan = query.plan(streams)
        if not len(streams):
            raise CatalogError(
                "a job needs a stream, and the query reads none", hint="CREATE STREAM makes one; .arrow() runs a query"
            )
        if compares:
            return self._compared(query, plan, streams, str(folder))
        place = None if folder is None else Checkpoint(folder)
        try:
            known = (None if place is None else place.job()) or {}
            before = None if place is None else place.about()
            if before is not None and query.is_planned:
                plan = _kept_plan(before, plan, _LiveNames(session.catalog, streams))
            identifier = str(known.get("identifier") or _new_name())
            title = optional_text(name, "the name of a job") or str(known.get("name") or identifier)
            settings = session.settings
            shards = settings.shards or settings.threads or CORES
            made = self._sink(sink, folder)
            spec = Spec(_checked_name(title), identifier, plan, made, place, float(interval), shards)
            spec.late_sink = lambda stream: self._late_sink(stream, folder)
            _check_late_tables(session, plan, streams)
            job = Job(session, spec, query.values, query.relocate, self._make_run())._begin()
        except BaseException:
            if place is not None:
                place.close()
            raise
        with self._lock:
            self._jobs = [other for other in self._jobs if not other.is_over] + [job]
        self._reporter.begin()
        return job

    def _make_run(self) -> Callable[[Spec, Run], Any]:
        """What runs the job: this process, or a cluster."""
        session = self._session
        if session.target == "local":
            return JobRun
        from tsql.backends.spark.streaming import ClusterRun

        return partial(ClusterRun, session.backend, session.catalog.entry)

    def _compared(self, query: Query, plan: PhysicalPlan, streams: Streams, folder: str) -> Comparison:
        before = Checkpoint.kept_by(folder)
        if before is None:
            raise SourceError(f"there is no checkpoint in {folder}", hint="a job with checkpoint= makes one")
        if query.is_planned:
            plan = _kept_plan(before, plan, _LiveNames(self._session.catalog, streams))
        settings = self._session.settings
        try:
            return compare(before["identity"], Identity.planned(plan, settings.shards or settings.threads or CORES))
        except (LookupError, TypeError, AttributeError) as error:
            raise damaged(folder, error) from error

    def _told(self) -> list[dict[str, Any]]:
        """What `tsql jobs` shows of those that run."""
        return [asdict(job.told()) for job in self.all() if not job.is_over]

    def all(self) -> list[Job]:
        """The jobs that were started and the last ones that are over."""
        with self._lock:
            return list(self._jobs)

    def close(self) -> None:
        """Stop all of them, and drop what came after their last epochs. Errors of a job are its own: `wait` raises
        them."""
        going = [job for job in self.all() if not job.is_over]
        for job in going:
            job._cancel()
        deadline = time.monotonic() + STOP_SECONDS
        for job in going:
            job._is_over.wait(max(0.0, deadline - time.monotonic()))

    def _sink(self, sink: Any, checkpoint: str | None) -> Sink:
        from tsql.backends.live.sinks.connectors import sink_for
        from tsql.backends.live.sinks.memory import MemorySink

        if sink is None:
            return MemorySink()
        entry = self._session.catalog.entry(sink) if isinstance(sink, str) else None
        if isinstance(entry, Table):
            from tsql.table_sink import TableSink

            return TableSink(self._session, self._session.catalog.shown_name(sink), checkpoint)
        if isinstance(entry, External):
            raise CatalogError(f'"{sink}" is a {entry.kind}, and results go into a table, a folder or a sink')
        return sink_for(sink)

    def _late_sink(self, stream: StreamSource, checkpoint: str | None) -> Sink:
        """The sink of the table of ON LATE INTO."""
        from tsql.table_sink import TableSink

        watermark = stream.watermark
        assert watermark is not None and watermark.into is not None
        name = urllib.parse.quote(stream.catalog_name, safe="")
        return TableSink(self._session, watermark.into, checkpoint, f"late-{name}")


class _LiveNames:
    """A catalog in which the names of streams stand for what jobs read."""

    def __init__(self, catalog: Any, streams: Streams):
        self._catalog, self._streams = catalog, streams

    def lookup(self, name: str) -> Any:
        found = self._catalog.lookup(name)
        return self._streams.live(found) or found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


def _kept_plan(before: dict[str, Any], plan: PhysicalPlan, names: _LiveNames) -> PhysicalPlan:
    """The plan that a job had, if it was made from the same text: another number of threads, or another version, may
    plan the same query in another way, and the state is that of the old plan. Any other query has its new plan."""
    text = before.get("identity", {}).get("plan")
    if not isinstance(text, str):
        return plan
    kinds = {
        part.name: part.type
        for step in plan.root.walk()
        for expr in step.expressions()
        for part in expr.walk()
        if isinstance(part, Parameter)
    }
    try:
        kept = parse_plan(text, names, kinds)
        check(kept)
    except TsqlError:  # what it read is gone or changed: the comparison with the new plan says what that means
        return plan
    same = kept.query == plan.query and kept.emission == plan.emission and kept.names == plan.names
    return kept if same and kept.schema.equals(plan.schema) else plan


def _replay(speed: float | None, until: Any) -> Replay | None:
    if speed is None and until is None:
        return None
    if speed is not None and (not isinstance(speed, int | float) or speed < 0):
        raise CatalogError(f"replay is how many times as fast as the rows happened, or 0, not {speed!r}")
    return Replay(float(speed or 0.0), None if until is None else _time_us(until))


def _time_us(value: Any) -> int:
    import datetime as dt

    try:
        moment = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(moment, dt.datetime):
            raise ValueError(value)
    except ValueError:
        raise CatalogError(f"until is a time such as '2024-05-01 12:00', not {value!r}") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _new_name() -> str:
    return f"job-{uuid.uuid4().hex[:12]}"


def _checked_name(name: str) -> str:
    checked_text(name, "the name of a job")
    if not name or not all(letter.isascii() and (letter.isalnum() or letter == "-") for letter in name):
        raise CatalogError(f"the name of a job has letters, digits and -, not {name!r}")
    return name


def _check_late_tables(session: Session, plan: PhysicalPlan, streams: Streams) -> None:
    """Refuse a table of ON LATE INTO that is not there, or that does not take the rows."""
    from tsql.backends.live.jobs.job import streams_of

    for source in streams_of(plan):
        watermark = source.watermark
        if watermark is None or watermark.into is None or source.ends:
            continue
        entry = session.catalog.entry(watermark.into)
        if not isinstance(entry, Table):
            raise CatalogError(
                f'late rows of {source.catalog_name} go into "{watermark.into}", and there is no such table',
                hint=f"CREATE TABLE {watermark.into} AS SELECT * FROM {source.catalog_name} LIMIT 0",
            )
        if entry.definition.schema.names != source.schema.names:
            raise CatalogError(
                f'the table "{watermark.into}" of late rows has not the columns of {source.catalog_name}',
                hint=f"its columns are {', '.join(source.schema.names)}",
            )
