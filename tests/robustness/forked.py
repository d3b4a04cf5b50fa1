"""Runs something in a child of fork(), with a limit: a child that hangs shows where, and fails the test."""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable

from tests.patience import wait_until

SHOWN_SECONDS = 0.5
"""A child that hangs has this long to show where."""


def in_child(work: Callable[[], None]) -> None:
    """Fork, and have the child do the work; it must end, and without an error."""
    with tempfile.TemporaryFile("w+") as said, warnings.catch_warnings():
        # Python 3.12 warns of forks in programs with threads, which is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if not child:
            failed = 1
            try:
                faulthandler.register(signal.SIGUSR1, file=said)
                work()
                failed = 0
            except BaseException:
                traceback.print_exc(file=said)
                said.flush()
            finally:
                os._exit(failed)
        ended: list[int] = []

        def look() -> bool:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                ended.append(status)
            return bool(pid)

        if not wait_until(look):
            os.kill(child, signal.SIGUSR1)
            time.sleep(SHOWN_SECONDS)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        said.seek(0)
        assert ended == [0], f"the child of the fork failed, or did not end:\n{said.read()}"
