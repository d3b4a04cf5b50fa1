"""`Watch`: a PROGRESSIVE query in the background, which calls a function with each snapshot. `Relation.watch` makes it:
a call of its own, since `snapshots` computes nothing before it is asked, and this begins at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from tsql.kernels.expr.errors import CatalogError, TsqlError
from tsql.snapshot_text import percent
from tsql.snapshots import LOOK_SECONDS, Snapshot, Snapshots, started


class Watch:
    """A run in a thread of its own. The callback is called in that thread, with one snapshot after the other; the query
    rests meanwhile. An exception that it raises ends the run."""

    def __init__(self, snapshots: Snapshots, callback: Callable[[Snapshot], object]):
        self._snapshots = snapshots
        self._callback: Callable[[Snapshot], object] | None = callback
        self._beginning = threading.Lock()
        self._is_stopped = False
        self.error: BaseException | None = None
        """What ended the run, if that was an error of the query or of the callback; `wait` raises it."""
        self._thread = started(self._serve, "tsql-watch")

    def _serve(self) -> None:
        try:
            for snap in self._snapshots:
                with self._beginning:
                    callback = None if self._is_stopped else self._callback
                if callback is None:
                    break
                callback(snap)
        except BaseException as error:
            self.error = _kept(error)
        finally:
            self._snapshots.stop()
            self._callback = callback = None  # what it refers to need not live as long as this

    @property
    def last(self) -> Snapshot | None:
        """The snapshot that the callback was given last."""
        return self._snapshots.last

    @property
    def is_over(self) -> bool:
        """Whether the run and the last call have ended."""
        return not self._thread.is_alive()

    @property
    def is_paused(self) -> bool:
        """Whether the run is held before its next snapshot."""
        return self._snapshots.is_paused

    @property
    def progress(self) -> float:
        """How much of the input has been read, 0 to 1."""
        return self._snapshots.progress

    def pause(self) -> None:
        """Hold the run before its next snapshot. One that is being computed still comes."""
        self._snapshots.pause()

    def resume(self) -> None:
        """Let a run that was paused go on."""
        self._snapshots.resume()

    def stop(self) -> None:
        """End the run. No call begins after this; one that has begun goes on, and `wait` waits for it."""
        with self._beginning:
            self._is_stopped = True
        self._snapshots.stop()

    def finish(self) -> Snapshot | None:
        """Leave out what comes before the last snapshot; wait until the callback has had that one, and return it.
        Inside of the callback this waits for nothing."""
        self._snapshots.skip()
        if self._is_mine:
            return self.last
        self.wait()
        return self._snapshots.finish()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run is over, at most `timeout` seconds; whether it is. An error of the query or of the
        callback is raised here. Ctrl-C ends the run."""
        if self._is_mine:
            raise CatalogError("a callback cannot wait for its own run", hint="return from it")
        try:
            if timeout is not None:
                self._thread.join(max(0.0, timeout))
            while timeout is None and self._thread.is_alive():
                self._thread.join(LOOK_SECONDS)
        except KeyboardInterrupt:
            self.stop()
            raise
        if self._thread.is_alive():
            return False
        if self.error is not None:
            raise self.error
        return True

    @property
    def _is_mine(self) -> bool:
        return threading.current_thread() is self._thread

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None:
            self.wait()

    def __repr__(self) -> str:
        state = "over" if self.is_over else "paused" if self.is_paused else "running"
        return f"<Watch: {percent(self.progress)} of the input, {state}>"


def _kept(error: BaseException) -> BaseException:
    """An error that may be kept. The traceback of a query refers to all that the query held; that of a callback begins
    with the thread's own frame, which refers to the error."""
    if isinstance(error, TsqlError):
        error.__context__ = None
        return error.with_traceback(None)
    trace = error.__traceback__
    return error.with_traceback(None if trace is None else trace.tb_next)
