"""has_time: true for times that can be in a window, and a count of the NULLs that is the same however the query
runs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.spark.cluster import InProcess

ROWS = 20_000
TIMES = [None if i % 7 == 0 else dt.datetime(2024, 1, 1) + dt.timedelta(seconds=i) for i in range(ROWS)]
MISSING = sum(time is None for time in TIMES)
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "ts": pa.array(TIMES, pa.timestamp("us")),
        "full": pa.array(range(ROWS), pa.timestamp("us")),
    }
)
COUNTED = {"rows without a time": MISSING}
LATE = sum(time is None for time in TIMES[10_000:])
"""Of the rows from 10,000 on."""

CASES = {
    "a result": ("SELECT id FROM t WHERE has_time(ts)", MISSING),
    "groups": ("SELECT id % 10 AS k, count(*) AS n FROM t WHERE has_time(ts) GROUP BY k", MISSING),
    "one group, without a branch": ("SELECT sum(id) AS s FROM t WHERE has_time(ts)", MISSING),
    "one group, after another condition": (
        "SELECT sum(id) AS s FROM (SELECT * FROM t WHERE id >= 10000) WHERE has_time(ts)",
        LATE,
    ),
    "before another condition": ("SELECT id FROM (SELECT * FROM t WHERE has_time(ts)) WHERE id % 5000 = 77", MISSING),
    "after one that few rows pass": (
        "SELECT id FROM (SELECT * FROM t WHERE id % 5000 = 0) WHERE has_time(ts)",
        sum(TIMES[i] is None for i in range(0, ROWS, 5000)),
    ),
    "above a sort": ("SELECT id FROM (SELECT * FROM t ORDER BY id DESC LIMIT 10000) WHERE has_time(ts)", LATE),
    "no NULLs": ("SELECT count(*) AS n FROM t WHERE has_time(full)", 0),
    "a date": ("SELECT count(*) AS n FROM t WHERE has_time(CAST(ts AS DATE))", MISSING),
}
SETTINGS: list[dict[str, Any]] = [
    {"threads": 1},
    {"threads": 2, "small_rows": 0},
    {"shards": 3, "batch_rows": 97},
    {"optimizer": False},
]


@pytest.fixture(params=SETTINGS, ids=str)
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with tsql.connect(**request.param) as session:
        session.register("t", TABLE)
        yield session


@pytest.mark.parametrize("case", CASES)
def test_counts_are_exact(db: Any, case: str) -> None:
    sql, missing = CASES[case]
    for _ in range(2):
        relation = db.sql(sql)
        found = relation.arrow()
        assert found.sort_by([(name, "ascending") for name in found.column_names]) == _plain(db, sql)
        assert relation.counts == ({"rows without a time": missing} if missing else {})


def _plain(db: Any, sql: str) -> pa.Table:
    """The same rows without counting."""
    table = db.sql(sql.replace("has_time", "isfinite")).arrow()
    return table.sort_by([(name, "ascending") for name in table.column_names])


def test_stored_tables_and_files(tmp_path: Any) -> None:
    with tsql.connect(threads=2) as db:
        db.register("t", TABLE)
        db.sql("CREATE TABLE stored AS FROM t")
        db.table("t").write(tmp_path / "t.parquet")
        for source in ("stored", f"'{tmp_path}/t.parquet'"):
            relation = db.sql(f"SELECT count(*) FROM {source} WHERE has_time(ts)")
            assert (relation.fetchall(), relation.counts) == ([(ROWS - MISSING,)], COUNTED)


def test_rows_that_are_read_again_count_once() -> None:
    """Groups that do not fit are given up, and their input is read again into partitions."""
    with tsql.connect(threads=2, spill_after=100_000) as db:
        db.register("t", TABLE)
        relation = db.sql("SELECT id, count(*) AS n FROM t WHERE has_time(ts) GROUP BY id")
        assert relation.arrow().num_rows == ROWS - MISSING
        assert relation.counts == COUNTED
        assert "bytes spilled" in relation.explain("analyze")


def test_the_interpreter_and_spark_count_too() -> None:
    small = TABLE.slice(0, 50)
    missing = {"rows without a time": small.column("ts").null_count}
    for session in (tsql.connect(backend="interp"), tsql.connect(backend="spark", spark=InProcess())):
        with session as db:
            db.register("t", small)
            relation = db.sql("SELECT id % 3 AS k, count(*) AS n FROM t WHERE has_time(ts) GROUP BY k ORDER BY k")
            assert sum(n for _, n in relation.fetchall()) == 50 - small.column("ts").null_count
            assert relation.counts == missing


def test_values(db: Any) -> None:
    sql = (
        "SELECT has_time(TIMESTAMP '2024-01-01'), has_time(DATE 'infinity'), has_time(TIMESTAMPTZ "
        "'-infinity'), has_time(CAST(NULL AS TIMESTAMP))"
    )
    assert db.sql(sql).fetchall() == [(True, False, False, False)]


def test_explain_analyze_shows_them(db: Any) -> None:
    assert f"\n{MISSING:,} rows without a time\n" in db.sql("SELECT id FROM t WHERE has_time(ts)").explain("analyze")
