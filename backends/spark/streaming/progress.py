"""What a job on a cluster tells of itself: what tasks have counted, summed over micro-batches, as `JobProgress`."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from tsql.backends.io.watermark import NEVER
from tsql.backends.live.jobs.progress import JobProgress, OperatorProgress, StreamProgress
from tsql.backends.spark.streaming.batch import Outcome

if TYPE_CHECKING:
    from tsql.backends.spark.streaming.run import ClusterRun


class Told:
    """What tasks have counted. warm, cold: shards whose worker had their state, and those that read it."""

    def __init__(self, streams: list[str]):
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in streams}
        self.held: dict[str, list[Any]] = {}
        self.notes: list[str] = []
        self.warm = self.cold = 0

    def add(self, outcome: Outcome, driver: dict[str, list[Any]]) -> None:
        """Take what the tasks of a micro-batch tell. driver: what the steps of the driver hold."""
        for name, told in outcome.told.items():
            for one in told:
                self.counts[name].update({key: n for key, n in one["counts"].items() if isinstance(n, int)})
                self._note(one["notes"])
        held = dict(driver)
        for live in outcome.live.values():
            self.warm += live["warm"]
            self.cold += not live["warm"]
            self._note(live["notes"])
            for step, mine in live["held"].items():
                held[step] = mine if step not in held else _both(held[step], mine)
        self.held = held

    def _note(self, notes: list[str]) -> None:
        self.notes += [note for note in notes if note not in self.notes]

    def to_json(self) -> dict[str, dict[str, int]]:
        return {name: dict(counts) for name, counts in self.counts.items()}

    def restore(self, data: dict[str, dict[str, int]]) -> None:
        self.counts = {name: Counter(counts) for name, counts in data.items()}


def _both(one: list[Any], other: list[Any]) -> list[Any]:
    """What two shards hold together, and the least that they promise."""
    bounds = {name: min(bound, other[3][name]) for name, bound in one[3].items() if name in other[3]}
    return [one[0] + other[0], one[1] + other[1], one[2], bounds, one[4] and other[4]]


def progress_of(job: ClusterRun, name: str, state: str, before: JobProgress | None) -> JobProgress:
    """What a job tells now."""
    now = time.monotonic() - job.begun_at
    streams = tuple(_stream(job, stream.name) for stream in job.streams)
    rows_in, rows_out = sum(stream.rows for stream in streams), job.driver.emitter.rows
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
        _operators(job, streams),
        dict(job.run_handle.counts),
    )


def _stream(job: ClusterRun, name: str) -> StreamProgress:
    marks, counts = job.marks[name], job.told.counts[name]
    return StreamProgress(
        name,
        counts["rows"],
        counts["late"],
        counts["without_time"],
        0,
        None,
        None if marks.current == NEVER else marks.current,
        marks.promise,
        marks.held_back_by,
        marks.ended,
        {"micro-batch": job.epoch},
    )


def _operators(job: ClusterRun, streams: tuple[StreamProgress, ...]) -> tuple[OperatorProgress, ...]:
    return tuple(
        OperatorProgress(step, why, rows, bytes, dict(bounds), ended, _waits(job, step, streams))
        for step, (rows, bytes, why, bounds, ended) in job.told.held.items()
    )


def _waits(job: ClusterRun, name: str, streams: tuple[StreamProgress, ...]) -> tuple[str, ...]:
    """The streams below a step whose promises are the least."""
    step = next(step for step in job.plan.root.walk() if step.name == name)
    below = {below.name for below in step.walk()}
    read = {stream.name for stream in job.streams if below & set(stream.scans)}
    known = [stream for stream in streams if stream.name in read and not stream.has_ended]
    going = {stream.name: NEVER if stream.promise_us is None else stream.promise_us for stream in known}
    least = min(going.values(), default=None)
    return tuple(sorted(stream for stream, promise in going.items() if promise == least))
