"""What Spark reports when a job fails, as one message. The reports are recorded ones (Spark 4.3), shortened."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException

import tsql
from tests.spark.cluster import InProcess
from tests.spark.queries import ROWS
from tsql.backends.spark import task
from tsql.backends.spark.failures import TaskFailed, asking, translated
from tsql.kernels.expr.errors import ExecutionError, TsqlError

ABORTED = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.runJob.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: "
)
LOST = "Task 1 in stage 23.0 failed 4 times, most recent failure: Lost task 1.3 in stage 23.0 (TID 63) "
STACK = (
    "\n\tat org.apache.spark.scheduler.Task.run(Task.scala:147)\n\nDriver stacktrace:\n\tat java.base/java.lang.Thread"
)
TRACEBACK = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 4222, in process
    serializer.dump_stream(out_iter, outfile)
  File "backends/spark/failures.py", line 36, in placed
    yield from rows
  File "backends/spark/task.py", line 98, in run
    raise RuntimeError("a disk: it was\\npulled out")
RuntimeError: a disk: it was
pulled out

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "worker.py", line 4327, in invoke_udf
    run_process()
tsql.backends.spark.failures.TaskFailed: stage 2 (step groups, shard 3): RuntimeError: a disk: it was pulled out
"""
REPORTS = {
    "a bug in a task": (TRACEBACK, "in stage 2 (step groups, shard 3): RuntimeError: a disk: it was pulled out"),
    "no memory": (
        "Traceback (most recent call last):\ntsql.backends.spark.failures.TaskFailed: "
        "stage 2 (step groups, shard 3): MemoryError\n",
        "in stage 2 (step groups, shard 3): MemoryError",
    ),
    "a killed worker": (
        f"{ABORTED}{LOST}(127.0.0.1 executor 2): org.apache.spark.SparkException: Python worker exited unexpectedly "
        f"(crashed). Consider setting 'spark.python.worker.faulthandler.enabled' ..{STACK}",
        "in stage 2 (step groups, shard 1): the Python worker was killed 4 times (out of memory?)",
    ),
    "a lost executor": (
        f"{ABORTED}{LOST}(127.0.0.1 executor 2): ExecutorLostFailure (executor 2 exited caused by one of the running "
        f"tasks) Reason: Command exited with code 137\nDriver stacktrace:{STACK}",
        "in stage 2 (step groups, shard 1): the executor was lost 4 times (out of memory?): "
        "Command exited with code 137",
    ),
    "an executor without heap": (
        f"{ABORTED}{LOST}(127.0.0.1 executor 2): ExecutorLostFailure (executor 2 exited caused by one of the running "
        f"tasks) Reason: Command exited with code 52\nDriver stacktrace:{STACK}",
        "in stage 2 (step groups, shard 1): the JVM of the executor was out of memory 4 times",
    ),
    "lost rows": (
        f"{ABORTED}ResultStage 23 (runJob at PythonRDD.scala:218) has failed the maximum allowable number of times: 8. "
        "Most recent failure reason: org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location "
        f"for shuffle 13 partition 1{STACK}",
        "in stage 2 (step groups): rows of an earlier stage were lost 8 times with their executor (out of memory?)",
    ),
    "a JVM without memory": (
        f"{ABORTED}{LOST}(h executor 2): java.lang.OutOfMemoryError: Java heap space{STACK}",
        "in stage 2 (step groups, shard 1): a JVM is out of memory: Java heap space",
    ),
    "a large result": (
        f"{ABORTED}Total size of serialized results of 12 tasks (1088.6 MiB) is bigger than "
        f"spark.driver.maxResultSize (1024.0 MiB){STACK}",
        ": Total size of serialized results of 12 tasks (1088.6 MiB) is bigger than "
        "spark.driver.maxResultSize (1024.0 MiB)",
    ),
    "a worker without tsql": (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "worker.py", line 60, in read_command\n    command = serializer._read_with_length(file)\n'
        "ModuleNotFoundError: No module named 'tsql'\n",
        ": ModuleNotFoundError: No module named 'tsql'",
    ),
    "a daemon that does not start": (
        f"{ABORTED}{LOST}(h executor 0): org.apache.spark.SparkException: \nError from python worker:\n"
        '  Traceback (most recent call last):\n    File "<frozen runpy>", line 198, in _run_module_as_main\n'
        f"  MemoryError\nPYTHONPATH was:\n  x{STACK}",
        "in stage 2 (step groups, shard 1): MemoryError",
    ),
    "a cancelled job": (
        "An error occurred while calling o814.runJob.\n: org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 25 "
        f"cancelled part of cancelled job group etl SQLSTATE: XXKDA{STACK}",
        ": it was cancelled: part of cancelled job group etl",
    ),
    "another failure": (
        f"{ABORTED}{LOST}(h executor 2): java.io.IOException: No space left on device{STACK}",
        "in stage 2 (step groups, shard 1): IOException: No space left on device",
    ),
}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("kind", [PySparkException, Py4JError])
def test_reports(name: str, kind: type[Exception]) -> None:
    report, told = REPORTS[name]
    error = kind(report)
    found = translated(error, lambda stage: "stage 2 (step groups)" if stage == 23 else None)
    assert isinstance(found, ExecutionError) and found.__cause__ is error
    assert found.message == f"the Spark job failed{'' if told.startswith(':') else ' '}{told}"
    assert found.hint and "\n" not in found.message


HINTS = {
    "an executor without heap": "raise spark.executor.memory",
    "a large result": "raise spark.driver.maxResultSize, or have the tasks write the rows: COPY",
    "a killed worker": "give the executors more memory (spark.executor.memoryOverhead",
}


@pytest.mark.parametrize("name", HINTS)
def test_what_to_do(name: str) -> None:
    found = translated(Py4JError(REPORTS[name][0]))
    assert isinstance(found, ExecutionError) and found.hint and found.hint.startswith(HINTS[name])


def test_a_stage_without_a_name() -> None:
    found = translated(Py4JError(REPORTS["a killed worker"][0]))
    assert str(found).startswith("the Spark job failed in Spark's stage 23, shard 1: the Python worker was killed")


@pytest.mark.parametrize("error", [Py4JNetworkError("x"), ConnectionRefusedError(111, "refused"), EOFError()])
def test_a_lost_connection(error: Exception) -> None:
    assert translated(error).message == "the connection to Spark is lost: the JVM of its driver has ended"


def test_a_stopped_session() -> None:
    report = f"{ABORTED}x\n: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
    assert translated(Py4JError(report)).message == "the Spark session was stopped"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AnalysisException("[NOT_THERE] no such\ntable"), "Spark refuses a.b: [NOT_THERE] no such"),
        (
            Py4JError("An error occurred while calling o1.load.\n: java.io.IOException: no disk\n\tat x"),
            "Spark refuses a.b: no disk",
        ),
        (Py4JNetworkError("Answer from Java side is empty"), "the connection to Spark is lost: the JVM of its driver"),
        (ConnectionRefusedError(111, "refused"), "the connection to Spark is lost: the JVM of its driver has ended"),
    ],
)
def test_what_a_catalog_says(error: Exception, told: str) -> None:
    with pytest.raises(TsqlError) as caught, asking("Spark refuses a.b"):
        raise error
    assert caught.value.message.startswith(told) and caught.value.__cause__ is error
    with pytest.raises(KeyError), asking("Spark refuses a.b"):
        raise KeyError


def test_other_errors_stay() -> None:
    for error in (KeyError("x"), ExecutionError("y"), KeyboardInterrupt()):
        assert translated(error) is error


def test_a_bug_in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no error of the query names its step and its shard; the error itself is the cause."""

    plain = task.Task._rows

    def some(self: Any, shard: int, execution: Any) -> Any:
        if (self.part.stage, shard) == (2, 1):
            raise MemoryError
        return plain(self, shard, execution)

    monkeypatch.setattr(task.Task, "_rows", some)
    with tsql.connect(spark=InProcess(3)) as db:
        db.register("t", ROWS)
        with pytest.raises(ExecutionError) as caught:
            db.sql("SELECT k, median(v) FROM t GROUP BY k").fetchall()
    assert caught.value.message == "the Spark job failed in stage 2 (step groups, shard 1): MemoryError"
    assert isinstance(caught.value.__cause__, TaskFailed) and isinstance(caught.value.__cause__.__cause__, MemoryError)


def test_an_error_of_the_query_in_a_dataframe() -> None:
    """A task raises it where no row can carry it: its class and its message come back, without the traceback."""
    text = (
        "An exception was thrown from the Python worker: Traceback (most recent call last):\n"
        '  File "task.py", line 119, in run_batches\n    raise error\n'
        "tsql.kernels.expr.errors.ExecutionError: Could not convert string 'x' to INT32\n SQLSTATE: 38000"
    )
    found = translated(PySparkException(text))
    assert type(found) is ExecutionError and found.message == "Could not convert string 'x' to INT32"
    other = translated(PySparkException(text.replace("ExecutionError", "os")))
    assert type(other) is ExecutionError and "the Spark job failed" in other.message
