"""Merge joins: every kind, built on either side, over sorted and unsorted rows with NULLs and repeated keys, against
DuckDB."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.kernels.expr.errors import PlanError

TABLES = {
    "a": "SELECT (i * i % 991) * 1000 AS k, i AS x FROM range(3000) AS r(i)",
    "b": "SELECT CASE WHEN i % 17 = 0 THEN NULL ELSE (i * 7 % 700) * 1000 END AS id, i AS y FROM range(2000) AS r(i)",
    "early": "SELECT i * 1000 AS k, i AS x FROM range(5) AS r(i)",
    "late": "SELECT 2000000 + i * 1000 AS id, i AS y FROM range(5) AS r(i)",
    "none": "SELECT i AS id, i AS y FROM range(0) AS r(i)",
    "one": "SELECT 5000::BIGINT AS k, i AS x FROM range(300) AS r(i)",
}
KINDS = ("inner", "left", "full", "semi", "anti")


@pytest.fixture(scope="module")
def engines() -> Any:
    db, oracle = tsql.connect(threads=2, small_rows=0), empty_duckdb()
    for engine in (db, oracle):
        for name, query in TABLES.items():
            engine.execute(f"CREATE TABLE {name} AS SELECT * FROM ({query}) AS q ORDER BY 1, 2")
            engine.execute(f"CREATE TABLE {name}_mixed AS SELECT * FROM ({query}) AS q")
    return db, oracle


def rows(table: Any) -> Counter[str]:
    return Counter(str(tuple(row.values())) for row in table.to_pylist())


def plan(left: str, right: str, kind: str, build: str, where: str = "") -> str:
    side = {"left": "wide", "right": "l"}[build], {"left": "r", "right": "wide"}[build]
    columns = "k, x" if kind in ("semi", "anti") else "k, x, id, y"
    lines = [
        "plan version 1", "target local shards=2", "", f"l = scan {left} columns=(k, x)",
        f"r = scan {right} columns=(id, y)", f"wide = broadcast {'l' if build == 'left' else 'r'} scope=local",
        f"j = merge_join {side[0]} {side[1]} kind={kind} on=(k = id){where} build={build}",
        "all = gather j", f"output all ({columns})",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("build", ["left", "right"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("left", "right"),
    [("a", "b"), ("a_mixed", "b_mixed"), ("a", "b_mixed"), ("early", "late"), ("a", "none"), ("one", "b")],
)
@pytest.mark.in_turn(3)
def test_rows(left: str, right: str, kind: str, build: str, engines: Any) -> None:
    db, oracle = engines
    for where, condition in (("", ""), (" where=(x + y < 2500)", " AND x + y < 2500")):
        columns = "k, x" if kind in ("semi", "anti") else "k, x, id, y"
        expected = rows(
            oracle.sql(f"SELECT {columns} FROM {left} {kind} JOIN {right} ON k = id{condition}").to_arrow_table()
        )
        text = plan(left, right, kind, build, where)
        loaded = tsql.load_plan_text(text)
        assert rows(loaded.run(db).arrow()) == expected
        with tsql.connect(backend="interp") as slow:
            if len(expected) < 100:
                for name in (left, right):
                    slow.register(name, db.sql(f"SELECT * FROM {name}").arrow())
                assert rows(tsql.load_plan_text(text).run(slow).arrow()) == expected


def test_the_planner_merges_sides_that_are_in_order_by_keys_far_apart() -> None:
    db, oracle = tsql.connect(threads=2), empty_duckdb()
    for engine in (db, oracle):
        engine.execute("CREATE TABLE quotes AS SELECT i * 10000 + i % 7 AS made, i AS q FROM range(150000) AS r(i)")
        engine.execute("CREATE TABLE trades AS SELECT i * 5000 + (i // 2) % 7 AS ts, i AS t FROM range(300000) AS r(i)")
        engine.execute("CREATE TABLE dense AS SELECT i AS d FROM range(150000) AS r(i)")
    query = "SELECT count(*) AS n, sum(q) AS q, sum(t) AS t FROM trades JOIN quotes ON ts = made WHERE t % 3 > 0"
    assert "= merge_join " in db.sql(query).plan()
    assert db.sql(query).fetchall() == oracle.sql(query).fetchall()
    assert "= hash_join " in db.sql("SELECT count(*) FROM trades JOIN dense ON ts = d").plan()
    assert (
        "= hash_join "
        in db.sql(
            "SELECT count(*) FROM trades JOIN (SELECT made % 1000000 AS made FROM quotes) AS q ON ts = made"
        ).plan()
    )
    with tsql.connect(threads=2, memory_limit=8 << 20) as small:
        for name in ("quotes", "trades"):
            small.register(name, db.sql(f"SELECT * FROM {name}").arrow())
        text = db.sql(query).plan()
        assert tsql.load_plan_text(text).run(small).fetchall() == oracle.sql(query).fetchall()


def test_a_hint_asks_for_it(engines: Any) -> None:
    db, oracle = engines
    query = "SELECT /*+ JOIN(a, b, 'merge') */ count(*) AS n, sum(y) AS s FROM a_mixed AS a JOIN b_mixed AS b ON k = id"
    assert "= merge_join " in db.sql(query).plan()
    assert db.sql(query).fetchall() == oracle.sql(query).fetchall()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("on=(k = id, x = y)", "a merge join needs one equality of the two sides"),
        ("where=(x < y)", "a merge join needs one equality of the two sides"),
        ("on=(k IS NOT DISTINCT FROM id)", "a merge join needs one equality of the two sides"),
        ("on=(k = id + 1)", "a merge join needs an equality of two columns that are numbers or times of one type"),
        ("on=(k = id) early=yes", "a merge join has no range and no early"),
    ],
)
def test_joins_that_it_cannot_do(line: str, message: str, engines: Any) -> None:
    text = (
        "plan version 1\ntarget local shards=1\nl = scan a columns=(k, x)\nr = scan b columns=(id, y)\nj = "
        f"merge_join l r kind=inner {line}\noutput j (x)\n"
    )
    with pytest.raises(PlanError) as raised:
        tsql.load_plan_text(text).run(engines[0]).arrow()
    assert message in str(raised.value) and "line 5" in str(raised.value)


def test_its_table_serves_all_rounds_of_a_recursion() -> None:
    """The built side does not change from round to round, and is read once."""
    query = """WITH RECURSIVE r(n) AS (SELECT 0::BIGINT UNION ALL SELECT d FROM r JOIN e ON r.n = e.s)
        SELECT count(*) AS rounds, max(n) AS last FROM r"""
    with tsql.connect(threads=2) as db, empty_duckdb() as duck:
        for engine in (db, duck):
            engine.execute("CREATE TABLE e AS SELECT range AS s, range + 1000 AS d FROM range(30000)")
        text = db.sql(query).plan()
        assert "hash_join" in text
        merged = tsql.load_plan_text(text.replace("hash_join", "merge_join")).run(db)
        assert merged.fetchall() == duck.sql(query).fetchall()
