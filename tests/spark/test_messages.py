"""What is wrong with Java, PySpark, masters and arguments is said in one message, soon."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tsql
from tsql.backends.spark.start import start
from tsql.backends.spark.transport.reach import check_master
from tsql.kernels.expr.errors import CatalogError

OLD_JAVA = """#!/bin/sh
case "$*" in
*-version*) echo 'openjdk version "11.0.2" 2019-01-15' >&2 ;;
*)
    echo 'Error: LinkageError occurred while loading main class org.apache.spark.launcher.Main' >&2
    echo 'java.lang.UnsupportedClassVersionError: compiled by a more recent version of the Java Runtime' >&2
    exit 1 ;;
esac
"""


def backend_error(**arguments: Any) -> CatalogError:
    with pytest.raises(CatalogError) as caught, tsql.connect(**arguments) as db:
        _ = db.backend
    return caught.value


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no Spark session were there."""
    monkeypatch.setattr("tsql.backends.spark.start._running", lambda: None)


def in_a_process(code: str, **environment: str) -> str:
    """The message of an error in a process of its own, which has no JVM."""
    program = f"""
import tsql
try:
    with tsql.connect(backend="spark=local[1]") as db:
        {code}
        db.backend
except tsql.TsqlError as error:
    print(error.message, error.hint, sep="|")
"""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=True,
    ).stdout.strip()


def test_no_java(tmp_path: Path) -> None:
    assert in_a_process("pass", PATH=str(tmp_path)) == (
        "the Spark backend needs Java 17 or later, and there is none"
        "|install a JRE (Debian, Ubuntu: apt-get install default-jre-headless), or set JAVA_HOME"
    )


def test_old_java(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(OLD_JAVA)
    java.chmod(0o755)
    found = in_a_process("pass", PATH="/usr/bin:/bin", JAVA_HOME=str(tmp_path))
    assert found.startswith("the Spark backend needs Java 17 or later, and this is Java 11.0.2|install a JRE")


def test_no_pyspark() -> None:
    found = in_a_process("import sys; sys.modules['pyspark'] = None", PATH="/usr/bin:/bin")
    assert found.startswith("the Spark backend needs PySpark: ") and found.endswith("|pip install 'tsql[spark]'")


def test_no_packages_for_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.session", None)
    monkeypatch.setattr("tsql.backends.spark.start.check_master", lambda master: None)
    error = backend_error(backend="spark=sc://127.0.0.1:1")
    assert error.message.startswith("Spark Connect needs more packages: ")
    assert error.hint == "pip install 'tsql[connect]'"


@pytest.mark.usefixtures("no_session")
def test_no_master() -> None:
    error = backend_error(backend="spark", master="spark://127.0.0.1:1")
    assert error.message == "no Spark master is at 127.0.0.1:1: Connection refused"
    assert error.hint == "start one with sbin/start-master.sh of Spark"


def test_no_server() -> None:
    error = backend_error(backend="spark=sc://127.0.0.1:1/;user_id=me")
    assert error.message == "no Spark Connect server is at 127.0.0.1:1: Connection refused"
    assert error.hint == "start one with sbin/start-connect-server.sh of Spark"


@pytest.mark.parametrize("master", ["spark://", "spark://host:port", "sc://:15002"])
def test_addresses(master: str) -> None:
    with pytest.raises(CatalogError, match="is no address of a Spark server"):
        check_master(master)


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://host:1"])
def test_left_to_spark(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"master": "local[1]"}, "master and conf are for the Spark backend"),
        ({"conf": {"spark.x": "y"}, "backend": "interp"}, "master and conf are for the Spark backend"),
        ({"backend": "spark=local[1]", "master": "local[2]"}, "backend=spark=local[1] names a master already"),
        ({"spark": object(), "conf": {}}, "conf is for a Spark session that tsql starts, and this one runs already"),
        (
            {"spark": object(), "master": "x"},
            "master is for a Spark session that tsql starts, and this one runs already",
        ),
        ({"backend": "spark", "conf": 3}, "conf is a dict, not int"),
        ({"backend": "spark", "master": 3}, "the master of Spark is a text, not int"),
    ],
)
def test_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CatalogError) as caught:
        tsql.connect(**arguments)
    assert caught.value.message == message


def test_settings_of_a_session_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.backends.spark.start._running", object)
    error = backend_error(backend="spark", conf={"spark.x": "y"})
    assert error.message == "conf is for a Spark session that tsql starts, and this one runs already"


def test_ctrl_c_is_left_to_the_query(no_session: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark sets a handler that cancels all jobs and raises inside of calls to the JVM."""

    class Builder:
        def master(self, *given: str) -> Builder:
            return self

        config = master

        def getOrCreate(self) -> str:
            signal.signal(signal.SIGINT, lambda *_: None)
            return "a session"

    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, sys.prefix)
    monkeypatch.setattr("tsql.backends.spark.start.SparkSession", SimpleNamespace(builder=Builder()))
    assert start("local[1]") == ("a session", True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
