"""`JobRun`: the loop of a live job. One thread takes rows from the streams, passes them through the query, and writes
what EMIT asks for; an epoch ends now and then.

    rows of streams ──late?──▶ query ──▶ emitter ──▶ sink
                                 │                     │ prepare
                                 └── state, offsets ──▶ checkpoint ──▶ commit

In: a plan over `StreamSource`s, a sink, perhaps a checkpoint. Out: what the sink makes visible. State belongs to the
query, rows on their way to the emitter, what is durable to the checkpoint. An error of a stream, the query or the sink
ends the job: the epoch that is open is dropped, and the checkpoint before it stays."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import field
from typing import Any

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.live.boundedness import problems
from tsql.backends.live.fragments import ArrivedRows
from tsql.backends.live.jobs.checkpoint import Checkpoint, Epoch, Writer, damaged
from tsql.backends.live.jobs.emission import Emitter
from tsql.backends.live.jobs.feed import Wakeup
from tsql.backends.live.jobs.inputs import StreamInput
from tsql.backends.live.jobs.late import LateSinks, MakeSink
from tsql.backends.live.jobs.parts import Parts, joined
from tsql.backends.live.jobs.progress import JobProgress, OperatorProgress, operators_of, progress_of
from tsql.backends.live.jobs.resume import Identity, check_same
from tsql.backends.live.jobs.streams import StreamSource
from tsql.backends.live.query import LiveQuery
from tsql.backends.live.sinks.sink import Output, Sink
from tsql.kernels.expr.errors import PlanError
from tsql.kernels.expr.types import TINYINT
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.emission import AT_ONCE, Emission
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import PhysicalPlan

LEAST_ROWS, MOST_ROWS = 1_024, 1 << 18
"""The rows that are taken at a time: as many as a round may take with a latency budget, between these limits."""

ROUND_SECONDS = 0.5
"""A round takes about this long at most where no latency is asked for: stopping waits for it."""

EMIT_SECONDS = 0.05
"""Rows leave for so long before the job looks at its input again."""

LOOK_SECONDS = 0.2
"""What the steps hold is looked at so often."""

IDLE_SECONDS = 0.05
"""Timeouts of idle partitions are looked at this often."""


@dataclass
class Spec:
    """What a job is. identifier: by which sinks know it; it stays the same when the job is resumed, and is new where it
    begins anew. interval: seconds between epochs. shards: into how many the state is cut, whatever the plan says.
    late_sink: makes the sink of a table of ON LATE INTO."""

    name: str
    identifier: str
    plan: PhysicalPlan
    sink: Sink
    checkpoint: Checkpoint | None = None
    interval: float = 1.0
    shards: int = 1
    late_sink: MakeSink | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def emission(self) -> Emission:
        return self.plan.emission or Emission()


class JobRun:
    """One run of a job, from its start or from a checkpoint to its end. `run` is called once, by the job's thread;
    other threads ask it to stop and read its numbers."""

    def __init__(self, spec: Spec, run: Run):
        self.spec, self.run_handle = spec, run
        self.notes = list(spec.notes)
        self.wakeup = Wakeup()
        self.inputs: list[StreamInput] = []
        self.late = LateSinks((), None, spec.identifier)
        self.operators: tuple[OperatorProgress, ...] = ()
        """What the steps hold, as of a moment ago: other threads may look at it."""
        self._pending: _Pending | None = None
        self._writer = None if spec.checkpoint is None else Writer(spec.checkpoint, self.wakeup.set)
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        spec, run = self.spec, self.run_handle
        self._open_inputs()
        live = {scan: stream.source.time for stream in self.inputs for scan in stream.scans}
        self.query = LiveQuery(spec.plan, live, run, shards=spec.shards)
        self.emitter = Emitter(self.query, spec.emission, self.inputs)
        if not all(stream.source.ends for stream in self.inputs):
            check_answers(self.query, spec, self.notes)
        self.identity = Identity.of(spec.plan, self.query)
        self.epoch = 0
        self.committed = 0
        self.checkpoint_ms = 0.0
        self.begun_at = time.monotonic()
        self.batches = 0
        self.latency_ms = 0.0
        self._parts = Parts()
        self._stops: str | None = None
        self._is_dirty = False
        self._is_answered = False
        """No further row of the result will come, whatever comes in."""
        self._last_epoch_at = time.monotonic()
        self._seconds_per_row = 1e-7
        self._looked_at = 0.0
        run.on_cancel(self.wakeup.set)

    def _open_inputs(self) -> None:
        scans: dict[int, list[Scan]] = {}
        for step in self.spec.plan.root.walk():
            if isinstance(step, Scan) and isinstance(step.source, StreamSource):
                scans.setdefault(id(step.source), []).append(step)
        for mine in scans.values():
            source: StreamSource = mine[0].source
            needed = {column for scan in mine for column in scan.columns}
            mark = source.watermark
            if mark is not None:
                needed |= {mark.column, *mark.expression.columns()}
                needed |= set(source.schema.names) if mark.into is not None else set()
            names = tuple(scan.name for scan in mine)
            self.inputs.append(StreamInput(source, names, needed or {source.schema.names[0]}, self.wakeup))

    def begin(self) -> None:
        """Open the sink and the streams, where the checkpoint says."""
        spec = self.spec
        types = tuple(spec.plan.root.schema[name].type for name in spec.plan.columns)
        output = Output(
            self.emitter.schema,
            (*types, TINYINT) if spec.emission.has_changes else types,
            spec.identifier,
            spec.emission.has_changes,
            self.identity.keys,
        )
        if output.has_changes and not spec.sink.takes_changes:
            raise PlanError("the sink takes final rows, and the query gives changes", hint="EMIT FINAL")
        last = None if spec.checkpoint is None else spec.checkpoint.last()
        if spec.checkpoint is not None and last is not None:
            if spec.checkpoint.job() is None:
                raise damaged(spec.checkpoint.path, "job.json is gone")
            last = check_same(self.identity, last)
            self._restore(last)
        spec.sink.open(output)
        if spec.checkpoint is not None and last is None:
            spec.checkpoint.describe({"name": spec.name, "identifier": spec.identifier})
        self.late = LateSinks([stream.source for stream in self.inputs], spec.late_sink, spec.identifier)
        self.late.begin(self.epoch, {} if last is None else last.about["late"])
        spec.sink.recover(self.epoch, None if last is None else last.token)
        for stream in self.inputs:
            if not stream.has_ended:
                stream.start()
            if spec.checkpoint is not None and not stream.feed.reader.replays:
                self.notes.append(
                    f"the stream {stream.source.catalog_name} cannot be read again: what comes between the last "
                    "checkpoint and a crash is lost"
                )

    def run(self) -> None:
        """Run until the streams have ended, or the job is stopped."""
        try:
            self._take(self.query.advance({}, {}))
            while self._stops is None and not self._has_ended():
                self.run_handle.check()
                self._round()
            self._finish()
        finally:
            self.close()

    def stop(self, how: str) -> None:
        """Ask the job to stop: "checkpoint" ends the epoch that is open, "drain" ends the streams first, so that all
        results become final."""
        self._stops = how
        self.wakeup.set()

    def progress(self, name: str, state: str, before: JobProgress | None) -> JobProgress:
        """What the job tells now."""
        return progress_of(self, name, state, before)

    @property
    def was_stopped(self) -> bool:
        """Whether the job was asked to stop before its streams ended."""
        return self._stops == "checkpoint" and not self._has_ended()

    def close(self) -> None:
        """Free everything, also if something of it fails. What was not committed is dropped."""
        with ExitStack() as later:
            if self.spec.checkpoint is not None:
                later.callback(self.spec.checkpoint.close)
            later.callback(self.spec.sink.close)
            later.callback(self.late.close)
            if self._writer is not None:
                later.callback(self._writer.settle)
            if hasattr(self, "query"):
                later.callback(self.query.close)
                self.operators = operators_of(self)
            for stream in self.inputs:
                later.callback(stream.close)

    # A round ---------------------------------------------------------------------------------------------------------

    def _round(self) -> None:
        begun = time.monotonic()
        if begun >= self._looked_at + LOOK_SECONDS:
            self.operators, self._looked_at = operators_of(self), begun
        moved = self._advance()
        self.emitter.emit(self._write, EMIT_SECONDS)
        self._end_epoch_if_due()
        if not moved:
            self.wakeup.wait(self._patience())
        elif self.batches:
            self.latency_ms = (time.monotonic() - begun) * 1000

    def _advance(self) -> bool:
        """Take what has come and pass it on with its promises; whether anything has come or moved."""
        rows: dict[str, ArrivedRows] = {}
        promises: dict[str, int | None] = {}
        taken = 0
        moved = False
        for stream in self.inputs:
            if stream.has_ended:
                continue
            batches = stream.take(self._limit())
            if batches:
                table = pa.Table.from_batches(batches)
                taken += table.num_rows
                for scan in stream.scans:
                    rows[scan] = self.query.arrived(scan, table)
            moved = moved or stream.has_moved
            promise = stream.promise()
            if stream.feed.has_ended:
                stream.has_ended = True
                promises.update(dict.fromkeys(stream.scans))
            elif promise is not None and promise != stream.promised:
                stream.promised = promise
                promises.update(dict.fromkeys(stream.scans, promise))
        self._is_dirty = self._is_dirty or moved
        if not rows and not promises:
            return moved
        begun = time.monotonic()
        self._take(self.query.advance(rows, promises))
        self._is_answered = self.query.ended
        if taken:
            self.batches += 1
            spent = (time.monotonic() - begun) / taken
            self._seconds_per_row += (spent - self._seconds_per_row) / 4
        self._is_dirty = True
        return True

    def _take(self, rows: list[pa.RecordBatch]) -> None:
        self.emitter.take(rows, moved=True)

    def _limit(self) -> int:
        """How many rows of a stream are taken at once: more of them where there is time."""
        within = self.spec.emission.within_us
        budget = ROUND_SECONDS if within is None else within / 2e6
        return max(LEAST_ROWS, min(MOST_ROWS, int(budget / max(self._seconds_per_row, 1e-9))))

    def _patience(self) -> float:
        """How long the job may sleep while nothing comes."""
        found = IDLE_SECONDS
        if self.emitter.wait is not None:
            found = min(found, self.emitter.wait)
        if self._is_dirty:
            found = min(found, max(0.0, self._last_epoch_at + self._interval() - time.monotonic()))
        return found

    def _write(self, batch: pa.RecordBatch) -> None:
        self._is_dirty = True
        self.spec.sink.write(batch)

    def _has_ended(self) -> bool:
        return self._is_answered or all(stream.has_ended for stream in self.inputs)

    def _finish(self) -> None:
        """What is left of the result, and the last epoch."""
        if self._stops == "checkpoint":  # what cannot be read again is computed
            self._take_what_waits([stream for stream in self.inputs if not stream.feed.reader.replays])
        if self._stops == "drain":
            self._take_what_waits(self.inputs)
            open_streams = [stream for stream in self.inputs if not stream.has_ended]
            self._take(self.query.advance({}, {scan: None for one in open_streams for scan in one.scans}))
            for stream in open_streams:
                stream.has_ended = True
        if self._has_ended():
            self.emitter.emit(self._write, 0.0, at_end=True)
        else:
            self.emitter.emit_now(self._write)
        self._settle()
        self._end_epoch()
        self._settle()

    def _take_what_waits(self, streams: Sequence[StreamInput]) -> None:
        """Read no further in these streams, and compute what has been read."""
        for stream in streams:
            stream.feed.stop()
        while any(stream.feed.queued for stream in streams) and self._advance():
            pass

    # Epochs ----------------------------------------------------------------------------------------------------------

    def _interval(self) -> float:
        """Seconds between epochs. Without a checkpoint, a sink that shows rows at once is not kept waiting."""
        is_prompt = self.spec.checkpoint is None and getattr(self.spec.sink, "is_prompt", False)
        return 0.0 if is_prompt else self.spec.interval

    def _end_epoch_if_due(self) -> None:
        if self._pending is not None:
            assert self._writer is not None
            if self._writer.is_busy:
                return
            self._settle()
        if self._is_dirty and time.monotonic() >= self._last_epoch_at + self._interval():
            self._end_epoch()

    def _end_epoch(self) -> None:
        """End the epoch that is open: its rows, the state and the offsets belong together."""
        begun = time.monotonic()
        self.emitter.flush(self._write)
        self._write_late_rows()
        number = self.epoch + 1
        token = self.spec.sink.prepare(number)
        late = self.late.prepare(number)
        self.epoch, self._is_dirty, self._last_epoch_at = number, False, begun
        offsets = {stream.source.catalog_name: dict(stream.offsets) for stream in self.inputs}
        ended = _Pending(number, token, late, offsets)
        if self._writer is None:
            self._commit(ended)
            return
        self._pending = ended
        self._writer.begin(self._captured(ended))

    def _settle(self) -> None:
        """Wait for the epoch that is being written, and make its rows visible."""
        if self._pending is not None:
            assert self._writer is not None
            self._writer.wait()
            ended, self._pending = self._pending, None
            self.checkpoint_ms = (time.monotonic() - self._last_epoch_at) * 1000
            self._commit(ended)

    def _commit(self, ended: _Pending) -> None:
        self.late.commit(ended.number, ended.late)
        self.spec.sink.commit(ended.number, ended.token)
        self.committed = ended.number
        for stream in self.inputs:
            stream.feed.reader.acknowledge(ended.offsets[stream.source.catalog_name])

    def _captured(self, ended: _Pending) -> Epoch:
        """Everything that is needed to go on behind this epoch. Nothing is copied: chunks never change."""
        parts = self._parts.of(self.query.tables())
        shown = {f"shown {name}": table.to_batches() for name, table in self.emitter.state().items()}
        about = {
            "query": self.query.marks(),
            "streams": {stream.source.catalog_name: stream.state() for stream in self.inputs},
            "rows_out": self.emitter.rows,
            "late": ended.late,
            "identity": self.identity.to_json(),
        }
        kept = {f"held {name}": held for name, held in parts.items()}
        return Epoch(ended.number, about, ended.token, kept | shown)

    def _restore(self, last: Epoch) -> None:
        try:
            self._go_on(last)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise damaged(self.spec.checkpoint and self.spec.checkpoint.path, error) from error

    def _go_on(self, last: Epoch) -> None:
        tables = {name.removeprefix("held "): joined(parts) for name, parts in last.tables.items()}
        self.query.go_on(last.about["query"], tables)
        self.emitter.restore({name: tables[f"shown {name}"] for name in ("ahead", "final")})
        self.emitter.rows = last.about["rows_out"]
        for stream in self.inputs:
            stream.restore(last.about["streams"][stream.source.catalog_name])
        self.epoch = self.committed = last.number

    def _write_late_rows(self) -> None:
        for stream in self.inputs:
            rows, stream.late_rows = stream.late_rows, []
            self.late.write(stream.source.catalog_name, rows)


@dataclass(frozen=True)
class _Pending:
    """An epoch that has ended. late: tokens of the sinks of late rows."""

    number: int
    token: Any
    late: dict[str, Any]
    offsets: dict[str, dict[str, Any]]


def check_answers(query: LiveQuery, spec: Spec, notes: list[str]) -> None:
    """Refuse a query over streams without an end that could never answer, or would hold more and more rows."""
    shows_changes = spec.emission.horizon == AT_ONCE
    for problem in problems(query):
        if shows_changes and problem.has_changes:
            notes.append(f"step {problem.step} gives what is known so far: {problem.text}")
            continue
        ways = [*problem.ways, *(["EMIT CHANGES, which shows the result so far"] if problem.has_changes else [])]
        raise PlanError(
            f"over a stream that does not end, this query could not do: {problem.text} (step {problem.step})",
            hint="; or ".join(ways),
        )


def streams_of(plan: PhysicalPlan) -> Sequence[StreamSource]:
    """The streams that a plan reads, each once."""
    found = {
        id(step.source): step.source
        for step in plan.root.walk()
        if isinstance(step, Scan) and isinstance(step.source, StreamSource)
    }
    return list(found.values())
