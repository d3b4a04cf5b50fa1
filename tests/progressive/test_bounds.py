"""The formulas of bounds, as plain code over the sample, and what SQL and Python see of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tsql.backends.local.progressive.confidence import at_all_times, student

ROWS, UNIT = 24_000, 32


def data(kind: str) -> pa.Table:
    rng = np.random.default_rng(11)
    x = rng.uniform(0, 1, ROWS) if kind != "skewed" else rng.lognormal(0, 1, ROWS)
    g = rng.integers(0, 4, ROWS)
    if kind == "sorted":
        x, g = np.sort(x), np.sort(g)
    if kind == "trended":
        x = x + np.linspace(0, 2, ROWS)
    return pa.table({"g": g, "x": x, "y": x * rng.uniform(0.5, 1.5, ROWS) + 1})


def test_the_formulas() -> None:
    """An estimate and its bounds, computed from the units of the sample by the textbook."""
    table = data("skewed")
    seed, share = 3, 0.04
    x = table["x"].to_numpy()
    units = ROWS // UNIT
    order = np.random.Generator(np.random.PCG64(seed)).permutation(units)
    read = round(share * units)
    totals = x.reshape(units, UNIT).sum(axis=1)[order[:read]]
    estimate = units / read * totals.sum()
    error = units * math.sqrt((1 - read / units) * totals.var(ddof=1) / read)
    with tsql.connect(threads=1) as db:
        db.register("t", table)
        first = next(db.sql(f"SELECT sum(x) AS s, count(*) AS n FROM t PROGRESSIVE EVERY 4 PERCENT SEED {seed}")
                     .snapshots())  # fmt: skip
    assert first.rows_read == read * UNIT and first.table["n"].to_pylist() == [ROWS]
    assert first.table["s"][0].as_py() == pytest.approx(estimate)
    width = student(0.95, read)
    assert first.bounds["s"].lower[0].as_py() == pytest.approx(estimate - width * error)
    assert first.bounds["s"].upper[0].as_py() == pytest.approx(estimate + width * error)
    # Units have as many rows each: nothing about their number is uncertain.
    assert first.bounds["n"].lower[0].as_py() == first.bounds["n"].upper[0].as_py() == ROWS


@pytest.mark.parametrize(
    ("batches", "quantile"), [(8, 2.3646), (11, 2.2281), (31, 2.0423), (101, 1.9840), (100_001, 1.9600)]
)
def test_students_quantiles(batches: int, quantile: float) -> None:
    """From a table of the distribution."""
    assert student(0.95, batches) == pytest.approx(quantile, rel=1e-3)


def test_bounds_at_all_times() -> None:
    """Over a whole run, bounds for all looks together hold as often as they say; those for one look do not."""
    rng = np.random.default_rng(2)
    runs, steps = 400, 300
    once = always = 0
    for _ in range(runs):
        values = np.cumsum(rng.normal(0, 1, steps))
        looks = range(8, steps, 4)
        once += any(abs(values[n - 1]) > student(0.95, n) * math.sqrt(n) for n in looks)
        always += any(abs(values[n - 1]) > at_all_times(0.95, n) * math.sqrt(n) for n in looks)
    assert always <= 0.06 * runs < 0.2 * runs < once


def test_functions_of_bounds() -> None:
    with tsql.connect(threads=1) as db:
        db.register("t", data("uniform"))
        sql = (
            "SELECT g, avg(x) AS m, lower_bound(avg(x)) AS a, upper_bound(avg(x)) AS b, relative_error(avg(x)) AS e, "
            "is_certain(avg(x)) AS c FROM t GROUP BY g ORDER BY g"
        )
        first, *_, last = db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT").snapshots()
        for place in range(4):
            row = {name: first.table[name][place].as_py() for name in "mabec"}
            assert row["a"] == first.bounds["m"].lower[place].as_py()
            assert row["b"] == first.bounds["m"].upper[place].as_py()
            assert row["e"] == pytest.approx((row["b"] - row["m"]) / row["m"]) and row["c"] is False
            row = {name: last.table[name][place].as_py() for name in "mabec"}
            assert row["a"] == row["m"] == row["b"] and row["e"] == 0 and row["c"] is True


def test_a_rare_group_has_proven_bounds_only() -> None:
    """A group in few units has the rows that were seen, and at most all that were not read beside them."""
    table = data("uniform")
    rare = np.asarray(table["g"]).copy()
    rare[100:110] = 99
    with tsql.connect(threads=1) as db:
        db.register("t", table.set_column(0, "g", pa.array(rare)))
        sql = "SELECT g, count(*) AS n FROM t GROUP BY g ORDER BY g PROGRESSIVE EVERY 10 PERCENT SEED 1"
        shown: list[Any] = list(db.sql(sql).snapshots())
    for snap in shown[:-1]:
        for place, group in enumerate(snap.table["g"].to_pylist()):
            if group == 99:
                bounds = snap.bounds["n"].lower[place].as_py(), snap.bounds["n"].upper[place].as_py()
                assert bounds == (10, 10 + ROWS - snap.rows_read)
    assert 99 in shown[-1].table["g"].to_pylist()
    assert shown[-1].bounds["n"].lower.null_count == 0
