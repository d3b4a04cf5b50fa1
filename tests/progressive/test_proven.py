"""Proven bounds and certain rows hold always, whatever the order of the units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tsql

ROWS = 40_000
SURE = "CONFIDENCE 0.999999999"
"""Bounds of the sample are then so wide that what is shown is proven, or holds as well as surely."""


@pytest.fixture(scope="module")
def db() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("kernels.blocks.encode", "backends.local.progressive.zones"):
            patch.setattr(f"tsql.{module}.FINE_ROWS", 32)
        yield from session()


def session() -> Any:
    rng = np.random.default_rng(3)
    g = rng.choice(5, ROWS, p=[0.4, 0.25, 0.2, 0.1, 0.05])
    rows = pa.table({
        "k": np.sort(rng.integers(0, 12, ROWS)),
        "g": g,
        "m": np.arange(ROWS) // 150,
        "i": pa.array(rng.integers(-40, 60, ROWS), mask=rng.random(ROWS) < 0.02),
        "x": rng.lognormal(0, 1, ROWS) + g,
        "ts": pa.array(np.sort(rng.integers(0, 86_400 * 10**6, ROWS)), pa.timestamp("us")),
        "d": pa.array(rng.integers(-999, 999, ROWS), pa.int32()).cast(pa.decimal128(14, 2)),
    })  # fmt: skip
    with tsql.connect(threads=2) as made:
        made.register("rows", rows)
        made.execute("CREATE TABLE t AS SELECT * FROM rows")
        yield made


QUERIES = (
    "SELECT count(*), count(i), sum(i), sum(x), avg(x), avg(i), min(x), max(i), sum(d) FROM t",
    "SELECT count(*) AS n, sum(x) / count(*), sum(i) + 3 * count(*), avg(x) - 1 FROM t WHERE k > 3 AND k <= 9",
    "SELECT k, count(*), sum(i), avg(x), min(i), max(x), sum(x * 2 - 1) FROM t GROUP BY k",
    "SELECT k, count(*), sum(x), avg(i) FROM t WHERE i > 0 GROUP BY k",
    "SELECT k, g, count(*), sum(d), avg(x) FROM t GROUP BY k, g",
    "SELECT date_trunc('hour', ts) AS h, count(*), sum(x), max(x) FROM t GROUP BY h",
    "SELECT k, count(*) FILTER (i > 10), sum(CASE WHEN g = 1 THEN i ELSE 0 END) FROM t GROUP BY k",
    "SELECT k, sum(x) FROM t SEMI JOIN (SELECT DISTINCT g FROM t WHERE g < 3) s USING (g) GROUP BY k",
    "SELECT window_start, count(*), sum(i), avg(x) FROM TUMBLE(t, ts, INTERVAL '2 hours') GROUP BY window_start",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_bounds_hold_always(db: Any, sql: str) -> None:
    keys = sql.partition("GROUP BY")[2].split(",") if "GROUP BY" in sql else []
    exact = {row[: len(keys)]: row for row in db.sql(sql).fetchall()}
    for seed in range(3):
        seen = 0
        for snap in db.sql(f"{sql} PROGRESSIVE EVERY 7 PERCENT {SURE} SEED {seed}").snapshots():
            columns = [column.to_pylist() for column in snap.table.columns]
            for place, bounds in snap.bounds_at.items():
                lows, highs = bounds.lower.to_pylist(), bounds.upper.to_pylist()
                for number in range(snap.table.num_rows):
                    true = exact[tuple(column[number] for column in columns[: len(keys)])][place]
                    if lows[number] is None or true is None:
                        continue
                    seen += 1
                    slack = 1e-9 * max(1.0, abs(float(true)))
                    assert lows[number] - slack <= float(true) <= highs[number] + slack, (snap.progress, place)
                    value = columns[place][number]
                    assert lows[number] - slack <= float(value) + 0.5 and float(value) - 0.5 <= highs[number] + slack
        assert seen > 50


def test_a_sorted_column_is_known_soon(db: Any) -> None:
    """The bounds of units alone say what a sorted column sums up to: no unit needs to be read for that."""
    exact = db.sql("SELECT sum(k) FROM t").fetchall()[0][0]
    first = next(db.sql(f"SELECT sum(k) AS s FROM t PROGRESSIVE EVERY 5 PERCENT {SURE}").snapshots())
    low, high = first.bounds["s"].lower[0].as_py(), first.bounds["s"].upper[0].as_py()
    assert low <= exact <= high and (high - low) / exact < 0.1


def test_a_complete_group_is_certain(db: Any) -> None:
    """A group whose units have all been read is exact before the end."""
    sql = "SELECT m, count(*) AS n, sum(x) AS s, is_certain(sum(x)) AS sure FROM t GROUP BY m"
    exact = {k: (n, s) for k, n, s, _ in db.sql(sql).fetchall()}
    early = 0
    for snap in db.sql(f"{sql} PROGRESSIVE EVERY 4 PERCENT SEED 4").snapshots():
        for k, n, s, sure in zip(*(column.to_pylist() for column in snap.table.columns), strict=True):
            if sure:
                assert (n, s) == (exact[k][0], pytest.approx(exact[k][1]))
                early += not snap.is_final
    assert early > 0


CHOOSING = (
    "SELECT g, sum(i) AS s FROM t GROUP BY g ORDER BY s DESC LIMIT 2",
    "SELECT g, sum(i) AS s FROM t GROUP BY g HAVING count(*) > 3000 ORDER BY s LIMIT 3",
    "SELECT g, count(*) AS n FROM t GROUP BY g HAVING sum(i) > 60000 AND g <> 3",
    "SELECT g, avg(x) AS m FROM t GROUP BY g HAVING avg(x) > 2 OR g = 1 ORDER BY m DESC LIMIT 2",
)


@pytest.mark.parametrize("sql", CHOOSING)
def test_certain_rows_stay(db: Any, sql: str) -> None:
    final = {row[0] for row in db.sql(sql).fetchall()}
    statuses = set()
    for seed in range(3):
        for snap in db.sql(f"{sql} PROGRESSIVE EVERY 10 PERCENT CONFIDENCE 0.999 SEED {seed}").snapshots():
            assert snap.table.num_rows <= (int(sql.split("LIMIT")[1]) if "LIMIT" in sql else ROWS)
            if snap.is_final:
                continue
            assert snap.row_status is not None
            for row, status in zip(snap.table["g"].to_pylist(), snap.row_status.to_pylist(), strict=True):
                statuses.add(status)
                assert status == "possible" or row in final
    assert "certain" in statuses


def test_what_was_observed_is_said(db: Any) -> None:
    sql = "SELECT g, min(x) AS low, count(*) AS n FROM t GROUP BY g PROGRESSIVE EVERY 20 PERCENT"
    first = next(db.sql(sql).snapshots())
    assert set(first.notes) == {"low"}
