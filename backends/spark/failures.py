"""Spark's failures as tsql errors: one message with the reason, not Java's stack."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tsql.kernels.expr.errors import ExecutionError, TsqlError


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
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling") and lines[1].startswith(": "):
        return lines[1].partition(": ")[2].partition(": ")[2] or lines[1]
    return lines[0] if lines else "no reason given"
