"""Keys with a large share of the rows are looked for before the first ripple and counted in full: the other keys are a
sample without them, and bounds hold. DuckDB is the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql

ROWS, KEYS, SEEDS = 60_000, 12_000, 20
CASES = {
    "groups of groups": "SELECT sum(n) AS s, avg(n) AS m, count(*) AS c FROM "
    "(SELECT k, count(*) AS n FROM t GROUP BY k)",
    "windows": "SELECT sum(v) AS s, avg(v) AS m, count(*) AS c FROM "
    "(SELECT v, row_number() OVER (PARTITION BY k ORDER BY i) AS r FROM t) WHERE r > 1",
    "names": "SELECT sum(n) AS s, avg(n) AS m, count(*) AS c FROM (SELECT name, count(*) AS n FROM t GROUP BY name)",
    "a join": "SELECT sum(v * w) AS s, avg(w) AS m, count(*) AS c FROM t JOIN u ON t.k = u.k",
    "rows without partners": "SELECT sum(v) AS s, avg(v) AS m, count(*) AS c FROM t "
    "WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND w < 50)",
}


def tables() -> dict[str, pa.Table]:
    """A sixth of the rows is of one key, and a sixteenth of another one."""
    rng = np.random.default_rng(29)
    k = rng.integers(0, KEYS, ROWS)
    drawn = rng.random(ROWS)
    k[drawn < 1 / 6] = 77
    k[drawn > 15 / 16] = 4_242
    return {
        "t": pa.table({
            "k": k.astype(np.int32),
            "name": [f"n{v}" for v in k],
            "i": np.arange(ROWS),
            "v": rng.integers(0, 100, ROWS) + np.where(k == 77, 50, 0),
        }),
        "u": pa.table({"k": np.concatenate([np.arange(KEYS), [77, 5]]), "w": rng.integers(0, 100, KEYS + 2)}),
    }  # fmt: skip


@pytest.fixture(autouse=True)
def progress_by_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.planner.choose.large_joins.WAITED_MS", 0.0)
    monkeypatch.setattr("tsql.planner.choose.large_joins.BUILT_SHARE", 0.0)


@pytest.fixture(scope="module", params=["arrow", "blocks", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def db(kind: str, tmp_path: Path) -> Iterator[Any]:
    with tsql.connect(threads=2) as opened:
        for name, rows in tables().items():
            if kind == "parquet":
                pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=2_000)
                opened.register(name, opened.read_parquet(tmp_path / f"{name}.parquet"))
            elif kind == "blocks":
                opened.register("given", rows)
                opened.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            else:
                opened.register(name, rows)
        yield opened


@pytest.mark.parametrize("case", CASES)
def test_bounds(db: Any, kind: str, case: str) -> None:
    """Early estimates are near, and their bounds hold nearly as often as they say."""
    sql = CASES[case]
    with duckdb.connect() as oracle:
        for name, rows in tables().items():
            oracle.register(name, rows)
        ((s, m, c),) = oracle.sql(sql).fetchall()
    exact = {"s": float(s), "m": float(m), "c": float(c)}
    held = shown = 0
    for seed in range(SEEDS):
        *early, last = db.sql(f"{sql} PROGRESSIVE SEED {seed}").snapshots()
        assert {name: float(last.table[name][0].as_py()) for name in exact} == pytest.approx(exact)
        for snap in early:
            for name, value in exact.items():
                bounds = snap.bounds[name]
                low, high = bounds.lower[0].as_py(), bounds.upper[0].as_py()
                assert low is not None and high - low < value, (seed, name)
                shown += 1
                held += low - 1e-6 <= value <= high + 1e-6
    assert shown == SEEDS * 3 * (1 if kind == "parquet" else 3) and held >= 0.88 * shown, (held, shown)
