"""Where there are few keys, the rows of a scan make the progress if they can. If not, the keys do, and their bounds
hold as often as they say. DuckDB is the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.progressive.test_key_windows import rounded, values

ROWS = 40_000
FIRST = "(SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY ts) AS r FROM t)"


def table() -> pa.Table:
    """Columns with so many values. Users of `skewed` differ by how often they come."""
    rng = np.random.default_rng(23)
    weights = rng.lognormal(0, 1, 600)
    return pa.table({
        "many": rng.integers(0, 15_000, ROWS).astype(np.int32),
        "several": rng.integers(0, 3_000, ROWS).astype(np.int32),
        "few": rng.integers(0, 20, ROWS).astype(np.int32),
        "skewed": rng.choice(600, ROWS, p=weights / weights.sum()).astype(np.int32),
        "ts": pa.array(rng.permutation(ROWS) * 1_000_000, pa.timestamp("us")),
        "v": rng.integers(0, 100, ROWS),
    })  # fmt: skip


@pytest.fixture(scope="module")
def db() -> Iterator[Any]:
    with tsql.connect(threads=2) as opened:
        opened.register("given", table())
        opened.execute("CREATE TABLE t AS SELECT * FROM given")
        yield opened


@pytest.fixture(scope="module")
def oracle() -> Iterator[Any]:
    with duckdb.connect() as opened:
        opened.register("t", table())
        yield opened


def sampled(relation: Any) -> tuple[str, list[str]]:
    """The step above which the progress is made, and the notes of the plan."""
    lines = relation.explain().splitlines()
    (step,) = (line.split()[3] for line in lines if " = progressive " in line)
    return step, [line for line in lines if line.startswith("# PROGRESSIVE")]


@pytest.mark.parametrize(("key", "step", "note"), [
    ("many", "total", []),
    ("several", "total", ["# PROGRESSIVE goes by the keys, since part of the rows says less: some 3000 keys are few"]),
    ("few", "t", ["# PROGRESSIVE goes by the rows of a scan: some 20 keys are few"]),
])  # fmt: skip
def test_groups_of_groups(db: Any, oracle: Any, key: str, step: str, note: list[str]) -> None:
    sql = f"SELECT n // 100 AS m, count(*) AS c FROM (SELECT {key}, count(*) AS n FROM t GROUP BY {key}) GROUP BY m"
    relation = db.sql(f"{sql} PROGRESSIVE")
    assert sampled(relation) == (step, note)
    *_, last = relation.snapshots()
    assert rounded(values(last.table)) == rounded(oracle.sql(sql).fetchall())


@pytest.mark.parametrize(("key", "note"), [
    ("many", []),
    ("several", ["# PROGRESSIVE goes by the keys, since no scan can make progress: some 3000 keys are few"]),
])  # fmt: skip
def test_windows(db: Any, oracle: Any, key: str, note: list[str]) -> None:
    """No scan can make the progress of windows."""
    sql = f"SELECT count(*) AS n, avg(v) AS m FROM {FIRST.format(key=key)} WHERE r = 1"
    relation = db.sql(f"{sql} PROGRESSIVE")
    assert sampled(relation) == ("windowed", note)
    *_, last = relation.snapshots()
    assert rounded(values(last.table)) == rounded(oracle.sql(sql).fetchall())


@pytest.mark.parametrize(("key", "step", "note"), [
    ("many", "joined", []),
    ("several", "t", ["# PROGRESSIVE goes by the rows of a scan: some 3000 keys are few"]),
])  # fmt: skip
def test_joins(db: Any, oracle: Any, monkeypatch: pytest.MonkeyPatch, key: str, step: str, note: list[str]) -> None:
    monkeypatch.setattr("tsql.planner.choose.large_joins.WAITED_MS", 0.0)
    sql = f"SELECT a.few, count(*) AS c FROM t a JOIN t b ON a.{key} = b.{key} AND a.v < b.v GROUP BY a.few"
    relation = db.sql(f"{sql} PROGRESSIVE")
    assert sampled(relation) == (step, note)
    *_, last = relation.snapshots()
    assert rounded(values(last.table)) == rounded(oracle.sql(sql).fetchall())


@pytest.mark.parametrize(("key", "step"), [("few", "t"), ("several", "total")])
def test_distinct(db: Any, oracle: Any, key: str, step: str) -> None:
    """A sample of rows has met all of few values: what it shows is proven."""
    sql = f"SELECT count(DISTINCT {key}) AS n, count(*) AS c FROM t"
    relation = db.sql(f"{sql} PROGRESSIVE")
    assert sampled(relation)[0] == step
    first, *_, last = relation.snapshots()
    assert values(last.table) == oracle.sql(sql).fetchall()
    if key == "few":
        assert first.progress < 0.1 and values(first.table) == values(last.table)
        assert first.bounds["n"].lower[0].as_py() == first.bounds["n"].upper[0].as_py() == 20


@pytest.mark.parametrize("key", ["several", "skewed"])
def test_bounds_of_few_keys(db: Any, oracle: Any, key: str) -> None:
    """Sums over few keys of very different size: bounds come late, and hold nearly as often as they say."""
    sql = f"SELECT count(*) AS n, sum(v) AS s, avg(v) AS m FROM {FIRST.format(key=key)} WHERE r > 1"
    (exact,) = oracle.sql(sql).fetchall()
    held = shown = 0
    for seed in range(40):
        *early, _ = db.sql(f"{sql} PROGRESSIVE SEED {seed}").snapshots()
        for snap in early:
            for name, value in zip(("n", "s", "m"), exact, strict=True):
                low, high = snap.bounds[name].lower[0].as_py(), snap.bounds[name].upper[0].as_py()
                shown += low is not None
                held += low is not None and low - 1e-6 <= float(value) <= high + 1e-6
    assert shown >= 40 and held >= 0.9 * shown, (held, shown)
