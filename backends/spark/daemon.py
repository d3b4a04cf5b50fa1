"""The daemon that starts Python workers, with everything imported before the first of them is forked.

Spark starts it in each executor if `spark.python.daemon.module` names it; sessions that tsql starts on this machine do.
A worker then begins with all modules in memory, which it shares with its siblings, and with nothing for the garbage
collector to look through. In other sessions each worker imports what it needs at its first task."""

from __future__ import annotations

import gc
import importlib
import pkgutil

WARM = (
    "pyspark.worker",
    "pyspark.cloudpickle",
    "pyspark.sql.pandas.serializers",
    "tsql.backends.spark.transport.frames",
    "tsql.backends.spark.transport.rdd",
    "tsql.backends.spark.streaming.task",
)
PACKAGES = ("planner.bind", "planner.physical", "kernels", "backends.io", "backends.local")
"""What tasks import at the first use of an operator or a function."""


def warm() -> None:
    """Import everything that a task may need."""
    for name in WARM:
        importlib.import_module(name)
    for name in PACKAGES:
        package = importlib.import_module(f"tsql.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    warm()
    manager()
