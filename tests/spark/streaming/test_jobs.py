"""Jobs on a real cluster: Spark chooses the micro-batches, remembers them, and gives them again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.spark.streaming.clicks import (
    TUMBLE,
    TUMBLE_IN_DUCKDB,
    at,
    clicks,
    in_duckdb,
    rows_in,
    rows_of,
    stream_of,
    wait_until,
    write,
    write_all,
)
from tsql.kernels.expr.errors import CatalogError, ExecutionError

WAIT = 120


def test_windows_and_a_join_of_streams(db: tsql.Session, tmp_path: Path) -> None:
    """Two streams of files that end, in several micro-batches, with a table."""
    left, right = clicks(600, seed=1), clicks(500, seed=2)
    names = pa.table({"k": list(range(0, 9, 2)), "name": [f"key {k}" for k in range(0, 9, 2)]})
    write_all(tmp_path / "left", left, 3)
    write_all(tmp_path / "right", right, 2)
    db.sql(stream_of(tmp_path / "left", follow=False))
    db.sql(stream_of(tmp_path / "right", follow=False, name="views"))
    db.register("names", names)
    near = (
        "SELECT clicks.v AS v, views.v AS w, name FROM clicks JOIN views ON clicks.k = views.k "
        "AND views.ts BETWEEN clicks.ts AND clicks.ts + INTERVAL '2 seconds' JOIN names ON names.k = clicks.k"
    )
    job = db.sql(near).start()
    assert job.wait(WAIT) and job.state == "finished"
    expected = in_duckdb(near, clicks=left, views=right, names=names)
    assert rows_of(job.table()) == expected
    progress = job.progress()
    assert progress.rows_in == 1100 and progress.rows_out == len(expected) and progress.late == 0
    assert {stream.name for stream in progress.streams} == {"clicks", "views"}
    assert "tsql_job_rows_out_total" in job.metrics()


def test_a_streaming_dataframe(db: tsql.Session, spark: Any, tmp_path: Path) -> None:
    """Registered as a stream, with changes of the result."""
    table = clicks(400, seed=3)
    write_all(tmp_path / "in", table, 2)
    reader = spark.readStream.schema("ts TIMESTAMP_NTZ, k LONG, v LONG").option("maxFilesPerTrigger", 1)
    db.stream("clicks", reader.parquet(str(tmp_path / "in")), time="ts", watermark="ts - INTERVAL '5 seconds'")
    job = db.sql(f"{TUMBLE} EMIT CHANGES").start(interval=0.05)
    wait_until(lambda: job.progress().rows_in == 400)
    # Nothing is final yet in the last minute, but it is shown.
    wait_until(lambda: rows_of(job.result()) == in_duckdb(TUMBLE_IN_DUCKDB, clicks=table))
    job.stop(drain=True, timeout=WAIT)
    assert rows_of(job.result()) == in_duckdb(TUMBLE_IN_DUCKDB, clicks=table)
    assert job.state == "finished"


def test_late_rows_are_dropped_and_counted(db: tsql.Session, tmp_path: Path) -> None:
    schema = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.int64())])
    files = (((1, 1), (70, 2)), ((20, 4), (64, 8), (66, 16)), ((200, 32),))
    for number, rows in enumerate(files):
        columns = [[at(seconds) for seconds, _ in rows], [0] * len(rows), [v for _, v in rows]]
        write(tmp_path / "in", pa.table(columns, schema=schema), number)
    db.sql(stream_of(tmp_path / "in", follow=True, more=" ALLOWED LATENESS INTERVAL '1 second' ON LATE INTO late"))
    job = db.sql(TUMBLE).start(interval=0.05)
    wait_until(lambda: job.progress().rows_in == 6)
    job.stop(drain=True, timeout=WAIT)
    # The promise behind the first file is 70 - 5 - 1 seconds: 64 is in time, and 20 is not.
    assert [row[3] for row in sorted(rows_of(job.table()), key=lambda row: row[1])] == [1, 26, 32]
    assert job.progress().late == 1
    assert db.sql("SELECT v FROM late").fetchall() == [(4,)]


def test_a_job_is_stopped_and_goes_on(db: tsql.Session, tmp_path: Path) -> None:
    """With another number of shards; files come in the meantime. The folder has each row once, at any time."""
    table, out = clicks(800, seed=4), tmp_path / "out"
    pieces = [table.slice(start, 200) for start in range(0, 800, 200)]
    write(tmp_path / "in", pieces[0], 0)
    write(tmp_path / "in", pieces[1], 1)
    db.sql(stream_of(tmp_path / "in", follow=True))
    job = db.sql(TUMBLE).start(str(out), checkpoint=tmp_path / "state", interval=0.05, name="clicks-job")
    wait_until(lambda: job.progress().rows_in == 400)
    job.stop(timeout=WAIT)
    assert job.state == "stopped"
    early, epoch = rows_in(out), job.progress().committed
    write(tmp_path / "in", pieces[2], 2)
    write(tmp_path / "in", pieces[3], 3)
    db.sql("SET shards = 3")
    again = db.sql(TUMBLE).start(str(out), checkpoint=tmp_path / "state", interval=0.05)
    assert again.name == "clicks-job" and any("3" in note for note in again.notes)
    wait_until(lambda: again.progress().rows_in == 800)
    assert again.progress().committed > epoch
    again.stop(drain=True, timeout=WAIT)
    expected = in_duckdb(TUMBLE_IN_DUCKDB, clicks=table)
    assert rows_in(out) == expected and set(early) < set(expected)
    done = db.sql(TUMBLE).start(str(out), checkpoint=tmp_path / "state")
    assert done.wait(WAIT) and done.state == "finished"
    assert rows_in(out) == expected


def test_a_driver_is_killed(db: tsql.Session, tmp_path: Path) -> None:
    """kill -9 after some epochs; this process goes on from the checkpoint."""
    table, out = clicks(900, seed=5), tmp_path / "out"
    write_all(tmp_path / "in", table, 9)
    command = [sys.executable, "-m", "tests.spark.streaming.killed_job"]
    process = subprocess.Popen([*command, str(tmp_path / "in"), str(out), str(tmp_path / "state")])
    try:
        wait_until(lambda: process.poll() is not None or len(list((tmp_path / "state" / "epochs").glob("*.json"))) > 1)
        assert process.poll() is None
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    db.sql(stream_of(tmp_path / "in", follow=True))
    job = db.sql(TUMBLE).start(str(out), checkpoint=tmp_path / "state", interval=0.05)
    wait_until(lambda: job.progress().rows_in == 900)
    job.stop(drain=True, timeout=WAIT)
    assert rows_in(out) == in_duckdb(TUMBLE_IN_DUCKDB, clicks=table)


def test_errors_are_one_message(db: tsql.Session, tmp_path: Path) -> None:
    """Of the query, and of a file that is none."""
    write(tmp_path / "in", clicks(50, seed=6), 0)
    db.sql(stream_of(tmp_path / "in", follow=False))
    job = db.sql("SELECT k, CAST('x' || v AS BIGINT) AS n FROM clicks").start()
    with pytest.raises(ExecutionError, match="x") as caught:
        job.wait(WAIT)
    assert "java" not in str(caught.value).lower() and "CAST" in str(caught.value)
    assert job.state == "failed"


def test_a_topic_needs_a_package(db: tsql.Session) -> None:
    mark = "WATERMARK FOR ts AS ts"
    topic = "connector = 'kafka', brokers = '127.0.0.1:9', topic = 'clicks'"
    db.sql(f"CREATE STREAM clicks (k BIGINT, v BIGINT, ts TIMESTAMP, {mark}) WITH ({topic})")
    with pytest.raises(CatalogError, match="no source for Kafka") as caught:
        db.sql(TUMBLE).start()
    assert "spark-sql-kafka" in str(caught.value.hint)
    assert db.jobs() == []
