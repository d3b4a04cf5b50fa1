"""What a SparkContext tells about its cluster: how many tasks run at a time, and on how many executors."""

from __future__ import annotations

from typing import Any

from tsql.kernels.expr.errors import ExecutionError


def slots(cores: int, cpus: str | None) -> int:
    """The number of tasks that so many cores run at a time, if each takes `spark.task.cpus` of them."""
    each = int(cpus) if cpus is not None and cpus.isdigit() else 1
    return max(1, cores // max(1, each))


def alive(context: Any) -> Any:
    """The context, if its session was not stopped."""
    if context._jsc is None:
        raise ExecutionError("the Spark session was stopped", hint="start a new session")
    return context


def slots_of(context: Any) -> int:
    """The number of tasks that run at a time."""
    alive(context)
    return slots(context.defaultParallelism, context.getConf().get("spark.task.cpus"))


def executors_of(context: Any) -> int:
    """The number of executors. The driver is listed too; in local mode it is the only one."""
    alive(context)
    return max(1, context._jsc.sc().getExecutorMemoryStatus().size() - 1)
