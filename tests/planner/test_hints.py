"""Hints are constraints: each is obeyed, and listed with its place, or is an error that says why, with its position."""

from __future__ import annotations

from typing import Any

import pytest

from tests.planner.support import assert_same_rows, oracle, session
from tsql.kernels.expr.errors import PlanError, TsqlError

GROUPED = "ad_id, count(*) AS n FROM clicks AS c WHERE price > 3 GROUP BY ad_id"


@pytest.fixture(scope="module")
def db() -> Any:
    return session()


def steps(db: Any, hint: str, query: str = GROUPED) -> list[str]:
    """The plan's operators with their phases."""
    lines = db.sql(f"SELECT /*+ {hint} */ {query}").plan().split("\n\n", 1)[1].splitlines()
    found = []
    for line in lines:
        if " = " in line:
            words = line.split(" = ", 1)[1].split()
            found.append(words[0] + "".join(f" {w.removeprefix('phase=')}" for w in words if w.startswith("phase=")))
    return found


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("AGG('one_phase')", ["scan", "filter", "rekey", "redistribute", "aggregate", "gather"]),
        (
            "AGG('two_phase')",
            ["scan", "filter", "aggregate partial", "rekey", "redistribute", "aggregate final", "gather"],
        ),
        ("AGG('two_phase_gather')", ["scan", "filter", "aggregate partial", "gather", "aggregate final"]),
        ("AGG('two_phase'), SHARDS(1)", ["scan", "filter", "aggregate partial", "aggregate final"]),
        ("REDISTRIBUTE(clicks, ad_id)", ["scan", "filter", "rekey", "redistribute", "aggregate", "gather"]),
        (
            "REDISTRIBUTE(c, user_id)",
            ["scan", "filter", "rekey", "redistribute", "project", "aggregate partial", "gather", "aggregate final"],
        ),
        (
            "REDISTRIBUTE(CLICKS, Ad_Id), AGG('two_phase')",
            ["scan", "filter", "rekey", "redistribute", "aggregate partial", "aggregate final", "gather"],
        ),
    ],
)
def test_applied(hint: str, expected: list[str], db: Any) -> None:
    assert steps(db, hint) == expected
    sql = f"SELECT /*+ {hint} */ {GROUPED}"
    assert_same_rows(db.sql(sql).arrow(), oracle().sql(f"SELECT {GROUPED}").to_arrow_table())


def test_shards(db: Any) -> None:
    assert "target local shards=7\n" in db.sql(f"SELECT /*+ SHARDS(7) */ {GROUPED}").plan()


def test_scope(db: Any) -> None:
    assert "scope=global" in db.sql(f"SELECT /*+ REDISTRIBUTE(c, ad_id, scope => 'global') */ {GROUPED}").plan()
    assert "scope=local" in db.sql(f"SELECT /*+ REDISTRIBUTE(c, ad_id, scope => 'local') */ {GROUPED}").plan()


def test_every_scan_of_a_table(db: Any) -> None:
    sql = (
        "SELECT /*+ REDISTRIBUTE(clicks, ad_id) */ ad_id FROM clicks WHERE price > 20 UNION ALL SELECT "
        "user_id FROM clicks"
    )
    assert db.sql(sql).plan().count("redistribute") == 2
    assert_same_rows(db.sql(sql).arrow(), oracle().sql(sql).to_arrow_table())


def test_explain_lists_hints(db: Any) -> None:
    shown = db.sql(f"SELECT /*+ SHARDS(2), AGG('one_phase'), REDISTRIBUTE(c, ad_id) */ {GROUPED}").explain("physical")
    assert [line for line in shown.splitlines() if line.startswith("# hint")] == [
        "# hint SHARDS(2): the number of shards of the plan",
        "# hint AGG('one_phase'): at aggregate by=(ad_id) n=count(*)",
        "# hint REDISTRIBUTE(c, ad_id): after the filters of scan clicks",
    ]


@pytest.mark.parametrize(
    ("hint", "message", "fix"),
    [
        ("SHARD(2)", "unknown hint SHARD", "did you mean SHARDS?"),
        ("FASTER", "unknown hint FASTER", "hints are SHARDS, AGG, REDISTRIBUTE, BROADCAST, LEADING, JOIN"),
        ("SHARDS(0)", "SHARDS takes one number from 1 to 16384", None),
        ("SHARDS(50000)", "SHARDS takes one number from 1 to 16384", None),
        ("SHARDS('many')", "SHARDS takes one number from 1 to 16384", None),
        ("SHARDS", "SHARDS takes one number from 1 to 16384", None),
        ("SHARDS(2, scope => 'local')", "SHARDS has no option scope", None),
        ("SHARDS(2), SHARDS(3)", "the hint SHARDS is given twice", None),
        ("AGG('three_phase')", "AGG takes one of 'one_phase', 'two_phase', 'two_phase_gather'", None),
        ("AGG('one_phase'), AGG('two_phase')", "the hint AGG is given twice", None),
        (
            "REDISTRIBUTE(clicks)",
            "REDISTRIBUTE takes a table and the columns to place its rows by: REDISTRIBUTE(clicks, ad_id)",
            None,
        ),
        (
            "REDISTRIBUTE(klicks, ad_id)",
            "REDISTRIBUTE(klicks, ad_id): the query reads no table klicks",
            "it reads clicks AS c",
        ),
        (
            "REDISTRIBUTE(nothing, ad_id)",
            "REDISTRIBUTE(nothing, ad_id): the query reads no table nothing",
            "it reads clicks AS c",
        ),
        (
            "REDISTRIBUTE(c, ad)",
            "REDISTRIBUTE(c, ad): table clicks has no column ad",
            "its columns are ad_id, user_id, price, country, code, day, ts, cost",
        ),
        ("REDISTRIBUTE(c, ad_id, AD_ID)", "REDISTRIBUTE(c, ad_id, AD_ID): a column is given twice", None),
        (
            "REDISTRIBUTE(c, ad_id, scope => 'near')",
            "REDISTRIBUTE(c, ad_id, scope => 'near'): the scope is 'local' or 'global'",
            None,
        ),
        (
            "REDISTRIBUTE(c, ad_id), REDISTRIBUTE(clicks, price)",
            "REDISTRIBUTE(clicks, price): the rows of clicks are already placed by REDISTRIBUTE(c, ad_id)",
            None,
        ),
        ("LEADING(c, d)", "LEADING needs a join, and this query has none", None),
        ("JOIN(c, d, 'hash')", "JOIN needs a join, and this query has none", None),
        ("BROADCAST(c)", "BROADCAST needs a join, and this query has none", None),
    ],
)
def test_refused(hint: str, message: str, fix: str | None, db: Any) -> None:
    sql = f"SELECT /*+ {hint} */ {GROUPED}"
    with pytest.raises(PlanError) as caught:
        db.sql(sql).arrow()
    assert caught.value.message == message
    assert caught.value.hint == fix
    at = sql.rindex(hint.rsplit("), ", 1)[-1]) if "), " in hint else sql.index(hint)
    assert caught.value.line_column == (1, at + 1)


def test_cannot_hold(db: Any) -> None:
    """A hint that nothing in the query can obey."""
    with pytest.raises(
        PlanError,
        match=r"AGG\('two_phase'\) cannot hold: m=median\(price\) has no state that a second phase could merge",
    ) as caught:
        db.sql("SELECT /*+ AGG('two_phase') */ ad_id, median(price) AS m FROM clicks GROUP BY ad_id").arrow()
    assert caught.value.hint == "use AGG('one_phase')"
    with pytest.raises(PlanError, match=r"AGG\('two_phase'\) cannot hold: n=count\(DISTINCT price\)"):
        db.sql("SELECT /*+ AGG('two_phase') */ count(DISTINCT price) AS n FROM clicks").arrow()
    with pytest.raises(PlanError, match=r"AGG\('one_phase'\) cannot hold: the query has no grouping or aggregate"):
        db.sql("SELECT /*+ AGG('one_phase') */ ad_id FROM clicks").arrow()
    assert db.sql("SELECT /*+ AGG('one_phase') */ count(DISTINCT price) AS n FROM clicks").fetchall() == [(23,)]


def test_position_in_a_script(db: Any) -> None:
    """The position is in the whole text, also for a hint of an inner query on a later line."""
    text = "SELECT 1;\nSELECT * FROM (\n  SELECT /*+ SHARDS(2), NOPE */ ad_id FROM clicks)"
    with pytest.raises(TsqlError) as caught:
        db.sql(text).arrow()
    assert caught.value.line_column == (3, 25)
