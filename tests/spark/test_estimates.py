"""What the planner knows of DataFrames and views before they run: rows and columns as Spark tells them, and the plans
that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tsql
from tsql.backends.spark import estimates
from tsql.backends.spark.frame import FrameSource
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


@pytest.fixture(scope="module")
def known(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("known")
    spark.sql(f"CREATE DATABASE known LOCATION '{folder}'")
    rows = "SELECT id, id % 10 AS k, cast(id AS STRING) AS s FROM range(1000)"
    for name in ("plain", "analyzed"):
        spark.sql(f"CREATE TABLE known.{name} USING orc AS {rows}")
    spark.sql("ANALYZE TABLE known.analyzed COMPUTE STATISTICS FOR ALL COLUMNS")
    yield "known"
    spark.sql("DROP DATABASE known CASCADE")


@pytest.fixture
def db(spark: Any, known: str) -> Iterator[Any]:
    with tsql.connect(spark=spark) as session:
        yield session


def source(frame: Any) -> FrameSource:
    return FrameSource(frame)


def test_rows(spark: Any, known: str) -> None:
    """Exact where Spark counts, the larger side of a join, the product without a condition, the sum of a union, ten
    times the arrays; and no job is run for it."""
    before = spark._jsc.sc().dagScheduler().nextJobId()
    for sql, rows, origin in (
        ("SELECT * FROM range(1000)", 1000, estimates.COUNTED),
        ("SELECT id + 1 AS a FROM range(1000)", 1000, estimates.COUNTED),
        ("SELECT * FROM range(1000) LIMIT 7", 7, estimates.COUNTED),
        ("SELECT * FROM VALUES (1, 'x'), (2, 'y') AS t(a, b)", 2, estimates.COUNTED),
        ("SELECT * FROM range(1000) WHERE id % 3 = 1", 1000, estimates.DERIVED),
        ("SELECT count(*) FROM range(1000)", 1, estimates.COUNTED),
        ("SELECT * FROM range(1000) a JOIN range(50) b ON a.id = b.id % 7", 1000, estimates.DERIVED),
        ("SELECT * FROM range(1000) a CROSS JOIN range(50) b", 50_000, estimates.DERIVED),
        ("SELECT * FROM range(1000) a LEFT JOIN range(50) b ON b.id > 7", 50_000, estimates.DERIVED),
        ("SELECT * FROM range(30) a, range(40) b, range(50) c WHERE a.id = c.id", 2000, estimates.DERIVED),
        ("SELECT explode(sequence(1, id)) AS v FROM range(1000)", 10_000, estimates.DERIVED),
        ("SELECT id, v FROM range(1000) LATERAL VIEW OUTER explode(array(id, 2)) AS v", 10_000, estimates.DERIVED),
        ("SELECT explode(sequence(1, id)) AS v FROM range(1000) LIMIT 7", 7, estimates.COUNTED),
        ("SELECT * FROM range(40) a LEFT SEMI JOIN range(5000) b ON a.id = b.id", 40, estimates.COUNTED),
        ("SELECT * FROM range(30) UNION ALL SELECT * FROM range(12)", 42, estimates.DERIVED),
        ("SELECT * FROM known.analyzed", 1000, estimates.COUNTED),
        ("SELECT k + 1 AS k FROM known.analyzed", 1000, estimates.COUNTED),
        ("SELECT * FROM known.analyzed WHERE k = 3", 1000, estimates.DERIVED),
    ):
        found = source(spark.sql(sql))._estimated
        assert (found.statistics.rows, found.origin) == (rows, origin), sql
    assert spark._jsc.sc().dagScheduler().nextJobId() == before


class Telling:
    """A DataFrame of Spark Connect whose server tells this plan."""

    sparkSession = None

    def __init__(self, *lines: str):
        self.text = "\n".join(("== Optimized Logical Plan ==", *lines, "", "== Physical Plan ==", "Range"))

    def _explain_string(self, mode: str) -> str:
        return self.text


def test_rows_in_the_text_of_a_plan() -> None:
    """What a server of Spark Connect tells: arrays are as long as elsewhere, joins are unknown."""
    schema = Schema((Field("v", BIGINT),))
    table = "Range (0, 1000, step=1), Statistics(sizeInBytes=7.8 KiB, rowCount=1.00E+3)"
    files = "Relation known.plain[a#1] orc, Statistics(sizeInBytes=15.6 KiB)"
    made = "Generate explode(sequence(1, id#1, None)), [0], false, [v#2], Statistics(sizeInBytes=15.6 KiB)"
    most = "GlobalLimit 7, Statistics(sizeInBytes=112.0 B, rowCount=7)"
    for lines, rows, origin in (
        ((table,), 1000, estimates.COUNTED),
        (("Project [id#1], Statistics(sizeInBytes=7.8 KiB)", f"+- {table}"), 1000, estimates.DERIVED),
        ((made, f"+- {table}"), 10_000, estimates.DERIVED),
        ((made, f"+- {made}", f"   +- {table}"), 100_000, estimates.DERIVED),
        ((most, f"+- {made}", f"   +- {table}"), 7, estimates.COUNTED),
        ((made, f"+- {most}", f"   +- {table}"), 70, estimates.DERIVED),
        ((files,), 15974 // 16, estimates.DERIVED),
        ((made, f"+- {files}"), 15974 // 16 * 10, estimates.DERIVED),
        (("Join Cross, Statistics(sizeInBytes=1.0 MiB)", f":- {table}", f"+- {table}"), None, estimates.UNKNOWN),
    ):
        found = estimates._told(Telling(*lines), schema)
        assert (found.statistics.rows, found.origin) == (rows, origin), lines


def test_rows_by_size(spark: Any, known: str) -> None:
    """Without a count: the bytes of the files by the width of a row, 8 + 8 + 8 + 20 bytes for Spark."""
    frame = spark.table("known.plain")
    size = frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert source(frame)._estimated.statistics.rows == size // 44
    cached = frame.where("k = 3").cache()
    try:
        assert cached.count() == 100
        assert source(cached)._estimated.statistics.rows == 100
    finally:
        cached.unpersist()


def test_unknown(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of an RDD is unknown: so is what is computed from it, until a limit bounds it."""
    frame = spark.createDataFrame(spark.sparkContext.parallelize([(1,), (2,)]), "a INT")
    joined = frame.join(spark.range(5).selectExpr("id AS a"), "a")
    for one in (frame, frame.where("a > 1"), joined, frame.groupBy("a").count()):
        assert source(one)._estimated == estimates.NOTHING
    assert source(frame.limit(3))._estimated.statistics.rows == 3
    monkeypatch.setattr(estimates, "MOST_NODES", 1)
    assert source(spark.range(5).where("id > 1"))._estimated == estimates.NOTHING


def test_columns(spark: Any, known: str) -> None:
    """Bounds and distinct values of an analyzed table; they are no promise."""
    for sql in ("SELECT * FROM known.analyzed", "SELECT s, k FROM known.analyzed WHERE id > 5"):
        columns = source(spark.sql(sql)).statistics().columns
        assert (columns["k"].minimum, columns["k"].maximum, columns["k"].distinct) == (0, 9, 10)
        assert not columns["k"].exact and columns["k"].nulls is None
        assert columns["s"].minimum is None and columns["s"].distinct is not None
    assert source(spark.sql("SELECT k + 1 AS k FROM known.analyzed")).statistics().columns["k"].distinct is None


def test_stale_columns_are_no_promise(db: Any, spark: Any) -> None:
    """Groups and joins by a column whose values lie outside of what ANALYZE has found."""
    spark.sql("CREATE TABLE known.old USING orc AS SELECT id AS k FROM range(10)")
    spark.sql("ANALYZE TABLE known.old COMPUTE STATISTICS FOR ALL COLUMNS")
    # Files that come another way than by Spark's tables leave the statistics as they are.
    late = spark.sql("SELECT id AS k FROM range(10) UNION ALL SELECT * FROM VALUES (1000000L), (NULL)")
    late.write.mode("append").orc(spark.catalog.getDatabase("known").locationUri + "/old")
    spark.sql("REFRESH TABLE known.old")
    try:
        assert source(spark.table("known.old"))._estimated.statistics.rows == 10
        assert spark.table("known.old").count() == 22
        assert sorted(db.sql("SELECT k, count(*) FROM known.old GROUP BY k").fetchall(), key=str) == sorted(
            map(tuple, spark.sql("SELECT k, count(*) FROM known.old GROUP BY k").collect()), key=str
        )
        assert db.sql("SELECT count(*) FROM known.old WHERE k NOT IN (SELECT 1)").fetchall() == [(19,)]
        assert db.sql("SELECT count(*) FROM known.old WHERE k IS NULL").fetchall() == [(1,)]
        assert db.sql("SELECT count(*) FROM known.old a JOIN known.old b USING (k)").fetchall() == [(41,)]
    finally:
        spark.sql("DROP TABLE known.old")


@pytest.mark.parametrize("small", ("a", "b"))
def test_the_smaller_side_is_broadcast(db: Any, spark: Any, small: str) -> None:
    for name in ("a", "b"):
        spark.range(50 if name == small else 500_000).selectExpr("id AS k", "id % 7 AS v").createOrReplaceTempView(
            f"side_{name}"
        )
    relation = db.sql("SELECT count(*) FROM side_a JOIN side_b USING (k)")
    plan = tsql.load_plan_text(relation.plan()).bind(db)
    (moved,) = [step for step in plan.root.walk() if step.op == "broadcast"]
    (read,) = [step for step in moved.walk() if step.op == "scan"]
    assert read.table == f"side_{small}", relation.plan()
    assert relation.fetchall() == [(50,)]


def test_large_sides_are_not_broadcast(db: Any, spark: Any) -> None:
    for name in ("c", "d"):
        spark.range(3_000_000_000).selectExpr("id AS k").createOrReplaceTempView(f"side_{name}")
    assert "broadcast" not in db.sql("SELECT count(*) FROM side_c JOIN side_d USING (k)").plan()


def test_explain_tells(db: Any, spark: Any) -> None:
    spark.range(50).selectExpr("id AS k").createOrReplaceTempView("fifty")
    relation = db.sql("FROM fifty")
    told = relation.explain("physical")
    assert "# fifty: a DataFrame of Spark: its plan is Range, and no scan of files alone; rows as Spark counts" in told
    assert "~50 rows expected" in relation.explain("analyze")
