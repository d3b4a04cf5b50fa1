"""Spark's failures as tsql errors: one message with the reason, not Java's stack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tsql.kernels.expr.errors import CatalogError, ExecutionError, TsqlError

NO_JVM = ("JVM_ATTRIBUTE_NOT_SUPPORTED", "NOT_IMPLEMENTED")
"""What PySpark says if something is not there with Spark Connect."""


def translated(error: BaseException) -> BaseException:
    """A Spark failure as one message. The full report is kept as its cause."""
    if isinstance(error, TsqlError) or not isinstance(error, PySparkException | Py4JError):
        return error
    failure = _failure(error)
    failure.__cause__ = error
    return failure


@contextmanager
def telling() -> Iterator[None]:
    """Spark's failures inside of it are tsql errors."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise translated(error) from error


def _failure(error: PySparkException | Py4JError) -> TsqlError:
    text = str(error)
    if isinstance(error, PySparkException) and error.getCondition() in NO_JVM:
        return CatalogError(
            f"Spark Connect cannot do this: {_reason(text)}",
            hint="use a session whose driver is this process: SparkSession.builder.master(..)",
        )
    if "RESOURCE_EXHAUSTED" in text or "larger than max" in text:
        return ExecutionError(
            f"a message to the Spark Connect server is too large: {_reason(text)}",
            hint="raise spark.connect.grpc.maxInboundMessageSize, or read the tables of the query from files",
        )
    if "SESSION_CLOSED" in text or "SESSION_NOT_FOUND" in text or "SESSION_CHANGED" in text:
        return ExecutionError(
            "the server has closed the Spark Connect session", hint="make a new session, and connect to that"
        )
    return ExecutionError(
        f"the Spark job failed: {_reason(text)}", hint="the driver's log and the executors' logs have the details"
    )


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
