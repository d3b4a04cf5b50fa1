"""Streams on Spark, and what its tasks count on its way to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.spark.cluster import InProcess
from tsql.backends.spark import task
from tsql.kernels.expr.errors import BindError

QUERY = "SELECT auction, count(*) AS n FROM bids GROUP BY auction ORDER BY auction"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("auction,ts\n007,2024-01-01 00:00:00\n8,\n")
    with tsql.connect(spark=InProcess(), backend="spark") as session:
        session.sql(
            "CREATE STREAM bids (ts TIMESTAMP, auction VARCHAR, WATERMARK FOR ts AS ts) WITH (connector = "
            f"'csv', path = '{tmp_path}/*.csv')"
        )
        yield session


def test_tasks_open_streams_with_their_columns(db: Any) -> None:
    assert db.sql(QUERY).fetchall() == [("007", 3), ("8", 3)]
    assert db.sql(f"{QUERY} EMIT CHANGES").fetchall() == [("007", 3), ("8", 3)]


def test_counts_come_back(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task of the stage that reads counts two rows."""
    plain = task.Task._rows
    sent: list[str] = []

    def rows(self: Any, shard: int, execution: Any) -> Any:
        if any(entry.kind == "splits" for entry in self.part.entries):
            execution.run.count("rows without a time", 2)
            sent.append(self.part.top)
        return plain(self, shard, execution)

    monkeypatch.setattr(task.Task, "_rows", rows)
    for sql in (QUERY, "SELECT auction, median(epoch_us(ts)) FROM bids GROUP BY auction"):
        sent.clear()
        relation = db.sql(sql)
        assert len(relation.fetchall()) == 2
        assert sent and relation.counts == {"rows without a time": 2 * len(sent)}


def test_files_with_nanoseconds_and_nested_columns(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(
            pa.table({"l": [[1]], "ts": pa.array([1000 * number + 1], pa.timestamp("ns")), "v": [number]}),
            tmp_path / f"{number}.parquet",
        )
    with tsql.connect(spark=InProcess(), backend="spark") as session:
        found = session.sql(f"SELECT v, epoch_us(ts) FROM '{tmp_path}/*.parquet' ORDER BY v")
        assert found.fetchall() == [(0, 0), (1, 1), (2, 2)]
        assert found.notes == ["digits below microseconds of column ts were dropped"]
        assert session.sql(f"SELECT count(*) FROM '{tmp_path}/*.parquet'").fetchall() == [(3,)]
        with pytest.raises(BindError, match=r"l \(BIGINT\[\]\)"):
            session.sql(f"FROM '{tmp_path}/*.parquet'")
        session.register("t", pa.table({"ts": pa.array([1999], pa.timestamp("ns"))}))
        found = session.sql("SELECT epoch_us(ts) FROM t")
        assert found.fetchall() == [(1,)]
        assert found.notes == ["digits below microseconds of column ts were dropped"]
