"""Recursion deeper than Python's default limit: of a parser, of expressions, of plans with many steps in a row."""

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
"""How many contexts this thread has entered; in the child of a fork no other thread is inside."""


@contextmanager
def deep_recursion(frames: int = 20_000) -> Iterator[None]:
    """Allow the deep recursion of the parser, the planner and the execution of deep plans. Python frames take no C
    stack, so this limit is safe. Threads share it, and the last user restores it."""
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
