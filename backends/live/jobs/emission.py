"""`Emitter`: when the rows of a result leave, and as what (EMIT).

A live query gives rows that are final. A result that is shown earlier has further rows: those that the query would give
if its promises reached further (`LiveQuery.peek`). With EMIT CHANGES that is the end of the input: what the result
would be if nothing more came. With CHANGES AFTER WATERMARK it is the watermark: what it would be if no further row were
late. What leaves is the difference to what was shown before. So all forms of EMIT are the same query, and the sum of
all changes is its result.

A look costs what the open part of the result costs, so looks are rare where they are dear: they take a quarter of the
time at most."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from tsql.backends.live.jobs.changes import changes, check_comparable, with_change
from tsql.backends.live.jobs.inputs import StreamInput
from tsql.backends.live.query import LiveQuery
from tsql.planner.logical.emission import AT_ONCE, Emission

SLICE_ROWS = 16_384
"""Rows leave in slices of this size; between two of them the job looks at its input."""

LOOK_SHARE = 4
"""A look is followed by a pause of this many times its own time."""

Write = Callable[[pa.RecordBatch], None]


class Emitter:
    """Takes final rows of a query and writes what EMIT asks for."""

    def __init__(
        self,
        query: LiveQuery,
        emission: Emission,
        inputs: Sequence[StreamInput],
        clock: Callable[[], float] = time.monotonic,
    ):
        self.query, self.emission, self.inputs = query, emission, inputs
        self.schema = with_change(query.plan.schema) if emission.has_changes else query.plan.schema
        if emission.has_changes:
            check_comparable(query.plan.schema)
        self.rows = 0
        self._clock = clock
        self._final: list[pa.RecordBatch] = []
        self._ahead: list[pa.RecordBatch] = []
        self._leaving: deque[pa.RecordBatch] = deque()
        self._is_stale = emission.has_changes
        self._next_look = clock() + (emission.every_us or 0) / 1e6

    def take(self, rows: list[pa.RecordBatch], moved: bool) -> None:
        """Final rows of the query. moved: whether it has taken rows, or promises, since the last call."""
        self._final += rows
        self._is_stale = self._is_stale or moved or bool(rows)

    @property
    def wait(self) -> float | None:
        """Seconds until something is due; None: nothing is."""
        if self._leaving:
            return 0.0
        if not (self._is_stale if self.emission.has_changes else self._final):
            return None
        return max(0.0, self._next_look - self._clock())

    def emit(self, write: Write, seconds: float, at_end: bool = False) -> None:
        """Write what is due, for at most about this time. at_end: the input has ended, so all of it is due."""
        begun = self._clock()
        if self._final and not self.emission.has_changes and (at_end or begun >= self._next_look):
            self._leave(self._final)
            self._final = []
            self._pause(begun, 0.0)
        elif self.emission.has_changes and (at_end or (self._is_stale and begun >= self._next_look)):
            self._look(at_end)
            self._pause(begun, self._clock() - begun)
        while self._leaving and (at_end or self._clock() - begun < seconds):
            self._write(write)

    def emit_now(self, write: Write) -> None:
        """Write what is known, whether or not it is due: the job stops."""
        self._next_look = self._clock()
        self.emit(write, float("inf"))

    def flush(self, write: Write) -> None:
        """Write everything that is on its way, for the end of an epoch. Final rows that are not due stay."""
        while self._leaving:
            self._write(write)

    def _write(self, write: Write) -> None:
        batch = self._leaving.popleft()
        write(batch)
        self.rows += batch.num_rows

    def _pause(self, begun: float, spent: float) -> None:
        every = (self.emission.every_us or 0) / 1e6
        self._next_look = max(begun + every, begun + spent * (1 + LOOK_SHARE))

    def _look(self, at_end: bool) -> None:
        """Compare the result with what was shown of it."""
        ahead = [] if at_end else self.query.peek(self._promises())
        found = changes(self._ahead, [*self._final, *ahead], self.query.plan.schema)
        self._ahead, self._final, self._is_stale = ahead, [], False
        self._leave(found.to_batches())

    def _promises(self) -> dict[str, int | None]:
        if self.emission.horizon == AT_ONCE:
            return {scan: None for stream in self.inputs for scan in stream.scans}
        known = ((stream, stream.watermark) for stream in self.inputs if not stream.has_ended)
        return {scan: mark for stream, mark in known if mark is not None for scan in stream.scans}

    def _leave(self, batches: Sequence[pa.RecordBatch]) -> None:
        for batch in batches:
            for start in range(0, batch.num_rows, SLICE_ROWS):
                self._leaving.append(batch.slice(start, SLICE_ROWS))

    def state(self) -> dict[str, pa.Table]:
        """What was shown ahead, and what has not left yet. (Call `flush` before.)"""
        schema = self.query.plan.schema
        numbered = pa.schema([pa.field(str(place), field.type) for place, field in enumerate(schema)])
        return {
            name: pa.Table.from_batches(
                [pa.RecordBatch.from_arrays(batch.columns, schema=numbered) for batch in batches], numbered
            )
            for name, batches in (("ahead", self._ahead), ("final", self._final))
        }

    def restore(self, state: dict[str, pa.Table]) -> None:
        schema = self.query.plan.schema

        def batches(table: pa.Table) -> list[pa.RecordBatch]:
            return [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in table.to_batches()]

        self._ahead, self._final = batches(state["ahead"]), batches(state["final"])
