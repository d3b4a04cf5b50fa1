"""A job that a test drives round by round, with a clock of its own: what has been taken and what has left are known at
any moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.live.scripted import Piece
from tests.patience import wait_until
from tsql.backends.live.jobs.job import JobRun
from tsql.backends.live.sinks.memory import MemorySink
from tsql.jobs import Job


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Driven:
    """A job over one stream, whose thread never starts. A round takes one piece of the script."""

    def __init__(self, run: JobRun, sink: MemorySink, clock: Clock):
        self.run, self.sink, self.clock = run, sink, clock
        run.emitter._clock = clock
        run.emitter._next_look = clock()
        run._limit = lambda: 1  # type: ignore[method-assign]
        run.begin()
        run._take(run.query.advance({}, {}))

    def round(self) -> None:
        """Take a piece, write what is due and make it visible."""
        assert wait_until(self.run._advance)
        self.run.emitter.emit(self.run._write, 1e9)
        self.run._end_epoch()

    def taken(self, pieces: Sequence[Piece]) -> pa.Table:
        """The rows of the only partition that were taken so far, late ones too."""
        return pa.concat_tables([pieces[0].rows.slice(0, 0), *(piece.rows for piece in pieces[: self.place])])

    @property
    def place(self) -> int:
        """How many pieces were taken."""
        return sum(self.run.inputs[0].offsets.values())

    @property
    def watermark(self) -> int | None:
        (stream,) = self.run.inputs
        return stream.watermark

    def close(self) -> None:
        self.run.close()


def drive(session: tsql.Session, sql: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Driven:
    with monkeypatch.context() as patched:
        patched.setattr(Job, "_begin", lambda job: job)
        sink = MemorySink()
        job: Any = session.sql(sql).start(sink)
    job._is_over.set()
    return Driven(job._job, sink, clock)


def check_changes(table: pa.Table) -> None:
    """No row is taken back that was not given before, and not taken back already."""
    there: dict[Any, int] = {}
    for *row, change in zip(*(column.to_pylist() for column in table.columns), strict=True):
        key = tuple(row)
        there[key] = there.get(key, 0) + change
        assert there[key] >= 0, f"{key} is taken back and was not there"
