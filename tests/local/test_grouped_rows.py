"""Rows in the order of a key and a time straight from their chunks, against a stable sort of Python; and the sessions
that need them, against DuckDB."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.backends.local.sort.grouped_rows import grouped_rows
from tsql.kernels.expr.nodes import Column, SortKey
from tsql.kernels.expr.types import BIGINT

KEYS = [(0, SortKey(Column("k", BIGINT))), (1, SortKey(Column("t", BIGINT)))]
ROWS = 30_000
INT64 = pa.int64()


def chunks_of(columns: list[pa.Array], sizes: list[int]) -> list[list[pa.Array]]:
    """The rows in chunks of these sizes, and the rest in one."""
    chunks, start = [], 0
    for size in [*sizes, len(columns[0]) - sum(sizes)]:
        chunks.append([c.slice(start, size) for c in columns])
        start += size
    return chunks


def rows_of(
    seed: int, keys: int, apart: int = 1, least: int = 0, key_type: pa.DataType = INT64, rows: int = ROWS
) -> list[pa.Array]:
    """Random keys and times with ties, the number of each row in two widths, and a column of one byte."""
    random = np.random.default_rng(seed)
    k = random.integers(0, keys, rows) * apart + least
    t = random.integers(-50, 50, rows) * 1_000_003
    return [
        pa.array(k, key_type),
        pa.array(t, pa.timestamp("us")),
        pa.array(np.arange(rows), pa.int64()),
        pa.array(np.arange(rows) % 100, pa.int8()),
        pa.array(np.arange(rows), pa.int32()),
    ]


def expected(columns: list[pa.Array], shift: int) -> list[tuple[Any, ...]]:
    return sorted(found(columns), key=lambda row: (row[0] >> shift, row[1]))


def found(arrays: list[pa.Array]) -> list[tuple[Any, ...]]:
    return list(zip(*(np.asarray(a).astype(np.int64).tolist() for a in arrays), strict=True))


@pytest.mark.parametrize("key_type", [pa.int32(), pa.int64()], ids=str)
@pytest.mark.parametrize(
    ("keys", "apart", "least", "shift"),
    [(1, 1, 0, 0), (500, 1, -250, 0), (5000, 1, 7, 0), (5000, 8, -20_000, 3), (30, 1, 2**31 - 40, 0), (300, 128, 5, 7)],
)
def test_the_order_is_that_of_a_stable_sort(
    keys: int, apart: int, least: int, shift: int, key_type: pa.DataType
) -> None:
    for seed, sizes in ((1, [10_000, 0, 5]), (2, [1] * 100)):
        columns = rows_of(seed, keys, apart, least, key_type)
        assert found(grouped_rows(chunks_of(columns, sizes), KEYS, shift)) == expected(columns, shift)


@pytest.mark.parametrize(
    "change", ["few rows", "far apart", "nulls", "strings", "descending", "a large chunk", "other keys"]
)
def test_what_it_is_not_for(change: str) -> None:
    columns, keys = rows_of(3, 50), KEYS
    match change:
        case "few rows":
            columns = [c.slice(0, 100) for c in columns]
        case "far apart":
            columns = rows_of(3, 50, 10_000)
        case "nulls":
            columns[2] = pa.array([None, *range(ROWS - 1)], pa.int64())
        case "strings":
            columns[2] = columns[2].cast(pa.string())
        case "descending":
            keys = [KEYS[0], (1, SortKey(Column("t", BIGINT), True))]
        case "a large chunk":
            columns = rows_of(3, 50, rows=70_000)
        case "other keys":
            keys = [*KEYS, (2, KEYS[1][1])]
    assert grouped_rows(chunks_of(columns, []), keys, 0) is None


SESSIONS = """SELECT k, window_start, window_end, count(*) AS n, sum(x) AS s
    FROM SESSION(t PARTITION BY k, ts, gap => INTERVAL '2 seconds') GROUP BY k, window_start, window_end"""
BY_LAG = """
    WITH marked AS (SELECT *, CASE WHEN ts - lag(ts) OVER w <= INTERVAL '2 seconds' THEN 0 ELSE 1 END AS fresh FROM t
                    WINDOW w AS (PARTITION BY k ORDER BY ts)),
    numbered AS (SELECT *, sum(fresh) OVER (PARTITION BY k ORDER BY ts ROWS UNBOUNDED PRECEDING) AS number FROM marked)
    SELECT k, min(ts) AS window_start, max(ts) + INTERVAL '2 seconds' AS window_end, count(*) AS n, sum(x) AS s
    FROM numbered GROUP BY k, number"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "key",
    [
        "(range * 7919) % 40000",
        "(range * 7919) % 40000 * 128",
        "((range * 7919) % 40000 - 20000)::INTEGER",
        "CASE WHEN range % 5 = 0 THEN NULL ELSE (range * 7919) % 40000 END",
        "range * 4611686018427 % 9223372036854775807",
    ],
)
def test_sessions_of_many_keys(key: str, threads: int) -> None:
    with tsql.connect(threads=threads) as db, empty_duckdb() as duck:
        for engine in (db, duck):
            engine.execute(
                f"CREATE TABLE t AS SELECT {key} AS k, make_timestamp((range * 104729) % 60000000) AS ts, "
                "range AS x FROM range(120000)"
            )
        order = "SELECT * FROM ({}) ORDER BY k, window_start"
        ours, theirs = db.sql(order.format(SESSIONS)).arrow(), duck.sql(order.format(BY_LAG)).to_arrow_table()
        assert ours.num_rows > 1000 and ours.equals(theirs.cast(ours.schema))
