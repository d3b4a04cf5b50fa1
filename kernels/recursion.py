"""Recursion that is deeper than Python allows by itself: of a parser, of expressions, of plans with many steps in a row."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_recursion_lock = threading.Lock()
_recursion_users = 0
_recursion_before = 0


@contextmanager
def deep_recursion(frames: int = 20_000) -> Iterator[None]:
    """Allow the recursion of the parser, or of a plan that is many steps deep. Python frames take no C stack, so this limit is safe; it is shared by threads and is
    put back when the last user leaves."""
    global _recursion_users, _recursion_before
    with _recursion_lock:
        if _recursion_users == 0:
            _recursion_before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_recursion_before, frames))
        _recursion_users += 1
    try:
        yield
    finally:
        with _recursion_lock:
            _recursion_users -= 1
            if _recursion_users == 0:
                try:
                    sys.setrecursionlimit(_recursion_before)
                except RecursionError:
                    # The caller is itself deeper than the old limit: leave the higher one.
                    pass
