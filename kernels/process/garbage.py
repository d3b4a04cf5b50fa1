"""`paused()`: no search for garbage while a query is analyzed, planned and emitted.

These make tens of thousands of small objects that refer to each other without cycles, and go by themselves. They are
also what makes Python's collector look through all objects of the process, which takes longer than most queries take to
compile."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tsql.kernels.process import forks

_lock = forks.lock()
_own = threading.local()
"""How often this thread is inside: in the child of a fork nobody else is."""
_inside = 0
_was_enabled = False


@contextmanager
def paused() -> Iterator[None]:
    """Any number of threads may be inside, each any number of times; who leaves last has the collector as who came
    first."""
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
