"""Starts a Spark session with settings for short queries over Arrow data, if the user does not bring one."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tsql.kernels.expr.errors import CatalogError

SETTINGS = {
    "spark.app.name": "tsql",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Stages are few and their sizes are chosen by the plan: adaptive execution would only add a job per stage.
    "spark.sql.adaptive.enabled": "false",
    # Spark's own operators only pass blobs on here: compiling code for that costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
}
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": SMALL_JVM,
    "spark.python.daemon.module": "tsql.backends.spark.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
}
"""For masters on this machine: nothing listens on a network, the JVMs start fast and leave the cores to the kernels,
and executors have the packages of this process."""

LOGGING = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""


def start(master: str) -> tuple[SparkSession, bool]:
    """A session on a master, and whether it was created here (and must be stopped here)."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise CatalogError(
            "the Spark backend needs Java 17 or later, and there is none",
            hint="install a JRE (Debian, Ubuntu: apt-get install default-jre-headless), or set JAVA_HOME",
        )
    # Tasks must find the same packages as the driver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = dict(SETTINGS)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= LOCAL
    with tempfile.TemporaryDirectory(prefix="tsql-spark-") as folder:
        # The JVM reads its logging settings once, when it starts.
        configuration, log = Path(folder) / "log4j2.properties", Path(folder) / "log"
        configuration.write_text(LOGGING, encoding="utf-8")
        options = f"-Dlog4j2.configurationFile={configuration}"
        settings["spark.driver.extraJavaOptions"] = f"{options} {SMALL_JVM}" if master.startswith("local") else options
        builder = SparkSession.builder.master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            with _stderr_to(log):
                return builder.getOrCreate(), True
        except (PySparkException, Py4JError, OSError, RuntimeError) as error:
            raise CatalogError(f"Spark did not start on {master}: {_reason(str(error), log)}") from error


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Redirect the stderr of processes that start in the meantime to a file: the JVM prints several lines at start."""
    saved = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _reason(report: str, log: Path) -> str:
    """The line that says why the JVM did not start: the first log line with an error, or else the first line of
    PySpark's report."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    named = [
        line.strip()
        for line in lines
        if ("Exception" in line or "Error" in line) and not line.strip().startswith("at ")
    ]
    return named[0] if named else report.strip().split("\n")[0]
