"""A real master with workers on two hosts: speculative copies of tasks, of which one counts, whatever both have
written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark import standalone
from tests.spark.faults import ROOT, FaultyCluster, fault
from tests.spark.queries import bag, files, oracle
from tests.spark.test_faults import (
    MEDIAN,
    TIMES,
    assert_nothing_left,
    assert_rows,
    shuffles,
    started,
)

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]
LONG = pytest.mark.all_configurations
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.efficiency.enabled": "false",
}
"""A second copy of a task starts as soon as another task of its stage is done before it."""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A master with workers on two hosts, and its folder."""
    folder = tmp_path_factory.mktemp("hosts")
    given = {"PYTHONPATH": str(ROOT), "TSQL_FAULTS": str(folder), "SPARK_LOCAL_DIRS": str(folder / "local")}
    with standalone.standalone_cluster(folder, given) as address:
        yield address, folder


@pytest.fixture(scope="module")
def hosts(master: tuple[str, Path]) -> Iterator[FaultyCluster]:
    """A cluster that runs speculative copies."""
    address, folder = master
    found = started(folder, address, **standalone.SETTINGS, **SPECULATION)
    yield found
    found.close()


def slow(stage: int, do: str) -> Any:
    """The first attempt of a task of a stage is held when all of its rows are written, until its copy is done: for
    ever, or until that moment."""
    return fault(do, stage=stage, shard=0, at="end")


def assert_two_copies(found: dict[str, Any], stage: int) -> None:
    assert found["ran"].count((stage, 0)) > 1, found


CONNECTED = """
import json, sys, tsql
with tsql.connect(backend="spark", master=sys.argv[1], conf=json.loads(sys.argv[2])) as db:
    rows = db.sql(f"SELECT k, count(*), max(v) FROM '{sys.argv[3]}' GROUP BY k").fetchall()
    written = db.sql(f"COPY (FROM '{sys.argv[3]}') TO '{sys.argv[4]}/' (FORMAT parquet)").fetchall()
    print(json.dumps([db.backend.shards, db.backend.transport.executors, rows, written]))
"""


@LONG
def test_a_session_on_a_master(master: tuple[str, Path], tmp_path: Path) -> None:
    address, _ = master
    (tmp_path / "rows").mkdir()
    path = files(tmp_path / "rows")
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CONNECTED, address, json.dumps(standalone.SETTINGS), path, "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert told.returncode == 0, told.stderr
    shards, executors, rows, written = json.loads(told.stdout)
    assert (shards, executors, written) == (2, 2, [[400]])
    with oracle(path) as duck:
        expected = duck.sql("SELECT k, count(*), max(v) FROM f GROUP BY k").fetchall()
        assert bag([tuple(row) for row in rows]) == bag(expected)
        assert (
            duck.sql(f"SELECT count(*), sum(v) FROM '{tmp_path}/out/*.parquet'").fetchall()
            == duck.sql("SELECT count(*), sum(v) FROM f").fetchall()
        )
    assert sorted(os.listdir(tmp_path)) == ["out", "rows"]


FOR_EVER, UNTIL_THEN = "hold", "wait for copy"


@pytest.mark.parametrize("do", [FOR_EVER, pytest.param(UNTIL_THEN, marks=LONG)])
def test_a_copy_of_a_slow_task(hosts: FaultyCluster, do: str) -> None:
    """Rows and counts of one of both attempts count."""
    for stage in (1, 2):
        found = hosts.run(MEDIAN, [slow(stage, do)])
        assert_two_copies(found, stage)
        assert_rows(hosts, MEDIAN, found)
    found = hosts.run(TIMES, [slow(1, do)])
    assert_two_copies(found, 1)
    with oracle(f"{hosts.folder}/rows/*.parquet") as duck:
        ((missing,),) = duck.sql("SELECT count(*) FROM f WHERE v IS NULL").fetchall()
    assert found["counts"] == {"rows without a time": missing}
    found = hosts.run(MEDIAN, [slow(1, do)], analyze=True)
    assert_two_copies(found, 1)
    assert re.search(r"^placed +400 .* 2 ", found["text"], re.MULTILINE), "rows, and tasks"
    assert re.search(r"^1 to placed +2 ", found["text"], re.MULTILINE)


@pytest.mark.parametrize("do", [pytest.param(FOR_EVER, marks=LONG), UNTIL_THEN])
def test_two_copies_write(hosts: FaultyCluster, do: str) -> None:
    """Both attempts of a task have written when one of them is chosen."""
    known = shuffles(hosts)
    target, table = hosts.folder / do / "out", f"default.{do.split()[0]}"
    for number, statement in enumerate(
        (
            f"COPY (SELECT * FROM f) TO '{target}/' (FORMAT parquet)",
            f"COPY (SELECT * FROM f) TO '{target}' (FORMAT parquet, APPEND)",
            f"CREATE TABLE {table} AS SELECT * FROM f",
            f"INSERT INTO {table} SELECT * FROM f",
            "CREATE TABLE kept WITH (target = 'spark') AS SELECT * FROM f",
        )
    ):
        found = hosts.run(statement, [slow(1, do)])
        assert_two_copies(found, 1)
        assert found["table"].to_pylist() == [{"Count": 400}], statement
        assert os.listdir(target.parent) == ["out"]
        assert len(list(target.rglob("*"))) == 2 + 2 * min(number, 1)
    with oracle(f"{hosts.folder}/rows/*.parquet") as duck:
        expected = bag(duck.sql("SELECT k, v FROM f").fetchall())
    for name in (f"'{target}'", table, "kept"):
        rows = hosts.run(f"SELECT k, v FROM {name}")["table"].to_pylist()
        assert bag([tuple(row.values()) for row in rows]) == sorted(expected * (1 if name == "kept" else 2)), name
    hosts.run(f"DROP TABLE {table}")
    hosts.run("DROP TABLE kept")
    hosts.run(MEDIAN)  # workers close the files of the table when they open others
    assert_nothing_left(hosts, known)
