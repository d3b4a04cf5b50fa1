"""Joins whose table outgrows a core's cache have entries fetched ahead: the rows are those of the same join without
that."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.backends.local.join import tables as joins

KEYS = {"dense": lambda n: n, "near": lambda n: n * 37 - 1000, "far": lambda n: n * 6_700_417_000_003 % (2**61)}
QUERIES = {
    "inner": "SELECT count(*), sum(v + w) FROM l JOIN r ON l.k = r.k",
    "filtered": "SELECT count(*), sum(v + w) FROM l JOIN r ON l.k = r.k WHERE v % 7 = 1 AND l.j < 5",
    "two keys": "SELECT count(*), sum(v + w) FROM l JOIN r ON l.k = r.k AND l.j = r.j",
    "left": "SELECT count(*), count(w), sum(v + coalesce(w, -1)) FROM l LEFT JOIN r ON l.k = r.k",
    "full": (
        "SELECT count(*), count(w), count(v), sum(coalesce(v, 3) + coalesce(w, -1)) FROM l FULL JOIN r ON l.k = r.k"
    ),
    "semi": "SELECT count(*), sum(v) FROM l WHERE k IN (SELECT k FROM r WHERE w % 3 = 0)",
    "anti": "SELECT count(*), sum(v) FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND r.w > l.j)",
    "not in": "SELECT count(*), sum(v) FROM l WHERE k NOT IN (SELECT k FROM r WHERE k IS NOT NULL)",
    "two joins": (
        "SELECT count(*), sum(l.v + a.w + b.w) FROM l JOIN r a ON l.k = a.k JOIN r b ON l.j = b.j AND b.k = l.k"
    ),
}


def tables(kind: str) -> tuple[pa.Table, pa.Table]:
    """Keys that come several times, rows without a partner on both sides, and NULLs."""
    random = np.random.default_rng(5)

    def side(rows: int, keys: int, value: str) -> pa.Table:
        k = pa.array(
            [None if n % 50 == 0 else KEYS[kind](n) for n in random.integers(1, keys, rows).tolist()], pa.int64()
        )
        return pa.table({"k": k, "j": random.integers(0, 10, rows), value: random.integers(0, 1000, rows)})

    return side(9_000, 6_000, "v"), side(4_000, 4_500, "w")


@pytest.mark.parametrize("kind", KEYS)
def test_rows_are_those_of_the_oracle(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "LARGE_BYTES", 0)
    db, oracle = tsql.connect(threads=2), empty_duckdb()
    for name, table in zip("lr", tables(kind), strict=True):
        oracle.register(name, table)
        db.register(f"{name}_given", table)
        db.sql(f"CREATE TABLE {name} AS SELECT * FROM {name}_given").arrow()
    for name, query in QUERIES.items():
        assert db.sql(query).fetchall() == oracle.sql(query).fetchall(), name
