"""`StreamInput`: a stream as a job reads it. Its rows pass the check for late ones, and its watermark becomes promises
to the scans of the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tsql.backends.io.watermark import Lateness
from tsql.backends.live.jobs.feed import Feed, Wakeup
from tsql.backends.live.jobs.streams import StreamSource
from tsql.backends.live.sources.reader import Arrival, Offset
from tsql.backends.live.watermark_values import marks_of
from tsql.kernels.expr.schema import Schema

NEVER = -(2**63)


class StreamInput:
    """One stream of a job. scans: the names of the plan's scans that read it. columns: those that anything needs. A
    stream that ends has no late rows, and no promises but those of its reader and its end."""

    def __init__(self, source: StreamSource, scans: tuple[str, ...], columns: set[str], wakeup: Wakeup):
        self.source, self.scans = source, scans
        self.schema = Schema(tuple(f for f in source.schema if f.name in columns))
        self.feed = Feed(source.catalog_name, source.open_reader(self.schema), wakeup)
        self.offsets: dict[str, Offset] = {}
        self.rows = 0
        self.late_rows: list[pa.RecordBatch] = []
        self._partitions: dict[str, int] = {}
        self._promise = NEVER
        self.promised: int | None = None
        """What the scans have been promised."""
        self.has_ended = self.has_moved = False
        watermark = source.watermark
        self.lateness = (
            None if watermark is None or source.ends else Lateness(watermark, marks_of(watermark), partitions=0)
        )

    def start(self) -> None:
        self.feed.start(self.offsets)

    def take(self, rows: int) -> list[pa.RecordBatch]:
        """Rows that have come and are not late. `has_moved`: whether anything has come."""
        kept = []
        found = self.feed.take(rows)
        self.has_moved = bool(found)
        for arrival, at_us in found:
            batch = self._checked(arrival, at_us)
            self.offsets[arrival.partition] = arrival.offset
            if batch.num_rows:
                kept.append(batch)
        return kept

    def _checked(self, arrival: Arrival, at_us: int) -> pa.RecordBatch:
        self.rows += arrival.rows.num_rows
        if arrival.promise is not None:
            self._promise = max(self._promise, arrival.promise)
        if self.lateness is None:
            return arrival.rows
        if arrival.partition not in self._partitions:
            self._partitions = {**self._partitions, arrival.partition: self.lateness.join(at_us)}
        checked = self.lateness.consume(arrival.rows, self._partitions[arrival.partition], at_us)
        if checked.late is not None:
            self.late_rows.append(checked.late)
        return checked.batch

    def promise(self) -> int | None:
        """No later row that `take` gives has a time before this; None: there is no promise yet."""
        if self.lateness is not None:
            quiet = self.feed.quiet_since()
            known = self.lateness.punctuation if quiet is None else self.lateness.tick(quiet)
            self._promise = max(self._promise, NEVER if known is None else known)
        return None if self._promise == NEVER else self._promise

    @property
    def watermark(self) -> int | None:
        """The time up to which the stream is taken to be complete."""
        return self.promise() if self.lateness is None else self.lateness.current

    @property
    def shown_watermark(self) -> int | None:
        """The watermark for other threads: it moves nothing."""
        known = self._promise if self.lateness is None else self.lateness.current
        return None if known in (None, NEVER) else known

    @property
    def held_back_by(self) -> str | None:
        """The partition whose watermark is the least, if there are several."""
        if self.lateness is None or len(self._partitions) < 2:
            return None
        number = self.lateness.behind(self.feed.clock_us())
        return next((name for name, place in self._partitions.items() if place == number), None)

    @property
    def late(self) -> int:
        return 0 if self.lateness is None else self.lateness.counts.late

    @property
    def without_time(self) -> int:
        return 0 if self.lateness is None else self.lateness.counts.without_time

    def state(self) -> dict[str, Any]:
        """Everything needed to go on, as JSON."""
        return {
            "offsets": dict(self.offsets),
            "promise": self._promise,
            "rows": self.rows,
            "ended": self.has_ended,
            "lateness": None if self.lateness is None else self.lateness.state(),
            "partitions": dict(self._partitions),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.offsets, self._promise, self.rows = dict(state["offsets"]), state["promise"], state["rows"]
        self._partitions, self.has_ended = dict(state["partitions"]), state["ended"]
        if self.lateness is not None and state["lateness"] is not None:
            self.lateness.restore(state["lateness"], self.feed.clock_us())

    def close(self) -> None:
        self.feed.close()
