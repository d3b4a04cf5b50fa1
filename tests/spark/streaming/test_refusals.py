"""What jobs on a cluster refuse, or say, with one clear message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tsql
from tests.spark.cluster import InProcess
from tests.spark.streaming.clicks import TUMBLE, clicks, stream_of, write_all
from tests.spark.streaming.in_process import Cluster, declare, run
from tsql.backends.live.sinks.memory import MemorySink
from tsql.kernels.expr.errors import TsqlError

TABLE = clicks(60, seed=8)


@pytest.fixture
def session() -> Any:
    with tsql.connect(threads=2) as found:
        declare(found, "clicks", TABLE.schema, "ts")
        yield found


def refused(start: Any, *words: str) -> None:
    with pytest.raises(TsqlError) as caught:
        start()
    text = f"{caught.value} {caught.value.hint}"
    assert all(word in text for word in words), text


def test_sessions_that_are_far_away(tmp_path: Path) -> None:
    """The driver of Spark Connect is in another process."""
    write_all(tmp_path, TABLE, 1)
    with tsql.connect(spark=InProcess(2)) as db:
        db.sql(stream_of(tmp_path, follow=True))
        refused(lambda: db.sql(TUMBLE).start(), "Spark Connect", "driver is this process")


def test_sinks_without_changes(session: tsql.Session) -> None:
    class Plain(MemorySink):
        takes_changes = False

    refused(lambda: run(session, f"{TUMBLE} EMIT CHANGES", [], Plain()), "changes", "EMIT FINAL")


def test_streams_that_spark_does_not_read(tmp_path: Path) -> None:
    write_all(tmp_path, TABLE, 1)
    with tsql.connect(spark=Cluster(2)) as db:
        db.stream("clicks", TABLE, time="ts")
        refused(lambda: db.sql(TUMBLE).start(), "clicks is data in memory")
        db.sql(stream_of(tmp_path, follow=True))
        db.sql(stream_of(tmp_path, follow=False, name="views"))
        both = "SELECT clicks.k FROM clicks JOIN views ON clicks.k = views.k"
        refused(lambda: db.sql(both).start(), "views ends and clicks goes on", "follow = true")
        refused(lambda: db.sql(TUMBLE).start(replay=10.0), "one machine")


def test_queries_that_never_answer(tmp_path: Path) -> None:
    """As on one machine: the groups of an endless stream are never complete."""
    write_all(tmp_path, TABLE, 1)
    with tsql.connect(spark=Cluster(2)) as db:
        db.sql(stream_of(tmp_path, follow=True))
        refused(
            lambda: db.sql("SELECT k, count(*) AS n FROM clicks GROUP BY k").start(), "does not end", "EMIT CHANGES"
        )


def test_clusters_that_share_nothing(tmp_path: Path) -> None:
    write_all(tmp_path, TABLE, 1)
    cluster = Cluster(2)
    cluster.shares_nothing = True
    with tsql.connect(spark=cluster) as db:
        db.sql(stream_of(tmp_path, follow=True))
        refused(lambda: db.sql(TUMBLE).start(), "folder that all its machines see", "checkpoint")


def test_checkpoints_of_others(session: tsql.Session, tmp_path: Path) -> None:
    batches = [{"clicks": TABLE}]
    run(session, TUMBLE, batches, MemorySink(), tmp_path / "state", stops_after=1)
    other = TUMBLE.replace("1 minute", "2 minutes")
    refused(lambda: run(session, other, batches, MemorySink(), tmp_path / "state"), "the query has changed")
    write_all(tmp_path / "in", TABLE, 1)
    with tsql.connect() as local:
        local.sql(stream_of(tmp_path / "in", follow=False))
        local.sql(TUMBLE).start(checkpoint=tmp_path / "local").wait()
    refused(lambda: run(session, TUMBLE, batches, MemorySink(), tmp_path / "local"), "a job on one machine")


def test_micro_batches_that_do_not_follow(session: tsql.Session, tmp_path: Path) -> None:
    """Spark's folder of the checkpoint is not that of the last epoch."""
    batches = [{"clicks": TABLE.slice(0, 20)}, {"clicks": TABLE.slice(20, 20)}, {"clicks": TABLE.slice(40)}]
    job = run(session, TUMBLE, batches, MemorySink(), tmp_path / "state", stops_after=1)
    assert job.epoch == 1
    job.epoch = 0
    with pytest.raises(TsqlError, match="Spark goes on with 1"):
        job._called(job._tagged(batches[1]), 1)


def test_what_a_latency_means(session: tsql.Session) -> None:
    job = run(session, f"{TUMBLE} EMIT FINAL WITHIN INTERVAL '10 ms'", [{"clicks": TABLE}], MemorySink())
    assert any("micro-batch" in note for note in job.notes)


def test_errors_end_the_job(session: tsql.Session) -> None:
    failing = TUMBLE.replace("sum(v)", "sum(CAST('x' || v AS BIGINT))")
    with pytest.raises(TsqlError, match="x"):
        run(session, failing, [{"clicks": TABLE}], MemorySink())
