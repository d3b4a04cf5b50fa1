"""Streams on Spark, and what its tasks count on its way to the driver."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.spark.cluster import InProcess
from tsql.backends.spark import kept, task
from tsql.backends.spark.mailbox import Mailbox
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


SHARDS = """plan version 1
target spark shards=3

t      = scan t columns=(id, k)
keyed  = rekey t key=(id)
placed = redistribute keyed scope=global shards=40
groups = aggregate placed by=(id) m=median(k)
some   = aggregate groups phase=partial by=() n=count(*)
one    = gather some
total  = aggregate one phase=final by=() n=count(*)
output total (n)
"""


def test_a_task_with_several_shards_counts_bytes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tally of each shard has the bytes of that shard; whether the task spills follows all that it has."""
    cluster, entering = InProcess(), []
    plain = task.Task._run

    def run(self: Any, entering_bytes: int) -> Any:
        entering.append((self.number, entering_bytes) if self.part.several else None)
        return plain(self, entering_bytes)

    monkeypatch.setattr(task.Task, "_run", run)
    with tsql.connect(spark=cluster) as session:
        session.register("t", pa.table({"id": range(4000), "k": [i % 7 for i in range(4000)]}))
        told = tsql.load_plan_text(SHARDS).run(session).explain("analyze")
    stages = re.findall(r"^([12]) to \w+ +(\d+) .* ([\d,]+) +([\d,]+)$", told, re.MULTILINE)
    (_, _, _, sent), (_, shards, received, _) = stages
    assert shards == "40" and received == sent
    tasks = {one for one in entering if one is not None}
    assert len(tasks) == 3 and sum(size for _, size in tasks) == int(sent.replace(",", ""))


def test_the_bytes_of_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of blobs in memory and in the file, also where the system takes no advice about files (macOS)."""
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    box = Mailbox(100, str(tmp_path))
    for number in range(20):
        box.put(number % 3, "rows", number, bytes(10 * number))
    box.close()
    assert box.spilled_bytes and box.bytes == 1900
    for shard in range(4):
        assert box.bytes_of[shard] == sum(len(blob) for _, blob in box.of(shard, "rows"))


TIMES = pa.table({
    "id": range(300),
    "k": [i % 7 for i in range(300)],
    "ts": pa.array([None if i % 10 == 0 else i for i in range(300)], pa.timestamp("us")),
})  # fmt: skip
READ_TWICE = {
    "a broadcast": "SELECT count(*) FROM times JOIN (SELECT id FROM times WHERE has_time(ts) AND k = 1) s USING (id)",
    "a WITH query of both sides of a join": (
        "WITH c AS (SELECT id, k FROM times WHERE has_time(ts)) SELECT count(*) FROM c a JOIN c b ON a.k = b.id"
    ),
    "a WITH query in subqueries": (
        "WITH c AS (SELECT k, median(id) AS m FROM times WHERE has_time(ts) GROUP BY k) "
        "SELECT count(*) FROM c a JOIN c b ON a.k = b.k, (SELECT max(m) FROM c)"
    ),
    "a sample of the keys": "SELECT id FROM times WHERE has_time(ts) ORDER BY id",
}


@pytest.mark.parametrize("case", READ_TWICE)
@pytest.mark.parametrize("worker", ["one for all tasks", "one for each task", "with a lost attempt"])
def test_rows_that_are_read_twice_count_once(
    case: str, worker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on one machine, whatever workers compute again: what several steps need, or what an attempt has kept that
    does not count itself."""
    for number in range(3):
        pq.write_table(TIMES.slice(number * 100, 100), tmp_path / f"{number}.parquet")
    plain = task.Task.run

    def run(self: Any, rows: Any) -> Any:
        if worker == "one for each task":
            kept._shared.clear()  # as if it were another executor
        given = list(rows)
        if worker == "with a lost attempt":
            list(plain(self, iter(given)))
        yield from plain(task.Task(text_of[id(self)], self.number, self.given, self.shared), iter(given))

    made, text_of = task.Task.__init__, {}

    def remember(self: Any, text: str, *more: Any) -> None:
        text_of[id(self)] = text
        made(self, text, *more)

    monkeypatch.setattr(task.Task, "__init__", remember)
    monkeypatch.setattr(task.Task, "run", run)
    monkeypatch.setattr("tsql.planner.cost.constants.DRIVER_BYTES", -1)
    found = []
    for given in ({}, {"spark": InProcess()}):
        with tsql.connect(**given) as session:
            session.execute(f"CREATE VIEW times AS FROM '{tmp_path}/*.parquet'")
            relation = session.sql(READ_TWICE[case])
            rows = relation.fetchall()
            assert relation.counts.keys() == {"rows without a time"}
            found.append((sorted(rows), relation.counts, relation.explain("analyze")))
    assert found[0][:2] == found[1][:2]
    filtered = [re.search(r"\nfiltered .*# ([\d,]+) rows", text) for _, _, text in found]
    assert filtered[0] and filtered[1] and filtered[0][1] == filtered[1][1]


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
