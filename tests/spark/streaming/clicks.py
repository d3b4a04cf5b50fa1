"""Clicks in files, what a query over them gives, and waiting for a job."""

from __future__ import annotations

import datetime as dt
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

START = 1_709_208_000_000_000
TUMBLE = (
    "SELECT k, window_start, count(*) AS n, sum(v)::BIGINT AS total "
    "FROM TUMBLE(clicks, ts, INTERVAL '1 minute') GROUP BY k, window_start, window_end"
)
TUMBLE_IN_DUCKDB = (
    "SELECT k, time_bucket(INTERVAL '1 minute', ts, TIMESTAMP '1970-01-01') AS window_start, count(*) AS n, "
    "sum(v)::BIGINT AS total FROM clicks GROUP BY ALL"
)
COLUMNS = "ts TIMESTAMP, k BIGINT, v BIGINT"

Row = tuple[Any, ...]


def clicks(rows: int, seed: int, disorder_us: int = 3_000_000) -> pa.Table:
    """Rows that come a tenth of a second after each other, in some disorder."""
    choose = random.Random(f"clicks {seed}")
    times = [START + place * 100_000 + choose.randrange(disorder_us) for place in range(rows)]
    return pa.table({
        "ts": pa.array(times, pa.timestamp("us")),
        "k": pa.array([choose.randrange(9) for _ in range(rows)], pa.int64()),
        "v": pa.array([choose.randrange(100) for _ in range(rows)], pa.int64()),
    })  # fmt: skip


def write(folder: Path, table: pa.Table, number: int) -> None:
    """A file of a stream, with a time that says its place."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part-{number:03}.parquet"
    pq.write_table(table, path.with_suffix(".tmp"))
    os.utime(path.with_suffix(".tmp"), (1_700_000_000 + number, 1_700_000_000 + number))
    path.with_suffix(".tmp").rename(path)


def write_all(folder: Path, table: pa.Table, files: int) -> None:
    size = -(-table.num_rows // files)
    for number in range(files):
        write(folder, table.slice(number * size, size), number)


def stream_of(folder: Path, follow: bool, name: str = "clicks", more: str = "") -> str:
    """The statement that makes a stream of the files."""
    options = f"connector = 'parquet', path = '{folder}/*.parquet'" + (", follow = true" if follow else "")
    mark = f"WATERMARK FOR ts AS ts - INTERVAL '5 seconds'{more}"
    return f"CREATE OR REPLACE STREAM {name} ({COLUMNS}, {mark}) WITH ({options})"


def in_duckdb(sql: str, **tables: pa.Table) -> list[Row]:
    with duckdb.connect() as db:
        for name, table in tables.items():
            db.register(name, table)
        return sorted(db.sql(sql).fetchall(), key=str)


def rows_of(table: pa.Table) -> list[Row]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


def rows_in(folder: Path) -> list[Row]:
    """The rows of a folder of results, as a plain glob reads them."""
    files = sorted(folder.glob("*.parquet"))
    return rows_of(pa.concat_tables([pq.read_table(file) for file in files])) if files else []


def wait_until(holds: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it has not come to that"
        time.sleep(0.05)


def at(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=START) + dt.timedelta(seconds=seconds)
