"""Windows of panes that lie in arrays, which are walked where they lie; the answers are DuckDB's, by a join with all
windows."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.backends.local.run import dataset
from tsql.backends.local.run.dataset import free_state
from tsql.loaded import LoadedPlan

ROWS = 60_000
TABLE = f"""CREATE TABLE t AS SELECT
    make_timestamp(((range * 7919) % 240_000_000) - 60_000_000) AS ts,
    ((range * 31) % 29)::INTEGER AS k,
    CASE WHEN range % 11 = 0 THEN NULL ELSE (range % 3)::INTEGER END AS j,
    CASE WHEN range % 7 = 0 THEN NULL ELSE ((range * 131) % 2003 - 1000)::INTEGER END AS x,
    (range % 1000) / 8 AS f
    FROM range({ROWS})"""
CALLS = (
    "count(*) AS n, count(x) AS c, sum(x) AS s, avg(x) AS a, min(x) AS low, max(x) AS high, sum(x) "
    "FILTER (WHERE x > 500) AS part, sum(f) AS floats, bool_or(x > 995) AS any_high"
)
KEYS = ("k", "j", "k, j", "j, k")


@pytest.fixture(scope="module")
def engines() -> Any:
    with tsql.connect(threads=2) as db, empty_duckdb() as duck:
        for engine in (db, duck):
            engine.execute(TABLE)
        yield db, duck


def hop(engines: Any, keys: str, size: int, slide: int, calls: str = CALLS) -> tuple[str, str]:
    ours = (
        f"SELECT {keys}, window_start AS w, {calls} FROM HOP(t, ts, slide => INTERVAL '{slide} seconds', size "
        f"=> INTERVAL '{size} seconds') GROUP BY {keys}, window_start"
    )
    windows = (
        f"SELECT make_timestamp(range * {slide}000000) AS w FROM range({-(60 + size) // slide - 1}, {200 // slide + 1})"
    )
    theirs = (
        f"SELECT {keys}, w, {calls} FROM t JOIN ({windows}) ON ts >= w AND ts < w + INTERVAL '{size} seconds' "
        f"GROUP BY {keys}, w"
    )
    return ours, theirs


def check(engines: Any, ours: str, theirs: str, order: str) -> None:
    db, duck = engines
    assert "over groups of" in db.sql(ours).explain("kir")
    assert (
        db.sql(f"SELECT * FROM ({ours}) ORDER BY {order}").fetchall()
        == duck.sql(f"SELECT * FROM ({theirs}) ORDER BY {order}").fetchall()
    )


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize(("size", "slide"), [(10, 1), (10, 4), (3, 7), (30, 10)])
@pytest.mark.in_turn(2)
def test_hops(engines: Any, keys: str, size: int, slide: int) -> None:
    check(engines, *hop(engines, keys, size, slide), f"{keys}, w")


@pytest.mark.parametrize("keys", KEYS[:3])
def test_cumulating(engines: Any, keys: str) -> None:
    ours = (
        f"SELECT {keys}, window_start AS w, window_end AS e, {CALLS} FROM CUMULATE(t, ts, step => INTERVAL '2 "
        f"seconds', size => INTERVAL '20 seconds') GROUP BY {keys}, window_start, window_end"
    )
    windows = (
        "SELECT make_timestamp(s.range * 20000000) AS w, make_timestamp(s.range * 20000000 + e.range * "
        "2000000) AS e FROM range(-4, 11) s, range(1, 11) e"
    )
    theirs = f"SELECT {keys}, w, e, {CALLS} FROM t JOIN ({windows}) ON ts >= w AND ts < e GROUP BY {keys}, w, e"
    check(engines, ours, theirs, f"{keys}, w, e")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_and_runs(threads: int) -> None:
    """The arrays of one worker or several, and the same plan again, over more rows."""
    with tsql.connect(threads=threads) as db, empty_duckdb() as duck:
        for engine in (db, duck):
            engine.execute(TABLE)
        ours, theirs = hop((db, duck), "k", 5, 1)
        assert "over groups of" in db.sql(ours).explain("kir")
        prepared = f"SELECT * FROM ({ours}) ORDER BY k, w"
        for _ in range(2):
            assert db.sql(prepared).fetchall() == duck.sql(f"SELECT * FROM ({theirs}) ORDER BY k, w").fetchall()
            for engine in (db, duck):
                engine.execute("INSERT INTO t SELECT ts + INTERVAL '1 second', k, j, x, f FROM t")


def test_windows_stay_in_the_shards_of_their_keys(engines: Any) -> None:
    """What follows relies on it that all windows of a key are in one shard."""
    db, duck = engines
    ours, theirs = hop(engines, "k", 10, 1, "count(*) AS n")
    top = "SELECT k, max(n) AS most, count(*) AS windows FROM ({}) GROUP BY k ORDER BY k"
    assert db.sql(top.format(ours)).fetchall() == duck.sql(top.format(theirs)).fetchall()
    ranked = "SELECT k, w, n FROM ({}) QUALIFY row_number() OVER (PARTITION BY k ORDER BY n DESC, w) <= 2 ORDER BY k, w"
    assert db.sql(ranked.format(ours)).fetchall() == duck.sql(ranked.format(theirs)).fetchall()


@pytest.mark.parametrize("megabytes", [1, 3])
def test_a_limit_of_memory(megabytes: int) -> None:
    """With little memory panes are hashed and spilled; with some more the arrays are taken, and what remains is enough
    for the walk."""
    with tsql.connect(threads=2, memory_limit=megabytes << 20) as db, empty_duckdb() as duck:
        duck.execute(TABLE)
        db.register("t", duck.sql("FROM t").to_arrow_table())
        ours, theirs = hop((db, duck), "k", 10, 1)
        order = "SELECT * FROM ({}) ORDER BY k, w"
        assert db.sql(order.format(ours)).fetchall() == duck.sql(order.format(theirs)).fetchall()


def test_rows_are_counted(engines: Any) -> None:
    db, _ = engines
    text = db.sql(hop(engines, "k", 10, 1, "count(*) AS n")[0]).explain("analyze")
    groups = int(
        next(line for line in text.splitlines() if line.startswith("partial")).split("#")[1].split()[0].replace(",", "")
    )
    assert 29 * 240 <= groups <= 2 * 29 * 241


def test_more_windows_than_rows() -> None:
    """Sums over windows are as wide as so many windows need: each pane is in many."""
    with tsql.connect(threads=2) as db, empty_duckdb() as duck:
        for engine in (db, duck):
            engine.execute(
                "CREATE TABLE t AS SELECT make_timestamp(range % 8 * 1000000) AS ts, (144115188075855872 - "
                "range % 2)::BIGINT AS k FROM range(20000)"
            )
        ours, theirs = hop((db, duck), "k", 1000, 1, "count(*) AS n")
        assert "over groups of" in db.sql(ours).explain("kir")
        total = "SELECT sum(k) AS total, count(*) AS windows FROM ({})"
        assert db.sql(total.format(ours)).fetchall() == duck.sql(total.format(theirs)).fetchall()


def test_windows_without_keys(engines: Any) -> None:
    ours = (
        "SELECT window_start AS w, count(*) AS n, sum(x) AS s, max(x) AS high FROM HOP(t, ts, slide => "
        "INTERVAL '1 second', size => INTERVAL '10 seconds') GROUP BY window_start"
    )
    windows = "SELECT make_timestamp(range * 1000000) AS w FROM range(-71, 201)"
    theirs = (
        f"SELECT w, count(*) AS n, sum(x) AS s, max(x) AS high FROM t JOIN ({windows}) ON ts >= w AND ts < w "
        "+ INTERVAL '10 seconds' GROUP BY w"
    )
    check(engines, ours, theirs, "w")


def test_arrays_stay_until_all_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that has all windows in one shard gives its result in waves, each of which is done with its rows when it
    ends."""

    def free_and_spoil(sink: Any, context: Any, shared: Any) -> None:
        ctypes.memset(context.state_address, 0, context.state_bytes)
        free_state(sink, context, shared)

    monkeypatch.setattr(dataset, "free_state", free_and_spoil)
    with tsql.connect(threads=2, memory_limit=400 << 20) as db, empty_duckdb() as duck:
        table = (
            "CREATE TABLE t AS SELECT make_timestamp((range * 7919) % 600000000) AS ts, (range * 31) % 100 AS "
            "k FROM range(200000)"
        )
        for engine in (db, duck):
            engine.execute(table)
        ours = (
            "SELECT k, window_start AS w, count(*) AS n FROM HOP(t, ts, slide => INTERVAL '1 second', size => "
            "INTERVAL '3 seconds') GROUP BY k, window_start"
        )
        plan = (
            db.sql(f"SELECT /*+ SHARDS(2) */ * FROM ({ours})")
            .plan()
            .replace("scope=local shards=2", "scope=local shards=1")
        )
        assert "scope=local shards=1" in plan
        kept = LoadedPlan(plan).run(db)
        assert "over groups of" in kept.explain("kir")
        windows = "SELECT make_timestamp(range * 1000000) AS w FROM range(-3, 601)"
        theirs = (
            f"SELECT k, w, count(*) AS n FROM t JOIN ({windows}) ON ts >= w AND ts < w + INTERVAL '3 seconds' "
            "GROUP BY k, w ORDER BY k, w"
        )
        assert sorted(kept.fetchall()) == duck.sql(theirs).fetchall()
