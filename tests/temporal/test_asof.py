"""ASOF joins against the reference over every shape of data, in every way in which the engine can run them, and against
DuckDB."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

import tsql
from tests.duck import empty_duckdb
from tests.spark.cluster import InProcess
from tests.temporal.data import (
    ALL_SHAPES,
    assert_same_rows,
    event_tables,
    events,
    repeatable,
    selected,
    to_rows,
    write_pieces,
)
from tests.temporal.reference.joins import asof_join
from tests.temporal.reference.rows import DAY, SECOND, On, Rows, equal
from tsql.backends import Run
from tsql.backends.live.query import LiveQuery
from tsql.kernels.emit.batch import Dictionary
from tsql.kernels.operators.join import string_hashes
from tsql.planner.cost import constants as cost
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.planfile import parse_plan

WAYS: dict[str, dict[str, Any]] = {
    "one thread": {"threads": 1, "shards": 1},
    "two threads": {"threads": 2, "shards": 2},
    "three shards": {"threads": 2, "shards": 3},
    "eight shards, single rows": {"threads": 2, "shards": 8, "batch_rows": 1},
    "equal hashes": {"threads": 2, "equal_hashes": True},
    "spilled": {"threads": 2, "shards": 3, "spill_after": 1},
    "interpreter": {"backend": "interp"},
    "spark": {"spark": None},
}
ANYTHING: On = lambda one, other: True  # noqa: E731
KEYS: dict[str, tuple[str, On]] = {
    "number": ("l.k = r.k AND ", equal("k")),
    "text": ("l.name = r.name AND ", equal("name")),
    "both": ("l.k = r.k AND l.name = r.name AND ", equal("k", "name")),
    "null-safe": ("l.k IS NOT DISTINCT FROM r.k AND ", lambda one, other: one["k"] == other["k"]),
    "none": ("", ANYTHING),
    "condition": (
        "l.k = r.k AND l.id <> r.id + 1 AND ",
        lambda one, other: equal("k")(one, other) and one["id"] != other["other"] + 1,
    ),
}


@contextmanager
def session(way: str) -> Iterator[Any]:
    settings = dict(WAYS[way])
    if "spark" in settings:
        settings["spark"] = InProcess(3)
    with tsql.connect(**settings) as db:
        yield db


def right_of(rows: Rows) -> Rows:
    return [{"k": row["k"], "name": row["name"], "other": row["id"], "rts": row["ts"]} for row in rows]


def check(
    db: Any, left: pa.Table, right: pa.Table, key: str, inequality: str, outer: bool, tolerance: int | None
) -> None:
    on, matches = KEYS[key]
    within = "" if tolerance is None else f" TOLERANCE INTERVAL '{tolerance} microseconds'"
    sql = (
        f"SELECT l.id AS id, r.id AS other FROM l ASOF {'LEFT' if outer else ''} JOIN r ON {on}l.ts "
        f"{inequality} r.ts{within}"
    )
    expected = asof_join(
        to_rows(left),
        right_of(to_rows(right)),
        matches,
        "ts",
        "rts",
        inequality,
        tolerance,
        ("other", "rts") if outer else None,
    )
    assert_same_rows(to_rows(db.sql(sql).arrow()), selected(expected, "id", "other"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.in_turn(6)
def test_every_shape(way: str, key: str) -> None:
    shapes = ALL_SHAPES if way in ("two threads", "spilled") else ("empty", "few_times", "null_times", "null_keys")
    turn = random.Random(f"{way} {key}")
    for shape in shapes:
        left, right = events(shape, 1), events(shape, 2, rows=80)
        with session(way) as db:
            db.register("l", left)
            db.register("r", right)
            for inequality in turn.sample((">=", ">", "<=", "<"), 2):
                check(db, left, right, key, inequality, turn.random() < 0.5, turn.choice((None, 0, 5 * SECOND)))


@pytest.mark.parametrize("inequality", [">=", "<"])
def test_random_tables(inequality: str, pytestconfig: pytest.Config) -> None:
    with session("two threads") as db:

        @repeatable(40 if pytestconfig.getoption("--all-configurations") else 20)
        @given(left=event_tables(12), right=event_tables(20))
        def look(left: pa.Table, right: pa.Table) -> None:
            db.register("l", left)
            db.register("r", right)
            check(db, left, right, "number", inequality, True, SECOND)

        look()


@pytest.mark.parametrize("rows", ["broadcast", "placed"])
def test_spark_places_both_sides(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if rows == "placed":
        monkeypatch.setattr(cost, "BROADCAST_BYTES", -1)
    left, right = events("few_times", 1, rows=100), events("few_times", 2, rows=150)
    with session("spark") as db:
        db.register("l", left)
        db.register("r", right)
        text = db.sql("SELECT l.id FROM l ASOF JOIN r ON l.k = r.k AND l.ts >= r.ts").explain()
        assert ("redistribute" in text) == (rows == "placed")
        for key in ("number", "both", "none"):
            check(db, left, right, key, ">=", True, None)
            check(db, left, right, key, "<=", False, 3 * SECOND)


def test_the_last_file_wins(tmp_path: Path) -> None:
    """Ties follow the input: the order of files, and of rows in them, however they are read."""
    left, right = events("equal_times", 1), events("equal_times", 2, rows=500)
    write_pieces(right, 7, tmp_path)
    expected = selected(asof_join(to_rows(left), right_of(to_rows(right)), equal("k"), "ts", "rts"), "id", "other")
    for settings in (
        {"threads": 1},
        {"threads": 2},
        {"threads": 2, "shards": 5, "batch_rows": 3},
        {"threads": 2, "spill_after": 1},
    ):
        with tsql.connect(**settings) as db:
            db.register("l", left)
            for _ in range(3):
                ours = db.sql(
                    f"SELECT l.id AS id, r.id AS other FROM l ASOF JOIN '{tmp_path}/*.parquet' r ON l.k = "
                    "r.k AND l.ts >= r.ts"
                ).arrow()
                assert_same_rows(to_rows(ours), expected)


def test_the_last_part_of_a_union_wins() -> None:
    with tsql.connect(threads=2, shards=3) as db:
        sql = """SELECT r.n FROM (VALUES (1)) l(t)
                 ASOF JOIN (SELECT 1 AS t, 'first' AS n UNION ALL SELECT 1, 'second' UNION ALL SELECT 1, 'last') r
                 ON l.t >= r.t"""
        assert db.sql(sql).fetchall() == [("last",)]


@pytest.mark.parametrize("threads", [1, 2])
def test_right_sides_of_every_origin(threads: int) -> None:
    """Where right rows come from a window, a grouping, a sort, a join or a recursion, each of their times is there once
    for a key."""
    left, right = events("unsorted", 1, rows=200), events("unsorted", 2, rows=1000)
    sources = {
        "window": "SELECT k, ts, id FROM r QUALIFY row_number() OVER (PARTITION BY k, ts ORDER BY id DESC) = 1",
        "groups": "SELECT k, ts, max(id) AS id FROM r GROUP BY k, ts",
        "sort": "SELECT k, ts, max(id) AS id FROM r GROUP BY k, ts ORDER BY ts DESC LIMIT 100000",
        "join": "SELECT r.k, r.ts, max(r.id) AS id FROM r JOIN (SELECT DISTINCT k FROM r) USING (k) GROUP BY ALL",
        "distinct": "SELECT DISTINCT ON (k, ts) k, ts, id FROM (SELECT * FROM r ORDER BY id DESC)",
    }
    expected = selected(asof_join(to_rows(left), right_of(to_rows(right)), equal("k"), "ts", "rts"), "id", "other")
    with tsql.connect(threads=threads, shards=5) as db:
        db.register("l", left)
        db.register("r", right)
        for name, source in sources.items():
            ours = db.sql(
                f"SELECT l.id AS id, q.id AS other FROM l ASOF JOIN ({source}) q ON l.k = q.k AND l.ts >= q.ts"
            ).arrow()
            try:
                assert_same_rows(to_rows(ours), expected)
            except AssertionError as problem:
                raise AssertionError(f"{name}: {problem}") from problem


@pytest.mark.parametrize("is_sorted", [True, False], ids=["sorted", "shuffled"])
@pytest.mark.parametrize("keys", [1, 50, 6000], ids=lambda keys: f"{keys} keys")
def test_many_rows_are_duckdbs(is_sorted: bool, keys: int) -> None:
    """Enough rows for several morsels and threads; no time comes twice on the right, so that DuckDB's answer is the
    only one."""
    rng = np.random.default_rng(keys)
    rows = 100_000

    def table(column: str, shift: int) -> pa.Table:
        times = np.arange(rows) * 10 + shift + rng.integers(0, 5, rows)
        if not is_sorted:
            rng.shuffle(times)
        numbers = pa.array(rng.integers(0, keys, rows))
        names = pc.binary_join_element_wise("key", numbers.cast(pa.string()), " ")
        return pa.table(
            {"name": names, "n": numbers, "ts": pa.array(times).cast(pa.timestamp("us")), column: np.arange(rows)}
        )

    left, right = table("a", 3), table("b", 0)
    with tsql.connect(threads=2) as db, empty_duckdb() as duck:
        for name, given in (("l0", left), ("r0", right)):
            db.register(name, given)
            duck.register(name, given)
        for engine in (db, duck):
            engine.execute("CREATE TABLE l AS SELECT * FROM l0")
            engine.execute("CREATE TABLE r AS SELECT * FROM r0")
        for key in ("name", "n"):
            sql = (
                "SELECT count(*) AS n, sum(a) AS a, sum(b) AS b, sum(a * b) AS ab FROM l ASOF JOIN r ON "
                f"l.{key} = r.{key} AND l.ts >= r.ts"
            )
            assert ("walks=yes" in db.sql(sql).explain()) == is_sorted
            assert [tuple(map(int, row)) for row in db.sql(sql).fetchall()] == [
                tuple(map(int, row)) for row in duck.sql(sql).fetchall()
            ]


@pytest.mark.parametrize("few", [0, 1 << 16], ids=["compared", "told apart"])
def test_keys_in_dictionaries(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings of tables are codes: their hashes are made once, and for few of them strings need not be compared."""
    monkeypatch.setattr(string_hashes, "FEW_STRINGS", few)
    left, right = events("few_times", 5, rows=150), events("few_times", 6, rows=250)
    with tsql.connect(threads=2) as db:
        db.register("l0", left)
        db.register("r0", right)
        db.sql("CREATE TABLE l AS SELECT * FROM l0")
        db.sql("CREATE TABLE r AS SELECT * FROM r0 WHERE name IS DISTINCT FROM 'b'")
        kept = right.filter(pa.array([name != "b" for name in right["name"].to_pylist()]))
        for inequality in (">=", "<"):
            check(db, left, kept, "text", inequality, True, None)
            check(db, left, kept, "both", inequality, False, None)


def test_hashes_tell_strings_apart() -> None:
    strings = Dictionary(pa.array(["", "a", "ab", "abcd", "abcdefgh", "abcdefghi"]))
    others = Dictionary(pa.array(["ab", "abc", "zz"]))
    hashes = string_hashes.string_hashes(strings)
    assert len(set(hashes.tolist())) == 6 and hashes[2] == string_hashes.string_hashes(others)[0]
    assert string_hashes.tell_apart(strings) and string_hashes.tell_apart(strings, others)
    others.tables["hashes"] = pa.py_buffer(hashes[[0, 1, 2]].tobytes() + bytes(8))
    assert not string_hashes.tell_apart(strings, others)


NUMBERS = (
    ("DOUBLE", ["'nan'", "'inf'", "'-inf'", "'-0.0'", "0.0", "1e300", "'-1e300'", "1.5", "NULL"]),
    ("REAL", ["'nan'", "1.5", "'-2.25'", "0", "NULL"]),
    ("UBIGINT", ["0", "18446744073709551615", "9223372036854775808", "5", "NULL"]),
    ("BIGINT", ["'-9223372036854775808'", "9223372036854775807", "0", "'-1'", "NULL"]),
    ("UTINYINT", ["0", "255", "128", "NULL"]),
    ("DECIMAL(18,3)", ["'-999999999999999.999'", "0.001", "'-0.001'", "5", "NULL"]),
    ("DATE", ["'1969-12-31'", "'2024-02-29'", "'0001-01-01'", "NULL"]),
    ("TIME", ["'00:00:00'", "'23:59:59.999999'", "NULL"]),
    ("TIMESTAMPTZ", ["'1969-12-31 23:59:59+00'", "'2024-02-29 12:00:00+02'", "NULL"]),
)


@pytest.mark.parametrize(("kind", "values"), NUMBERS, ids=[kind for kind, _ in NUMBERS])
def test_types(kind: str, values: list[str]) -> None:
    rows = ", ".join(f"({place}, {value}::{kind})" for place, value in enumerate(values))
    with tsql.connect(threads=2) as db, empty_duckdb() as duck:
        for inequality in (">=", ">", "<=", "<"):
            sql = (
                f"SELECT l.i, r.i FROM (VALUES {rows}) l(i, x) ASOF LEFT JOIN (SELECT * FROM (VALUES {rows}) "
                f"v(i, x) WHERE i <> 3) r ON l.x {inequality} r.x ORDER BY 1"
            )
            assert db.sql(sql).fetchall() == duck.sql(sql).fetchall(), sql


@pytest.mark.parametrize(
    ("kind", "tolerance", "distance"),
    [
        ("BIGINT", "3", 3),
        ("INTEGER", "3.9", 3),
        ("DECIMAL(9,2)", "1.5", 1.5),
        ("DECIMAL(9,2)", "2", 2),
        ("DOUBLE", "2.5", 2.5),
        ("UBIGINT", "4", 4),
        ("DATE", "INTERVAL '36 hours'", 1.5),
        ("DATE", "INTERVAL '2 days'", 2),
    ],
)
def test_tolerance_of_numbers_and_dates(kind: str, tolerance: str, distance: float) -> None:
    cast = "DATE '2024-01-01' + x::INTEGER" if kind == "DATE" else f"x::{kind}"
    places = (0, 1, 4, 9, 10, 20)
    left = ", ".join(f"({x})" for x in range(25))
    right = ", ".join(f"({x})" for x in places)
    with tsql.connect(threads=2) as db:
        for inequality, ahead in ((">=", -1), ("<", 1)):
            sql = f"""SELECT l.x, r.x FROM (SELECT x, {cast} AS t FROM (VALUES {left}) v(x)) l
                      ASOF JOIN (SELECT x, {cast} AS t FROM (VALUES {right}) v(x)) r
                      ON l.t {inequality} r.t TOLERANCE {tolerance} ORDER BY 1"""
            expected = []
            for x in range(25):
                near = [p for p in places if (p <= x if ahead < 0 else p > x)]
                best = min(near, key=lambda p: abs(p - x), default=None)
                if best is not None and abs(best - x) <= distance:
                    expected.append((x, best))
            assert db.sql(sql).fetchall() == expected


def test_tolerance_across_the_whole_range() -> None:
    """The distance of the least and the greatest number does not fit a signed word."""
    with tsql.connect(threads=1) as db:
        sql = (
            "SELECT r.x FROM (VALUES (9223372036854775807)) l(x) ASOF LEFT JOIN (VALUES "
            "(-9223372036854775808)) r(x) ON l.x >= r.x TOLERANCE {}"
        )
        assert db.sql(sql.format("9223372036854775807")).fetchall() == [(None,)]
        assert db.sql(
            "SELECT r.x FROM (VALUES (9223372036854775806)) l(x) ASOF JOIN (VALUES (-1)) r(x) ON l.x >= "
            "r.x TOLERANCE 9223372036854775807"
        ).fetchall() == [(-1,)]


def test_parameters_and_subqueries() -> None:
    with tsql.connect(threads=2) as db:
        db.sql("CREATE TABLE l AS SELECT i AS x FROM range(10) r(i)")
        db.sql("CREATE TABLE r AS SELECT i * 3 AS y FROM range(4) r(i)")
        assert db.sql("SELECT x, y FROM l ASOF JOIN r ON x + ? >= y WHERE x = 5 ", [4]).fetchall() == [(5, 9)]
        assert db.sql(
            "SELECT x, y FROM l ASOF JOIN r ON x >= y AND y < (SELECT max(x) FROM l) WHERE x = 9"
        ).fetchall() == [(9, 6)]
        assert db.sql("SELECT x, y FROM l ASOF JOIN r ON x - (SELECT count(*) FROM r) >= y WHERE x = 9").fetchall() == [
            (9, 3)
        ]
        assert db.sql("SELECT sum(x) FROM (SELECT x FROM l ASOF LEFT JOIN r ON x >= y)").fetchall() == [(45,)]


INFINITE = 2**63 - 1
FAR = [-INFINITE, -9223372022400000000, -5, 0, 3, 2**63 - 2, INFINITE]
"""Both infinities, the first and the last TIMESTAMP, and some times between."""


def distance(one: float, other: float) -> float:
    """How far two times or numbers are apart: what is infinite is infinitely far from all but itself."""
    return (
        0
        if one == other
        else math.inf
        if isinstance(one, int) and INFINITE in (abs(one), abs(other))
        else abs(one - other)
    )


@pytest.mark.parametrize("inequality", [">=", ">", "<=", "<"])
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMPTZ", "DOUBLE"])
def test_tolerance_and_infinite_times(kind: str, inequality: str, pytestconfig: pytest.Config) -> None:
    compares = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}[inequality]
    floats = {-INFINITE: -math.inf, INFINITE: math.inf}
    types = {"TIMESTAMP": pa.timestamp("us"), "TIMESTAMPTZ": pa.timestamp("us", "UTC")}
    # The longest does not fit into 64 bits, the one before only just.
    for tolerance, text in (
        (0, "0 days"),
        (5, "5 microseconds"),
        (106_751_991 * DAY, "106751991 days"),
        (2_000_000_000 * DAY, "2000000000 days"),
    ):
        for number in range(5 if pytestconfig.getoption("--all-configurations") else 3):
            turn = random.Random(f"{inequality} {kind} {text} {number}")
            far = [floats.get(time, float(time)) for time in FAR] if kind == "DOUBLE" else FAR
            left, right = turn.choices(far, k=4), turn.sample(far, k=turn.randint(0, 4))
            with tsql.connect(threads=1) as db:
                for name, times in (("l", left), ("r", right)):
                    values = (
                        pa.array(times, pa.float64())
                        if kind == "DOUBLE"
                        else pa.array(times, pa.int64()).cast(types[kind])
                    )
                    db.register(name, pa.table({"id": pa.array(range(len(times)), pa.int64()), "ts": values}))
                within = f"{float(tolerance)!r}" if kind == "DOUBLE" else f"INTERVAL '{text}'"
                found = db.sql(
                    f"SELECT l.id, r.id FROM l ASOF LEFT JOIN r ON l.ts {inequality} r.ts TOLERANCE {within} ORDER BY 1"
                ).fetchall()
            expected = []
            for i, one in enumerate(left):
                near = [
                    (other, j)
                    for j, other in enumerate(right)
                    if compares(one, other) and distance(one, other) <= tolerance
                ]
                expected.append((i, (max if inequality[0] == ">" else min)(near)[1] if near else None))
            assert found == expected, (left, right, tolerance)


def test_live_rows_near_the_end_of_time_wait() -> None:
    """A join that looks ahead waits for what is within its tolerance, which may be behind the last TIMESTAMP."""
    last = 2**63 - 2
    times = pa.array([0, last - 10, INFINITE], pa.int64()).cast(pa.timestamp("us"))
    left, right = pa.table({"id": [1, 2, 3], "ts": times}), pa.table({"id": [7, 8, 9], "ts": times})
    with session("one thread") as db:
        db.register("l", left)
        db.register("r", right)
        text = db.sql(
            "SELECT l.id AS id, r.id AS other FROM l ASOF LEFT JOIN r ON l.ts <= r.ts TOLERANCE INTERVAL '1 hour'"
        ).plan()
        plan = parse_plan(text, db.catalog)
    scans = {s.table: s.name for s in plan.root.walk() if isinstance(s, Scan)}
    query = LiveQuery(plan, {name: "ts" for name in scans.values()}, Run())
    found = [
        *query.consume(scans["l"], left),
        *query.consume(scans["r"], right),
        *query.punctuate(scans["l"], 5),
        *query.punctuate(scans["r"], 5),
    ]
    found += [*query.punctuate(scans["l"], None), *query.punctuate(scans["r"], None)]
    rows = [tuple(row.values()) for batch in found for row in batch.to_pylist()]
    assert sorted(rows) == [(1, 7), (2, 8), (3, 9)]
