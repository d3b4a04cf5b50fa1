"""Build sides that are read again: their rows fitted into a join's table, but its directory did not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb

# Keys far from each other: a bitmap of all possible keys is large.
TABLE = pa.table({"k": [i * 7919 % 40 * 1_000_003 for i in range(3000)], "i": list(range(3000))})

SIDES = {
    "groups": "SELECT k, max(i) AS m FROM t GROUP BY k",
    "groups in an array": "SELECT k * 1000003 AS k, m FROM (SELECT i % 40 AS k, max(i) AS m FROM t GROUP BY i % 40)",
    "first rows": "SELECT k, i AS m FROM t ORDER BY i DESC LIMIT 30",
    "sorted rows": "SELECT k, i AS m FROM t WHERE i < 100 ORDER BY i DESC LIMIT 90",
    "windows": "SELECT k, i AS m FROM t WHERE i < 90 QUALIFY row_number() OVER (PARTITION BY k ORDER BY i) = 1",
    "unmatched rows": "SELECT a.k, a.i AS m FROM (SELECT * FROM t WHERE i < 200) a ANTI JOIN "
    "(SELECT * FROM t WHERE i < 120) b ON a.i = b.i",
    "distinct rows": "SELECT DISTINCT k, i % 2 AS m FROM t",
}


@pytest.fixture(scope="module")
def oracle() -> Iterator[Any]:
    with empty_duckdb() as connection:
        connection.register("t", TABLE)
        yield connection


@pytest.mark.parametrize("settings", [{"threads": 1}, {"threads": 2}, {"threads": 2, "shards": 3}], ids=str)
@pytest.mark.parametrize("name", SIDES)
def test_build_sides(oracle: Any, name: str, settings: dict[str, Any]) -> None:
    sql = f"SELECT count(*), sum(t.i), sum(m) FROM t JOIN ({SIDES[name]}) z ON t.k = z.k"
    for spill_after in (4_000, 12_000, 30_000, 100_000):
        with tsql.connect(small_rows=0, spill_after=spill_after, **settings) as db:
            db.register("t", TABLE)
            assert db.sql(sql).fetchall() == oracle.sql(sql).fetchall(), spill_after


@pytest.mark.parametrize("threads", [1, 2])
def test_groups_within_a_limit(oracle: Any, threads: int) -> None:
    rows = 100_000
    table = pa.table({"k": [i % 20_000 * 1_000_003 for i in range(rows)], "i": list(range(rows))})
    sql = "SELECT count(*), sum(u.i) FROM u JOIN (SELECT DISTINCT k FROM u) z USING (k)"
    oracle.register("u", table)
    with tsql.connect(memory_limit="8MB", threads=threads) as db:
        db.register("u", table)
        assert db.sql(sql).fetchall() == oracle.sql(sql).fetchall()
