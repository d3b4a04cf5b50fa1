"""Tasks of several threads (`spark.task.cpus`): movement with scope=local is between them, and a plan has a shard per
task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.spark.cluster import InProcess
from tests.spark.faults import FaultyCluster
from tests.spark.queries import bag, files, fill, oracle
from tests.spark.test_faults import MEDIAN, started
from tsql.backends.local.run.pipelines import Pipelines
from tsql.backends.spark.transport.cluster import slots

PLAN = """plan version 1
target spark shards=2

rows   = scan '{}/*.parquet' columns=(k, v)
keyed  = rekey rows key=(k)
placed = redistribute keyed scope=global shards=2
within = redistribute placed scope=local shards=3
groups = aggregate within by=(k) n=count(v) m=median(v)
all    = gather groups
output all (k, n, m)
"""


@pytest.mark.parametrize("cpus", [1, 3])
def test_local_movement_is_between_threads(tmp_path: Path, cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path)
    threads = []
    made = Pipelines.__init__

    def noting(self: Any, *given: Any) -> None:
        made(self, *given)
        threads.append(self.threads)

    monkeypatch.setattr(Pipelines, "__init__", noting)
    with tsql.connect(spark=InProcess(2, cpus)) as db, oracle(f"{tmp_path}/*.parquet") as duck:
        fill(db, f"{tmp_path}/*.parquet")
        threads.clear()
        found = tsql.load_plan_text(PLAN.format(tmp_path)).run(db)
        assert bag(found.fetchall()) == bag(duck.sql("SELECT k, count(v), median(v) FROM f GROUP BY k").fetchall())
        assert threads.count(cpus) >= 4  # two tasks of two stages


@pytest.mark.parametrize("tasks", [1, 2])
def test_rows_of_one_shard_stay_together(tasks: int, tmp_path: Path) -> None:
    """What a plan has in one shard is not divided between the threads of a task: the side that a broadcast computes,
    and everything in a plan of one shard."""
    ids = np.arange(120_000)
    for number, part in enumerate(np.array_split(ids, 12)):
        pq.write_table(pa.table({"k": part % 1_000, "id": part}), tmp_path / f"{number:02}.parquet")
    sql = (
        f"SELECT count(*), sum(m), sum(id) FROM '{tmp_path}/*.parquet' "
        f"JOIN (SELECT k, count(*) + min(id) AS m FROM '{tmp_path}/*.parquet' GROUP BY k) USING (k)"
    )
    with tsql.connect(spark=InProcess(tasks, 3)) as db, duckdb.connect() as duck:
        assert db.sql(sql).fetchall() == duck.sql(sql).fetchall()


def test_tasks_at_a_time() -> None:
    assert [slots(8, cpus) for cpus in (None, "1", "2", "3", "8", "16", "odd")] == [8, 8, 4, 2, 1, 1, 8]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    found = started(tmp_path_factory.mktemp("threads"), "local[4]", **{"spark.task.cpus": "2"})
    yield found
    found.close()


@pytest.mark.spark
def test_a_shard_per_task(cluster: FaultyCluster) -> None:
    found = cluster.run(MEDIAN)
    with oracle(f"{cluster.folder}/rows/*.parquet") as duck:
        assert bag([tuple(row.values()) for row in found["table"].to_pylist()]) == bag(duck.sql(MEDIAN).fetchall())
    # Four cores, and each task takes two: the second stage has two tasks.
    assert [number for stage, number in found["ran"] if stage == 2] == [0, 1]
    plan = cluster.ask({"do": "plan", "text": PLAN.format(cluster.folder / "rows")})
    with oracle(f"{cluster.folder}/rows/*.parquet") as duck:
        expected = duck.sql("SELECT k, count(v) AS n, median(v) AS m FROM f GROUP BY k").to_arrow_table().to_pylist()
    assert plan["digest"] == sorted(map(str, expected))


QUERIES = (
    "SELECT count(*), sum(v), median(v) FROM f",
    "SELECT count(DISTINCT k) FROM f",
    "SELECT count(*), max(n) FROM (SELECT k, count(*) AS n FROM f GROUP BY k)",
    "SELECT count(*), sum(t.v) FROM f JOIN t USING (v)",
    "SELECT v FROM f ORDER BY v DESC NULLS LAST LIMIT 3",
    "SELECT count(*) FROM (SELECT v FROM f LIMIT 7)",
    "SELECT v, row_number() OVER (ORDER BY v) FROM f",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_one_task_at_a_time(tmp_path: Path, sql: str) -> None:
    """All rows are one shard, however many threads the task has."""
    files(tmp_path)
    with tsql.connect(spark=InProcess(1, cpus=3), small_rows=0) as db, oracle(f"{tmp_path}/*.parquet") as duck:
        fill(db, f"{tmp_path}/*.parquet")
        assert "shards=1" in db.sql(sql).plan()
        assert bag(db.sql(sql).fetchall()) == bag(duck.sql(sql).fetchall())


@pytest.mark.parametrize("how", ["read", "send", "collect"])
def test_a_scan_with_one_shard(tmp_path: Path, how: str) -> None:
    files(tmp_path)
    text = f"""plan version 1
target spark shards=2

some  = scan '{tmp_path}/*.parquet' columns=(v) shards=1
total = aggregate some by=() n=count(*) m=median(v)
all   = broadcast total scope=global how={how}
rows  = scan '{tmp_path}/*.parquet' columns=(v)
pairs = hash_join rows all kind=inner on=() build=right
last  = gather pairs
output last (v, n, m)
"""
    sql = "SELECT v, n, m FROM f CROSS JOIN (SELECT count(*) AS n, median(v) AS m FROM f)"
    with tsql.connect(spark=InProcess(2, cpus=3), small_rows=0) as db, oracle(f"{tmp_path}/*.parquet") as duck:
        found = tsql.load_plan_text(text).run(db)
        assert bag(found.fetchall()) == bag(duck.sql(sql).fetchall())
