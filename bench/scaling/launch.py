"""What a task costs the driver of Spark: processor time of its JVM over many empty tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def measure(master: str = "local-cluster[2,1,2048]", tasks: int = 5000) -> dict[str, float]:
    """Processor time of the driver per task, and elapsed time per task."""
    from bench.cluster.session import start, stop

    session = start(master)
    try:
        context = session.sparkContext
        pid = int(context._jvm.java.lang.ProcessHandle.current().pid())
        many = _least(pid, lambda: _count(context, tasks))
        few = _least(pid, lambda: _count(context, 2))
        return {"driver, us per task": (many[0] - few[0]) / tasks * 1e6, "wall, us per task": many[1] / tasks * 1e6}
    finally:
        stop(session)


def _count(context: Any, tasks: int) -> None:
    """A job of so many tasks in JVMs: Python workers would keep the cores busy."""
    context._jsc.parallelize(context._jvm.java.util.ArrayList(), tasks).count()


def _least(pid: int, run: Callable[[], None]) -> tuple[float, float]:
    """(processor seconds of a process, elapsed seconds) of the best of three runs."""
    found = []
    for _ in range(3):
        before, begun = _cpu_s(pid), time.perf_counter()
        run()
        found.append((_cpu_s(pid) - before, time.perf_counter() - begun))
    return min(found)


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S
