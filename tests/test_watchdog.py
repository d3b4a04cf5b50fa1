"""A test that hangs ends its process, with the place where it hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.watchdog import Watchdog

ROOT = Path(__file__).parent.parent

HANGS = """
import time
from tests.watchdog import Watchdog
watchdog = Watchdog(2, limit=0.5)
def hanging_test():
    watchdog.pytest_runtest_logstart()
    time.sleep(50)
hanging_test()
"""


def test_a_hanging_test_ends_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("Timeout (0:00:00.500000)!") and "in hanging_test" in done.stderr


def test_the_watch_is_set_anew_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first test of each thirty seconds; the end of all ends the watch."""
    starts = iter((100.0, 101.0, 129.9, 130.0, 135.0, 500.0))
    done: list[object] = []
    fake = SimpleNamespace(
        monotonic=lambda: done.append(at := next(starts)) or at,
        dump_traceback_later=lambda limit, file, exit: done.append((limit, exit)),
        cancel_dump_traceback_later=lambda: done.append("cancelled"),
    )
    monkeypatch.setattr("tests.watchdog.time", fake)
    monkeypatch.setattr("tests.watchdog.faulthandler", fake)
    watchdog = Watchdog(2, limit=600.0, each=30.0)
    for _ in range(6):
        watchdog.pytest_runtest_logstart()
    watchdog.pytest_unconfigure()
    anew = (600.0, True)
    assert done == [100.0, anew, 101.0, 129.9, 130.0, anew, 135.0, 500.0, anew, "cancelled"]
