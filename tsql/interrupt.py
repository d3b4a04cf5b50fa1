"""Ctrl-C while a query runs: the run is cancelled, and the caller gets a KeyboardInterrupt once the backend has
stopped.

A KeyboardInterrupt in the middle of a backend could leave locks held and workers running. So while a backend works,
SIGINT only cancels the run. The backend raises CancelledError within 100 ms, which becomes the KeyboardInterrupt that
Python code expects. A second Ctrl-C is not held back. Planning is plain Python in the caller's thread:
KeyboardInterrupt is raised at once there. If it gets lost (in a finalizer), the planner's own checks find the run
cancelled."""

from __future__ import annotations

import threading
from _signal import (
    SIGINT,
    default_int_handler,
    getsignal,
    signal,
)  # those of `signal` make enums, and take 20 times as long
from types import FrameType, TracebackType

from tsql.backends import Run
from tsql.kernels.expr.errors import CancelledError
from tsql.running import AtWork, Running


class Interruptible:
    """A context in which this thread works for `run`, and Ctrl-C cancels it. Outside the main thread, or if the program
    has its own SIGINT handler, signals stay as they are."""

    def __init__(self, run: Run, running: Running | None = None) -> None:
        self.run = run
        self.interrupted = False
        self._installed = False
        self._work = AtWork(run, running)

    def __enter__(self) -> Interruptible:
        if threading.current_thread() is threading.main_thread() and getsignal(SIGINT) is default_int_handler:
            self._installed = True
            signal(SIGINT, self._cancel)
        try:
            self._work.__enter__()
        except BaseException:
            self._restore()
            raise
        return self

    def _restore(self) -> None:
        if self._installed:
            signal(SIGINT, default_int_handler)

    def _cancel(self, signum: int, frame: FrameType | None) -> None:
        again, self.interrupted = self.interrupted, True
        self.run.cancel()
        if again or self.run.planning:
            default_int_handler(signum, frame)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._work.__exit__()
        self._restore()
        if isinstance(error, KeyboardInterrupt):
            self.run.cancel()
        elif self.interrupted and (error is None or isinstance(error, CancelledError)):
            raise KeyboardInterrupt from error
