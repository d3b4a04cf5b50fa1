"""A Spark session belongs to its user: what was set for jobs holds for those of queries, a query leaves nothing in it,
and streams are queried batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tsql
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.kernels.expr.errors import CancelledError, SourceError

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


@pytest.fixture
def db(spark: Any) -> Iterator[Any]:
    with tsql.connect(spark=spark) as session:
        session.register("numbers", spark.range(0, 1000, 1, 3).selectExpr("id", "id % 7 AS g"))
        yield session


def test_jobs_have_what_the_caller_has_set(db: Any, spark: Any) -> None:
    """The pool of a fair scheduler, tags, and what the jobs are for. Threads of the query start them."""
    context = spark.sparkContext
    store = context._jsc.sc().statusStore()

    def run() -> list[tuple[Any, ...]]:
        context.setLocalProperty("spark.scheduler.pool", "reports")
        context.setJobDescription("the daily report")
        context.addJobTag("daily")
        return list(db.sql("SELECT g, median(id) FROM numbers GROUP BY g ORDER BY g LIMIT 1").fetchall())

    with ThreadPoolExecutor(1) as pool:
        before = store.jobsList(None).size()
        assert pool.submit(run).result() == [(0, 497.0)]
    jobs = store.jobsList(None)
    assert jobs.size() > before
    job = jobs.apply(0)  # the newest comes first
    assert job.description().get() == "the daily report"
    assert job.jobTags().contains("daily")
    assert store.lastStageAttempt(job.stageIds().apply(0)).schedulingPool() == "reports"


def test_a_large_plan_leaves_no_file(db: Any, spark: Any) -> None:
    """PySpark broadcasts functions beyond 1 MB, and leaves the files to the end of the session."""
    folder = Path(spark.sparkContext._temp_dir)
    before = set(folder.iterdir())
    text = "x" * (2 << 20)
    sql = f"SELECT g, median(id), max(CASE WHEN g = 3 THEN '{text}' ELSE 'y' END) FROM numbers GROUP BY g ORDER BY g"
    found = db.sql(sql).fetchall()
    assert [(g, middle, len(longest)) for g, middle, longest in found[2:5]] == [
        (2, 499.0, 1),
        (3, 500.0, len(text)),
        (4, 501.0, 1),
    ]
    assert set(folder.iterdir()) == before


def test_jobs_of_a_dataframe_are_cancelled(spark: Any) -> None:
    """Spark runs the shuffles of an adaptive DataFrame before its last stage is known."""

    def sleep(batches: Any) -> Any:
        import time

        time.sleep(300)
        yield from batches

    own = spark.newSession()
    own.conf.set("spark.sql.adaptive.enabled", "true")
    tracker = spark.sparkContext.statusTracker()
    with tsql.connect(spark=own) as db:
        db.register("sleepers", own.range(0, 2, 1, 2).mapInArrow(sleep, "id long").groupBy("id").count())
        relation = db.sql("SELECT sum(id) FROM sleepers")
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(relation.arrow)
            assert wait_until(lambda: bool(tracker.getActiveJobsIds()))
            relation.cancel()
            with pytest.raises(CancelledError):
                ended.result(PATIENCE_SECONDS)
    assert wait_until(lambda: not tracker.getActiveJobsIds())


def test_streams(db: Any, spark: Any, tmp_path: Path) -> None:
    """A stream is no table; each of its batches is one."""
    folder = tmp_path / "in"
    for number in range(2):
        spark.range(number * 10, number * 10 + 10, 1, 1).write.mode("append").parquet(str(folder))
    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(folder))
    db.register("rows", stream)
    with pytest.raises(SourceError, match="a streaming DataFrame") as caught:
        db.sql("SELECT * FROM rows").arrow()
    assert "foreachBatch" in str(caught.value.hint)
    sums = []

    def add(batch: Any, number: int) -> None:
        with tsql.connect(spark=batch.sparkSession) as mine:
            mine.register("rows", batch)
            sums.append(mine.sql("SELECT count(*), sum(id) FROM rows").fetchone())

    writer = stream.writeStream.foreachBatch(add).option("checkpointLocation", str(tmp_path / "state"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(sums) == [(10, 45), (10, 145)]
