"""`Run`: one execution of a plan, shared by the thread that waits for its result and the workers that compute it."""

from __future__ import annotations

import threading
import time
from dataclasses import field
from typing import Any

from tsql.backends.settings import Settings
from tsql.kernels.expr.errors import CancelledError
from tsql.kernels.process.quick_dataclass import dataclass


class Stop:
    """Whether a run should stop, and why."""

    __slots__ = ("reason", "stopped")

    def __init__(self) -> None:
        self.stopped, self.reason = False, "the query was cancelled"


@dataclass
class StageRun:
    """What the tasks of one stage have done: milliseconds and bytes of each."""

    number: int
    name: str
    ms: list[float] = field(default_factory=list)
    bytes_in: list[int] = field(default_factory=list)
    bytes_out: list[int] = field(default_factory=list)

    @property
    def skew(self) -> float:
        """How many times as long as a task in the middle the slowest one took."""
        middle = sorted(self.ms)[(len(self.ms) - 1) // 2]
        return max(self.ms) / middle if middle else 1.0


@dataclass
class Run:
    """One execution of a plan, shared by the thread that waits for it and the workers that compute it."""

    settings: Settings = field(default_factory=Settings)
    parameters: dict[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)
    wall_clock: float = field(default_factory=time.time)
    total_rows: int | None = None
    done_rows: int = 0
    timings_ms: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    memory_bytes: dict[str, int] = field(default_factory=dict)
    """The query's peak memory, and the activity of the pool for all queries in that time."""
    profile: bool = False
    """Count the rows of each step, in `rows_of`."""
    rows_of: dict[str, int] = field(default_factory=dict)
    stages: list[StageRun] = field(default_factory=list)
    """What the tasks of a cluster have done, by stage (`explain ANALYZE`)."""
    choices: dict[str, str] = field(default_factory=dict)
    """The alternative taken where only the data could decide, by step name (`explain ANALYZE`)."""
    counts: dict[str, int] = field(default_factory=dict)
    """Counts of rows that the user should be told about (`count`), such as rows in no window."""
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _stop: Stop = field(default_factory=lambda: Stop())
    activity: str = ""
    """What a cluster does now, for a progress bar."""
    planning: bool = False
    """Its plan is being made by the thread that waits for the result."""
    _on_cancel: list[Any] = field(default_factory=list)

    @property
    def stopped(self) -> bool:
        """Whether the run has been cancelled."""
        return self._stop.stopped

    @property
    def reason(self) -> str:
        """Why it was cancelled."""
        return self._stop.reason

    def shares(self, other: Run) -> Run:
        """Make this run a part of another one: counts go to it, and it stops with it. Returns this run."""
        self._counting, self._stop, self._on_cancel = other._counting, other._stop, other._on_cancel
        return self

    def count(self, what: str, rows: int) -> None:
        """Count rows that the result does not show, with a reason: "rows without a time". Operators may call this from
        any thread and any number of times; the sum becomes a note of the run. Rows that are read twice must be counted
        once."""
        if rows:
            with self._counting:
                self.counts[what] = self.counts.get(what, 0) + rows

    def chose(self, step: str, way: str) -> None:
        """Record that a step has taken one of several alternatives. The last one is shown."""
        self.choices[step] = way

    def note(self, text: str) -> None:
        """Record a message for the user. Repeated messages are shown once."""
        with self._counting:
            if text not in self.notes:
                self.notes.append(text)

    def told(self) -> list[str]:
        """Everything to tell the user about the run: the notes, and the counts as text."""
        return [
            *self.notes,
            *(f"{rows:,} {_one(what) if rows == 1 else what}" for what, rows in sorted(self.counts.items())),
        ]

    def cancel(self, reason: str | None = None) -> None:
        """Ask the run to stop. It raises CancelledError in the waiting thread within 100 ms."""
        if reason is not None and not self.stopped:
            self._stop.reason = reason
        self._stop.stopped = True
        self.stop_workers()

    def stop_workers(self) -> None:
        """Stop what still runs (after a failure or a cancellation). The reason is raised elsewhere."""
        for callback in list(self._on_cancel):
            callback()

    def on_cancel(self, callback: Any) -> None:
        self._on_cancel.append(callback)
        if self.cancelled:
            callback()

    def off_cancel(self, callback: Any) -> None:
        """Remove a callback added with `on_cancel`."""
        self._on_cancel.remove(callback)

    @property
    def cancelled(self) -> bool:
        return self.stopped

    def check(self) -> None:
        """Raise CancelledError if the run should stop. Code without access to the run calls
        `kernels.stopping.check`."""
        if self.stopped:
            raise CancelledError(self.reason)

    @property
    def progress(self) -> float | None:
        """The fraction of the input that has been read, 0 to 1; None if the total is unknown."""
        return None if not self.total_rows else min(1.0, self.done_rows / self.total_rows)


def _one(what: str) -> str:
    """ "rows without a time" for a single row."""
    return what.replace("rows", "row", 1) if what.startswith("rows") else what
