"""Recursion that is deeper than Python allows by itself: of a parser, of expressions, of plans with many steps in a
row."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tsql.kernels.process import forks

_recursion_lock = forks.lock()
_recursion_users = 0
_recursion_before = 0
_own = threading.local()
"""How often this thread is a user: in the child of a fork nobody else is."""


@contextmanager
def deep_recursion(frames: int = 20_000) -> Iterator[None]:
    """Allow the recursion of the parser, of the planner and of what runs deep plans. Python frames take no C stack, so
    this limit is safe; it is shared by threads and is put back when the last user leaves."""
    global _recursion_users, _recursion_before
    with _recursion_lock:
        if _recursion_users == 0:
            _recursion_before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_recursion_before, frames))
        _recursion_users += 1
        _own.times = getattr(_own, "times", 0) + 1
    try:
        yield
    finally:
        with _recursion_lock:
            _recursion_users -= 1
            _own.times -= 1
            if _recursion_users == 0:
                _restore_recursion()


def _restore_recursion() -> None:
    try:
        sys.setrecursionlimit(_recursion_before)
    except RecursionError:
        # The caller is itself deeper than the old limit: leave the higher one.
        pass


def _in_child() -> None:
    global _recursion_users
    before, _recursion_users = _recursion_users, getattr(_own, "times", 0)
    if before and not _recursion_users:
        _restore_recursion()


forks.in_child(_in_child)
