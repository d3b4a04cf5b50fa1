"""`check()`: raises if the query of this thread was cancelled, for code without a run at hand: analysis, rules,
emission, sources.

A thread that works for a run says so (`during`): each thread that waits for a result, the thread of the query, and each
worker. Long work in any of them calls `check()` between its steps. It raises CancelledError after Ctrl-C, `cancel()`
and `close()`, and takes a tenth of a microsecond otherwise. Planning calls it at each node and each expression, so a
loop over these needs no call of its own.

A source that waits for something (a pipe, a socket) waits for a short time, calls `check()`, and waits again:

    while not select.select([file], [], [], 0.1)[0]:
        stopping.check()

or has itself woken: `run = stopping.current()`, and `run.on_cancel(wake)` if it is not None.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol


class Stoppable(Protocol):
    """What can be cancelled: `Run` in backends/run.py."""

    stopped: bool
    reason: str

    def check(self) -> None: ...

    def on_cancel(self, callback: Any) -> None: ...

    def off_cancel(self, callback: Any) -> None: ...


class _Own(threading.local):
    run: Stoppable | None = None


_own = _Own()


def check() -> None:
    """Raise CancelledError if the run of this thread has been cancelled."""
    run = _own.run
    if run is not None and run.stopped:
        run.check()


def current() -> Stoppable | None:
    """The run that this thread works for."""
    return _own.run


class during:
    """A context in which this thread works for a run."""

    __slots__ = ("_before", "_run")

    def __init__(self, run: Stoppable | None) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._before, _own.run = _own.run, self._run

    def __exit__(self, *_: object) -> None:
        _own.run = self._before
