"""A standalone cluster of the installed PySpark: a master and two workers, each on an address of its own.

To Spark the workers are two hosts, so it runs speculative copies of tasks, which it never does on the host of the first
attempt. (A `local-cluster` is one host.)"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.patience import wait_until
from tests.spark.server import answers, free_port

HOSTS = ("127.0.0.2", "127.0.0.3")
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.extraJavaOptions": SMALL_JVM,
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
}
"""What a driver of this cluster needs, and what lets executors start fast: two of them, with a core each. A second
driver gets as many."""


@contextmanager
def standalone_cluster(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of the master. `environment` is what executors get besides that of this process."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    given = {**os.environ, **(environment or {}), "SPARK_DAEMON_MEMORY": "256m"}
    given |= {"SPARK_DAEMON_JAVA_OPTS": SMALL_JVM, "SPARK_LAUNCHER_OPTS": SMALL_JVM}
    with ExitStack() as running:
        name = "org.apache.spark.deploy.master.Master"
        log = running.enter_context(_daemon(folder, given, name, "--host", "127.0.0.1", "--port", str(port)))
        assert wait_until(lambda: answers(port)), log.read_text()
        for host in HOSTS:
            arguments = ("--host", host, "--cores", "2", "--memory", "2g", "--work-dir", str(folder / host), master)
            running.enter_context(_daemon(folder, given, "org.apache.spark.deploy.worker.Worker", *arguments))
        assert wait_until(lambda: log.read_text().count("Registering worker") == len(HOSTS)), log.read_text()
        yield master


@contextmanager
def _daemon(folder: Path, environment: Mapping[str, str], name: str, *arguments: str) -> Iterator[Path]:
    """A daemon of Spark, with its log."""
    home = Path(pyspark.__file__).parent
    log = folder / f"{name.rpartition('.')[2]}-{'-'.join(arguments[1:2])}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), name, *arguments, "--webui-port", "0"],
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**environment, "SPARK_HOME": str(home)},
            start_new_session=True,
        )
    try:
        yield log
    finally:
        # A worker's executors are in its group.
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
