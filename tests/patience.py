"""How long tests wait for an event: far longer than it takes on a busy machine, far shorter than the work it
interrupts.

No test asserts how fast something is; benchmarks measure that. A test that cancels hours of work shows that the
cancellation ended it, whatever else the machine is doing."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether a condition came true in time. Use it where there is no event to wait for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
