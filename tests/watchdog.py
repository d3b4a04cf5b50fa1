"""Ends a process in which a test hangs, and shows where each of its threads is.

One thread watches many tests: a thread per test would take a hundredth of the suite's time. The thread needs no
interpreter, so it also finds a test that hangs in C while holding the interpreter's lock."""

from __future__ import annotations

import faulthandler
import os
import time

LIMIT = 600.0
"""A test that takes this many seconds hangs."""

EACH = 30.0
"""The watch is reset by the first test after this many seconds, so a test may be ended this much too early."""


class Watchdog:
    """A plugin of pytest."""

    def __init__(self, stderr: int, limit: float = LIMIT, each: float = EACH):
        # Tests run with another file in place of stderr.
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
