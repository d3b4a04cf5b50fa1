"""Jobs on a cluster that crash at any call that changes something outside: no row is lost, and none comes twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import tsql
from tests.live.crashes import Crash, Fuse, FusedSink
from tests.spark.streaming.clicks import TUMBLE, TUMBLE_IN_DUCKDB, clicks, in_duckdb, rows_in, rows_of
from tests.spark.streaming.in_process import Cluster, InProcessRun, declare, run
from tsql.backends.live.jobs import checkpoint as checkpoints
from tsql.backends.live.sinks.memory import MemorySink
from tsql.backends.live.sinks.parquet_folder import ParquetFolder

NESTED = f"SELECT window_start, max(n) AS most, count(*) AS keys FROM ({TUMBLE}) GROUP BY window_start"
"""Two parts, one behind the other."""


@pytest.mark.parametrize("sql", (TUMBLE, NESTED), ids=("one part", "two parts"))
def test_crashes(sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    choose, table, out = random.Random(seed), clicks(500, seed=9, disorder_us=1), tmp_path / "out"
    batches = [{"clicks": table.slice(start, 100)} for start in range(0, 500, 100)]
    write, crashes = checkpoints.Checkpoint.write, 0
    for turn in range(14):
        fuse = Fuse(choose.randint(1, 9) if turn < 13 else 10**9, choose.random() < 0.5)
        monkeypatch.setattr(checkpoints.Checkpoint, "write", fuse.around(write))
        with tsql.connect(threads=1) as session:
            declare(session, "clicks", table.schema, "ts")
            try:
                cluster = Cluster(choose.choice((2, 3)))
                cluster.forgets = choose.random() < 0.5
                run(session, sql, batches, FusedSink(ParquetFolder(out), fuse), tmp_path / "state", transport=cluster)
                break
            except Crash:
                crashes += 1
    expected = in_duckdb(sql.replace(TUMBLE, TUMBLE_IN_DUCKDB), clicks=table)
    assert rows_in(out) == expected, f"seed {seed}, {crashes} crashes"


def test_a_micro_batch_that_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks have moved on, and the driver has not: they begin with the states that it names."""
    table = clicks(300, seed=10, disorder_us=1)
    batches = [{"clicks": table.slice(start, 60)} for start in range(0, 300, 60)]
    called, again = InProcessRun._called, random.Random(3)

    def twice(job: InProcessRun, frame: object, number: int) -> None:
        if again.random() < 0.6:
            batch = job.cluster.run
            monkeypatch.setattr(job.cluster, "run", lambda *given: (batch(*given), batch(*given))[1])
        called(job, frame, number)

    monkeypatch.setattr(InProcessRun, "_called", twice)
    with tsql.connect(threads=1) as session:
        declare(session, "clicks", table.schema, "ts")
        sink = MemorySink()
        run(session, TUMBLE, batches, sink)
    assert rows_of(sink.table()) == in_duckdb(TUMBLE_IN_DUCKDB, clicks=table)
