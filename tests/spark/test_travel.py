"""What executors have and what travels: another Python, packages that are missing or of another version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from pyspark import cloudpickle

from tests.patience import PATIENCE_SECONDS
from tsql.backends.spark.travel.check import PARTS, here, make_ready, misfits
from tsql.backends.spark.travel.look import looked_rows, versions
from tsql.backends.spark.travel.package import zipped
from tsql.kernels.expr.errors import CatalogError

OURS = {
    "python": "3.11",
    "tsql": "0.1.0",
    "pyarrow": "26.0.1",
    "numpy": "2.4.6",
    "llvmlite": "0.50.0",
    "sqlglot": "30.3",
}

HIDE = """
import sys

class Hidden:
    '''The finder of the clone comes behind this one, and goes.'''

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "tsql":
            sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in repr(one).lower()]
        return None

sys.meta_path.insert(0, Hidden)
"""
OTHER = """
import importlib.metadata
import importlib.util

version, find_spec = importlib.metadata.version, importlib.util.find_spec
importlib.metadata.version = lambda name: "99.0.1" if name == "pyarrow" else version(name)
importlib.util.find_spec = lambda name: None if name == "llvmlite" else find_spec(name)
"""


def other_python(folder: Path, change: str) -> str:
    """A command that runs this Python with a change."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(change)
    command = folder / "python"
    command.write_text(f'#!/bin/sh\nexport PYTHONPATH="{folder}:$PYTHONPATH"\nexec "{sys.executable}" "$@"\n')
    command.chmod(0o755)
    return str(command)


def test_versions_here() -> None:
    assert json.loads(versions(name for name in PARTS if name != "python")) == here()


def test_missing_module() -> None:
    assert json.loads(versions(["no_such_package"]))["no_such_package"] is None


def test_one_message_names_each_package() -> None:
    theirs = {**OURS, "pyarrow": "25.0.0", "llvmlite": None, "numpy": "2.1.0"}
    error = misfits(OURS, [OURS, theirs])
    assert error is not None
    assert error.message == (
        "the executors of Spark cannot run tsql: pyarrow is 25.0.0 there and 26.0.1 here, "
        "llvmlite is missing there and 0.50.0 here"
    )
    assert error.hint == "pip install pyarrow==26.0.1 llvmlite==0.50.0 on every executor"


@pytest.mark.parametrize(
    ("theirs", "fits"),
    [
        ({}, True),
        ({"pyarrow": "26.9.0", "numpy": "2.2.0", "llvmlite": "0.50.3", "sqlglot": "30.3.4"}, True),
        ({"tsql": None}, True),
        ({"tsql": "unknown"}, True),
        ({"tsql": "0.2.0"}, False),
        ({"sqlglot": "30.4.0"}, False),
        ({"python": "3.12"}, False),
    ],
)
def test_what_fits(theirs: dict[str, Any], fits: bool) -> None:
    assert (misfits(OURS, [{**OURS, **theirs}]) is None) is fits


def test_another_python_as_spark_tells_it() -> None:
    """PySpark refuses another minor version before any function of ours runs."""
    from pyspark.errors import PySparkRuntimeError

    def ask(names: tuple[str, ...]) -> list[str]:
        raise PySparkRuntimeError(
            errorClass="PYTHON_VERSION_MISMATCH",
            messageParameters={"worker_version": "3.9", "driver_version": "3.11"},
        )

    with pytest.raises(CatalogError, match=r"Python is 3\.9 there and 3\.\d+ here") as caught:
        make_ready("another python", ask, lambda path: None)
    assert caught.value.hint == f"set PYSPARK_PYTHON to a Python {here()['python']} of the executors"


def test_once_per_session() -> None:
    asked, sent = [], []

    def ask(names: tuple[str, ...]) -> list[str]:
        asked.append(names)
        return [json.dumps(here()), json.dumps({**here(), "tsql": None})]

    for _ in range(2):
        make_ready("once", ask, sent.append)
    assert len(asked) == 1 and sent == [zipped()]


def test_a_session_waits_for_no_other() -> None:
    """A cluster without a free slot holds up the first queries of its own session alone. What it is sent then still is
    code that needs no package."""
    waits, may_go, asked = threading.Event(), threading.Event(), []

    def ask(names: tuple[str, ...]) -> list[str]:
        asked.append(names)
        waits.set()
        assert may_go.wait(PATIENCE_SECONDS)
        assert b"find_spec" in cloudpickle.dumps(looked_rows(names))
        return [json.dumps(here())]

    with ThreadPoolExecutor() as pool:
        slow = [pool.submit(make_ready, "slow", ask, lambda path: None) for _ in range(2)]
        assert waits.wait(PATIENCE_SECONDS)
        quick = pool.submit(make_ready, "quick", lambda names: [json.dumps(here())], lambda path: None)
        try:
            quick.result(PATIENCE_SECONDS)
        finally:
            may_go.set()
        for one in slow:
            one.result(PATIENCE_SECONDS)
    assert len(asked) == 1


def test_the_package() -> None:
    """It has modules with their byte code and no tests, and its name tells its content."""
    with ZipFile(zipped()) as archive:
        names = set(archive.namelist())
    assert {
        "tsql/__init__.py",
        "tsql/__init__.pyc",
        "tsql/backends/spark/task.pyc",
        "tsql/planner/__init__.py",
    } <= names
    assert not any(name.startswith("tests") or "__pycache__" in name for name in names)
    assert Path(zipped()).name.startswith("tsql-")


RUN = """
    import sys, tsql, pyarrow as pa
    with tsql.connect(backend="spark", master="local[1]") as db:
        db.register("t", pa.table({"g": [1, 2, 2], "x": [5, 6, 8]}))
        context = db.backend.spark.sparkContext
        for python in sys.argv[1:]:
            context.pythonExec = python
            try:
                print(db.sql("SELECT g, median(x) FROM t GROUP BY g ORDER BY g").fetchall())
            except tsql.TsqlError as error:
                print(error.message, error.hint, sep="|")
        print(context.parallelize([0], 1).map(lambda _: __import__("tsql").__file__).collect()[0])
"""


@pytest.mark.spark
def test_other_pythons(tmp_path: Path) -> None:
    """Workers with other packages are refused. Workers without tsql import the one that is sent."""
    other, hidden = other_python(tmp_path / "other", OTHER), other_python(tmp_path / "hidden", HIDE)
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(RUN))
    found = subprocess.run(
        [sys.executable, "-W", "ignore", program, other, hidden],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": other},
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    told, rows, home = found.stdout.splitlines()
    ours = here()
    assert told == (
        f"the executors of Spark cannot run tsql: pyarrow is 99.0.1 there and {ours['pyarrow']} here, "
        f"llvmlite is missing there and {ours['llvmlite']} here"
        f"|pip install pyarrow=={ours['pyarrow']} llvmlite=={ours['llvmlite']} on every executor"
    )
    assert rows == "[(1, 5.0), (2, 7.0)]"
    assert Path(zipped()).name in home


@pytest.mark.spark
@pytest.mark.all_configurations
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_the_package_travels_to_a_server(tmp_path: Path) -> None:
    """The same with Spark Connect, where it is an artifact of the session."""
    import pyarrow as pa
    from pyspark.sql.connect.session import SparkSession

    import tsql
    from tests.spark.server import connect_server

    with connect_server(tmp_path, other_python(tmp_path, HIDE)) as address:
        session = SparkSession.builder.remote(address).create()
        with tsql.connect(spark=session) as db:
            db.register("t", pa.table({"g": [1, 2, 2], "x": [5, 6, 8]}))
            assert db.sql("SELECT g, median(x) FROM t GROUP BY g ORDER BY g").fetchall() == [(1, 5.0), (2, 7.0)]
        session.stop()
