"""ASOF and band joins in plans: what moves below them, their text, what is refused, which side is built, and memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.planner.support import logical_plan
from tsql.backends.local.sort.sorted_tables import in_input_order
from tsql.kernels.expr.errors import OutOfMemoryError
from tsql.planner.logical.nodes import show
from tsql.planner.rules import optimize

L = "l = scan l columns=(k, x, t)"
R = "r = scan r columns=(rk, y, u)"


@pytest.fixture
def db() -> Any:
    with tsql.connect(threads=2, shards=3) as session:
        session.sql(
            "CREATE TABLE l AS SELECT i % 7 AS k, i AS x, make_timestamp(i * 1000000 * 7 % 501) AS t FROM "
            "range(300) r(i)"
        )
        session.sql(
            "CREATE TABLE r AS SELECT i % 7 AS rk, i AS y, make_timestamp(i * 1000000 * 11 % 499) AS u "
            "FROM range(400) r(i)"
        )
        yield session


def lines(db: Any, sql: str) -> str:
    return show(optimize(logical_plan(db, sql)))


def test_filters_on_the_left_move_below(db: Any) -> None:
    text = lines(db, "SELECT * FROM l ASOF LEFT JOIN r ON k = rk AND t >= u WHERE x > 5")
    assert text.index("asof left join") < text.index("filter x > 5")


def test_filters_on_the_right_stay_above(db: Any) -> None:
    for kind in ("", "LEFT"):
        text = lines(db, f"SELECT * FROM l ASOF {kind} JOIN r ON k = rk AND t >= u WHERE y > 5 AND rk = 3")
        assert text.index("filter y > 5") < text.index("asof") and text.index("rk = 3") < text.index("asof")


def test_conditions_on_one_side_of_an_inner_join_are_filters(db: Any) -> None:
    text = lines(db, "SELECT * FROM l ASOF JOIN r ON k = rk AND t >= u AND y > 5 AND x < 9")
    assert "asof inner join at t >= u on k = rk" in text and "filter y > 5" in text and "filter x < 9" in text


def test_a_left_join_of_which_nothing_is_used_goes_away(db: Any) -> None:
    assert "asof" not in lines(db, "SELECT x FROM l ASOF LEFT JOIN r ON k = rk AND t >= u")
    assert "asof" in lines(db, "SELECT x FROM l ASOF JOIN r ON k = rk AND t >= u")


def test_only_the_columns_that_are_used_are_read(db: Any) -> None:
    text = db.sql("SELECT x FROM l ASOF JOIN r ON t >= u").explain()
    assert "scan r columns=(u)" in text


def test_the_text_of_a_plan_runs(db: Any) -> None:
    for tail in ("", " TOLERANCE INTERVAL '30 seconds'", " AND x + y <> 12"):
        relation = db.sql(f"SELECT x, y FROM l ASOF LEFT JOIN r ON k = rk AND t > u{tail} ORDER BY x")
        assert "asof_join" in relation.plan()
        assert tsql.load_plan_text(relation.plan()).run(db).fetchall() == relation.fetchall()


def plan(step: str) -> str:
    return (
        f"plan version 1\ntarget local shards=3\n{L}\n{R}\nall = broadcast r scope=local shards=3\nj = "
        f"asof_join {step}\ng = gather j\noutput g (x, y)\n"
    )


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("l all kind=full on=(k = rk) at=(t >= u)", "kind=full: it is inner or left"),
        ("l all kind=left on=(k = rk)", "at=.. is missing"),
        ("l all on=(k = rk) at=(t = u)", "it compares a number or time of the left input with one of the right"),
        ("l all on=(k = rk) at=(u <= t)", "it compares a number or time of the left input with one of the right"),
        ("l all on=(k < rk) at=(t >= u)", "a key is an equality"),
        ("l all on=(k = rk) at=(t >= u) tolerance=(INTERVAL '1 month')", "a constant interval without months"),
        ("l all on=(k = rk) at=(t >= u) tolerance=(5)", "a constant interval without months"),
        ("l all on=(k = rk) at=(x >= y) tolerance=(-5::BIGINT)", "a constant interval without months"),
        ("l all on=(k = rk) at=(t >= u) where=(x)", "where is BIGINT, not BOOLEAN"),
        ("l all on=(k = rk) at=(t >= u) walks=maybe", "walks=maybe: it is yes or no"),
    ],
)
def test_wrong_plans_are_refused(db: Any, step: str, message: str) -> None:
    with pytest.raises(tsql.PlanError) as caught:
        tsql.load_plan_text(plan(step)).run(db).fetchall()
    assert message in str(caught.value) and "line 6" in str(caught.value)


def test_sides_that_do_not_meet_are_refused(db: Any) -> None:
    text = (
        f"plan version 1\ntarget local shards=3\n{L}\n{R}\nj = asof_join l r on=(k = rk) at=(t >= u)\ng = "
        "gather j\noutput g (x, y)\n"
    )
    with pytest.raises(tsql.PlanError, match="requires of r: all rows in every shard"):
        tsql.load_plan_text(text).run(db).fetchall()


def test_a_plan_may_place_both_sides(db: Any) -> None:
    text = f"""plan version 1
target local shards=3
{L}
{R}
lk = rekey l key=(k)
lp = redistribute lk scope=local shards=3
rk = rekey r key=(rk)
rp = redistribute rk scope=local shards=3
j = asof_join lp rp kind=left on=(k = rk) at=(t >= u) walks=yes
g = gather j
output g (x, y)
"""
    expected = db.sql("SELECT x, y FROM l ASOF LEFT JOIN r ON k = rk AND t >= u").fetchall()
    assert sorted(tsql.load_plan_text(text).run(db).fetchall()) == sorted(expected)


@pytest.mark.parametrize(
    ("sql", "message", "at"),
    [
        ("SELECT * FROM l ASOF JOIN r ON k = rk", "Missing ASOF JOIN inequality", "k = rk"),
        ("SELECT * FROM l ASOF JOIN r ON t >= u AND x > y", "Multiple ASOF JOIN inequalities", "x > y"),
        (
            "SELECT * FROM l ASOF JOIN r ON t::VARCHAR >= u::VARCHAR",
            "an ASOF JOIN compares times or numbers of up to 64 bits, not VARCHAR",
            ">=",
        ),
        ("SELECT * FROM l ASOF JOIN r ON x::HUGEINT >= y", "not HUGEINT", ">="),
        ("SELECT * FROM l ASOF JOIN r ON t >= u TOLERANCE 5", "TOLERANCE takes an interval", "5"),
        ("SELECT * FROM l ASOF JOIN r ON x >= y TOLERANCE INTERVAL '1 second'", "TOLERANCE takes a number", "INTERVAL"),
        ("SELECT * FROM l ASOF JOIN r ON x >= y TOLERANCE -1", "TOLERANCE cannot be negative", "-1"),
        ("SELECT * FROM l ASOF JOIN r ON x >= y TOLERANCE x", "TOLERANCE takes constants", "TOLERANCE x"),
        ("SELECT * FROM l ASOF JOIN r ON x::TINYINT >= y::TINYINT TOLERANCE 1000", "out of range for TINYINT", "1000"),
        (
            "SELECT * FROM l ASOF JOIN LATERAL (SELECT * FROM r WHERE y > x) q ON t >= u",
            "cannot name columns of the left",
            "* FROM r",
        ),
    ],
)
def test_errors_have_a_place(db: Any, sql: str, message: str, at: str) -> None:
    with pytest.raises(tsql.BindError) as caught:
        db.sql(sql).fetchall()
    assert message in caught.value.message
    assert sql.index(at) <= caught.value.position < sql.index(at) + max(len(at), 1)


def joined_line(db: Any, sql: str) -> str:
    return next(line for line in db.sql(sql).explain().splitlines() if "_join " in line)


BAND = "u >= t AND u <= t + INTERVAL '5 seconds'"


@pytest.mark.parametrize(
    ("sql", "has"),
    [
        (f"SELECT * FROM l JOIN r ON k = rk AND {BAND}", ("on=(k = rk)", "range=(u >= t, u <= ", "build=left")),
        (
            "SELECT * FROM l JOIN r ON k = rk AND t <= u AND t > u - INTERVAL '5 seconds'",
            ("on=(k = rk)", "range=(t <= u, ", "build=left"),
        ),
        (f"SELECT * FROM l JOIN r ON {BAND}", ("range=(u >= t, u <= ", "build=left")),
        (f"SELECT * FROM l SEMI JOIN r ON k = rk AND {BAND}", ("kind=semi", "on=(k = rk)", "range=(u >= t, ")),
        ("SELECT * FROM l JOIN r ON x = y AND u >= t", ("on=(x = y)", "where=(u >= t)")),
        (f"SELECT /*+ JOIN(l, r, 'hash') */ * FROM l JOIN r ON k = rk AND {BAND}", ("on=(k = rk)", "where=(")),
    ],
)
def test_band_joins_are_recognised(db: Any, sql: str, has: tuple[str, ...]) -> None:
    line = joined_line(db, sql)
    assert all(part in line for part in has), line


def test_a_band_within_one_key_is_not_quadratic() -> None:
    """All rows have one key; looking at every pair would be 40,000 million comparisons."""
    with tsql.connect(threads=2) as db:
        db.sql("CREATE TABLE a AS SELECT 1 AS k, i AS t FROM range(200000) r(i)")
        sql = "SELECT count(*) FROM a l JOIN a r ON l.k = r.k AND r.t BETWEEN l.t + 10 AND l.t + 12"
        assert "range=(" in joined_line(db, sql)
        assert db.sql(sql).fetchall() == [(199990 + 199989 + 199988,)]


def large(rows: int, keys: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    return pa.table({"k": rng.integers(0, keys, rows), "t": rng.permutation(rows), "v": np.arange(rows)})


def test_a_right_side_larger_than_memory_is_split_by_its_keys() -> None:
    left, right = large(20_000, 1_000), large(600_000, 1_000)
    sql = "SELECT count(*), sum(l.v), sum(r.v) FROM l ASOF JOIN r ON l.k = r.k AND l.t >= r.t"
    found = []
    for limit in (None, "24MB"):
        with tsql.connect(threads=2, **({} if limit is None else {"memory_limit": limit})) as db:
            db.register("l", left)
            db.register("r", right)
            found.append(db.sql(sql).fetchall())
            if limit is not None:
                assert "spilled" in db.sql(sql).explain("analyze")
    assert found[0] == found[1]


def test_a_right_side_without_keys_must_fit_memory() -> None:
    with tsql.connect(threads=2, memory_limit="16MB") as db:
        db.register("l", large(1_000, 10))
        db.register("r", large(900_000, 10))
        with pytest.raises(OutOfMemoryError):
            db.sql("SELECT count(*), sum(r.v) FROM l ASOF JOIN r ON l.t >= r.t").fetchall()
        assert db.sql("SELECT count(*) FROM l").fetchall() == [(1_000,)]


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([[1, 2, 5, 6], [3, 4, 7]], [(0, 2), (4, 6), (2, 4), (6, 7)]),
        ([[0, 0, 1], [], [2]], [(0, 3), (3, 4)]),
        ([[5], [4], [3]], [(2, 3), (1, 2), (0, 1)]),
        ([[1, 2, 3]], [(0, 3)]),
        ([], []),
        ([[2, 1]], None),
        ([[1, 3], [5, 4]], None),
        ([list(range(0, 10000, 2)), list(range(1, 10000, 2))], None),
    ],
)
def test_segments_come_in_the_order_of_the_input(
    lists: list[list[int]], expected: list[tuple[int, int]] | None
) -> None:
    places = np.array([place for one in lists for place in one], np.int64)
    ends = np.cumsum([len(one) for one in lists]).tolist()
    segments = [(start, end) for start, end in zip([0, *ends], ends, strict=False) if start < end]
    assert in_input_order(places, segments) == expected
