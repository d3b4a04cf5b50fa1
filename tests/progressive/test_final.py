"""The last snapshot is the result of the plain query, whatever the seed, the threads and the table; those before it
have its columns. DuckDB is the oracle."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql

ROWS = 9_000
QUERIES = (
    "SELECT count(*) AS n, sum(i) AS s, min(i), max(x) FROM t",
    "SELECT g, count(*) AS n, sum(i) AS s FROM t WHERE i < 70 GROUP BY g",
    "SELECT k, count(*) AS n, sum(d) AS s, min(g) FROM t GROUP BY k",
    "SELECT t.g, s.name, sum(i) FROM t JOIN s ON t.g = s.g WHERE s.name <> 'b' GROUP BY ALL HAVING count(*) > 10",
    "SELECT name, n FROM (SELECT g, count(*) AS n FROM t GROUP BY g) JOIN s USING (g) ORDER BY n DESC, name LIMIT 2",
    "WITH c AS (SELECT g, sum(i) AS s FROM t GROUP BY g) SELECT a.g, a.s - b.s FROM c a JOIN c b ON a.g > b.g",
    "SELECT max(n) FROM (SELECT k, count(*) AS n FROM t GROUP BY k)",
    "SELECT g, sum(i) FROM t GROUP BY g UNION ALL SELECT g, -1 FROM s",
    "SELECT date_trunc('day', ts) AS day, count(*) FROM t GROUP BY day ORDER BY day",
    "SELECT DISTINCT g, i % 3 FROM t",
    "SELECT g, avg(ts) FROM t GROUP BY g",
    "SELECT sum(10000000000000000000::UBIGINT), max(18446744073709551615::UBIGINT) FROM t",
    "SELECT g, (SELECT max(i) FROM t WHERE g = s.g), upper_bound(count(*)), is_certain(count(*)) FROM s GROUP BY g",
)
ONE_SNAPSHOT = (
    "SELECT i FROM t WHERE i = 7",
    "SELECT 1",
    "SELECT g, i, row_number() OVER (PARTITION BY g ORDER BY i, x) FROM t",
)


def table(rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(5)
    return pa.table({
        "g": pa.array([None if v == 6 else f"g{v}" for v in rng.integers(0, 7, rows)]),
        "k": pa.array(rng.integers(0, 3_000, rows)),
        "i": pa.array(rng.integers(0, 100, rows)),
        "x": pa.array(rng.gamma(2, 3, rows)),
        "d": pa.array(rng.integers(-999, 999, rows), pa.int32()).cast(pa.decimal128(14, 2)),
        "ts": pa.array(rng.integers(0, 5 * 86_400, rows) * 1_000_000, pa.timestamp("us")),
    })  # fmt: skip


SIDE = pa.table({"g": ["g0", "g1", "g2", "g3"], "name": ["a", "b", "c", "d"]})


def bag(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows without their order. Arrow has no HUGEINT: whole numbers are the same in each type."""
    return sorted(str([Fraction(v) if isinstance(v, Decimal | int) else v for v in row]) for row in rows)


@pytest.fixture(scope="module", params=["arrow", "blocks", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rows") / "t.parquet"
    pq.write_table(table(), found, row_group_size=300)
    return found


def fill(db: Any, kind: str, path: Path) -> None:
    if kind == "parquet":
        db.register("t", db.read_parquet(path))
    elif kind == "blocks":
        db.register("arrow", table())
        db.execute("CREATE TABLE t AS SELECT * FROM arrow")
    else:
        db.register("t", table())
    db.register("s", SIDE)


@pytest.fixture(scope="module")
def duck() -> Any:
    with duckdb.connect() as connection:
        connection.register("t", table())
        connection.register("s", SIDE)
        yield connection


@pytest.mark.parametrize("settings", [{"threads": 1}, {"threads": 3}, {"threads": 2, "shards": 5}], ids=str)
def test_last_snapshots(kind: str, path: Path, duck: Any, settings: dict[str, Any]) -> None:
    with tsql.connect(**settings) as db:
        fill(db, kind, path)
        for seed, sql in enumerate(QUERIES):
            plain = sql.replace("upper_bound(count(*))", "count(*)").replace("is_certain(count(*))", "true")
            relation = db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT SEED {seed}")
            *shown, last = relation.snapshots()
            assert last.is_final and last.progress == 1.0
            assert bag(duck.sql(plain).fetchall()) == bag([tuple(row.values()) for row in rows(last.table)]), sql
            assert [one.is_final for one in shown] == [False] * len(shown)
            by_keys = 1 if kind == "parquet" else 2
            assert len(shown) == (by_keys if "= progressive total" in relation.explain() else 4), sql
            assert [one.progress for one in shown] == sorted(one.progress for one in shown)
            assert all(0 < one.progress < 1 and one.table.schema.equals(last.table.schema) for one in shown)


def rows(found: pa.Table) -> list[dict[int, Any]]:
    columns = [column.to_pylist() for column in found.columns]
    return [dict(enumerate(row)) for row in zip(*columns, strict=True)] if columns else []


@pytest.mark.parametrize("sql", ONE_SNAPSHOT)
def test_one_snapshot(kind: str, path: Path, duck: Any, sql: str) -> None:
    """What cannot progress says so, and gives the final answer alone."""
    with tsql.connect() as db:
        fill(db, kind, path)
        relation = db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT")
        (last,) = relation.snapshots()
        assert last.is_final
        assert bag(duck.sql(sql).fetchall()) == bag([tuple(row.values()) for row in rows(last.table)])
        assert "PROGRESSIVE shows the final result only: " in relation.explain()


def test_no_rows_that_may_pass(kind: str, path: Path) -> None:
    """Statistics rule all of them out."""
    with tsql.connect() as db:
        fill(db, kind, path)
        sql = "SELECT k, count(*), sum(i) FROM t WHERE k > 100000 GROUP BY k PROGRESSIVE EVERY 20 PERCENT"
        *_, last = db.sql(sql).snapshots()
        assert last.is_final and last.progress == 1.0 and last.table.num_rows == 0


def test_a_memory_limit_shows_the_final_result(path: Path) -> None:
    with tsql.connect(memory_limit="100MB") as db:
        fill(db, "arrow", path)
        relation = db.sql("SELECT g, count(*) FROM t GROUP BY g PROGRESSIVE EVERY 20 PERCENT")
        assert [one.is_final for one in relation.snapshots()] == [True]
        assert relation.notes == ["a run with a memory limit shows the final result only"]


def test_the_whole_result(path: Path, duck: Any) -> None:
    """Who asks for the result gets it, at the cost of the plain query."""
    with tsql.connect() as db:
        fill(db, "blocks", path)
        sql = "SELECT g, count(*) AS n FROM t GROUP BY g ORDER BY g NULLS LAST"
        assert db.sql(f"{sql} PROGRESSIVE EVERY 1 PERCENT").fetchall() == duck.sql(sql).fetchall()


def test_plans_of_the_same_text(path: Path) -> None:
    """The step is a line of the plan file, and runs from there."""
    with tsql.connect() as db:
        fill(db, "parquet", path)
        relation = db.sql(
            f"SELECT g, count(*) AS n FROM '{path}' GROUP BY g PROGRESSIVE EVERY 25 PERCENT UNTIL ERROR <= 0.25 "
            "WITHIN INTERVAL '3 seconds' CONFIDENCE 0.9 SEED 7"
        )
        line = next(line for line in relation.plan().splitlines() if "progressive" in line and "=" in line[:12])
        assert line.split(" = ", 1)[1] == (
            f"progressive {line.split()[3]} every=25 unit=percent until_error=0.25 within_us=3000000 confidence=0.9 "
            "seed=7"
        )
        loaded = tsql.load_plan_text(relation.plan())
        assert loaded.run(db).plan() == relation.plan()
        assert bag(loaded.run(db).fetchall()) == bag(relation.fetchall())
