"""Nanoseconds become microseconds downwards, whatever they come from, and the user hears of it."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql

DAY_NS = 86_400_000_000_000
NOTE = "digits below microseconds of column {} were dropped"
NANOS = [0, 1, 999, 1000, 1499, 1500, -1, -999, -1000, -1500, DAY_NS - 1, -DAY_NS - 1, 2**62, -(2**62), None]


def parquet(table: pa.Table, folder: Path) -> str:
    pq.write_table(table, folder / "t.parquet", row_group_size=4)
    return f"'{folder}/t.parquet'"


def plain_parquet(table: pa.Table, folder: Path) -> str:
    pq.write_table(table, folder / "p.parquet", use_dictionary=False, compression="none")
    return f"'{folder}/p.parquet'"


def int96(table: pa.Table, folder: Path) -> str:
    pq.write_table(table, folder / "i.parquet", use_deprecated_int96_timestamps=True, row_group_size=4)
    return f"'{folder}/i.parquet'"


def ipc(table: pa.Table, folder: Path) -> str:
    with pa.OSFile(str(folder / "t.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return f"'{folder}/t.arrow'"


def opened(write: Callable[[pa.Table, Path], str] | str, table: pa.Table, folder: Path) -> tuple[tsql.Session, str]:
    db = tsql.connect()
    if callable(write):
        return db, write(table, folder)
    frames: dict[str, Callable[[], Any]] = {
        "arrow": lambda: table,
        "pandas": table.to_pandas,
        "polars": lambda: pl.from_arrow(table),
    }
    db.register("t", frames[write]())
    return db, "t"


EVERYWHERE = pytest.mark.parametrize("write", [parquet, plain_parquet, int96, ipc, "arrow", "pandas", "polars"])


@EVERYWHERE
def test_timestamps(write: Any, tmp_path: Path) -> None:
    db, name = opened(write, pa.table({"ts": pa.array(NANOS, pa.timestamp("ns")), "n": range(len(NANOS))}), tmp_path)
    found = db.sql(f"SELECT n, ts FROM {name} ORDER BY n")
    assert found.arrow().column("ts").cast(pa.int64()).to_pylist() == [None if v is None else v // 1000 for v in NANOS]
    assert found.notes == [NOTE.format("ts")]
    other = db.sql(f"SELECT n FROM {name}")
    other.fetchall()
    assert other.notes == []
    filtered = db.sql(f"SELECT n, ts FROM {name} WHERE ts >= TIMESTAMP '1970-01-01' AND n < 6 ORDER BY n")
    assert [row[0] for row in filtered.fetchall()] == [0, 1, 2, 3, 4, 5]
    assert filtered.notes == [NOTE.format("ts")]


@EVERYWHERE
def test_whole_microseconds_are_not_spoken_of(write: Any, tmp_path: Path) -> None:
    db, name = opened(write, pa.table({"ts": pa.array([0, 1000, -5000, None], pa.timestamp("ns"))}), tmp_path)
    found = db.sql(f"SELECT ts FROM {name}")
    assert found.arrow().column("ts").cast(pa.int64()).to_pylist() == [0, 1, -5, None]
    assert found.notes == []


def test_a_time_stays_in_its_window(tmp_path: Path) -> None:
    late = pa.array([DAY_NS - 1], pa.timestamp("ns"))
    db = tsql.connect()
    db.register("t", pa.table({"ts": late}))
    rows = db.sql("SELECT window_start, count(*) FROM TUMBLE(t, ts, INTERVAL '1 day') GROUP BY window_start")
    assert rows.fetchall() == [(dt.datetime(1970, 1, 1), 1)]
    assert rows.notes == [NOTE.format("ts")]
    assert "digits below microseconds" in db.sql("SELECT max(ts) FROM t").explain("analyze")


def test_statements_that_run_at_once_tell_it(tmp_path: Path) -> None:
    db, name = opened(parquet, pa.table({"ts": pa.array([1], pa.timestamp("ns"))}), tmp_path)
    for statement in (
        f"CREATE TABLE x AS FROM {name}",
        f"INSERT INTO x FROM {name}",
        f"COPY (FROM {name}) TO '{tmp_path}/x.csv'",
        f"COPY x FROM {name}",
    ):
        done = db.sql(statement)
        assert done.notes == [NOTE.format("ts")], statement
        done.fetchall()
        assert done.notes == [NOTE.format("ts")], statement
    assert db.sql("SELECT * FROM x").notes == []
    assert db.execute(f"SELECT ts FROM {name}").notes == [NOTE.format("ts")]


@pytest.mark.parametrize("write", [parquet, plain_parquet, ipc, "arrow", "polars"])
def test_times_of_day(write: Any, tmp_path: Path) -> None:
    values = [0, 1, 999, DAY_NS - 1, 1500, None]
    db, name = opened(write, pa.table({"t": pa.array(values, pa.time64("ns"))}), tmp_path)
    found = db.sql(f"SELECT t FROM {name}")
    assert found.arrow().column("t").cast(pa.int64()).to_pylist() == [None if v is None else v // 1000 for v in values]
    assert found.notes == [NOTE.format("t")]


@pytest.mark.parametrize("write", [ipc, "arrow", "pandas", "polars"])
def test_durations(write: Any, tmp_path: Path) -> None:
    values = [0, 1, 1500, -1, -1500, 2000, None]
    db, name = opened(write, pa.table({"d": pa.array(values, pa.duration("ns"))}), tmp_path)
    found = db.sql(f"SELECT d FROM {name}")
    assert [row[0] for row in found.fetchall()] == [
        None if v is None else dt.timedelta(microseconds=v // 1000) for v in values
    ]
    assert found.notes == [NOTE.format("d")]
    moved = db.sql(f"SELECT epoch_us(TIMESTAMP '1970-01-01' + d) FROM {name}").fetchall()
    assert moved == [(None if v is None else v // 1000,) for v in values]


def test_calendar_intervals() -> None:
    db = tsql.connect()
    db.register(
        "t",
        pa.table(
            {
                "i": pa.array(
                    [pa.MonthDayNano([1, 2, 1999]), None, pa.MonthDayNano([0, 0, -1])], pa.month_day_nano_interval()
                )
            }
        ),
    )
    found = db.sql("SELECT i FROM t")
    assert [None if v is None else tuple(v) for v in found.arrow().column("i").to_pylist()] == [
        (1, 2, 1000),
        None,
        (0, 0, -1000),
    ]
    assert found.notes == [NOTE.format("i")]
    sliced = pa.table(
        {
            "i": pa.array(
                [pa.MonthDayNano([1, 2, 1999]), None, pa.MonthDayNano([0, 0, 3000])], pa.month_day_nano_interval()
            )
        }
    )[1:]
    db.register("s", sliced)
    found = db.sql("SELECT i FROM s")
    assert [None if v is None else tuple(v) for v in found.arrow().column("i").to_pylist()] == [None, (0, 0, 3000)]
    assert found.notes == []


@pytest.mark.parametrize("name", ["t.csv", "t.json"])
def test_text(name: str, tmp_path: Path) -> None:
    texts = [
        ("2020-01-01 23:59:59.999999999", "23:59:59.9999999"),
        ("1960-01-01 00:00:00.0000009", "00:00:00.000001"),
        ("2020-01-01 00:00:00.123456000", "00:00:00"),
    ]
    rows = (
        [f"{a},{b},2020-01-01 00:00:00.123456000" for a, b in texts]
        if name.endswith("csv")
        else [f'{{"ts": "{a}", "t": "{b}", "w": "2020-01-01 00:00:00.123456000"}}' for a, b in texts]
    )
    (tmp_path / name).write_text("\n".join((["ts,t,w"] if name.endswith("csv") else []) + rows) + "\n")
    found = tsql.connect().sql(f"SELECT ts, t, w FROM '{tmp_path}/{name}'")
    assert found.types == ["TIMESTAMP", "TIME", "TIMESTAMP"]
    assert [row[:2] for row in found.fetchall()] == [
        (dt.datetime(2020, 1, 1, 23, 59, 59, 999999), dt.time(23, 59, 59, 999999)),
        (dt.datetime(1960, 1, 1), dt.time(0, 0, 0, 1)),
        (dt.datetime(2020, 1, 1, 0, 0, 0, 123456), dt.time(0)),
    ]
    assert sorted(found.notes) == [NOTE.format("t"), NOTE.format("ts")]


def test_partitions_conformed_files_and_streams(tmp_path: Path) -> None:
    (tmp_path / "k=1").mkdir()
    table = pa.table({"TS": pa.array([1001], pa.timestamp("ns")), "v": [1]})
    ipc(table, tmp_path / "k=1")
    found = tsql.connect().sql(f"SELECT k, ts FROM read_ipc('{tmp_path}/k=1/t.arrow')")
    assert found.fetchall() == [(1, dt.datetime(1970, 1, 1, 0, 0, 0, 1))]
    assert found.notes == [NOTE.format("TS")]
    name = parquet(table, tmp_path)
    found = tsql.connect().sql(
        f"SELECT moment FROM read_parquet({name}, schema => {{'v': 'BIGINT', 'ts': 'TIMESTAMP'}}) AS t(v, moment)"
    )
    assert found.fetchall() == [(dt.datetime(1970, 1, 1, 0, 0, 0, 1),)]
    assert found.notes == [NOTE.format("ts")]


def test_old_timestamps_of_all_years(tmp_path: Path) -> None:
    """INT96 holds years that nanoseconds in 64 bits do not: their digits and their years are both right."""
    generator = random.Random(7)
    moments = [
        dt.datetime(1, 1, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        dt.datetime(1500, 2, 3, 4, 5, 6, 7),
        None,
    ]
    moments += [
        dt.datetime(1, 1, 1)
        + dt.timedelta(days=generator.randrange(3_000_000), microseconds=generator.randrange(DAY_NS // 1000))
        for _ in range(100)
    ]
    pq.write_table(
        pa.table({"ts": pa.array(moments, pa.timestamp("us"))}),
        tmp_path / "t.parquet",
        use_deprecated_int96_timestamps=True,
    )
    found = tsql.connect().sql(f"SELECT ts FROM '{tmp_path}/t.parquet'")
    assert [row[0] for row in found.fetchall()] == moments
    assert found.notes == []


def test_random_nanoseconds_in_frames() -> None:
    generator = np.random.default_rng(11)
    values = generator.integers(-(2**62), 2**62, 10_000)
    db = tsql.connect()
    db.register("t", pd.DataFrame({"ts": values.astype("datetime64[ns]")}))
    assert np.array_equal(np.asarray(db.sql("SELECT epoch_us(ts) AS us FROM t").arrow().column("us")), values // 1000)
