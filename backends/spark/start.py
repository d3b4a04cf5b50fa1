"""Starts a Spark session with settings for short queries over Arrow data, if the user does not bring one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tsql.backends.spark.failures import SPARK_ERRORS, telling
from tsql.backends.spark.transport.reach import check_master
from tsql.backends.spark.travel.check import is_this_python
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
    "spark.python.unix.domain.socket.enabled": "true",
}
"""For masters on this machine: nothing listens on a network, the JVMs start fast and leave the cores to the kernels,
and executors have the packages of this process."""

WAREHOUSE = "spark-warehouse"
"""The folder of Spark's tables, unless a setting names another one."""

JAVA_HINT = "install a JRE (Debian, Ubuntu: apt-get install default-jre-headless), or set JAVA_HOME"

LOGGING = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""


def start(master: str, conf: Mapping[str, Any] | None = None) -> tuple[Any, bool]:
    """A session on a master, and whether it was created here (and must be stopped here). `conf` are settings of Spark,
    before our own; a session that runs has its settings already."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    if master.startswith("sc://"):
        check_master(master)
        return _connected(master, conf or {}), True
    active = _running()
    if active is not None and conf:
        raise CatalogError(
            "conf is for a Spark session that tsql starts, and this one runs already",
            hint="set it when the session is built, or with session.conf.set(name, value)",
        )
    if active is not None:
        return active, False
    check_master(master)
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise CatalogError("the Spark backend needs Java 17 or later, and there is none", hint=JAVA_HINT)
    # Tasks must find the same packages as the driver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = dict(SETTINGS)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= LOCAL
        if is_this_python(os.environ["PYSPARK_PYTHON"]):
            settings["spark.python.daemon.module"] = "tsql.backends.spark.daemon"
    with tempfile.TemporaryDirectory(prefix="tsql-spark-") as folder:
        # The JVM reads its logging settings once, when it starts.
        configuration, log = Path(folder) / "log4j2.properties", Path(folder) / "log"
        configuration.write_text(LOGGING, encoding="utf-8")
        options = f"-Dlog4j2.configurationFile={configuration}"
        settings["spark.driver.extraJavaOptions"] = f"{options} {SMALL_JVM}" if master.startswith("local") else options
        builder = SparkSession.builder.master(master)
        for name, value in {**settings, **as_settings(conf or {})}.items():
            builder = builder.config(name, value)
        try:
            with _stderr_to(log), _sigint_as_it_was():
                return builder.getOrCreate(), True
        except (*SPARK_ERRORS, OSError, RuntimeError) as error:
            raise _not_started(master, str(error), log) from error


def _running() -> Any:
    """The session of this process; None if there is none. Spark's active session is one of the calling thread, and a
    builder would give and change the one of another thread."""
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return None
    active = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if active is None or active.sparkContext is not context:
        return SparkSession(context)
    return active


def stop(session: Any) -> None:
    """Stop a session that was started here. Spark makes its folder of tables in the working directory at the first name
    that it looks up: an empty one goes."""
    tables = None
    if hasattr(session, "_jsparkSession"):
        with suppress(*SPARK_ERRORS):
            tables = Path(url2pathname(urlsplit(session.conf.get("spark.sql.warehouse.dir")).path))
    session.stop()
    if tables == Path.cwd() / WAREHOUSE:
        with suppress(OSError):
            tables.rmdir()


def _connected(master: str, conf: Mapping[str, Any]) -> Any:
    """A session of a Spark Connect server."""
    try:
        from pyspark.sql.connect.session import SparkSession as ConnectSession
    except ImportError as error:
        raise CatalogError(
            f"Spark Connect needs more packages: {str(error).splitlines()[0]}", hint="pip install 'tsql[connect]'"
        ) from error
    builder = ConnectSession.builder.remote(master)
    for name, value in as_settings(conf).items():
        builder = builder.config(name, value)
    with telling():
        return builder.create()


def as_settings(conf: Mapping[str, Any]) -> dict[str, str]:
    """Settings as Spark writes their values."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in conf.items()}


def _not_started(master: str, report: str, log: Path) -> CatalogError:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    if any("UnsupportedClassVersionError" in line or "Unrecognized option: --add-" in line for line in lines):
        return CatalogError(f"the Spark backend needs Java 17 or later, and this is {_java_version()}", hint=JAVA_HINT)
    return CatalogError(f"Spark did not start on {master}: {_reason(report, lines)}")


def _java_version() -> str:
    """The version that `java` tells, for a message."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=10, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return "an older one"
    number = re.search(r'version "([^"]+)"', told)
    return f"Java {number.group(1)}" if number else "an older one"


@contextmanager
def _sigint_as_it_was() -> Iterator[None]:
    """PySpark makes Ctrl-C cancel all jobs of the session, wherever the main thread is, also inside of a call to the
    JVM. In a session of ours it ends the query that runs (`tsql/interrupt.py`)."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        # None: it was not set by Python, which cannot set it again.
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


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


def _reason(report: str, lines: list[str]) -> str:
    """The line that says why the JVM did not start: the first log line with an error, or else the first line of
    PySpark's report."""
    named = [
        line.strip()
        for line in lines
        if ("Exception" in line or "Error" in line) and not line.strip().startswith("at ")
    ]
    return named[0] if named else report.strip().split("\n")[0]
