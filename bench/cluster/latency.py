"""What a query costs without work: one row from Parquet in one, two and three stages, and the first query of a
session."""

from __future__ import annotations

import time

import pyarrow as pa

import tsql
from bench.cluster.compare import OURS, Agreement, Comparison, shown
from bench.cluster.data import one_row
from bench.cluster.session import Cluster
from tsql.tpch.engines import quoted
from tsql.tpch.measure import Times, interleaved
from tsql.tpch.report import Row, Section

HINT = "/*+ AGG('one_phase') */ "
"""Rows move before they are grouped: each grouping is a stage of its own."""
QUERIES = {
    "one stage: count": "SELECT count(*) AS n FROM one WHERE v > 0",
    "two stages: a grouping": "SELECT {hint}k, sum(v) AS s FROM one GROUP BY k",
    "three stages: a grouping of it by another key": (
        "SELECT {hint}s, count(*) AS n FROM (SELECT k, sum(v) AS s FROM one GROUP BY k) AS sums GROUP BY s"
    ),
}


def first_query(cluster: Cluster, runs: int) -> Section:
    """The first query of the Python workers, then the first of further sessions on workers that are up. The former can
    be measured once in a session of Spark, before all else."""
    path = one_row()
    sql = f"SELECT sum(v) AS s FROM {quoted(path)} WHERE k > 0"
    section = Section("The first query", ["tsql, ms", "SparkSQL, ms"], "SparkSQL / tsql")

    def ours() -> pa.Table:
        with tsql.connect(spark=cluster.session) as db:
            return db.sql(sql).arrow()

    def theirs() -> pa.Table:
        session = cluster.session.newSession()
        session.read.parquet(str(path)).createOrReplaceTempView("one")
        return session.sql("SELECT sum(v) AS s FROM one WHERE k > 0").toArrow()

    wrong = Agreement()
    # SparkSQL is first, so that what it starts is not counted for tsql: the JVMs load their classes once.
    for name, what, call in (("SparkSQL", "new executors", theirs), (OURS, "new Python workers", ours)):
        start = time.perf_counter()
        answer = call()
        taken = Times(((time.perf_counter() - start) * 1000,))
        if (why := wrong(name, answer)) is not None:
            raise SystemExit(f"the first query: {name}: {why}")
        section.rows.append(Row(f"on {what}", {f"{name}, ms": shown(taken)}, runs_ms={name: taken.runs_ms}))
    times = interleaved({OURS: ours, "SparkSQL": theirs}, runs, warmup=1)
    section.rows.append(
        Row(
            "of another session, workers are up",
            {f"{name}, ms": shown(measured) for name, measured in times.items()},
            times["SparkSQL"].median / times[OURS].median,
            runs_ms={name: measured.runs_ms for name, measured in times.items()},
        )
    )
    return section


def compare(cluster: Cluster, runs: int, processor: bool) -> Comparison:
    """Measure the queries of one, two and three stages, and what a further stage costs."""
    cluster.view("one", one_row())
    table = Comparison("Queries over one row", runs, warmup=runs, processor=processor)
    for case, text in QUERIES.items():
        table.add(case, [cluster.ours(text.format(hint=HINT)), *cluster.theirs(text.format(hint=""))], Agreement())
    section = table.time(aim=None)
    more = Row("a further stage")
    for name in (OURS, *(variant.name for variant in cluster.variants)):
        section.columns = [*section.columns, f"{name}, jobs and stages"]
        ms, stages = [], []
        for case, row in zip(table.cases, section.rows):
            (contender,) = (contender for contender in case.contenders if contender.name == name)
            if name in case.found.times:
                contender.prepare()
                jobs, count = cluster.stages(contender.run)
                row.measured[f"{name}, jobs and stages"] = f"{jobs}, {count}"
                ms.append(case.found.times[name].median)
                stages.append(count)
        if len(ms) == len(QUERIES) and stages[-1] > stages[0]:
            more.measured[f"{name}, ms"] = f"{(ms[-1] - ms[0]) / (stages[-1] - stages[0]):.1f}"
    section.rows.append(more)
    return table
