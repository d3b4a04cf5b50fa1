"""Runs Spark actions so that they can be cancelled, and turns Spark's failures into tsql errors."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tsql.backends import Run
from tsql.kernels.expr.errors import ExecutionError, TsqlError

WAIT_SECONDS = 0.02


class Jobs:
    """The actions of one run. They run in separate threads, so that the caller sees a cancellation at once."""

    def __init__(self, spark: SparkSession, run: Run):
        self.spark, self.run = spark, run
        self.group = f"tsql-{uuid.uuid4().hex}"

    def collect(self, frame: DataFrame) -> pa.Table:
        """All rows of a DataFrame."""
        done = threading.Event()
        outcome: dict[str, Any] = {}

        def work() -> None:
            try:
                # Without the interrupt, a task would continue in its Python worker and keep its core busy.
                self.spark.sparkContext.setJobGroup(self.group, "tsql", interruptOnCancel=True)
                outcome["table"] = frame.toArrow()
            except BaseException as error:  # noqa: B036 - handed to the caller's thread, which raises it
                outcome["error"] = error
            finally:
                done.set()

        self.run.check()
        threading.Thread(target=work, name="tsql-spark", daemon=True).start()
        try:
            while not done.wait(WAIT_SECONDS):
                self.run.check()
        except BaseException:
            self.cancel()
            raise
        if "error" in outcome:
            self.run.check()
            raise translated(outcome["error"])
        return outcome["table"]

    def cancel(self) -> None:
        """Cancel the jobs of this run. Spark stops the tasks."""
        threading.Thread(
            target=self.spark.sparkContext.cancelJobGroup, args=(self.group,), name="tsql-spark-cancel", daemon=True
        ).start()


def translated(error: BaseException) -> BaseException:
    """A Spark failure as one message. The full report is kept as its cause."""
    if isinstance(error, TsqlError) or not isinstance(error, PySparkException | Py4JError):
        return error
    failure = ExecutionError(
        f"the Spark job failed: {_reason(str(error))}", hint="the driver's log and the executors' logs have the details"
    )
    failure.__cause__ = error
    return failure


def _reason(text: str) -> str:
    """The line of a report that says what happened: the last line of a Python traceback, or else the first line."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    traceback = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if traceback:
        for line in lines[traceback[-1] + 1 :]:
            head = line.split(":", 1)[0]
            if (
                head.replace(".", "").replace("_", "").isalnum()
                and not line.startswith(("File ", "at "))
                and ":" in line
            ):
                return line
    return lines[0] if lines else "no reason given"
