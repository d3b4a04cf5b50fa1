"""Groups that are counted out in an array, around the sizes at which a hash table takes over; the answers are
DuckDB's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.kernels.aggregates.base import AggregateArgument
from tsql.kernels.aggregates.basic import SumExact
from tsql.kernels.expr.types import BIGINT, HUGEINT
from tsql.kernels.operators.aggregate import groups as aggregate
from tsql.kernels.operators.aggregate.groups import DENSE_GROUPS
from tsql.loaded import LoadedPlan
from tsql.planner.physical.operators import aggregate as aggregate_step

LARGEST = 1 << 18
"""In the place of LARGEST_DENSE, which takes seconds to fill."""
HINTS = ("", "/*+ AGG('two_phase_gather') */", "/*+ AGG('two_phase') */", "/*+ AGG('one_phase') */")
NULLS = "CASE WHEN range % 1000 = 7 THEN NULL ELSE {} END"


def make(rows: int, keys: int, nulls: bool) -> tuple[Any, Any]:
    """The same table in both engines: `keys` values from 0 on, each of which occurs if there are enough rows."""
    key = f"(range * 7919 % {keys})"
    sql = (
        f"CREATE TABLE t AS SELECT ({NULLS.format(key) if nulls else key})::BIGINT AS k, range % 3 = 0 AS b, "
        f"(range * 31 % 1009)::INTEGER AS x FROM range({rows})"
    )
    db, duck = tsql.connect(threads=2), empty_duckdb()
    for engine in (db, duck):
        engine.execute(sql)
    return db, duck


def kinds(db: Any, sql: str) -> set[str]:
    """How the aggregates of a query are computed."""
    return {
        word
        for line in db.sql(sql).explain("kir").splitlines()
        if line.startswith("#") and line.strip("# ").startswith("aggregate")
        for word in ("dense", "hash")
        if f" {word} " in line
    }


@pytest.mark.parametrize("nulls", [False, True], ids=["", "nulls"])
@pytest.mark.parametrize(
    "keys", [1, DENSE_GROUPS - 1, DENSE_GROUPS, DENSE_GROUPS + 1, 2 * DENSE_GROUPS, 4 * DENSE_GROUPS]
)
def test_around_the_size_that_is_always_dense(keys: int, nulls: bool) -> None:
    db, duck = make(20_000, keys, nulls)
    with db, duck:
        for hint in HINTS:
            sql = (
                f"SELECT {hint} k, count(*) AS n, count(x) AS c, sum(x) AS s, min(x) AS low, avg(x) AS mean "
                "FROM t GROUP BY k ORDER BY k"
            )
            assert db.sql(sql).fetchall() == duck.sql(sql).fetchall(), hint
        assert "dense" in kinds(db, "SELECT k, count(*) FROM t GROUP BY k")


@pytest.mark.parametrize(
    ("keys", "nulls", "kind"),
    [(LARGEST, False, "dense"), (LARGEST, True, "hash"), (LARGEST + 1, False, "hash"), (LARGEST // 2, True, "dense")],
)
def test_around_the_largest_size(keys: int, nulls: bool, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "LARGEST_DENSE", LARGEST)
    monkeypatch.setattr(aggregate_step, "LARGEST_DENSE", LARGEST)
    db, duck = make(LARGEST + 100_000, keys, nulls)
    with db, duck:
        sql = f"SELECT {HINTS[1]} k, count(*) AS n, sum(x) AS s FROM t GROUP BY k"
        assert kind in kinds(db, sql)
        # The groups as a table, since a million rows of Python take longer than the query.
        check = (
            "SELECT count(*), count(k), sum(k), sum(n), sum(s), sum(hash_of) FROM (SELECT k, n, s, "
            "(coalesce(k, -1) * 31 + n * 17 + s) % 1000003 AS hash_of FROM ({}))"
        )
        assert db.sql(check.format(sql)).fetchall() == duck.sql(check.format(sql)).fetchall()


def test_few_rows_of_many_possible_keys_are_hashed() -> None:
    """An array that is mostly empty would cost more than the table."""
    with tsql.connect(threads=2) as db, empty_duckdb() as duck:
        for engine in (db, duck):
            engine.execute("CREATE TABLE t AS SELECT range * 300 AS k FROM range(3000)")
        sql = "SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY k"
        assert kinds(db, sql) == {"hash"}
        assert db.sql(sql).fetchall() == duck.sql(sql).fetchall()


def test_the_product_of_two_keys_counts() -> None:
    db, duck = make(20_000, DENSE_GROUPS // 2, True)
    with db, duck:
        sql = "SELECT k, b, count(*) AS n, max(x) AS high FROM t GROUP BY k, b ORDER BY k, b"
        assert "dense" in kinds(db, sql)
        assert db.sql(sql).fetchall() == duck.sql(sql).fetchall()


def test_keys_that_come_later() -> None:
    """The bounds are those of the table as it is now, not as it was when the query was planned first."""
    db, duck = make(20_000, DENSE_GROUPS, False)
    with db, duck:
        sql = "SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY k NULLS FIRST"
        assert db.sql(sql).fetchall() == duck.sql(sql).fetchall()
        for change in (
            "INSERT INTO t VALUES (-5, true, 1), (9000000, false, 2)",
            "INSERT INTO t VALUES (NULL, NULL, NULL)",
            "UPDATE t SET k = k - 100000 WHERE k < 10",
            "DELETE FROM t WHERE k > 20",
        ):
            db.execute(change)
            duck.execute(change)
            assert db.sql(sql).fetchall() == duck.sql(sql).fetchall(), change


@pytest.mark.parametrize("hint", HINTS[:3])
@pytest.mark.parametrize(
    "calls",
    [
        "sum(n)",
        "count(n)",
        "avg(n)",
        "count(*) FILTER (WHERE n > 0)",
        "sum(x) FILTER (WHERE x < 0)",
        "sum(n), count(*)",
        "min(n), count(n)",
        "sum(d), sum(x)",
    ],
)
def test_groups_that_no_aggregate_has_counted(calls: str, hint: str) -> None:
    """A group is there though its arguments are all NULL, or its rows are all filtered out."""
    with tsql.connect(threads=2, small_rows=0) as db, empty_duckdb() as duck:
        for engine in (db, duck):
            engine.execute(
                "CREATE TABLE t AS SELECT range % 500 AS k, CASE WHEN range % 500 < 400 THEN range % 7 END "
                "AS n, range % 5 AS x, "
                "CASE WHEN range % 500 <> 3 THEN 0.5::DOUBLE END AS d FROM range(10000)"
            )
        sql = f"SELECT {hint} k, {calls} FROM t GROUP BY k ORDER BY k"
        assert "dense" in kinds(db, sql)
        assert db.sql(sql).fetchall() == duck.sql(sql).fetchall()


@pytest.mark.parametrize("hint", HINTS[:3])
@pytest.mark.parametrize(
    "join", ["a LEFT JOIN b ON a.i = b.i", "b RIGHT JOIN a ON a.i = b.i", "a FULL JOIN b ON a.i = b.i"]
)
def test_groups_without_a_partner(join: str, hint: str) -> None:
    """The column that is added up has no NULLs in its table, and nothing else in some groups."""
    with tsql.connect(threads=2, small_rows=0) as db, empty_duckdb() as duck:
        for engine in (db, duck):
            engine.execute("CREATE TABLE a AS SELECT range AS i, range % 50 AS k FROM range(20000)")
            engine.execute(
                "CREATE TABLE b AS SELECT range AS i, range % 7 AS x FROM range(20000) WHERE range % 50 < 20"
            )
        sql = f"SELECT {hint} a.k, sum(b.x) AS s, avg(b.x) AS m FROM {join} GROUP BY a.k ORDER BY 1"
        assert db.sql(sql).fetchall() == duck.sql(sql).fetchall()


@pytest.mark.parametrize("hint", HINTS[:3])
def test_a_plan_that_was_kept_makes_the_same_tables(hint: str) -> None:
    """Plan files do not hold what was estimated, so it is estimated again."""
    db, duck = make(60_000, 10_000, False)
    with db, duck:
        relation = db.sql(f"SELECT {hint} k, count(*) AS n FROM t GROUP BY k")
        kept = LoadedPlan(relation.plan()).run(db)
        assert kept.explain("kir") == relation.explain("kir")
        assert " dense " in kept.explain("kir")


@pytest.mark.parametrize("keys", ["a, c, b", "b, c, a", "c, a, b", "c, b, b2", "a, b"])
def test_room_between_groups_is_small(keys: str) -> None:
    """Arrays whose rows would be whole pages have some room in between, and not many times what they need."""
    with tsql.connect(threads=2) as db, empty_duckdb() as duck:
        for engine in (db, duck):
            engine.execute(
                "CREATE TABLE t AS SELECT (range % 8)::TINYINT AS a, range % 2 = 0 AS b, range % 3 = 0 AS "
                "b2, (range * 7 % 256)::SMALLINT AS c FROM range(60000)"
            )
        sql = f"SELECT {keys}, count(*) AS n FROM t GROUP BY ALL"
        possible = int(db.sql(sql).explain("kir").split(" groups possible")[0].rsplit("(", 1)[1])
        values = math.prod({"a": 8, "b": 2, "b2": 2, "c": 256}[key] for key in keys.split(", "))
        assert values <= possible <= values * 1.1
        assert sorted(db.sql(sql).fetchall()) == sorted(duck.sql(sql).fetchall())


SUMS = (
    "sum(x)", "sum(x), count(*)", "sum(n)", "sum(n), count(n)", "sum(x), avg(x)", "sum(n), avg(x)",
    "sum(x) FILTER (WHERE x < 0)", "sum(n) FILTER (WHERE n = 0), sum(n) FILTER (WHERE n < -3)",
    "sum(flag), count_if(flag)", "sum(d)", "sum(far), sum(x)", "sum(wide)", "sum(x) + sum(n), min(x)",
)  # fmt: skip
"""`n`, `x`, `d` and `flag` have sums that are negative, 0 or NULL; those of `far` have room beside a bias or not by its
bounds, and those of `wide` never."""


@pytest.fixture(scope="module")
def summed() -> Iterator[tuple[Any, Any]]:
    with tsql.connect(threads=2, small_rows=0, batch_rows=1000) as db, empty_duckdb() as duck:
        for engine in (db, duck):
            engine.execute(
                "CREATE TABLE t AS SELECT range * 7919 % 20 AS k, make_timestamp(range % 90 * 1000000) AS "
                "ts, (range % 13 - 6)::INTEGER AS x, "
                "CASE WHEN range % 20 < 15 THEN range % 9 - 4 END AS n, (range % 11 - 5)::DECIMAL(9, 2) AS "
                "d, CASE WHEN range % 20 > 2 THEN range % 3 = 0 END AS flag, "
                "(range % 5 - 2) * 400000000000000 AS far, (range % 5 - 2) * 4000000000000000000::HUGEINT "
                "AS wide FROM range(30000)"
            )
        yield db, duck


@pytest.mark.parametrize("calls", SUMS)
def test_sums_of_one_word(summed: tuple[Any, Any], calls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of large arrays are kept; here all."""
    monkeypatch.setattr(aggregate, "COMPACT_GROUPS", 0)
    db, duck = summed
    for hint in HINTS[:3]:
        sql = f"SELECT {hint} k, {calls} FROM t GROUP BY k ORDER BY k"
        assert "dense" in kinds(db, sql)
        assert db.sql(sql).fetchall() == duck.sql(sql).fetchall()


@pytest.mark.parametrize("calls", SUMS)
def test_sums_of_one_word_in_windows(summed: tuple[Any, Any], calls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Panes export them, and windows take them in and out again."""
    monkeypatch.setattr(aggregate, "COMPACT_GROUPS", 0)
    db, duck = summed
    sql = (
        f"SELECT window_start, k, {calls} FROM HOP(t, ts, slide => INTERVAL '1 second', size => INTERVAL '7 "
        "seconds') GROUP BY ALL ORDER BY 1, 2"
    )
    assert "dense" in kinds(db, sql)
    expected = (
        f"SELECT ts - INTERVAL (back) SECOND AS w, k, {calls} FROM t, (SELECT unnest(range(7)) AS back) GROUP "
        "BY ALL ORDER BY 1, 2"
    )
    assert db.sql(sql).fetchall() == duck.sql(expected).fetchall()


def test_one_word_has_room_for_the_sum() -> None:
    """Bounds and rows whose product leaves no room for a bias keep the number of rows apart."""
    for most, rows, words in ((2**40, 2**21, 1), (2**40, 2**22, 2), (2**62 - 1, 1, 1), (2**62, 1, 2)):
        body = SumExact((AggregateArgument(BIGINT, (-most, most)),), HUGEINT, rows).compact()
        assert len(body.fields) == words, (most, rows)
