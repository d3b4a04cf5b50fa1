"""`paused()`: no garbage collection while a query is analyzed, planned and emitted.

These stages make tens of thousands of small objects without reference cycles, which are freed without the collector.
But they also trigger it: it visits all objects of the process, which takes longer than most queries take to compile."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tsql.kernels.process import forks

_lock = forks.lock()
_own = threading.local()
"""How many contexts this thread has entered; in the child of a fork no other thread is inside."""
_inside = 0
_was_enabled = False


@contextmanager
def paused() -> Iterator[None]:
    """Any number of threads may be inside, each any number of times. The last to leave restores the collector as the
    first found it."""
    global _inside, _was_enabled
    with _lock:
        if _inside == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _inside += 1
        _own.times = getattr(_own, "times", 0) + 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            _own.times -= 1
            if _inside == 0 and _was_enabled:
                gc.enable()


def _in_child() -> None:
    global _inside
    before, _inside = _inside, getattr(_own, "times", 0)
    if before and not _inside and _was_enabled:
        gc.enable()


forks.in_child(_in_child)
