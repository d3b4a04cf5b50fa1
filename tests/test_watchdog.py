"""A test that hangs ends its process, with the place where it hangs; tests that do not go on undisturbed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

HANGS = """
import time
from tests.watchdog import Watchdog
watchdog = Watchdog(2, limit=0.5, each={each})
def hanging_test():
    watchdog.pytest_runtest_logstart()
    time.sleep({seconds})
for _ in range({tests}):
    hanging_test()
watchdog.pytest_unconfigure()
"""


def run(seconds: float, tests: int, each: float) -> subprocess.CompletedProcess[str]:
    text = HANGS.format(seconds=seconds, tests=tests, each=each)
    return subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_hanging_test_ends_the_process() -> None:
    done = run(seconds=50, tests=1, each=0.1)
    assert done.returncode == 1
    assert done.stderr.startswith("Timeout (0:00:00.500000)!") and "in hanging_test" in done.stderr


def test_each_test_has_its_time() -> None:
    done = run(seconds=0.2, tests=5, each=0.1)
    assert (done.returncode, done.stderr) == (0, "")
