"""The benchmarks on a real cluster with little data: every part runs, and a wrong answer is found and not timed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tsql
from bench import bigdata
from bench import spark as benchmark
from bench.cluster.session import Cluster
from tsql.cli import calibrate_spark
from tsql.planner.cost.constants import SPARK_NAMES
from tsql.relation import Relation

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

FEW = ["--runs", "1", "--adaptive"]
PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture
def report(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs a benchmark and returns its exit code and the lines of its JSON by case."""
    monkeypatch.setenv("TSQL_DATA", str(tmp_path))

    def run(main: Any, *arguments: str) -> tuple[int, dict[str, Any]]:
        file = tmp_path / "report.json"
        code = main([*FEW, *arguments, "--data", str(tmp_path), "--json", str(file)], spark)
        sections = json.loads(file.read_text())["sections"]
        return code, {row["case"]: row for section in sections for row in section["rows"]}

    # Without adaptive execution, which is off in the session of the tests, SparkSQL runs a task per partition.
    partitions = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, "2")
    yield run
    spark.conf.set(PARTITIONS, partitions)


def test_tpch(report: Any) -> None:
    code, rows = report(benchmark.main, "--only", "tpch", "--scale", "0.001", "--queries", "6", "--cpu")
    assert code == 0 and set(rows["Q6"]["runs_ms"]) == {"tsql", "SparkSQL"} and rows["Q6"]["value"] > 0
    assert "executors" in rows["Q6"]["measured"]["tsql, processor s"]


def test_a_wrong_answer_fails(report: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right = Cluster.ours
    monkeypatch.setattr(Cluster, "ours", lambda self, sql, name="tsql": right(self, sql.replace("< 24", "< 23"), name))
    code, rows = report(benchmark.main, "--only", "tpch", "--scale", "0.001", "--queries", "6")
    assert code == 1 and rows["Q6"]["met"] is False and not rows["Q6"]["runs_ms"]
    assert rows["Q6"]["measured"]["tsql, ms"].startswith("wrong answer: row 1, column revenue: ")
    assert "1 case without the right answer" in capsys.readouterr().err


@pytest.mark.all_configurations
def test_shuffle(report: Any) -> None:
    code, rows = report(benchmark.main, "--only", "shuffle", "--pairs", "1000", "--shards", "2")
    assert code == 0 and set(rows["redistribute to 2 shards"]["runs_ms"]) == {"tsql", "SparkSQL"}
    assert "GB/s" in rows["redistribute to 2 shards"]["measured"]["tsql, ms"]


@pytest.mark.all_configurations
def test_latency(report: Any) -> None:
    code, rows = report(benchmark.main, "--only", "latency")
    assert code == 0 and "of another session, workers are up" in rows
    for stages in ("one stage: count", "two stages: a grouping", "three stages: a grouping of it by another key"):
        assert set(rows[stages]["runs_ms"]) == {"tsql", "SparkSQL"}
        jobs, ran = map(int, rows[stages]["measured"]["SparkSQL, jobs and stages"].split(", "))
        assert jobs >= 1 and ran >= 1


@pytest.mark.all_configurations
def test_windows(report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.cluster import windows

    monkeypatch.setattr(windows, "CASES", windows.CASES[1:2] + windows.CASES[-1:])
    code, rows = report(benchmark.main, "--only", "windows", "--rows", "2000")
    assert code == 0 and sum("summed up" in case and bool(row["runs_ms"]) for case, row in rows.items()) == 2
    assert all(set(row["runs_ms"]) == {"tsql", "SparkSQL"} for row in rows.values() if row["runs_ms"])


@pytest.mark.all_configurations
def test_big_data(report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bigdata, "JOIN_DAYS", (1_024,))
    chart = tmp_path / "joins.svg"
    code, rows = report(bigdata.main, "--only", "join", "--visits", "4000", "--chart", str(chart))
    assert code == 0
    ours = {f"tsql, {name}" for name in bigdata.STRATEGIES}
    theirs = {f"SparkSQL, {name}" for name in bigdata.SPARK_STRATEGIES}
    assert set(rows["250 visits"]["runs_ms"]) == {"tsql", "SparkSQL", *ours, *theirs}
    assert "is the fastest" in chart.read_text()


def test_costs_of_a_cluster(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tsql calibrate --backend spark`: each plan that it times runs, and gives all rows."""
    monkeypatch.setattr(calibrate_spark, "WARM_RUNS", 0)
    monkeypatch.setattr(calibrate_spark, "WAVES", 1)
    counts: dict[str, list[int]] = {}
    seen: dict[str, float] = {}
    arrow = Relation.arrow

    def counted(relation: Relation) -> Any:
        found = arrow(relation)
        counts.setdefault(relation.plan(), []).append(found.column("n").to_pylist()[0])
        return found

    monkeypatch.setattr(Relation, "arrow", counted)
    with tsql.connect(spark=spark) as db:
        costs = calibrate_spark.measure(db, rows=20_000, runs=1, report=seen.__setitem__)
    assert set(seen) == set(SPARK_NAMES) and all(value > 0 for value in seen.values())
    assert all(getattr(costs, name) == value for name, value in seen.items())
    assert sorted(rows for each in counts.values() for rows in each) == [500] * 2 + [1000] * 4 + [2500, 20_000, 20_000]
