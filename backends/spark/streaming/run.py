"""`ClusterRun`: a job on Structured Streaming. Spark calls back with each micro-batch; it runs as one job of the
cluster, and ends an epoch: the states of the shards, the driver's own state and what the sink has prepared belong
together.

    micro-batch n of Spark ─▶ tasks ─▶ driver ─▶ sink.write, prepare(n + 1) ─▶ checkpoint ─▶ sink.commit(n + 1)

The number of an epoch is that of its micro-batch plus one. Spark gives a micro-batch again that it has not heard the
end of, with the same number and the same rows: one whose epoch is durable is passed over."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tsql.backends import Run
from tsql.backends.live.jobs.checkpoint import KEPT_EPOCHS, Epoch
from tsql.backends.live.jobs.job import EMIT_SECONDS, Spec, check_answers
from tsql.backends.live.jobs.job import streams_of as sources_of
from tsql.backends.live.jobs.late import LateSinks
from tsql.backends.live.jobs.progress import JobProgress
from tsql.backends.live.query import LiveQuery
from tsql.backends.live.sinks.sink import Output
from tsql.backends.spark.failures import SPARK_ERRORS, translated
from tsql.backends.spark.streaming.batch import Batch, Cluster, Outcome, States
from tsql.backends.spark.streaming.deal import dealt
from tsql.backends.spark.streaming.driver import DriverPart
from tsql.backends.spark.streaming.marks import StreamMarks
from tsql.backends.spark.streaming.parts import Parts
from tsql.backends.spark.streaming.place import placed
from tsql.backends.spark.streaming.progress import Told, progress_of
from tsql.backends.spark.streaming.sources import frame_of, streams_of
from tsql.backends.spark.streaming.spec import Program
from tsql.backends.spark.streaming.states import files_of
from tsql.backends.spark.transport.transport import Transport
from tsql.backends.spark.wire import decode_batches
from tsql.kernels.expr.errors import CancelledError, CatalogError, PlanError, SourceError

LEAST_SHARDS = 2
WAIT_SECONDS = 0.1

STATES, SPARKS = "shards", "spark"
"""Folders of a checkpoint: the states of shards, and what Spark itself remembers."""


class ClusterRun:
    """One run of a job, from its start or its checkpoint to its end. `run` is called once, by the job's thread; Spark
    calls `_batch` in a thread of its own; other threads ask it to stop and read its numbers."""

    def __init__(self, backend: Any, entry: Callable[[str], Any], spec: Spec, run: Run):
        self.spec, self.run_handle, self.notes = spec, run, list(spec.notes)
        self.backend, self.session = backend, backend.spark
        self.transport = _transport(backend)
        shards = max(LEAST_SHARDS, run.settings.shards or backend.shards)
        self.plan = placed(spec.plan, shards)
        entries = {source.catalog_name: entry(source.catalog_name) for source in sources_of(spec.plan)}
        self.streams = streams_of(self.plan, entries)
        self.folder = self._folder()
        self.transport.prepare()
        parts, specs = Parts(self.plan), [stream.spec() for stream in self.streams]
        each = max(1, self.transport.cores // self.transport.executors)
        program = Program.of(uuid.uuid4().hex, parts.travelling(), run, each)
        states = str(self.folder / STATES)
        self.cluster = Cluster(self.transport, parts, program, specs, states, spec.checkpoint is not None)
        self.driver = DriverPart(self.cluster, self.plan, spec.emission, run)
        self.marks = {one.name: self._new_marks(one.name) for one in self.streams}
        self.states: States = {}
        self.told = Told([stream.name for stream in self.streams])
        self.epoch = self.committed = 0
        self.checkpoint_ms = self.latency_ms = 0.0
        self.begun_at = time.monotonic()
        self.has_ended = False
        self._kept: list[set[str]] = []
        self._frame: Any = None
        self._query: Any = None
        self._error: BaseException | None = None
        self._stops: str | None = None
        self._busy = threading.Lock()
        self._heard: dict[str, dict[str, float]] = {}
        self._closed = False
        self.late = LateSinks((), None, spec.identifier)
        self._say_what_differs()

    def _folder(self) -> Path:
        """Where the state is kept. Without a checkpoint, on a cluster of this machine, a folder that goes with the
        job."""
        if self.spec.checkpoint is not None:
            folder = self.spec.checkpoint.path.absolute()
        elif self.transport.is_one_machine:
            folder = Path(tempfile.mkdtemp(prefix="tsql-job-"))
        else:
            raise CatalogError(
                "a job on a cluster needs a folder that all its machines see", hint="start(.., checkpoint='folder')"
            )
        for name in (STATES, SPARKS):
            (folder / name).mkdir(parents=True, exist_ok=True)
        return folder

    def _new_marks(self, name: str) -> StreamMarks:
        mark = next(stream.source.watermark for stream in self.streams if stream.name == name)
        return StreamMarks(allowed_us=0 if mark is None else mark.allowed_lateness_us)

    def _say_what_differs(self) -> None:
        emission = self.spec.emission
        if emission.within_us is not None:
            self.notes.append(
                f"EMIT WITHIN {emission.within_us / 1e6:g} s: on Spark rows leave at the end of a micro-batch, "
                "which takes some tenths of a second at least"
            )
        if not self._ends:
            times = {scan: stream.source.time for stream in self.streams for scan in stream.scans}
            whole = LiveQuery(self.spec.plan, times, Run(self.run_handle.settings, dict(self.run_handle.parameters)), 1)
            check_answers(whole, self.spec, self.notes)
            whole.close()
        if emission.has_changes and not getattr(self.spec.sink, "takes_changes", True):
            raise PlanError(
                "the query gives changes of its result, and the sink takes final rows only", hint="EMIT FINAL"
            )

    # Beginning and end -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open the sink and the streams, where the checkpoint says."""
        spec = self.spec
        types = tuple(spec.plan.root.schema[name].type for name in spec.plan.columns)
        spec.sink.open(Output(self.driver.emitter.schema, types, spec.identifier, spec.emission.has_changes))
        last = None
        if spec.checkpoint is not None:
            last = spec.checkpoint.last()
            self._check_same(spec.checkpoint.job(), last)
            about = {"name": spec.name, "identifier": spec.identifier, "identity": self._identity()}
            spec.checkpoint.describe(about)
        if last is not None:
            self._restore(last)
        self.late = LateSinks([stream.source for stream in self.streams], spec.late_sink, spec.identifier)
        self.late.begin(self.epoch, {} if last is None else last.about["late"])
        spec.sink.recover(self.epoch, None if last is None else last.token)
        self._open()

    def _open(self) -> None:
        """Make the streaming DataFrame."""
        try:
            self._frame = frame_of(self.streams, self.session, self.transport.cores)
        except SPARK_ERRORS as error:
            raise translated(error) from error

    def _identity(self) -> dict[str, Any]:
        return {
            "plan": self.spec.plan.text(),
            "streams": {stream.name: stream.source.declaration for stream in self.streams},
            "target": "spark",
        }

    def _check_same(self, known: dict[str, Any] | None, last: Epoch | None) -> None:
        """Refuse a checkpoint of another query."""
        if known is None or last is None:
            return
        identity = known.get("identity", {})
        if identity.get("target") != "spark":
            raise PlanError(
                "the checkpoint is that of a job on one machine, and its state is not that of a job on Spark",
                hint="begin again with another folder",
            )
        if identity["plan"] != self.spec.plan.text():
            raise PlanError(
                "the job cannot go on from its checkpoint: the query has changed, and a job on Spark goes on with the "
                "same query only",
                hint="another folder begins anew",
            )

    def run(self) -> None:
        """Run until the streams have ended, or the job is stopped."""
        try:
            if not self.has_ended:
                self._stream()
            if self._error is not None:
                raise self._error
            if not self.has_ended and (self._stops == "drain" or (self._stops is None and self._ends)):
                self._end()
        finally:
            self.close()

    @property
    def _ends(self) -> bool:
        return all(stream.source.ends for stream in self.streams)

    def _stream(self) -> None:
        """Run the query of Spark until it ends."""
        writer = self._frame.writeStream.foreachBatch(self._called).option(
            "checkpointLocation", (self.folder / SPARKS).as_uri()
        )
        seconds = self.spec.interval
        if self._ends:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(seconds * 1000)} milliseconds")
        try:
            self._query = writer.start()
            while self._query.isActive:
                if self._stops is not None or self.run_handle.stopped:
                    break
                self._query.awaitTermination(WAIT_SECONDS)
        except SPARK_ERRORS as error:
            if self._error is None:
                self._error = translated(error)
        self._stop_query()

    def _stop_query(self) -> None:
        """Let the micro-batch end that runs, unless the job was stopped at once, and end the query of Spark."""
        if self._query is None:
            return
        self._stops = self._stops or ("ended" if self._error is None and not self.run_handle.stopped else "now")
        with self._busy:
            pass
        try:
            failure = None if self._query.isActive else self._query.exception()
            self._query.stop()
        except SPARK_ERRORS as error:
            failure = error
        if self._stops == "ended":
            self._stops = None
        if failure is not None and self._error is None:
            self._error = translated(failure)
        if self.run_handle.stopped and self._error is None:
            self._error = CancelledError("the job was stopped")

    def _end(self) -> None:
        """The streams have ended: all results become final."""
        self.marks = {name: replace(marks, ended=True) for name, marks in self.marks.items()}
        self.has_ended = True
        self._work(self.epoch, None)

    def stop(self, how: str) -> None:
        """Ask the job to stop: "checkpoint" lets the micro-batch end that runs, "drain" then takes the streams for
        ended."""
        self._stops = how

    @property
    def was_stopped(self) -> bool:
        """Whether the job was asked to stop before its streams ended."""
        return self._stops == "checkpoint" and not self.has_ended

    def close(self) -> None:
        """Free everything. What was not committed is dropped."""
        if self._closed:
            return
        self._closed = True
        self.driver.query.close()
        self.spec.sink.close()
        self.late.close()
        if self.spec.checkpoint is not None:
            self.spec.checkpoint.close()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    # A micro-batch ---------------------------------------------------------------------------------------------------

    def _called(self, frame: Any, number: int) -> None:
        """What Spark calls. An error must go through Spark, so that it does not take the batch for done."""
        with self._busy:
            if self._stops is not None or self.run_handle.stopped:
                raise CancelledError("the job was stopped")
            try:
                if number < self.epoch:
                    return
                if number > self.epoch:
                    raise SourceError(
                        f"the checkpoint ends with micro-batch {self.epoch - 1}, and Spark goes on with {number}",
                        hint="begin again with another folder",
                    )
                self._work(number, frame)
            except BaseException as error:
                self._error = error
                raise

    def _work(self, number: int, frame: Any) -> None:
        """Run a micro-batch, and end its epoch."""
        begun = time.perf_counter()
        look = "now" if self.has_ended and self.spec.emission.has_changes else self.driver.look()
        marks = self._before()
        batch = Batch(number, frame, marks, self.states, None if self.has_ended else look, not self.states_begun)
        outcome = self.cluster.run(batch, self.run_handle)
        self.marks = self._after(marks, outcome)
        self.driver.take(outcome, self.marks, batch.look)
        self.states = outcome.states()
        self.states_begun = True
        emitter = self.driver.emitter
        if self.has_ended or not self.spec.emission.has_changes or batch.look is not None:
            emitter.emit(self.spec.sink.write, EMIT_SECONDS, at_end=self.has_ended)
        emitter.flush(self.spec.sink.write)
        self._late(outcome)
        self.told.add(outcome, self.driver.held())
        self.notes += [note for note in self.told.notes if note not in self.notes]
        self.latency_ms = (time.perf_counter() - begun) * 1000
        self._end_epoch(number + 1)

    states_begun = False
    """Whether a micro-batch has run: tables come with the first one."""

    def _before(self) -> dict[str, StreamMarks]:
        """The streams before a micro-batch, with the partitions from which nothing has come for long."""
        now = time.monotonic()
        found = {}
        for stream in self.streams:
            mark, marks = stream.source.watermark, self.marks[stream.name]
            timeout = None if mark is None else mark.idle_timeout_us
            heard = self._heard.setdefault(stream.name, {})
            idle = [
                name
                for name in marks.partitions
                if timeout is not None and now - heard.setdefault(name, now) >= timeout / 1e6
            ]
            found[stream.name] = replace(marks, idle=tuple(idle))
        return found

    def _after(self, marks: dict[str, StreamMarks], outcome: Outcome) -> dict[str, StreamMarks]:
        now, found = time.monotonic(), {}
        for name, before in marks.items():
            told = [one["counts"]["marks"] for one in outcome.told.get(name, ())]
            self._heard[name].update({partition: now for one in told for partition in one})
            found[name] = before.after(told)
        return found

    def _late(self, outcome: Outcome) -> None:
        """Hand over late rows of ON LATE INTO."""
        for stream in self.streams:
            blobs = outcome.late.get(stream.name, {})
            self.late.write(stream.name, [batch for place in sorted(blobs) for batch in decode_batches(blobs[place])])

    def _end_epoch(self, number: int) -> None:
        begun = time.perf_counter()
        token, late = self.spec.sink.prepare(number), self.late.prepare(number)
        if self.spec.checkpoint is not None:
            about = {
                "query": self.driver.query.marks(),
                "streams": {name: marks.to_json() for name, marks in self.marks.items()},
                "states": self.states,
                "shards": self.plan.shards,
                "told": self.told.to_json(),
                "rows_out": self.driver.emitter.rows,
                "ended": self.has_ended,
                "late": late,
                "identity": self._identity(),
            }
            self.spec.checkpoint.write(Epoch(number, about, token, self.driver.tables()))
        self.epoch = number
        self._remove_old()
        self.late.commit(number, late)
        self.spec.sink.commit(number, token)
        self.committed = number
        self.checkpoint_ms = (time.perf_counter() - begun) * 1000

    def _remove_old(self) -> None:
        """Remove files that none of the last epochs names. No task runs now."""
        now = files_of([state for shards in self.states.values() for state in shards.values()])
        self._kept = [*self._kept[1 - KEPT_EPOCHS :], now]
        named = set().union(*self._kept)
        for path in (self.folder / STATES).iterdir():
            if path.name not in named:
                path.unlink(missing_ok=True)

    def _restore(self, last: Epoch) -> None:
        about = last.about
        try:
            self.driver.restore(about["query"], last.tables)
            self.driver.emitter.rows = about["rows_out"]
            self.marks = {name: StreamMarks.from_json(one) for name, one in about["streams"].items()}
            self.told.restore(about["told"])
            self.states, self.has_ended = about["states"], about["ended"]
            self.states_begun = True
            if about["shards"] != self.plan.shards:
                self.notes.append(f"the state of {about['shards']} shards was dealt to {self.plan.shards}")
                self.states = dealt(self.states, self.cluster, self.run_handle)
        except (KeyError, TypeError) as error:
            raise SourceError(
                f"the checkpoint cannot be read: {error}", hint="begin again with another folder"
            ) from error
        self.epoch = self.committed = last.number

    def progress(self, name: str, state: str, before: JobProgress | None) -> JobProgress:
        """What the job tells now."""
        return progress_of(self, name, state, before)


def _transport(backend: Any) -> Transport:
    if not backend.transport.takes_streams:
        raise CatalogError(
            "a job on Spark needs a session whose driver is this process, and this is one of Spark Connect",
            hint="SparkSession.builder.master(..), or tsql.connect() without backend=",
        )
    return backend.transport
