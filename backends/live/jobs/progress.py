"""`JobProgress`: what a job tells of itself: rates, lag, watermarks, late rows, held state, epochs; as values, as a
line, and as Prometheus text."""

from __future__ import annotations

import time
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tsql.backends.live.operator import Pass
from tsql.kernels.process.quick_dataclass import dataclass

if TYPE_CHECKING:
    from tsql.backends.live.jobs.job import JobRun


@dataclass(frozen=True)
class StreamProgress:
    """One stream. behind: rows, messages or bytes that are known to be there and have not been read; None if that is
    not known. queued: rows that were read and wait for the query. watermark_us, promise_us: microseconds, or None.
    held_back_by: the partition whose watermark is the least."""

    name: str
    rows: int
    late: int
    without_time: int
    queued: int
    behind: int | None
    watermark_us: int | None
    promise_us: int | None
    held_back_by: str | None
    has_ended: bool
    offsets: dict[str, Any]


@dataclass(frozen=True)
class OperatorProgress:
    """One step that holds rows. waits_for: the streams below it whose promises are the least, which it waits for."""

    name: str
    holds: str
    rows: int
    bytes: int
    bounds: dict[str, int]
    has_ended: bool
    waits_for: tuple[str, ...]


@dataclass(frozen=True)
class JobProgress:
    """A job at a moment. rate_in, rate_out: rows a second since the last look."""

    name: str
    state: str
    seconds: float
    rows_in: int
    rows_out: int
    rate_in: float
    rate_out: float
    epoch: int
    committed: int
    checkpoint_ms: float
    latency_ms: float
    streams: tuple[StreamProgress, ...] = ()
    operators: tuple[OperatorProgress, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def late(self) -> int:
        return sum(stream.late for stream in self.streams)

    @property
    def held_rows(self) -> int:
        return sum(one.rows for one in self.operators)

    @property
    def held_bytes(self) -> int:
        return sum(one.bytes for one in self.operators)

    def metrics(self) -> str:
        """As Prometheus reads it."""
        job = f'job="{_label(self.name)}"'
        lines = [
            *_metric("tsql_job_up", "gauge", "Whether the job runs.", [(job, int(self.state == "running"))]),
            *_metric("tsql_job_rows_out_total", "counter", "Rows of the result.", [(job, self.rows_out)]),
            *_metric("tsql_job_epoch", "gauge", "The last epoch that is visible.", [(job, self.committed)]),
            *_metric(
                "tsql_job_checkpoint_seconds", "gauge", "Time of the last epoch.", [(job, self.checkpoint_ms / 1000)]
            ),
        ]
        for name, kind, help, value in (
            ("tsql_stream_rows_total", "counter", "Rows that have come.", lambda s: s.rows),
            ("tsql_stream_late_rows_total", "counter", "Rows that came too late.", lambda s: s.late),
            ("tsql_stream_behind", "gauge", "What is there and has not been read.", lambda s: s.behind),
            ("tsql_stream_watermark_seconds", "gauge", "The watermark.", lambda s: _seconds(s.watermark_us)),
        ):
            found = [(f'{job},stream="{_label(stream.name)}"', value(stream)) for stream in self.streams]
            lines += _metric(name, kind, help, found)
        for name, help, value in (
            ("tsql_operator_held_rows", "Rows that a step holds.", lambda o: o.rows),
            ("tsql_operator_held_bytes", "Bytes that a step holds.", lambda o: o.bytes),
        ):
            found = [(f'{job},step="{_label(one.name)}"', value(one)) for one in self.operators]
            lines += _metric(name, "gauge", help, found)
        return "\n".join(lines) + "\n"


def progress_of(job: JobRun, name: str, state: str, before: JobProgress | None) -> JobProgress:
    """What a job tells now. Numbers are read while its thread works: each is right, not all of the same moment."""
    now = time.monotonic() - job.begun_at
    streams = tuple(
        StreamProgress(
            stream.source.catalog_name,
            stream.rows,
            stream.late,
            stream.without_time,
            stream.feed.queued,
            stream.feed.reader.behind(),
            stream.shown_watermark,
            stream.promised,
            stream.held_back_by,
            stream.has_ended,
            dict(stream.offsets),
        )
        for stream in job.inputs
    )
    rows_in, rows_out = sum(stream.rows for stream in streams), job.emitter.rows
    since = max(now - (0.0 if before is None else before.seconds), 1e-3)
    return JobProgress(
        name,
        state,
        now,
        rows_in,
        rows_out,
        (rows_in - (0 if before is None else before.rows_in)) / since,
        (rows_out - (0 if before is None else before.rows_out)) / since,
        job.epoch,
        job.committed,
        job.checkpoint_ms,
        job.latency_ms,
        streams,
        job.operators,
        dict(job.run_handle.counts),
    )


def operators_of(job: JobRun) -> tuple[OperatorProgress, ...]:
    """What the steps hold. For the thread of the job: nobody else may look into what it holds."""
    stream_of = {scan: stream for stream in job.inputs for scan in stream.scans}
    found = []
    for node in job.query.nodes.values():
        if node.operator is None or isinstance(node.operator, Pass):
            continue
        held = list(node.operator.tables().values())
        below = {stream_of[scan].source.catalog_name: stream_of[scan] for scan in _scans(node) if scan in stream_of}
        going = {name: stream.promised for name, stream in below.items() if not stream.has_ended}
        least = min((_or_never(known) for known in going.values()), default=None)
        found.append(
            OperatorProgress(
                node.name,
                node.operator.why,
                sum(map(len, held)),
                sum(one.bytes for one in held),
                dict(node.progress.bounds),
                node.progress.ended,
                tuple(sorted(name for name, known in going.items() if _or_never(known) == least)),
            )
        )
    return tuple(found)


def _or_never(time_us: int | None) -> int:
    return -(2**63) if time_us is None else time_us


def _scans(node: Any) -> set[str]:
    """The names of the scans below a node."""
    found, stack = set(), [node]
    while stack:
        one = stack.pop()
        if one.operator is None:
            found.add(one.name)
        for _, sources, _ in one.feeds:
            stack.extend(sources)
    return found


def _metric(name: str, kind: str, help: str, values: list[tuple[str, Any]]) -> list[str]:
    known = [(labels, value) for labels, value in values if value is not None]
    return [
        f"# HELP {name} {help}",
        f"# TYPE {name} {kind}",
        *(f"{name}{{{labels}}} {value}" for labels, value in known),
    ]


def _seconds(time_us: int | None) -> float | None:
    return None if time_us is None else time_us / 1e6


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
