"""A Spark Connect server of the installed PySpark, in a process of its own on 127.0.0.1."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.patience import wait_until

SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


@contextmanager
def connect_server(folder: Path, python: str = sys.executable, **settings: str) -> Iterator[str]:
    """The address of a server whose tasks run in a Python; names of settings have _ for the dot."""
    home, port = Path(pyspark.__file__).parent, free_port()
    conf = SETTINGS | {"spark.connect.grpc.binding.port": str(port), "spark.sql.warehouse.dir": str(folder / "tables")}
    conf |= {name.replace("_", "."): value for name, value in settings.items()}
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "spark-internal"],
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    try:
        assert wait_until(lambda: answers(port) or server.poll() is not None) and server.poll() is None, (
            folder / "server.log"
        ).read_text()
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
