"""Faults on a real cluster: killed executors and workers, lost files, failing tasks, cancelled queries. The answer is
DuckDB's, or there is one clear error. The cluster is in a process of its own (`faults.py`)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.spark.faults import MOST_DELETED, FaultyCluster, fault
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
TIMES = "SELECT k, median(v) FROM f WHERE has_time(make_timestamp(v)) GROUP BY k"
"""What has no time is counted in the tasks of the first stage."""
MOMENTS = ("begin", "middle", "end")


def started(folder: Path, *given: str, **settings: str) -> FaultyCluster:
    for name in ("rows", "local"):
        (folder / name).mkdir(exist_ok=True)
    files(folder / "rows")
    return FaultyCluster(folder, *given, **settings)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    found = started(tmp_path_factory.mktemp("cluster"), **{"spark.driver.maxResultSize": "16m"})
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
    else:
        assert_rows(cluster, text_of(name), found)


def assert_rows(cluster: FaultyCluster, sql: str, found: dict[str, Any]) -> None:
    """The rows of a query are those of DuckDB for a text."""
    with oracle(f"{cluster.folder}/rows/*.parquet") as duck:
        expected = duck.sql(sql).fetchall()
    assert bag([tuple(row.values()) for row in found["table"].to_pylist()]) == bag(expected)


def shuffles(cluster: FaultyCluster) -> list[str]:
    """The files of shuffles. Those of an executor that was killed are there until the cluster ends."""
    return [path.name for path in (cluster.folder / "local").rglob("shuffle_*")]


def assert_nothing_left(cluster: FaultyCluster, known: list[str]) -> None:
    """Queries have left nothing but the files that were known before."""
    left = cluster.ask({"do": "left", "known": known})
    files = left.pop("descriptors")
    nothing: dict[str, Any] = {"active": 0, "rdds": 0, "shuffles": [], "broadcasts": [], "blocks": [], "temporary": []}
    assert left == nothing | {"threads": []}
    assert files.get("deleted", 0) < MOST_DELETED, files


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
        assert len(found["hits"]) == 1, stage
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


def test_a_result_that_is_too_large(cluster: FaultyCluster) -> None:
    known = shuffles(cluster)
    found = cluster.run("SELECT repeat(l_comment, 20) AS s FROM lineitem")
    assert re.fullmatch(
        r"the Spark job failed: Total size of serialized results of \d tasks \([\d.]+ MiB\) is bigger than "
        r"spark.driver.maxResultSize \(16.0 MiB\)",
        found["message"],
    )
    assert found["hint"].startswith("raise spark.driver.maxResultSize, or have the tasks write the rows")
    assert_nothing_left(cluster, known)


@pytest.mark.all_configurations
@pytest.mark.parametrize(
    ("sql", "step"),
    [
        ("SELECT repeat('x', 500_000_000 + k) AS s FROM f WHERE v = 1", "projected"),
        ("SELECT k, max(repeat('x', 500_000_000 + k)) FROM f WHERE v = 1 GROUP BY k", "partial"),
    ],
)
def test_a_row_that_is_larger_than_the_heap(cluster: FaultyCluster, tpch: Oracle, sql: str, step: str) -> None:
    """Executors have a heap of 512 MB here; a blob in it takes as many bytes as the row."""
    found = cluster.run(sql)
    assert found["message"] == (
        f"the Spark job failed in stage 1 (step {step}, shard 0): the JVM of the executor was out of memory 4 times"
    )
    assert found["hint"].startswith("raise spark.executor.memory")
    assert_right(cluster, tpch, "median", cluster.run(MEDIAN))


def test_several_threads(cluster: FaultyCluster, tpch: Oracle) -> None:
    """The same query at the same time, while a worker is killed: each has its own rows."""
    found = cluster.run(text_of(18), [fault("kill worker", stage=2)], threads=4)
    assert found["same"]
    assert_right(cluster, tpch, 18, found)


@pytest.mark.parametrize("stage", [1, 2])
def test_a_cancelled_query_leaves_nothing(cluster: FaultyCluster, tpch: Oracle, stage: int) -> None:
    known = shuffles(cluster)
    found = cluster.run(MEDIAN, [fault("hold", stage=stage, at="middle")], cancel=True)
    assert found["error"] == "CancelledError"
    assert_nothing_left(cluster, known)
    assert_right(cluster, tpch, "median", cluster.run(MEDIAN))


WRITES = {
    "a folder": "COPY (SELECT * FROM f) TO '{folder}/{name}/' (FORMAT parquet)",
    "partitions": "COPY (SELECT * FROM f) TO '{folder}/{name}' (FORMAT parquet, PARTITION_BY (k))",
    "a table": "CREATE TABLE default.{name} AS SELECT * FROM f",
    "another table": "CREATE OR REPLACE TABLE default.old AS SELECT * FROM f",
    "rows of a table": "INSERT INTO default.old SELECT * FROM f",
    "a dataset": "CREATE TABLE {name} WITH (target = 'spark') AS SELECT * FROM f",
}


@pytest.fixture
def target(cluster: FaultyCluster) -> Iterator[Path]:
    """A folder for what queries write, beside a table that is there already."""
    folder = cluster.folder / "written"
    folder.mkdir()
    assert "table" in cluster.run("CREATE TABLE default.old AS SELECT 1::INTEGER AS k, 2::BIGINT AS v")
    yield folder
    cluster.run("DROP TABLE default.old")
    shutil.rmtree(folder)


def everything(folder: Path) -> list[str]:
    """All files and folders in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("do", ["kill worker", pytest.param("kill executor", marks=pytest.mark.all_configurations)])
@pytest.mark.parametrize("what", WRITES)
def test_a_task_that_dies_when_it_has_written(cluster: FaultyCluster, target: Path, what: str, do: str) -> None:
    """The rows of its second attempt are the only ones."""
    found = cluster.run(WRITES[what].format(folder=target, name="new"), [fault(do, stage=1, shard=0, at="end")])
    assert len(found["hits"]) == 1 and found["ran"].count((1, 0)) > 1
    assert found["table"].to_pylist() == [{"Count": 400}]
    name = {"a folder": f"'{target}/new'", "a table": "default.new", "a dataset": "new"}.get(what, "default.old")
    if what == "partitions":
        name = f"read_parquet('{target}/new/*/*.parquet', hive_partitioning => true)"
    rows = cluster.run(f"SELECT k, v FROM {name}")["table"].to_pylist()
    with oracle(f"{cluster.folder}/rows/*.parquet") as duck:
        expected = duck.sql("SELECT k, v FROM f").fetchall() + ([(1, 2)] if what == "rows of a table" else [])
    assert bag([tuple(row.values()) for row in rows]) == bag(expected)
    assert not any("partial" in name or "_temporary" in name for name in everything(cluster.folder))
    if name in ("default.new", "new"):
        cluster.run(f"DROP TABLE {name}")


@pytest.mark.parametrize("ended", ["failed", "cancelled"])
def test_a_statement_that_ends_leaves_nothing(cluster: FaultyCluster, target: Path, ended: str) -> None:
    """What was there before is there still, and nothing else."""
    known, before = shuffles(cluster), (everything(target), everything(cluster.folder / "tables"))
    for what, text in WRITES.items():
        statement = text.format(folder=target, name="new")
        if ended == "failed":
            found = cluster.run(statement, [fault("fail", stage=1, shard=0, at="end", times=20)])
            assert re.fullmatch(
                r"the Spark job failed in stage 1 \(step \w+, shard 0\): RuntimeError: a disk was pulled out",
                found["message"],
            ), what
        else:
            found = cluster.run(statement, [fault("hold", stage=1, shard=0, at="end")], cancel=True)
            assert found["error"] == "CancelledError", what
        assert len(found["hits"]) == (4 if ended == "failed" else 1)
        assert_nothing_left(cluster, known)
        assert (everything(target), everything(cluster.folder / "tables")) == before, what
        assert "does not exist" in cluster.run("SELECT * FROM new")["message"]
    assert cluster.run("SELECT * FROM default.old")["table"].to_pylist() == [{"k": 1, "v": 2}]


def test_a_dataset_whose_executor_dies(cluster: FaultyCluster) -> None:
    """Rows that the executor kept are computed again, and are counted once."""
    cluster.run(f"CREATE TABLE counted WITH (target = 'spark') AS {TIMES}")
    found = cluster.run("SELECT * FROM counted", [fault("kill executor", stage=1, shard=0, at="end")])
    assert_rows(cluster, TIMES.replace("has_time(make_timestamp(v))", "v IS NOT NULL"), found)
    assert (len(found["hits"]), found["counts"]) == (1, {})
    cluster.run("DROP TABLE counted")


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
