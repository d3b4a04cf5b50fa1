"""`StreamMarks`: how far the time of a stream has come, between two micro-batches.

Spark gives the partitions of a micro-batch to tasks that see nothing of each other, so the watermark stands still in
it: a row is late if it is behind the promise of the batch before. Each task tells the greatest watermark of each
partition that it has seen. All shards get what all tasks tell, and compute the same promise of it (`after`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

import pyarrow as pa

from tsql.backends.io.watermark import NEVER, Lateness, Watermark
from tsql.backends.live.watermark_values import marks_of
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.binder import parse_expression
from tsql.planner.physical.progress import Progress

Marks = Mapping[str, int]
"""The watermark of each partition."""


@dataclass(frozen=True)
class StreamMarks:
    """current: the watermark of the stream, `NEVER` if it has none. idle: partitions that hold nobody up now."""

    partitions: Marks = field(default_factory=dict)
    current: int = NEVER
    allowed_us: int = 0
    idle: tuple[str, ...] = ()
    ended: bool = False

    def after(self, told: Iterable[Marks]) -> StreamMarks:
        """What holds behind a micro-batch in which tasks have told this."""
        found = dict(self.partitions)
        heard: set[str] = set()
        for marks in told:
            heard |= set(marks)
            for name, mark in marks.items():
                found[name] = max(mark, found.get(name, NEVER))
        counted = [mark for name, mark in found.items() if name in heard or name not in self.idle]
        return replace(self, partitions=found, current=max(self.current, min(counted, default=NEVER)))

    @property
    def promise(self) -> int | None:
        """No later row has a time before this; None if nothing is promised."""
        return None if self.current == NEVER else max(self.current - self.allowed_us, NEVER)

    @property
    def held_back_by(self) -> str | None:
        """The partition whose watermark is the least, if there are several."""
        names = [name for name in self.partitions if name not in self.idle]
        return min(names, key=lambda name: self.partitions[name]) if len(names) > 1 else None

    def to_json(self) -> dict[str, Any]:
        return {
            "partitions": dict(self.partitions),
            "current": self.current,
            "allowed_us": self.allowed_us,
            "idle": list(self.idle),
            "ended": self.ended,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StreamMarks:
        return StreamMarks(
            dict(data["partitions"]), data["current"], data["allowed_us"], tuple(data["idle"]), data["ended"]
        )


def watermark_to_json(mark: Watermark | None) -> list[Any] | None:
    """A watermark as plain data."""
    if mark is None:
        return None
    return [mark.column, mark.text, mark.idle_timeout_us, mark.allowed_lateness_us, mark.on_late, mark.into]


def watermark_of(data: list[Any] | None, schema: Schema) -> Watermark | None:
    """The watermark of plain data, over the columns of a stream."""
    if data is None:
        return None
    column, text, *rest = data
    return Watermark(column, text, parse_expression(text, schema), *rest)


class Check:
    """The check for late rows in one task."""

    def __init__(self, watermark: Watermark | None, before: StreamMarks):
        self.watermark, self.before = watermark, before
        self.rows = 0
        self.late: list[pa.RecordBatch] = []
        self._lateness: Lateness | None = None
        self._partitions: dict[str, int] = {}
        if watermark is not None and not before.ended:
            # A partition that stands still holds the watermark where it was before the batch.
            self._lateness = Lateness(watermark, marks_of(watermark))
            self._lateness.restore({"current": before.current, "marks": [before.current], "counts": [0, 0, 0]})

    def passed(self, batch: pa.RecordBatch, partition: str) -> pa.RecordBatch:
        """The rows that are not late."""
        self.rows += batch.num_rows
        if self._lateness is None or not batch.num_rows:
            return batch
        if partition not in self._partitions:
            self._partitions[partition] = self._lateness.join()
        checked = self._lateness.consume(batch, self._partitions[partition])
        if checked.late is not None:
            self.late.append(checked.late)
        return checked.batch

    def marks(self) -> dict[str, int]:
        """The watermark of each partition that was seen."""
        if self._lateness is None:
            return {}
        found = self._lateness.state()["marks"]
        return {name: found[place] for name, place in self._partitions.items()}

    def told(self) -> dict[str, int]:
        """What is counted."""
        counts = None if self._lateness is None else self._lateness.counts
        return {
            "rows": self.rows,
            "late": 0 if counts is None else counts.late,
            "without_time": 0 if counts is None else counts.without_time,
        }


def progress_to_json(progress: Progress) -> list[Any]:
    return [progress.bounds, progress.ended]


def progress_of(data: list[Any]) -> Progress:
    return Progress(data[0], data[1])
