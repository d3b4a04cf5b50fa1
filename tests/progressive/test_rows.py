"""Progress over rows, where states cannot be merged or tell too little: medians, distinct values, correlations."""

from __future__ import annotations

import gc
import math
import weakref
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.progressive.test_final import SIDE, bag, fill, table
from tsql.backends.local.progressive.confidence import student
from tsql.backends.local.progressive.row_progress import SAMPLED
from tsql.backends.local.progressive.samples import Cap
from tsql.backends.local.run.host import ChunkMemory, Context
from tsql.planner.progressive.values import OBSERVED

QUERIES = (
    "SELECT g, median(i), count(*) FROM t GROUP BY g",
    "SELECT median(x), quantile_disc(d, 0.25), quantile_cont(i, 0.9) FROM t WHERE i < 70",
    "SELECT k, count(DISTINCT i), sum(DISTINCT i) AS s FROM t GROUP BY k HAVING s > 100",
    "SELECT g, string_agg(i, ',' ORDER BY x), first(k ORDER BY x), last(k ORDER BY x, i) FROM t GROUP BY g",
    "SELECT i % 3 AS m, mad(i), median(ts), min(g) FROM t GROUP BY m ORDER BY m",
    "SELECT g, median(i) AS m FROM t GROUP BY g ORDER BY m DESC, g LIMIT 3",
    "SELECT s.name, median(i), count(DISTINCT k) FROM t JOIN s ON t.g = s.g GROUP BY ALL",
    "SELECT name, m FROM (SELECT g, median(i) AS m FROM t GROUP BY g) JOIN s USING (g)",
    "SELECT max(m), count(*) FROM (SELECT k, median(i) AS m FROM t GROUP BY k)",
    "SELECT g, median(i) FROM t GROUP BY g UNION ALL SELECT g, -1 FROM s",
    "SELECT count(DISTINCT g), count(DISTINCT i % 10), count(DISTINCT d) FROM t",
    "SELECT g, round(corr(i, k), 6), round(skewness(x), 6), round(regr_slope(i, x), 6) FROM t GROUP BY g",
    "SELECT g, count(DISTINCT i) FILTER (WHERE k > 1500), median(x) FILTER (WHERE i > 50) FROM t GROUP BY g",
    "SELECT median(i), count(*), string_agg(g) FROM t WHERE i % 101 = 100",
    "SELECT d, median(x) AS m, m AS again FROM t WHERE d > 9 GROUP BY d",
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rows") / "t.parquet"
    pq.write_table(table(), found, row_group_size=300)
    return found


@pytest.fixture(scope="module")
def duck() -> Any:
    with duckdb.connect() as connection:
        connection.register("t", table())
        connection.register("s", SIDE)
        yield connection


def rows(found: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*[column.to_pylist() for column in found.columns], strict=True))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("arrow", {"threads": 1}), ("blocks", {"threads": 2, "shards": 5}), ("parquet", {"threads": 3})],
    ids=str,
)
def test_last_snapshots(kind: str, settings: dict[str, Any], path: Path, duck: Any) -> None:
    """The last snapshot is DuckDB's result; those before it have its columns."""
    with tsql.connect(**settings) as db:
        fill(db, kind, path)
        for seed, sql in enumerate(QUERIES):
            relation = db.sql(f"{sql} PROGRESSIVE EVERY 25 PERCENT SEED {seed}")
            assert "= progressive " in relation.plan(), sql
            *shown, last = relation.snapshots()
            assert last.is_final and last.progress == 1.0
            assert bag(duck.sql(sql).fetchall()) == bag(rows(last.table)), (sql, seed)
            by_keys = 1 if kind == "parquet" else 2
            assert len(shown) == (by_keys if "= progressive total" in relation.plan() else 3), sql
            assert not any(one.is_final for one in shown), sql
            assert all(one.table.schema.equals(last.table.schema) for one in shown)
            assert all(low.to_pylist() == high.to_pylist() for low, high in map(_ends, last.bounds.values()))


def _ends(bounds: Any) -> tuple[Any, Any]:
    return bounds.lower, bounds.upper


@pytest.mark.parametrize("kind", ["arrow", "blocks", "parquet"])
def test_rows_keep_their_order(kind: str, path: Path) -> None:
    """What depends on the order of the input is that of the plain query."""
    sql = "SELECT string_agg(i) AS s, first(i) AS f, median(i) FROM t"
    with tsql.connect(threads=1) as db:
        fill(db, kind, path)
        *_, last = db.sql(f"{sql} PROGRESSIVE EVERY 30 PERCENT SEED 3").snapshots()
        assert last.table.to_pylist() == db.sql(sql).arrow().to_pylist()
        assert last.table["s"][0].as_py() == ",".join(map(str, table()["i"].to_pylist()))


def test_estimates_are_of_all_rows(path: Path) -> None:
    """Counts and sums are scaled up, also where the sample has some of the rows that were read."""
    with tsql.connect(threads=2) as db:
        fill(db, "blocks", path)
        exact = db.sql("SELECT count(*) AS n, sum(i) AS s, median(x) AS m FROM t WHERE i < 50").arrow().to_pylist()[0]
        sql = "SELECT count(*) AS n, sum(i) AS s, median(x) AS m FROM t WHERE i < 50 PROGRESSIVE EVERY 30 PERCENT"
        for snap in db.sql(sql).snapshots():
            (found,) = snap.table.to_pylist()
            assert all(float(found[name]) == pytest.approx(float(exact[name]), rel=0.15) for name in exact), found
            for name, value in exact.items():
                low, high = (one[0].as_py() for one in _ends(snap.bounds[name]))
                assert low <= found[name] <= high
                assert snap.is_final == (low == high == value)


@pytest.fixture
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that have some of the rows of units, and replicates of some of these."""
    for name, rows in (("LOOKED_AT", 2_000), ("STOPPING", 2_000), ("COUNTED", 2_000), ("REPLICATED", 600)):
        monkeypatch.setattr(f"tsql.backends.local.progressive.row_progress.{name}", Cap(rows, 1 << 40))


SHARES = """SELECT g % 4 AS g, count(DISTINCT d) AS d, count(*) AS n, min(x) AS low, max(x) AS high, median(x)
FROM t GROUP BY ALL"""


@pytest.mark.parametrize("kind", ["blocks", "arrow"])
@pytest.mark.parametrize("is_small", [False, True])
def test_proven_bounds_hold(kind: str, is_small: bool, request: pytest.FixtureRequest) -> None:
    """Distinct values, minima and maxima are those observed, and never out of their bounds."""
    if is_small:
        request.getfixturevalue("small_samples")
    rng = np.random.default_rng(3)
    data = pa.table({
        "g": rng.integers(0, 8, ROWS),
        "d": np.minimum(rng.geometric(0.02, ROWS), 500),
        "x": np.sort(rng.lognormal(0, 1, ROWS)),
    })  # fmt: skip
    with tsql.connect(threads=2) as db:
        db.register("arrow" if kind == "blocks" else "t", data)
        if kind == "blocks":
            db.execute("CREATE TABLE t AS SELECT * FROM arrow")
        for seed in range(5):
            *shown, last = db.sql(f"{SHARES} PROGRESSIVE EVERY 20 PERCENT SEED {seed}").snapshots()
            exact = {row["g"]: row for row in last.table.to_pylist()}
            assert not last.notes
            for snap in shown:
                is_part = is_small and snap.rows_read > 2_000
                told = SAMPLED if is_part else OBSERVED
                assert snap.notes == {"d": told, "low": told, "high": told}
                for place, row in enumerate(snap.table.to_pylist()):
                    low, high = (one[place].as_py() for one in _ends(snap.bounds["d"]))
                    assert low == row["d"] <= exact[row["g"]]["d"] <= high <= row["d"] + ROWS, (seed, row)
                    if kind == "blocks":
                        assert high <= 500
                        assert snap.bounds["low"].lower[place].as_py() <= exact[row["g"]]["low"] <= row["low"]
                        assert snap.bounds["high"].upper[place].as_py() >= exact[row["g"]]["high"] >= row["high"]


ROWS = 32 * 400
GROUPS = 4
VALUES = {
    "median": "median(x)",
    "p90": "quantile_cont(x, 0.9)",
    "corr": "corr(x, y)",
    "apart": "median(x) - avg(y)",
    "n": "count(*)",
}


def drawn(kind: str) -> pa.Table:
    rng = np.random.default_rng(11)
    g, x = rng.integers(0, GROUPS, ROWS), rng.uniform(0, 1, ROWS)
    if kind == "lognormal":
        x = rng.lognormal(0, 0.7, ROWS)
    if kind == "clustered":
        x = x + np.repeat(rng.uniform(0, 1, ROWS // 128), 128)
    return pa.table({"g": g, "x": x, "y": x * rng.uniform(0.5, 1.5, ROWS) + 1})


@pytest.mark.parametrize("kind", ["uniform", "lognormal", "clustered"])
@pytest.mark.parametrize("values", [("median", "p90"), ("corr", "n"), ("apart", "n")], ids=str)
@pytest.mark.parametrize("is_small", [False, True], ids=["all", "part"])
def test_coverage(kind: str, values: tuple[str, ...], is_small: bool, request: pytest.FixtureRequest) -> None:
    """Bounds of 95 % hold at nine of ten looks at least: looks at one run depend on each other, and seeds are few."""
    if is_small:
        request.getfixturevalue("small_samples")
    shown = ", ".join(f"{VALUES[value]} AS {value}" for value in values)
    sql = f"SELECT g, {shown} FROM t GROUP BY g"
    data, held, looks = drawn(kind), dict.fromkeys(values, 0), dict.fromkeys(values, 0)
    with duckdb.connect() as connection, tsql.connect(threads=1) as db:
        connection.register("t", data)
        exact = {row["g"]: row for row in connection.sql(sql).to_arrow_table().to_pylist()}
        db.register("arrow", data)
        db.execute("CREATE TABLE t AS SELECT * FROM arrow")
        for seed in range(10):
            for snap in db.sql(f"{sql} PROGRESSIVE EVERY 24 PERCENT SEED {seed}").snapshots():
                for name in values if not snap.is_final else ():
                    lows, highs = _ends(snap.bounds[name])
                    ends = zip(snap.table["g"].to_pylist(), lows.to_pylist(), highs.to_pylist(), strict=True)
                    assert not lows.null_count
                    held[name] += sum(low <= exact[group][name] <= high for group, low, high in ends)
                    looks[name] += GROUPS
    assert all(looks[name] == 10 * 4 * GROUPS and held[name] >= 0.9 * looks[name] for name in values), (held, looks)


def test_the_error_of_a_median_by_the_formula() -> None:
    """The bounds of a median, by plain code over the units of the sample."""
    data, seed, share = drawn("uniform"), 5, 0.1
    units = data["x"].to_numpy().reshape(-1, 32)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(units))
    read = units[order[: round(share * len(units))]]
    below = (read <= np.sort(read.ravel())[(read.size - 1) // 2]).sum(axis=1)
    ratio = below.sum() / read.size
    spread = len(read) / (len(read) - 1) * ((below - ratio * 32) ** 2).sum() / read.size**2
    error = student(0.95, len(read)) * math.sqrt((1 - len(read) / len(units)) * spread)
    ordered = np.sort(read.ravel())
    ends = (
        ordered[math.floor((0.5 - error) * (read.size - 1))],
        ordered[math.ceil((0.5 + error) * (read.size - 1))],
    )
    with tsql.connect(threads=1) as db:
        db.register("t", data)
        first = next(db.sql(f"SELECT median(x) AS m FROM t PROGRESSIVE EVERY 10 PERCENT SEED {seed}").snapshots())
    assert first.table["m"][0].as_py() == pytest.approx(np.median(read))
    assert [one[0].as_py() for one in _ends(first.bounds["m"])] == pytest.approx(ends)


def test_functions_of_bounds() -> None:
    """lower_bound and its like give the bounds that the snapshot shows."""
    with tsql.connect(threads=1) as db:
        db.register("t", drawn("uniform"))
        sql = (
            "SELECT g, median(x) AS m, lower_bound(median(x)) AS a, upper_bound(median(x)) AS b, "
            "relative_error(median(x)) AS e, is_certain(count(DISTINCT g)) AS c FROM t GROUP BY g ORDER BY g "
            "PROGRESSIVE EVERY 20 PERCENT"
        )
        first, *_, last = db.sql(sql).snapshots()
        for place, row in enumerate(first.table.to_pylist()):
            low, high = (one[place].as_py() for one in _ends(first.bounds["m"]))
            assert (row["a"], row["b"], row["c"]) == (low, high, False)
            assert row["e"] == pytest.approx((high - low) / 2 / row["m"])
        assert all((row["a"], row["b"], row["e"], row["c"]) == (row["m"], row["m"], 0, True)
                   for row in last.table.to_pylist())  # fmt: skip


def test_the_same_seed_shows_the_same() -> None:
    with tsql.connect(threads=2) as db:
        db.register("t", drawn("uniform"))
        sql = "SELECT g, median(x) AS m, corr(x, y) AS c FROM t GROUP BY g ORDER BY g PROGRESSIVE EVERY 30 PERCENT"
        runs = [list(db.sql(sql).snapshots()) for _ in range(2)]
        for one, other in zip(*runs, strict=True):
            assert one.table["m"].equals(other.table["m"]) and one.bounds["m"].lower.equals(other.bounds["m"].lower)
            assert np.allclose(one.bounds["c"].upper, other.bounds["c"].upper)


def test_stopping() -> None:
    """A query stops where its values are close enough, and before that if its time is over."""
    with tsql.connect(threads=1) as db:
        db.register("t", drawn("uniform"))
        *_, last = db.sql("SELECT median(x) AS m FROM t PROGRESSIVE UNTIL ERROR <= 0.1").snapshots()
        assert last.progress < 1 and last.relative_error("m")[0].as_py() <= 0.1
        assert db.sql("SELECT median(x) AS m FROM t PROGRESSIVE UNTIL ERROR <= 0.1").fetchall() == [
            (last.table["m"][0].as_py(),)
        ]
        shown = list(db.sql("SELECT median(x) FROM t PROGRESSIVE WITHIN INTERVAL '1 microsecond'").snapshots())
        assert len(shown) == 1 and not shown[0].is_final


@pytest.mark.parametrize("value", ["median(x)", "corr(x, y)", "string_agg(x ORDER BY y)"])
def test_a_stop_frees_memory(value: str) -> None:
    """Nothing of the run is left: neither rows nor states."""
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    with tsql.connect(threads=2) as db:
        db.register("t", drawn("uniform"))
        for stops_at in (1, 3):
            snapshots = db.sql(f"SELECT g, {value} AS v FROM t GROUP BY g PROGRESSIVE EVERY 20 PERCENT").snapshots()
            with snapshots:
                for number, _ in enumerate(snapshots, 1):
                    alive.update(one for one in gc.get_objects() if isinstance(one, ChunkMemory | Context))
                    assert len(alive) > 10
                    if number == stops_at:
                        break
            # A snapshot owns its rows.
            del snapshots, _
            gc.collect()
            assert not [one for one in alive if not (isinstance(one, Context) and one.closed)]


def test_a_memory_limit_shows_the_final_result() -> None:
    with tsql.connect(memory_limit="100MB") as db:
        db.register("t", drawn("uniform"))
        relation = db.sql("SELECT count(DISTINCT g), median(x) FROM t PROGRESSIVE EVERY 20 PERCENT")
        assert [one.is_final for one in relation.snapshots()] == [True]
        assert relation.notes == ["a run with a memory limit shows the final result only"]


@pytest.mark.parametrize("value", ["median(x)", "corr(x, y)"])
def test_plan_files(value: str, path: Path) -> None:
    """A plan with the step is read back, checked and run."""
    with tsql.connect(threads=2) as db:
        source = f"(SELECT g, x, i AS y FROM '{path}')"
        relation = db.sql(f"SELECT g, {value} FROM {source} GROUP BY g PROGRESSIVE EVERY 25 PERCENT")
        assert "progressive" in relation.explain() and "final result only" not in relation.explain()
        loaded = tsql.load_plan_text(relation.plan()).run(db)
        assert loaded.plan() == relation.plan()
        assert len(list(loaded.snapshots())) == 4
        assert bag(loaded.fetchall()) == bag(relation.fetchall())


def test_groups_of_which_little_is_known() -> None:
    """A group in few units has no bounds but proven ones."""
    data = drawn("uniform")
    g = np.asarray(data["g"]).copy()
    g[100:110] = 99
    with tsql.connect(threads=1) as db:
        db.register("t", data.set_column(0, "g", pa.array(g)))
        sql = "SELECT g, median(x) AS m, count(*) AS n FROM t GROUP BY g PROGRESSIVE EVERY 10 PERCENT SEED 1"
        *shown, _ = db.sql(sql).snapshots()
    rare = [(snap, snap.table["g"].to_pylist().index(99)) for snap in shown if 99 in snap.table["g"].to_pylist()]
    assert rare
    for snap, place in rare:
        assert snap.bounds["m"].lower[place].as_py() is None
        assert [one[place].as_py() for one in _ends(snap.bounds["n"])] == [10, 10 + ROWS - snap.rows_read]


@pytest.fixture
def many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans as for more groups than batches keep states of."""
    monkeypatch.setattr("tsql.planner.cost.constants.GROUPS_OF_SAMPLES", 0)


def test_correlations_of_many_groups(many_groups: None) -> None:
    """They are of rows then, and their bounds hold as well."""
    data, held, looks = drawn("uniform"), 0, 0
    with duckdb.connect() as connection, tsql.connect(threads=2) as db:
        connection.register("t", data)
        exact = dict(connection.sql("SELECT g, corr(x, y) FROM t GROUP BY g").fetchall())
        db.register("t", data)
        for seed in range(10):
            relation = db.sql(f"SELECT g, corr(x, y) AS c FROM t GROUP BY g PROGRESSIVE EVERY 24 PERCENT SEED {seed}")
            assert "phase=partial" not in relation.plan()
            for snap in relation.snapshots():
                ends = (one.to_pylist() for one in _ends(snap.bounds["c"]))
                inside = [
                    low <= exact[g] <= high for g, low, high in zip(snap.table["g"].to_pylist(), *ends, strict=True)
                ]
                assert not snap.is_final or dict(rows(snap.table)) == pytest.approx(exact)
                held, looks = held + sum(inside) * (not snap.is_final), looks + len(inside) * (not snap.is_final)
    assert held >= 0.9 * looks > 0


def test_too_many_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the planner expected fewer groups, states are not replicated: there are estimates without bounds."""
    monkeypatch.setattr("tsql.backends.local.progressive.samples.MOST_STATES", 16)
    with tsql.connect(threads=1) as db:
        db.register("t", drawn("uniform"))
        *shown, last = db.sql("SELECT g, corr(x, y) AS c FROM t GROUP BY g PROGRESSIVE EVERY 24 PERCENT").snapshots()
        exact = dict(rows(last.table))
        for snap in shown:
            assert dict(rows(snap.table)) == pytest.approx(exact, rel=0.2)
            assert snap.bounds["c"].lower.null_count == snap.table.num_rows
        assert last.bounds["c"].lower.null_count == 0


def test_values_without_bounds() -> None:
    """Of what is no smooth function of the rows, a sample says what it shows and no more."""
    values = {
        "a": "mode(round(x, 1))",
        "b": "product(x)",
        "c": "sum(DISTINCT round(x, 1))",
        "d": "CASE WHEN median(x) > 0.5 THEN 1 ELSE 0 END",
        "e": "quantile_cont(x, 1.0)",
        "f": "median(x) > 0.5",
    }
    with tsql.connect(threads=1) as db:
        db.register("t", drawn("uniform"))
        shown = ", ".join(f"{value} AS {name}" for name, value in values.items())
        first, *_ = db.sql(f"SELECT {shown}, median(x) AS m FROM t PROGRESSIVE EVERY 20 PERCENT").snapshots()
        assert first.notes == dict.fromkeys("abc", OBSERVED)
        assert first.bounds["m"].lower.null_count == 0
        assert all(name not in first.bounds or first.bounds[name].lower.null_count == 1 for name in values)
