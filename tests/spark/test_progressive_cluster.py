"""PROGRESSIVE queries on a real cluster: waves are jobs of Spark, and nothing of them stays."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import tsql
from tests.patience import wait_until
from tests.progressive.test_final import SIDE, bag, table
from tests.spark.faults import FaultyCluster, fault
from tests.spark.queries import oracle
from tests.spark.test_faults import assert_nothing_left, shuffles, started
from tests.spark.test_progressive import values
from tsql.cli.snapshots import print_snapshots

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

QUERIES = (
    "SELECT g, count(*) AS n, sum(i) AS s FROM t WHERE i < 70 GROUP BY g ORDER BY n DESC, g LIMIT 3",
    "SELECT name, count(*), min(x) FROM t JOIN s USING (g) GROUP BY name",
    "SELECT day, n FROM (SELECT date_trunc('day', ts) AS day, count(*) AS n FROM t GROUP BY day) WHERE n > 5",
    "SELECT m, sum(i) FROM (SELECT i, i % 3 AS m FROM t UNION ALL SELECT k, 7 FROM t) GROUP BY m",
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rows") / "t.parquet"
    pq.write_table(table(), found, row_group_size=200)
    return found


@pytest.fixture(scope="module")
def duck() -> Any:
    with duckdb.connect() as connection:
        connection.register("t", table())
        connection.register("s", SIDE)
        yield connection


def fill(db: Any, kind: str, path: Path) -> None:
    db.register("t", db.read_parquet(path) if kind == "parquet" else table())
    db.register("s", SIDE)


def assert_final(db: Any, duck: Any, least: int) -> None:
    for seed, sql in enumerate(QUERIES):
        relation = db.sql(f"{sql} PROGRESSIVE EVERY 25 PERCENT SEED {seed}")
        *shown, last = relation.snapshots()
        assert len(shown) >= least and last.is_final, (sql, relation.notes)
        assert bag(values(last.table)) == bag(duck.sql(sql).fetchall()), sql


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_cluster(spark: Any, kind: str, path: Path, duck: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.backends.local.progressive.units.LEAST_ROWS", 64)
    monkeypatch.setattr("tsql.backends.local.progressive.units.MOST_ROWS", 128)
    with tsql.connect(spark=spark) as db:
        fill(db, kind, path)
        assert_final(db, duck, least=3)


def test_a_dataframe_has_one_snapshot(spark: Any) -> None:
    """Spark decides in which order its rows come."""
    with tsql.connect(spark=spark) as db:
        db.register("numbers", spark.range(1000).selectExpr("id", "id % 7 AS g"))
        relation = db.sql("SELECT g, count(*) AS n FROM numbers GROUP BY g PROGRESSIVE EVERY 20 PERCENT")
        (only,) = relation.snapshots()
        assert only.is_final and sorted(only.table["n"].to_pylist()) == [142, 143, 143, 143, 143, 143, 143]
        assert "the rows are in the cluster already" in relation.explain()


def test_a_stop(spark: Any, path: Path) -> None:
    """The job of a wave ends, and the next query runs at once."""
    tracker = spark.sparkContext.statusTracker()
    with tsql.connect(spark=spark) as db:
        fill(db, "parquet", path)
        with db.sql("SELECT g, sum(i) FROM t GROUP BY g PROGRESSIVE EVERY 5 PERCENT").snapshots() as snapshots:
            assert not next(snapshots).is_final
            assert not tracker.getActiveJobsIds()
        assert wait_until(lambda: not tracker.getActiveJobsIds())
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(9000,)]
        assert spark.sparkContext._jsc.sc().getPersistentRDDs().isEmpty()


def test_the_command_line(spark: Any, path: Path) -> None:
    """In a pipe, each snapshot is an object."""
    with tsql.connect(spark=spark) as db:
        fill(db, "parquet", path)
        found = io.StringIO()
        relation = db.sql("SELECT g, count(*) AS n FROM t GROUP BY g PROGRESSIVE EVERY 25 PERCENT")
        assert relation.is_progressive
        print_snapshots(relation, found)
    told = [json.loads(line) for line in found.getvalue().splitlines()]
    assert [one["is_final"] for one in told] == [False] * (len(told) - 1) + [True] and len(told) >= 4


PROGRESS = "SELECT k, count(*), sum(v) FROM f GROUP BY k PROGRESSIVE EVERY 20 PERCENT UNTIL ERROR <= 0.000000001"
"""Who asks for the result of a query that may stop gets its last snapshot, here the exact one."""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = started(tmp_path_factory.mktemp("waves"))
    yield found
    found.close()


@pytest.mark.parametrize(("do", "at"), [("fail", "end"), ("kill worker", "middle"), ("kill executor", "begin")])
def test_a_task_that_fails_once(faulty: FaultyCluster, do: str, at: str) -> None:
    found = faulty.run(PROGRESS, [fault(do, stage=1, at=at)])
    assert len(found["hits"]) == 1
    with oracle(f"{faulty.folder}/rows/*.parquet") as duck:
        expected = duck.sql(PROGRESS.split(" PROGRESSIVE")[0]).fetchall()
    assert bag([tuple(row.values()) for row in found["table"].to_pylist()]) == bag(expected)


def test_a_task_that_always_fails(faulty: FaultyCluster) -> None:
    known = shuffles(faulty)
    found = faulty.run(PROGRESS, [fault("fail", stage=1, shard=1, times=20)])
    assert found["message"] == (
        "the Spark job failed in stage 1 (step partial, shard 1): RuntimeError: a disk was pulled out"
    )
    assert_nothing_left(faulty, known)


def test_a_query_that_is_cancelled(faulty: FaultyCluster) -> None:
    known = shuffles(faulty)
    found = faulty.run(PROGRESS, [fault("hold", stage=1, at="middle")], cancel=True)
    assert found["error"] == "CancelledError"
    assert_nothing_left(faulty, known)
