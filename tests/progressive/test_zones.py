"""What zones say of units, against all values of the units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tsql.backends.local.progressive.populations import Keys, Populations, Sums
from tsql.backends.local.progressive.ranges import always, never, range_of
from tsql.backends.local.progressive.zones import Zone, block_zone, split_zone
from tsql.kernels.blocks.encode import FINE_ROWS
from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DOUBLE, FLOAT

ROWS = 3 * FINE_ROWS + 100


def table(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    small = rng.integers(-50, 50, ROWS)
    return pa.table({
        "i": pa.array(small, mask=rng.random(ROWS) < 0.1),
        "big": rng.integers(2**60, 2**61, ROWS),
        "x": np.where(rng.random(ROWS) < 1e-4, np.nan, rng.normal(0, 9, ROWS)),
        "s": np.sort(rng.integers(0, 1000, ROWS)),
        "t": [f"word {v % 20:02}" for v in small],
        "d": pa.array([None if v == 3 else int(v) for v in small], pa.int64()).cast(pa.decimal128(21, 2)),
    })  # fmt: skip


@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize("unit", [64, FINE_ROWS, 2 * FINE_ROWS])
def test_zones_of_tables_in_memory(unit: int, grown: bool) -> None:
    """All values of a unit are within its zone. A table that has grown has pieces, of which not all have zones."""
    first, second = table(1), table(2)
    with tsql.connect(threads=1) as db:
        for name, one in (("a", first), ("b", second)):
            db.register(name, one)
        db.execute("CREATE TABLE t AS SELECT * FROM a")
        if grown:
            db.execute("INSERT INTO t SELECT * FROM b")
        stored: Any = db.catalog.require("t")
        whole = pa.concat_tables([first, second]) if grown else first
        starts = np.arange(0, len(whole), unit)
        rows = np.minimum(unit, len(whole) - starts)
        cuts = starts < ROWS
        rows[cuts] = np.minimum(rows[cuts], ROWS - starts[cuts])
        known = 0
        for name in whole.column_names:
            zone = block_zone(stored, name, starts, rows)
            if zone is None:
                continue
            known += 1
            for place, (start, count) in enumerate(zip(starts, rows, strict=True)):
                values = whole[name].slice(start, count).drop_null().to_pylist()
                for value in values:
                    assert _within(zone, place, value), (name, place, value)
        assert grown or known == len(whole.column_names)


def _within(zone: Zone, place: int, value: Any) -> bool:
    low, high = zone.lows[place], zone.highs[place]
    if zone.dictionary is not None:
        code = zone.dictionary.values.to_pylist().index(value)
        return bool(low <= code <= high)
    if zone.type.is_decimal:
        value = int(value.scaleb(zone.type.scale))
    return high == np.inf if value != value else bool(low <= value <= high)


def test_zones_of_row_groups(tmp_path: Any) -> None:
    rows = table(3).select(["i", "s", "big"])
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=500)
    with tsql.connect(threads=1) as db:
        source = db.read_parquet(tmp_path / "t.parquet").source
        splits = source.splits(("s",), None)
        for name in rows.column_names:
            zone = split_zone(source, name, source.schema[name].type, splits)
            assert zone is not None
            for place, split in enumerate(splits):
                values = rows[name].slice(place * 500, split.rows).drop_null().to_pylist()
                assert (zone.lows[place], zone.highs[place]) == (min(values), max(values))


def test_how_many_units_may_hold_a_key() -> None:
    rng = np.random.default_rng(7)
    lows = rng.integers(0, 40, 300)
    highs, weights = lows + rng.integers(0, 6, 300), rng.normal(0, 1, 300)
    keys = np.arange(-2, 50)
    holds = (lows[None, :] <= keys[:, None]) & (keys[:, None] <= highs[None, :])
    assert np.array_equal(Keys(lows, highs).may_hold(keys), holds.sum(axis=1))
    assert np.allclose(Sums(lows, highs, weights).of(keys), holds @ weights)


def test_the_key_with_the_fewest_units() -> None:
    units = np.arange(100)
    near = Zone(BIGINT, units * 10, units * 10 + 12, False)
    nearer = Zone(BIGINT, units * 10, units * 10 + 1, False)
    everywhere = Zone(BIGINT, units * 0, units * 0 + 1000, False)
    unsure = Zone(BIGINT, units, units, True)
    found = Populations.best([everywhere, near, None, nearer, unsure])
    assert found is not None and found.place == 3
    assert Populations.best([everywhere, None]) is None


def test_ranges_and_conditions() -> None:
    """Bounds of expressions contain each value; a condition that always or never holds does for each row."""
    rng = np.random.default_rng(8)
    units, rows = 200, 16
    a, b = (rng.integers(-20, 20, units)[:, None] + rng.integers(0, 5, (units, rows)) for _ in range(2))
    zones = {name: Zone(BIGINT, v.min(axis=1), v.max(axis=1), False) for name, v in (("a", a), ("b", b))}
    A, B = Column("a", BIGINT, False), Column("b", BIGINT, False)
    three = Literal(3, BIGINT)
    expressions = {
        "a + b * 3": (Call("+", (A, Call("*", (B, three), BIGINT)), BIGINT), a + b * 3),
        "a * b - 3": (Call("-", (Call("*", (A, B), BIGINT), three), BIGINT), a * b - 3),
        "-abs(a)": (Call("neg", (Call("abs", (A,), BIGINT),), BIGINT), -np.abs(a)),
        "case": (Case(((Call("<", (A, B), BOOLEAN), A),), B), np.where(a < b, a, b)),
    }
    for name, (expr, values) in expressions.items():
        found = range_of(expr, zones.get, units)
        assert found is not None, name
        assert np.all(found[0][:, None] <= values) and np.all(values <= found[1][:, None]), name
    assert range_of(Call("/", (A, B), DOUBLE), zones.get, units) is None
    comparisons = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "=": a == b}
    both = 0
    for op, holds in comparisons.items():
        condition = Call(op, (A, B), BOOLEAN)
        sure, out = always(condition, zones.get, units), never(condition, zones.get, units)
        assert np.all(holds[sure]) and not np.any(holds[out])
        both += sure.sum() + out.sum()
        either = Call("or", (condition, Call(">", (A, three), BOOLEAN)), BOOLEAN)
        assert np.all((holds | (a > 3))[always(either, zones.get, units)])
        assert not np.any((holds | (a > 3))[never(either, zones.get, units)])
    assert both > 0


def test_units_without_rows_that_pass(tmp_path: Path) -> None:
    """Bounds do not depend on whether the columns of files are decoded before or after the filter, which leaves no row
    of many row groups."""
    rng, rows = np.random.default_rng(3), 20_000
    numbers = np.arange(rows)
    given = pa.table({
        "day": numbers * 3 // rows,
        "flag": numbers // 50 % 3 + rng.integers(0, 2, rows) * 10,
        "x": rng.gamma(2, 3, rows),
        "s": [str(number) for number in numbers],
    })  # fmt: skip
    pq.write_table(given, tmp_path / "t.parquet", row_group_size=50)
    with tsql.connect(threads=1) as db:
        plan = db.sql(
            f"SELECT day, avg(x) AS m, max(s) FROM '{tmp_path}/t.parquet' WHERE flag % 10 = 1 GROUP BY 1 ORDER BY 1 "
            "PROGRESSIVE EVERY 25 PERCENT SEED 2"
        ).plan()
        assert " late=yes" in plan
        late, early = (
            [one.bounds["m"].upper.to_pylist() for one in tsql.load_plan_text(text).run(db).snapshots()]
            for text in (plan, plan.replace(" late=yes", ""))
        )
    assert late == [[pytest.approx(high) for high in highs] for highs in early]


def test_files_that_do_not_know_their_rows(tmp_path: Path) -> None:
    """What is left of them is not bounded, so a count is no more certain than a sum."""
    for number in range(60):
        lines = [f"{row % 5},{row}\n" for row in range(100 + number)]
        (tmp_path / f"{number:02}.csv").write_text("g,x\n" + "".join(lines))
    with tsql.connect(threads=2) as db:
        for sql in ("SELECT count(*) AS n FROM", "SELECT g, count(*) AS n FROM"):
            by = " GROUP BY g" if "g," in sql else ""
            *shown, last = db.sql(f"{sql} '{tmp_path}/*.csv'{by} PROGRESSIVE EVERY 20 PERCENT").snapshots()
            exact = sum(last.table["n"].to_pylist())
            assert exact == 60 * 100 + sum(range(60))
            assert [round(one.progress, 2) for one in shown] == [0.2, 0.4, 0.6, 0.8]
            for one in shown:
                assert abs(sum(one.table["n"].to_pylist()) - exact) < 0.1 * exact
                lows, highs = (end.to_pylist() for end in (one.bounds["n"].lower, one.bounds["n"].upper))
                assert all(low < high for low, high in zip(lows, highs, strict=True))


def test_ranges_of_floats() -> None:
    """A FLOAT has 24 bits: arithmetic and casts move a value by more than a DOUBLE, or than by one."""
    rng = np.random.default_rng(9)
    units, rows = 300, 8
    x = rng.choice([-1.0, 1.0], (units, 1)) * 10.0 ** rng.uniform(-3, 12, (units, 1)) + rng.random((units, rows))
    big = rng.integers(-(2**40), 2**40, (units, 1)) + rng.integers(0, 9, (units, rows))
    f = x.astype(np.float32)
    zones = {
        "x": Zone(DOUBLE, x.min(axis=1), x.max(axis=1), False),
        "n": Zone(BIGINT, big.min(axis=1), big.max(axis=1), False),
        "f": Zone(FLOAT, f.min(axis=1), f.max(axis=1), False),
    }
    X, N, F = Column("x", DOUBLE, False), Column("n", BIGINT, False), Column("f", FLOAT, False)
    expressions = {
        "cast of a double": (Cast(X, FLOAT), f),
        "cast of an integer": (Cast(N, FLOAT), big.astype(np.float32)),
        "sum": (Call("+", (F, F), FLOAT), f + f),
        "product": (Call("*", (F, Call("-", (F, F), FLOAT)), FLOAT), f * (f - f)),
        "quotient": (Call("/", (F, Literal(3.0, FLOAT)), FLOAT), f / np.float32(3)),
        "within a double": (Call("+", (Cast(F, DOUBLE), X), DOUBLE), f.astype(np.float64) + x),
    }
    for name, (expr, values) in expressions.items():
        found = range_of(expr, zones.get, units)
        assert found is not None, name
        assert np.all(found[0][:, None] <= values) and np.all(values <= found[1][:, None]), name


def test_rows_that_were_inserted_last() -> None:
    """They have no zones: their units are read first, and what is known of the others goes on to be."""
    sql = "SELECT count(*) AS n, sum(d) AS s, max(d) AS m FROM t WHERE d < 5000"

    def runs(db: Any) -> list[list[Any]]:
        return [list(db.sql(f"{sql} PROGRESSIVE EVERY 20 PERCENT SEED {seed}").snapshots()) for seed in range(10)]

    def width(snap: Any) -> float:
        return float(snap.bounds["s"].upper[0].as_py() - snap.bounds["s"].lower[0].as_py())

    with tsql.connect(threads=2) as db:
        db.execute("CREATE TABLE t AS SELECT i AS d FROM range(30000) AS r(i)")
        before = runs(db)
        db.execute("INSERT INTO t VALUES (70), (4000000), (-3)")
        (exact,) = db.sql(sql).fetchall()
        after, held = runs(db), 0
        for run in after:
            for snap in run:
                ends = [(snap.bounds[name].lower[0].as_py(), snap.bounds[name].upper[0].as_py()) for name in "nsm"]
                held += sum(low <= value <= high for (low, high), value in zip(ends, exact, strict=True))
        assert held >= 0.92 * 10 * 5 * 3
        old, new = (sum(width(run[place]) for run in each for place in (2, 3)) for each in (before, after))
        assert new <= 1.2 * old
