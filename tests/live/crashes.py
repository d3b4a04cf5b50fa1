"""Jobs that crash: at the n-th call that changes anything outside of the process, a job ends as if it had been killed,
and another one goes on from its checkpoint."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tsql
from tsql.backends.live.jobs import checkpoint as checkpoints

MOST_TURNS = 12
CALLS = ("write", "prepare", "commit")


class Crash(BaseException):
    """The process has been killed."""


class Fuse:
    """Burns at the n-th call: before it, or behind it."""

    def __init__(self, calls: int, is_behind: bool):
        self.left, self.is_behind = calls, is_behind
        self.lock = threading.Lock()

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any) -> Any:
            with self.lock:  # the checkpoint is written by another thread
                self.left -= 1
                is_last = self.left == 0
            if is_last and not self.is_behind:
                raise Crash
            found = call(*given)
            if is_last:
                raise Crash
            return found

        return wrapped


class FusedSink:
    """A sink that crashes. What it wraps stands for the outside: it stays."""

    def __init__(self, sink: Any, fuse: Fuse):
        self.sink = sink
        for name in CALLS:
            setattr(self, name, fuse.around(getattr(sink, name)))

    def close(self) -> None:
        """A process that is killed closes nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sink, name)


def run_with_crashes(
    session_of: Callable[[int], tsql.Session],
    sql: str,
    sink: Any,
    checkpoint: Path,
    seed: int,
    new_sink: Callable[[], Any] | None = None,
) -> int:
    """Run a job to the end of its streams, with crashes at random calls of the sink and of the checkpoint; the number
    of crashes. sink: the outside, which survives them. new_sink: makes the sink of each attempt instead."""
    choose = random.Random(f"crashes {seed}")
    crashes = 0
    for turn in range(MOST_TURNS):
        # The first turn crashes in any case: each job prepares, writes and commits an epoch.
        calls = choose.randint(1, 12 if turn else 3) if turn < MOST_TURNS - 1 else 10**9
        fuse = Fuse(calls, choose.random() < 0.5)
        inner = sink if new_sink is None else new_sink()
        with session_of(turn) as session:
            original = checkpoints.Checkpoint.write
            checkpoints.Checkpoint.write = fuse.around(original)  # type: ignore[method-assign]
            try:
                job = session.sql(sql).start(FusedSink(inner, fuse), checkpoint=checkpoint, interval=0.002)
                job.wait(60)
                assert crashes, f"seed {seed}: nothing crashed"
                return crashes
            except Crash:
                crashes += 1
            finally:
                checkpoints.Checkpoint.write = original  # type: ignore[method-assign]
    raise AssertionError(f"seed {seed}: the last turn crashes nowhere")
