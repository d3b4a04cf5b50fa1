"""Ends a process in which a test hangs, and shows where each of its threads is.

One thread watches many tests: to start and end one for each of ten thousand tests takes a hundredth of their time. It
needs no interpreter, so that it also finds a test that hangs in C with the interpreter's lock."""

from __future__ import annotations

import faulthandler
import os
import time

LIMIT = 600.0
"""A test that takes so many seconds hangs."""

EACH = 30.0
"""The watch is set anew by the first test after so many seconds; a test may be ended this much too early."""


class Watchdog:
    """A plugin of pytest."""

    def __init__(self, stderr: int, limit: float = LIMIT, each: float = EACH):
        # Tests run with another file in the place of stderr.
        self.stderr, self.limit, self.each = os.dup(stderr), limit, each
        self.due = 0.0

    def pytest_runtest_logstart(self) -> None:
        now = time.monotonic()
        if now >= self.due:
            faulthandler.dump_traceback_later(self.limit, file=self.stderr, exit=True)
            self.due = now + self.each

    def pytest_unconfigure(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        os.close(self.stderr)
