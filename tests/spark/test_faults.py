"""Faults on a real cluster: killed executors and workers, lost files, failing tasks, cancelled queries. The answer is
DuckDB's, or there is one clear error. The cluster is in a process of its own (`faults.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.spark.faults import FaultyCluster, fault
from tests.spark.queries import bag, files, oracle
from tsql.tpch import data
from tsql.tpch.check import Oracle
from tsql.tpch.queries import NUMBERS, query

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

SCALE = 0.01
MEDIAN = "SELECT k, median(v), count(*) FROM f GROUP BY k"
WINDOW = (
    "SELECT k, v, max(v) OVER (PARTITION BY k ORDER BY v) AS s, rank() OVER (PARTITION BY k ORDER BY v DESC) FROM f"
)
MOMENTS = ("begin", "middle", "end")


def started(folder: Path, *given: str, **settings: str) -> FaultyCluster:
    for name in ("rows", "local"):
        (folder / name).mkdir()
    files(folder / "rows")
    return FaultyCluster(folder, *given, **settings)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    found = started(tmp_path_factory.mktemp("cluster"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    """A cluster in one process, for what needs no executors."""
    found = started(tmp_path_factory.mktemp("one"), "local[2]")
    yield found
    found.close()


@pytest.fixture(scope="module")
def tpch() -> Iterator[Oracle]:
    made = Oracle(SCALE, data.tables(SCALE))
    yield made
    made.close()


def text_of(name: str | int) -> str:
    return query(name, SCALE) if isinstance(name, int) else {"median": MEDIAN, "window": WINDOW}[name]


def assert_right(cluster: FaultyCluster, tpch: Oracle, name: str | int, found: dict[str, Any]) -> None:
    assert "table" in found, found
    if isinstance(name, int):
        outcome = tpch.compare("tsql", name, lambda: found["table"])
        assert outcome.right, str(outcome)
        return
    with oracle(f"{cluster.folder}/rows/*.parquet") as duck:
        assert bag([tuple(row.values()) for row in found["table"].to_pylist()]) == bag(
            duck.sql(text_of(name)).fetchall()
        )


@pytest.mark.parametrize(
    ("name", "do", "stage", "at"),
    [
        (1, "kill worker", 1, "middle"),
        (9, "fail", None, "end"),
        (18, "kill worker", 2, "begin"),
        (21, "fail", 2, "middle"),
        ("median", "kill executor", 2, "begin"),
        ("window", "kill worker", 2, "end"),
    ],
)
def test_a_task_that_fails_once(
    cluster: FaultyCluster, tpch: Oracle, name: str | int, do: str, stage: int | None, at: str
) -> None:
    found = cluster.run(text_of(name), [fault(do, stage=stage, at=at)])
    assert len(found["hits"]) == 1
    assert_right(cluster, tpch, name, found)


@pytest.mark.all_configurations
@pytest.mark.parametrize("do", ["kill worker", "kill executor"])
@pytest.mark.parametrize("name", [*NUMBERS, "median", "window"])
def test_every_stage(cluster: FaultyCluster, tpch: Oracle, name: str | int, do: str) -> None:
    """A fault in each stage of a query, at different moments."""
    plain = cluster.run(text_of(name))
    assert_right(cluster, tpch, name, plain)
    for stage in sorted({stage for stage, _ in plain["ran"]}):
        found = cluster.run(text_of(name), [fault(do, stage=stage, at=MOMENTS[stage % 3])])
        assert_right(cluster, tpch, name, found)


def test_lost_files(cluster: FaultyCluster, tpch: Oracle) -> None:
    """Files of a shuffle are deleted after the first of its readers: what the others need is computed again."""
    found = cluster.run(MEDIAN, [fault("lose files", stage=2, at="end")], settings=["SET shards = 6"])
    cluster.run("SELECT 1", settings=["SET shards = 2"])
    assert_right(cluster, tpch, "median", found)
    assert len([stage for stage, _ in found["ran"] if stage == 1]) > 3


ERRORS = {
    "fail": "the Spark job failed in stage 2 (step groups, shard 1): RuntimeError: a disk was pulled out",
    "run out of memory": "the Spark job failed in stage 2 (step groups, shard 1): MemoryError",
    "kill worker": (
        "the Spark job failed in stage 2 (step groups, shard 1): the Python worker was killed 4 times (out of memory?)"
    ),
}


@pytest.mark.parametrize("do", ERRORS)
def test_a_task_that_always_fails(cluster: FaultyCluster, do: str) -> None:
    """One message with the step, the shard and the reason. Spark's own report is its cause."""
    found = cluster.run(MEDIAN, [fault(do, stage=2, shard=1, times=20)])
    assert (found["error"], found["message"]) == ("ExecutionError", ERRORS[do])
    assert "\n\tat " not in found["whole"] and "Traceback" in found["cause"] or "\n\tat " in found["cause"]


def test_a_failing_stage_before_a_shuffle(cluster: FaultyCluster) -> None:
    found = cluster.run(MEDIAN, [fault("kill worker", stage=1, shard=0, at="middle", times=20)])
    assert found["message"] == (
        "the Spark job failed in stage 1 (step keyed, shard 0): the Python worker was killed 4 times (out of memory?)"
    )


@pytest.mark.all_configurations
def test_an_executor_that_is_always_lost(cluster: FaultyCluster) -> None:
    found = cluster.run(MEDIAN, [fault("kill executor", stage=1, times=40)])
    assert found["message"].startswith("the Spark job failed in stage 1 (step keyed, shard ")
    assert "the executor was lost 4 times (out of memory?)" in found["message"]
    found = cluster.run(MEDIAN, [fault("kill executor", stage=2, shard=1, times=40)])
    assert found["message"].startswith("the Spark job failed in stage 2 (step groups")
    assert "lost" in found["message"] and "out of memory?" in found["message"]


def test_several_threads(cluster: FaultyCluster, tpch: Oracle) -> None:
    """The same query at the same time, while a worker is killed: each has its own rows."""
    found = cluster.run(text_of(18), [fault("kill worker", stage=2)], threads=4)
    assert found["same"]
    assert_right(cluster, tpch, 18, found)


@pytest.mark.parametrize("stage", [1, 2])
def test_a_cancelled_query_leaves_nothing(cluster: FaultyCluster, tpch: Oracle, stage: int) -> None:
    # The files of an executor that was killed are there until the cluster ends.
    known = [path.name for path in (cluster.folder / "local").rglob("shuffle_*")]
    found = cluster.run(MEDIAN, [fault("hold", stage=stage, at="middle")], cancel=True)
    assert found["error"] == "CancelledError"
    left = cluster.ask({"do": "left", "known": known})
    files = left.pop("descriptors")
    nothing: dict[str, Any] = {"active": 0, "rdds": 0, "shuffles": [], "broadcasts": [], "blocks": [], "temporary": []}
    assert left == nothing | {"threads": []}
    assert files.get("deleted", 0) < 5
    assert_right(cluster, tpch, "median", cluster.run(MEDIAN))


def tpch_comments() -> list[str]:
    return pq.read_table(data.tables(SCALE)["lineitem"], columns=["l_comment"])["l_comment"].to_pylist()


@pytest.mark.all_configurations
def test_workers_with_little_memory(tmp_path: Path, tpch: Oracle) -> None:
    """Workers whose address space Spark limits: what fits is right, and what does not is one clear error."""
    cluster = started(tmp_path, "local-cluster[1,1,512]", **{"spark.executor.pyspark.memory": "2g"})
    try:
        for name in ("median", 9):
            assert_right(cluster, tpch, name, cluster.run(text_of(name)))
        found = cluster.run(
            "SELECT max(length(s)) AS n FROM (SELECT string_agg(repeat(l_comment, 900), '') AS s FROM lineitem)"
        )
        if "error" in found:
            assert found["error"] in ("ExecutionError", "OutOfMemoryError")
            assert "emory" in found["message"] and "\n" not in found["message"]
        else:
            expected = sum(len(text) for text in tpch_comments()) * 900
            assert found["table"].to_pylist() == [{"n": expected}]
        assert_right(cluster, tpch, "median", cluster.run(MEDIAN))
    finally:
        cluster.close()


def test_frames_in_one_shard(one: FaultyCluster) -> None:
    """A DataFrame has partitions of Spark's choice, whatever the number of shards of the plan."""
    one.ask({"do": "frame", "rows": 1000, "partitions": 3})
    sql = "SELECT g, count(*) AS n, median(id) AS m FROM numbers GROUP BY g ORDER BY g LIMIT 1"
    for shards in (1, 2):
        found = one.run(sql, settings=[f"SET shards = {shards}"])
        assert found["table"].to_pylist() == [{"g": 0, "n": 143, "m": 497.0}]
    text = """plan version 1
target spark shards=2
rows = scan numbers columns=(id) shards=1
few = sort rows by=(id desc nulls last) limit=(2)
output few (id)
"""
    assert one.ask({"do": "plan", "text": text})["digest"] == ["{'id': 998}", "{'id': 999}"]


def test_frames_with_large_types(one: FaultyCluster) -> None:
    name = "spark.sql.execution.arrow.useLargeVarTypes"
    one.ask({"do": "frame", "rows": 100, "partitions": 2})
    one.ask({"do": "set", "name": name, "value": "true"})
    found = one.run("SELECT min(text) AS a, max(text) AS b, sum(length(text)) AS n FROM numbers")
    one.ask({"do": "set", "name": name, "value": "false"})
    assert found["table"].to_pylist() == [{"a": "0", "b": "99", "n": 190}]


def test_the_jvm_of_the_driver_dies(one: FaultyCluster) -> None:
    """The last test of this cluster."""
    found = one.run(MEDIAN, [fault("hold", stage=1)], kill=True)
    assert found["message"] == "the connection to Spark is lost: the JVM of its driver has ended"
    again = one.run(MEDIAN)
    assert again["message"].endswith("the connection to Spark is lost: the JVM of its driver has ended"), again
