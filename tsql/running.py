"""The runs of a session, and the threads that work for them: `close()` ends them and waits for them."""

from __future__ import annotations

import threading
import time
import weakref

from tsql.backends import Run
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.process import forks, stopping

CLOSE_SECONDS = 5.0
"""`close()` waits at most this many seconds for queries that it has cancelled. They end sooner, unless a library call
does not return."""


class Running:
    """Runs that have begun and not ended (`open`), and those for which a thread is working right now (`AtWork`). A
    result that is read batch by batch is open between two batches, but no thread works for it."""

    def __init__(self) -> None:
        self.closed = False
        self.open: weakref.WeakValueDictionary[int, Run] = weakref.WeakValueDictionary()
        self.at_work: dict[AtWork, None] = {}

    def check(self) -> None:
        if self.closed:
            raise CatalogError("the session is closed")

    def begin(self, run: Run) -> None:
        """A run begins; it ends when nobody holds it any more."""
        self.check()
        self.open[id(run)] = run
        if self.closed:  # by another thread, which may have looked before the run was there
            self.check()

    def close(self) -> None:
        """End all runs, and wait until no other thread is at work for one. Nothing begins from now on."""
        self.closed = True
        for run in [*(known() for known in self.open.valuerefs()), *(work.run for work in list(self.at_work))]:
            if run is not None:
                run.cancel("the connection was closed while the query ran")
        mine, generation, deadline = threading.get_ident(), forks.generation(), time.monotonic() + CLOSE_SECONDS
        while (
            any(work.thread != mine and work.generation == generation for work in list(self.at_work))
            and time.monotonic() < deadline
        ):
            time.sleep(0.001)


class AtWork:
    """A context in which this thread is at work for a run of a session."""

    __slots__ = ("_during", "_outer", "generation", "run", "running", "thread")

    def __init__(self, run: Run, running: Running | None) -> None:
        self.run, self.running = run, running
        self.thread, self.generation = threading.get_ident(), forks.generation()
        self._during = stopping.during(run)
        self._outer: stopping.Stoppable | None = None

    def __enter__(self) -> AtWork:
        if self.running is not None:
            self.running.at_work[self] = None
            if self.running.closed:
                self.running.at_work.pop(self, None)
                self.run.check()
                self.running.check()
        outer = stopping.current()
        if outer is not None and outer is not self.run:
            # What a statement runs on its way ends with the statement.
            self._outer = outer
            outer.on_cancel(self._stop)
        self._during.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._during.__exit__()
        if self._outer is not None:
            self._outer.off_cancel(self._stop)
            self._outer = None
        if self.running is not None:
            self.running.at_work.pop(self, None)

    def _stop(self) -> None:
        outer = self._outer
        if outer is not None and outer.stopped:
            self.run.cancel(outer.reason)
