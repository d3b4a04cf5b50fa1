"""Kernels are kept with their plan: another run of it, over rows with other bounds and NULLs, must not use code for
other layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb

ROWS = pa.table({
    "g": pa.array([None if i % 7 == 0 else i % 5 for i in range(200)], pa.int32()),
    "id": pa.array(range(200), pa.int32()),
    "s": pa.array([None if i % 11 == 0 else f"text {i % 13}" for i in range(200)]),
})  # fmt: skip
INPUT = (
    "(SELECT g, id, s, lag(id) OVER (PARTITION BY g ORDER BY id) AS p FROM t WHERE id >= $low AND id < "
    "$high AND (g IS NOT NULL OR $low = 0))"
)
QUERIES = {
    "groups": f"SELECT g, max(id - p) AS gap FROM {INPUT} GROUP BY g",
    "groups of two keys": f"SELECT g, s, count(*) AS n, min(p) AS p FROM {INPUT} GROUP BY g, s",
    "groups of groups": (
        f"SELECT n, count(*) AS m FROM (SELECT g, p, count(*) AS n FROM {INPUT} GROUP BY g, p) GROUP BY n"
    ),
    "distinct": f"SELECT DISTINCT g, p IS NULL AS first FROM {INPUT}",
    "first rows": f"SELECT g, id, p FROM {INPUT} ORDER BY id DESC LIMIT 4",
    "inner join": f"SELECT a.id, b.p FROM t a JOIN {INPUT} b ON a.g = b.g AND a.id = b.p",
    "full join": f"SELECT a.id, b.p FROM (SELECT id FROM t WHERE id < 20) a FULL JOIN {INPUT} b ON a.id = b.p",
    "anti join": f"SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM {INPUT} b WHERE b.p = t.id)",
}
BOUNDS = ((1, 3), (0, 200), (1, 200), (0, 1), (50, 60), (500, 600), (0, 200))


@pytest.fixture(scope="module")
def duck() -> Iterator[Any]:
    with empty_duckdb() as connection:
        connection.register("t", ROWS)
        yield connection


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_runs_with_other_parameters(duck: Any, name: str, threads: int) -> None:
    with tsql.connect(threads=threads) as db:
        db.register("t", ROWS)
        for low, high in BOUNDS:
            values = {"low": low, "high": high}
            given, expected = (sorted(map(str, c.sql(QUERIES[name], params=values).fetchall())) for c in (db, duck))
            assert given == expected, values
