"""A join of two large sides makes progress by its keys, some of them after the other. DuckDB is the oracle."""

from __future__ import annotations

import re
from collections.abc import Iterator
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

ROWS = 6_000
QUERIES = (
    "SELECT g, sum(v * w) AS s, count(*) AS n FROM a JOIN b ON a.i = b.k GROUP BY g",
    "SELECT count(*) AS n, avg(w) AS m, min(w), max(v) FROM a JOIN b ON a.i = b.k WHERE v > 20",
    "SELECT g, count(*) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE k = i AND w > 50) GROUP BY g",
    "SELECT g, count(*), sum(v) FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE k = i) GROUP BY g",
    "SELECT c, count(*) FROM (SELECT a.i, count(k) AS c FROM a LEFT JOIN b ON a.i = b.k GROUP BY a.i) GROUP BY c",
    "SELECT s, sum(w), count(*) FROM a JOIN b ON a.name = b.label AND a.g = b.h GROUP BY s HAVING count(*) > 3",
    "SELECT g, sum(x) AS s FROM a JOIN (SELECT k, sum(w) AS x FROM b GROUP BY k HAVING count(*) > 1) ON i = k "
    "GROUP BY g ORDER BY s DESC LIMIT 3",
    "SELECT g, sum(w) FROM a JOIN (SELECT k, w FROM b UNION ALL SELECT k + 1, w FROM b) ON i = k GROUP BY g",
    "SELECT x.g, count(*) FROM a x JOIN b ON x.i = b.k JOIN a y ON y.i = b.k AND y.v < x.v + 50 GROUP BY x.g",
    "SELECT g, count(*) FROM a LEFT JOIN b ON a.i = b.k AND b.w > 90 WHERE k IS NULL GROUP BY g",
    "SELECT count(DISTINCT k) AS n, sum(DISTINCT k) FROM b WHERE w > 20",
    "SELECT h, count(DISTINCT k) AS n, count(*), sum(w), max(w) FROM b GROUP BY h ORDER BY h",
    "SELECT n, count(*) FROM (SELECT k, count(*) AS n FROM b GROUP BY k) GROUP BY n HAVING count(*) > 2 ORDER BY n",
)


def tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(11)
    nulls = rng.random(ROWS) < 0.05
    names = [f"n{v}" for v in range(300)]
    return {
        "a": pa.table({
            "i": pa.array(np.where(nulls, 0, rng.integers(0, 4_000, ROWS)), mask=nulls),
            "g": pa.array(rng.integers(0, 5, ROWS).astype(np.int32)),
            "v": rng.integers(0, 100, ROWS),
            "name": [names[v] for v in rng.integers(0, 300, ROWS)],
            "s": [f"s{v}" for v in rng.integers(0, 9, ROWS)],
        }),
        "b": pa.table({
            "k": pa.array(rng.integers(0, 6_000, 2 * ROWS).astype(np.int32), mask=rng.random(2 * ROWS) < 0.05),
            "h": rng.integers(0, 5, 2 * ROWS),
            "w": rng.integers(0, 100, 2 * ROWS),
            "label": [names[v] for v in rng.integers(0, 300, 2 * ROWS)],
        }),
    }  # fmt: skip


IN_MEMORY = pytest.mark.parametrize("kind", ["arrow", "blocks"])
"""Files have one ripple before the last."""


@pytest.fixture(autouse=True)
def all_joins_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.planner.choose.large_joins.WAITED_MS", 0.0)
    monkeypatch.setattr("tsql.planner.choose.large_joins.BUILT_SHARE", 0.0)
    monkeypatch.setattr("tsql.planner.choose.few_keys.FEW_KEYS", 0)


@pytest.fixture(scope="module", params=["arrow", "blocks", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def db(kind: str, tmp_path: Path) -> Iterator[Any]:
    with tsql.connect(threads=2) as opened:
        for name, rows in tables().items():
            if kind == "parquet":
                pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=1_000)
                opened.register(name, opened.read_parquet(tmp_path / f"{name}.parquet"))
            elif kind == "blocks":
                opened.register("given", rows)
                opened.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            else:
                opened.register(name, rows)
        yield opened


@pytest.fixture(scope="module")
def oracle() -> Iterator[Any]:
    with duckdb.connect() as opened:
        for name, rows in tables().items():
            opened.register(name, rows)
        yield opened


@pytest.mark.parametrize("sql", QUERIES)
def test_final(db: Any, oracle: Any, kind: str, sql: str) -> None:
    for seed in (len(sql) % 7, 8):
        relation = db.sql(f"{sql} PROGRESSIVE SEED {seed}")
        assert re.search(r"= progressive (joined|total)", relation.explain())
        *shown, last = relation.snapshots()
        assert last.is_final and last.progress == 1.0
        assert [round(one.progress, 2) for one in shown] == ([0.03] if kind == "parquet" else [0.02, 0.06, 0.25])
        expected = oracle.sql(sql).fetchall()
        found = [tuple(row.values()) for row in last.table.to_pylist()]
        assert _rounded(found) == _rounded(expected), sql


def _rounded(rows: list[tuple[Any, ...]]) -> list[str]:
    return bag([tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows])


def test_the_parts_are_the_whole(db: Any, oracle: Any) -> None:
    """Threads and shards change nothing, and each seed takes other keys first."""
    sql = QUERIES[0]
    firsts = set()
    for seed in range(4):
        first, *_, last = db.sql(f"{sql} PROGRESSIVE SEED {seed}").snapshots()
        firsts.add(str(first.table.to_pylist()))
        assert bag([tuple(row.values()) for row in last.table.to_pylist()]) == bag(oracle.sql(sql).fetchall())
    assert len(firsts) == 4


@IN_MEMORY
def test_later_ripples(db: Any, oracle: Any, kind: str) -> None:
    """Where the first ripples are left out, batches of the others are all of one size, and bounds hold as often."""
    sql = "SELECT h, count(DISTINCT k) AS n FROM b GROUP BY h"
    exact = dict(oracle.sql(sql).fetchall())
    held = shown = 0
    for seed in range(25):
        for snap in db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT SEED {seed}").snapshots():
            if not snap.is_final:
                bounds = snap.bounds["n"]
                for row, low, high in zip(snap.table.to_pylist(), bounds.lower, bounds.upper, strict=True):
                    shown += 1
                    held += low.is_valid and low.as_py() <= exact[row["h"]] <= high.as_py()
    assert shown == 25 * 2 * 5 and held >= 0.92 * shown


def test_bounds(db: Any, oracle: Any, kind: str) -> None:
    """Bounds hold nearly as often as they say: counts, sums and averages over the join, and numbers of groups by its
    keys."""
    cases = (
        "SELECT count(*) AS n, sum(v * w) AS s, avg(w) AS m FROM a JOIN b ON a.i = b.k",
        "SELECT count(*) AS n, sum(c) AS s, avg(c) AS m FROM "
        "(SELECT a.i, count(k) AS c FROM a LEFT JOIN b ON a.i = b.k GROUP BY a.i)",
        "SELECT count(*) AS n, sum(v) AS s, avg(v) AS m FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE k = i)",
        "SELECT count(DISTINCT k) AS n, sum(w) AS s, count(*) AS m FROM b",
    )
    for sql in cases:
        (exact,) = oracle.sql(sql).fetchall()
        held = shown = 0
        for seed in range(20):
            for snap in db.sql(f"{sql} PROGRESSIVE SEED {seed}").snapshots():
                for name, value in zip(("n", "s", "m"), exact, strict=True):
                    low, high = snap.bounds[name].lower[0].as_py(), snap.bounds[name].upper[0].as_py()
                    shown += low is not None
                    held += low is not None and low - 1e-6 <= float(value) <= high + 1e-6
        assert shown >= (60 if kind == "parquet" else 110) and held >= 0.92 * shown, (sql, held, shown)


@IN_MEMORY
def test_stopping(db: Any, kind: str) -> None:
    """A query that may stop does, and leaves nothing."""
    sql = "SELECT avg(w) AS m FROM a JOIN b ON a.i = b.k PROGRESSIVE UNTIL ERROR <= 0.2"
    *_, last = db.sql(sql).snapshots()
    assert not last.is_final and last.relative_error("m")[0].as_py() <= 0.2
    *_, last = db.sql(
        "SELECT avg(w) AS m FROM a JOIN b ON a.i = b.k PROGRESSIVE WITHIN INTERVAL '1 microsecond'"
    ).snapshots()
    assert not last.is_final and last.progress < 0.1
    snaps = db.sql(f"{QUERIES[0]} PROGRESSIVE").snapshots()
    next(iter(snaps))
    snaps.stop()
    assert next(iter(snaps), None) is None


def test_plans(db: Any, oracle: Any) -> None:
    """The plan can be kept, and is refused where it cannot make progress."""
    text = db.sql(f"{QUERIES[0]} PROGRESSIVE").explain()
    *shown, last = load_plan_text(text).run(db).snapshots()
    assert shown
    assert bag([tuple(row.values()) for row in last.table.to_pylist()]) == bag(oracle.sql(QUERIES[0]).fetchall())
    assert bag(load_plan_text(text).run(db).fetchall()) == bag(oracle.sql(QUERIES[0]).fetchall())


@pytest.mark.parametrize("sql", [
    "SELECT g, count(*) FROM a JOIN (SELECT k FROM b ORDER BY w, k LIMIT 50) ON i = k GROUP BY g",
    "SELECT g, count(*) FROM a WHERE i NOT IN (SELECT k FROM b) GROUP BY g",
    "SELECT a.g, count(*) FROM a FULL JOIN b ON a.i = b.k GROUP BY a.g",
])  # fmt: skip
def test_what_has_no_parts(db: Any, oracle: Any, sql: str) -> None:
    """A join whose rows for some keys depend on other rows."""
    relation = db.sql(f"{sql} PROGRESSIVE")
    assert not re.search(r"= progressive (joined|total)", relation.explain())
    *_, last = relation.snapshots()
    assert bag([tuple(row.values()) for row in last.table.to_pylist()]) == bag(oracle.sql(sql).fetchall())
