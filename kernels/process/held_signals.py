"""`held_signals`: a block that Ctrl-C and other Python signal handlers cannot interrupt; they run after it.

A commit is a few steps on disk and in memory that belong together. Python runs signal handlers between any two
instructions of the main thread, and a handler may raise, as that of Ctrl-C does.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from _signal import getsignal  # that of `signal` makes an enum of each answer, and takes 60 times as long
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_CATCHABLE = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Hold back handlers written in Python; only the main thread has any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[Callable[[int, FrameType | None], Any], int, FrameType | None]] = []
    replaced: list[tuple[int, Any]] = []
    try:
        for number in _CATCHABLE:
            handler = getsignal(number)
            if callable(handler):
                replaced.append((number, handler))
                _hold(number, handler, came)
        yield
    finally:
        _restore(replaced)
        for held, came_as, frame in came:
            held(came_as, frame)


def _restore(replaced: list[tuple[int, Any]]) -> None:
    """Restore the handlers. A restored one may raise at once; the others are restored anyway."""
    try:
        while replaced:
            signal.signal(*replaced[-1])
            replaced.pop()
    finally:
        if replaced:
            _restore(replaced)


def _hold(number: int, handler: Callable[[int, FrameType | None], Any], came: list[Any]) -> None:
    signal.signal(number, lambda number, frame: came.append((handler, number, frame)))
