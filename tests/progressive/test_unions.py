"""Groups over a union make progress by all of its inputs together. DuckDB is the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.progressive.test_final import bag
from tsql.loaded import load_plan_text

LARGE, SMALL = 8_000, 3_000
QUERIES = (
    "SELECT count(*) AS n, sum(v) AS s, min(v), avg(v) FROM (SELECT v FROM a UNION ALL SELECT w FROM b)",
    "SELECT g, count(*), sum(v), stddev(v) FROM (SELECT g, v FROM a UNION ALL SELECT h, w FROM b) GROUP BY g",
    "SELECT g, count(*), max(v) FROM (SELECT g, v FROM a WHERE v > 300 UNION ALL SELECT 7, w FROM b UNION ALL "
    "SELECT g, v + 1 FROM a) WHERE v < 900 GROUP BY g HAVING count(*) > 5 ORDER BY 2 DESC, 1 LIMIT 4",
    "SELECT name, sum(v) FROM (SELECT g, v FROM a UNION ALL SELECT h, w FROM b) JOIN names ON g = k GROUP BY name",
    "SELECT src, sum(v) FROM (SELECT 'a' AS src, v FROM a UNION ALL SELECT 'b', w FROM b WHERE w IS NOT NULL) "
    "GROUP BY src",
    "WITH u AS (SELECT g, v FROM a UNION ALL SELECT h, w FROM b) SELECT g, v // 100 AS p, count(*) FROM u GROUP BY ALL",
    "SELECT g, v FROM a UNION SELECT h, w FROM b",
)


def tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(3)
    nulls = rng.random(SMALL) < 0.1
    return {
        "a": pa.table({"g": rng.integers(0, 9, LARGE), "v": rng.integers(0, 1000, LARGE), "i": np.arange(LARGE)}),
        "b": pa.table({
            "h": pa.array(rng.integers(4, 14, SMALL).astype(np.int32)),
            "w": pa.array(np.where(nulls, 0, rng.integers(500, 2000, SMALL)), mask=nulls),
        }),
        "names": pa.table({"k": [1, 2, 4, 8, 12], "name": ["one", "two", "four", "eight", "twelve"]}),
    }  # fmt: skip


@pytest.fixture(scope="module", params=["arrow", "blocks", "parquet", "mixed"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def db(kind: str, tmp_path: Path) -> Any:
    opened = tsql.connect(threads=2)
    for name, rows in tables().items():
        if kind == "parquet" or (kind == "mixed" and name == "b"):
            pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=200)
            opened.register(name, opened.read_parquet(tmp_path / f"{name}.parquet"))
        elif kind == "arrow":
            opened.register(name, rows)
        else:
            opened.register("given", rows)
            opened.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def oracle() -> Any:
    found = duckdb.connect()
    for name, rows in tables().items():
        found.register(name, rows)
    return found


@pytest.mark.parametrize("sql", QUERIES)
def test_final(db: Any, oracle: Any, kind: str, sql: str) -> None:
    seed = len(sql) % 5
    snaps = list(db.sql(f"{sql} PROGRESSIVE EVERY 10 PERCENT SEED {seed}").snapshots())
    assert len(snaps) == 10 and snaps[-1].is_final
    expected, found = oracle.sql(sql).fetchall(), snaps[-1].table.to_pylist()
    rounded = [tuple(round(v, 6) if isinstance(v, float) else v for v in row.values()) for row in found]
    assert bag(rounded) == bag([tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in expected])


def test_bounds(db: Any, oracle: Any) -> None:
    """Each look has bounds of all values, and nearly all of them hold."""
    sql = "SELECT count(*) AS n, sum(v) AS s, avg(v) AS m FROM (SELECT v FROM a UNION ALL SELECT w FROM b)"
    (exact,) = oracle.sql(sql).fetchall()
    held = shown = 0
    for seed in range(12):
        for snap in db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT SEED {seed}").snapshots():
            for name, value in zip(("n", "s", "m"), exact, strict=True):
                low, high = snap.bounds[name].lower[0].as_py(), snap.bounds[name].upper[0].as_py()
                shown += 1
                held += low - 1e-6 <= value <= high + 1e-6
    assert shown == 12 * 5 * 3 and held >= 0.93 * shown


def test_plan(db: Any) -> None:
    """Each input has a step that makes progress, and the plan can be kept."""
    relation = db.sql("SELECT sum(v) FROM (SELECT v FROM a UNION ALL SELECT w FROM b) PROGRESSIVE")
    text = relation.explain()
    assert text.count("= progressive ") == 2 and text.count("phase=partial") == 2 and "final result only" not in text
    assert len(list(load_plan_text(text).run(db).snapshots())) == 20


def test_a_union_that_is_read_twice(db: Any, oracle: Any) -> None:
    """A table expression with two users is computed once, so it makes no progress, and says so."""
    sql = (
        "WITH u AS MATERIALIZED (SELECT g, v FROM a UNION ALL SELECT h, w FROM b) "
        "SELECT (SELECT count(*) FROM u), sum(v) FROM u"
    )
    relation = db.sql(f"{sql} PROGRESSIVE")
    *_, last = relation.snapshots()
    assert [tuple(row.values()) for row in last.table.to_pylist()] == oracle.sql(sql).fetchall()


def test_one_input_without_rows(db: Any) -> None:
    sql = "SELECT count(*), sum(v) FROM (SELECT v FROM a WHERE v < 0 UNION ALL SELECT w FROM b WHERE w IS NULL)"
    *_, last = db.sql(f"{sql} PROGRESSIVE").snapshots()
    nulls = tables()["b"]["w"].null_count
    assert last.is_final and last.table.to_pylist() == [dict(zip(last.table.column_names, (nulls, None), strict=True))]
