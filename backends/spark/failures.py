"""Spark's failures as tsql errors: one message with the step, the shard and the reason, not Java's stack.

Spark reports a failure as text: a Python traceback, `Job aborted due to stage failure: Task 1 in stage 23.0 failed 4
times, ..`, or nothing but a lost connection. `translated` reads such a report; tests/spark/test_failures.py has
recorded ones. Errors of queries never come here: tasks send them as rows (`wire.encode_error`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from tsql.kernels.expr import errors
from tsql.kernels.expr.errors import CatalogError, ExecutionError, TsqlError

NO_JVM = ("JVM_ATTRIBUTE_NOT_SUPPORTED", "NOT_IMPLEMENTED")
"""What PySpark says if something is not there with Spark Connect."""

LOGS = "the driver's log and the executors' logs have the details"
HEAP = "raise spark.executor.memory: what a task sends or receives at a time must fit into the heap of its executor"
RESULT = "raise spark.driver.maxResultSize, or have the tasks write the rows: COPY .. TO 'folder/'"
MEMORY = "give the executors more memory (spark.executor.memoryOverhead, spark.executor.pyspark.memory), or SET shards"


NO_HEAP = 52
"""The code with which an executor ends when its JVM has no memory left."""


class TaskFailed(RuntimeError):
    """A failure inside of a task that is no error of the query. Its text begins with the place."""


SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError, EOFError, TaskFailed)
"""What PySpark raises when a job fails, or when there is no cluster any more, and what tasks raise."""


def placed(where: str, rows: Iterator[Any]) -> Iterator[Any]:
    """The rows of a task; what goes wrong there gets the place of the task."""
    try:
        yield from rows
    except TsqlError:
        raise
    except Exception as error:
        raise TaskFailed(f"{where}: {said(error)}") from error


def said(error: BaseException) -> str:
    """An error in a line: its class, and its message if it has one."""
    return ": ".join(part for part in (type(error).__name__, " ".join(str(error).split())) if part)


def translated(error: BaseException, name_of: Callable[[int], str | None] = lambda stage: None) -> BaseException:
    """A Spark failure as one message. The full report is kept as its cause. `name_of` gives the name of a stage of
    Spark's."""
    if isinstance(error, TsqlError) or not isinstance(error, SPARK_ERRORS):
        return error
    failure = _of_query(str(error)) or _of_connect(error) or _job_failure(error, name_of)
    failure.__cause__ = error
    return failure


@contextmanager
def telling() -> Iterator[None]:
    """Spark's failures inside of it are tsql errors."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise translated(error) from error


def _of_query(text: str) -> TsqlError | None:
    """An error of the query that a task raised in a DataFrame, where there is no row for it."""
    found = re.search(r"^\s*tsql\.kernels\.expr\.errors\.(\w+): ([^\n]*)", text, re.MULTILINE)
    kind = getattr(errors, found[1], None) if found else None
    return kind(found[2]) if found and isinstance(kind, type) and issubclass(kind, TsqlError) else None


@contextmanager
def asking(what: str, kinds: tuple[type[Exception], ...] = SPARK_ERRORS) -> Iterator[None]:
    """Spark's answer no is an error of the catalog: `what` and Spark's reason. `kinds`: only these are such an answer.
    Where there is no Spark any more, that is said."""
    try:
        yield
    except kinds as error:
        if _is_gone(error):
            raise translated(error) from error
        raise CatalogError(f"{what}: {_reason_of(error)}") from error


def _reason_of(error: BaseException) -> str:
    """The first line of what Spark says, without the name of a Java exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return lines[1].lstrip(": ").partition(": ")[2] or lines[1]
    return lines[0] if lines else type(error).__name__


def _of_connect(error: BaseException) -> TsqlError | None:
    """What only Spark Connect reports; None for anything else."""
    text = str(error)
    if isinstance(error, PySparkException) and error.getCondition() in NO_JVM:
        return CatalogError(
            f"Spark Connect cannot do this: {_first(text)}",
            hint="use a session whose driver is this process: SparkSession.builder.master(..)",
        )
    if "RESOURCE_EXHAUSTED" in text or "larger than max" in text:
        return ExecutionError(
            f"a message to the Spark Connect server is too large: {_first(text)}",
            hint="raise spark.connect.grpc.maxInboundMessageSize, or read the tables of the query from files",
        )
    if "SESSION_CLOSED" in text or "SESSION_NOT_FOUND" in text or "SESSION_CHANGED" in text:
        return ExecutionError(
            "the server has closed the Spark Connect session", hint="make a new session, and connect to that"
        )
    return None


def _first(text: str) -> str:
    """The first line of a report."""
    return next((line.strip() for line in text.split("\n") if line.strip()), "no reason given")


def _job_failure(error: BaseException, name_of: Callable[[int], str | None]) -> ExecutionError:
    message, hint = _told(error, name_of)
    return ExecutionError(message, hint=hint)


def _told(error: BaseException, name_of: Callable[[int], str | None]) -> tuple[str, str]:
    text = str(error)
    if _is_gone(error):
        return "the connection to Spark is lost: the JVM of its driver has ended", "start a new session"
    if "stopped SparkContext" in text or "SparkContext was shut down" in text or "SparkContext is shut" in text:
        return "the Spark session was stopped", "start a new session"
    where, reason, hint = _parts(text, name_of)
    return f"the Spark job failed{f' in {where}' if where else ''}: {reason}", hint


def _is_gone(error: BaseException) -> bool:
    """Whether there is no JVM any more."""
    is_empty = "Answer from Java side is empty" in str(error)
    return is_empty or isinstance(error, Py4JNetworkError | ConnectionError | EOFError)


def _parts(text: str, name_of: Callable[[int], str | None]) -> tuple[str, str, str]:
    """(where, reason, hint) of a report."""
    # A task that says itself where it was.
    if found := re.search(r"TaskFailed: ([^\n]*?\)): ([^\n]*)", text):
        return found[1], found[2], MEMORY if found[2].startswith("MemoryError") else LOGS
    if found := re.match(r"(stage \d+ \([^\n]*?\)): ([^\n]*)", text):
        return found[1], found[2], MEMORY if found[2].startswith("MemoryError") else LOGS
    where = times = ""
    if found := re.search(r"Task (\d+) in stage (\d+)\.\d+ failed (\d+) times", text):
        where, times = _place(name_of(int(found[2])), int(found[2]), found[1]), found[3]
    elif found := re.search(r"Stage (\d+) \([^\n]*\) has failed the maximum allowable number of times: (\d+)", text):
        where, times = _place(name_of(int(found[1])), int(found[1]), None), found[2]
    if "Python worker exited unexpectedly" in text or "Python worker failed to connect back" in text:
        return where, f"the Python worker was killed {_times(times)}(out of memory?)", MEMORY
    if found := re.search(r"ExecutorLostFailure \(executor \S+ exited [^)]*\)(?: Reason: ([^\n]*))?", text):
        if found[1] and re.fullmatch(rf"Command exited with code {NO_HEAP}", found[1].strip()):
            return where, f"the JVM of the executor was out of memory {_times(times)}".rstrip(), HEAP
        why = f": {found[1].strip()}" if found[1] else ""
        return where, f"the executor was lost {_times(times)}(out of memory?){why}", MEMORY
    if "FetchFailed" in text:
        return where, f"rows of an earlier stage were lost {_times(times)}with their executor (out of memory?)", MEMORY
    if found := re.search(r"java\.lang\.OutOfMemoryError: ([^\n]*)", text):
        return where, f"a JVM is out of memory: {found[1]}", "raise spark.executor.memory, or spark.driver.memory"
    if reason := _last_of_traceback(text):
        missing = reason.startswith(("ModuleNotFoundError", "ImportError"))
        return where, reason, "install tsql with the same packages on every machine" if missing else LOGS
    if found := re.search(r"Job \d+ cancelled ([^\n]*?)(?: SQLSTATE: \w+)?(?:\n|$)", text):
        return where, f"it was cancelled: {found[1]}", LOGS
    if found := re.search(r"Job aborted due to stage failure: ([^\n]*)", text):
        if "spark.driver.maxResultSize" in found[1]:
            return where, found[1], RESULT
        last = re.sub(r"^Task \d+ in stage .*?: Lost task .*?\): ", "", found[1])
        return where, re.sub(r"^(?:[a-z]\w*\.)+", "", last), LOGS
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    cause = next((line for line in lines if re.match(r": (?:\w+\.)+\w+", line)), None)
    return where, re.sub(r"^: (?:[a-z]\w*\.)*", "", cause) if cause else (lines or ["no reason given"])[0], LOGS


def _place(name: str | None, stage: int, shard: str | None) -> str:
    """`name` is what the stage was called when it was built: stage 2 (step groups)."""
    found = name if name is not None and name.startswith("stage ") else f"Spark's stage {stage}"
    if shard is None:
        return found
    return f"{found[:-1]}, shard {shard})" if found.endswith(")") else f"{found}, shard {shard}"


def _times(count: str) -> str:
    return f"{count} times " if count not in ("", "1") else ""


def _last_of_traceback(text: str) -> str | None:
    """The line of the last Python traceback that names the error."""
    lines = text.split("\n")
    start = next((i for i in range(len(lines) - 1, -1, -1) if lines[i].lstrip().startswith("Traceback (most")), None)
    if start is None:
        return None
    indent = lines[start][: -len(lines[start].lstrip())]
    error = re.compile(rf"{indent}(?:\w+\.)*\w+(?::|$)")
    return next((line.strip() for line in lines[start + 1 :] if error.match(line)), None)
