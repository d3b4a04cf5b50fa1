"""Grouping by the column that a table is sorted by: its rows are dealt out by ranges of it, and nothing is moved."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.kernels.expr.errors import PlanError

ROWS = 200_000
"""Some blocks, and values that lie across their ends."""


@pytest.fixture(scope="module")
def db() -> Any:
    db = tsql.connect(threads=2, small_rows=0)
    db.execute(
        "CREATE TABLE runs AS SELECT (i // 7)::INTEGER AS k, i % 13 AS v, CASE WHEN i % 5 = 0 THEN NULL "
        f"ELSE i % 100 END AS w FROM range({ROWS}) AS r(i)"
    )
    db.execute("CREATE TABLE few AS SELECT (i * 3)::INTEGER AS id, (i % 4)::INTEGER AS kind FROM range(2000) AS r(i)")
    return db


@pytest.fixture(scope="module")
def oracle(db: Any) -> Any:
    oracle = empty_duckdb()
    for name in ("runs", "few"):
        rows = db.sql(f"SELECT * FROM {name}").arrow()
        oracle.register("given", rows)
        oracle.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    return oracle


def rows(table: Any) -> Counter[str]:
    return Counter(zip(*(column.to_pylist() for column in table.columns)))


QUERIES = {
    "plain": "SELECT k, count(*) AS n, sum(v) AS s, max(w) AS m FROM runs GROUP BY k",
    "whole": "SELECT k, count(DISTINCT v) AS n, median(w) AS m FROM runs GROUP BY k",
    "filtered": "SELECT k, count(*) AS n FROM runs WHERE v > 3 AND k > 100 GROUP BY k HAVING count(*) > 4",
    "two keys": "SELECT k, v, count(*) AS n FROM runs GROUP BY k, v",
    "renamed": "SELECT x, count(*) AS n FROM (SELECT k AS x, v FROM runs) AS q GROUP BY x",
    "joined": "SELECT k, kind, count(*) AS n FROM runs JOIN few ON k = id GROUP BY k, kind",
    "equal": "SELECT id, kind, sum(v) AS n FROM runs JOIN few ON k = id GROUP BY id, kind",
    "kept": "SELECT k, count(kind) AS n FROM runs LEFT JOIN few ON v = kind GROUP BY k",
    "top": "SELECT k, sum(v) AS s FROM runs GROUP BY k ORDER BY s DESC, k LIMIT 20",
}


@pytest.mark.parametrize("name", QUERIES)
def test_rows(name: str, db: Any, oracle: Any) -> None:
    relation = db.sql(QUERIES[name])
    assert " ranges=k shards=" in relation.plan() and "redistribute" not in relation.plan()
    expected = rows(oracle.sql(QUERIES[name]).to_arrow_table())
    assert rows(relation.arrow()) == expected
    assert rows(tsql.load_plan_text(relation.plan()).run(db).arrow()) == expected


@pytest.mark.parametrize("shards", [1, 2, 7, 64, 4096])
@pytest.mark.parametrize("values", ["i", "i // 70000", "0", "i // 3 - 40000"])
def test_cuts(values: str, shards: int, db: Any) -> None:
    """Every row is in one shard, and every group is whole, wherever the cuts fall."""
    db.execute(f"CREATE OR REPLACE TABLE cut AS SELECT ({values})::BIGINT AS k FROM range(150000) AS r(i)")
    plan = (
        f"plan version 1\ntarget local shards=2\nt = scan cut columns=(k) ranges=k shards={shards}\ng = "
        "aggregate t by=(k) n=count(*)\nall = gather g\noutput all (k, n)\n"
    )
    found = Counter({row["k"]: row["n"] for row in tsql.load_plan_text(plan).run(db).arrow().to_pylist()})
    assert found == Counter(expected_keys(values))


def expected_keys(values: str) -> list[int]:
    made = {
        "i": lambda i: i,
        "i // 70000": lambda i: i // 70000,
        "0": lambda i: 0,
        "i // 3 - 40000": lambda i: i // 3 - 40000,
    }
    return [made[values](i) for i in range(150000)]


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO changed VALUES (-1)",
        "INSERT INTO changed VALUES (NULL)",
        "UPDATE changed SET k = 5 WHERE k = 99",
        "CREATE OR REPLACE TABLE changed AS SELECT 1000 - i AS k FROM range(1000) AS r(i)",
        "CREATE OR REPLACE TABLE changed AS SELECT CASE WHEN i < 5 THEN NULL ELSE i END AS k FROM range(1000) AS r(i)",
        "CREATE OR REPLACE TABLE changed AS SELECT i::DOUBLE AS k FROM range(1000) AS r(i)",
        "CREATE OR REPLACE TABLE changed AS SELECT lpad(i::VARCHAR, 5, '0') AS k FROM range(1000) AS r(i)",
    ],
)
def test_tables_that_are_not_sorted(change: str, db: Any) -> None:
    db.execute("CREATE OR REPLACE TABLE changed AS SELECT i AS k FROM range(1000) AS r(i)")
    assert " ranges=k" in db.sql("SELECT k, count(*) FROM changed GROUP BY k").plan()
    db.execute(change)
    assert " ranges=" not in db.sql("SELECT k, count(*) FROM changed GROUP BY k").plan()
    assert (
        db.sql("SELECT count(*), sum(n) FROM (SELECT k, count(*) AS n FROM changed GROUP BY k) AS q").fetchall()[0][1]
        >= 1000
    )


def test_empty_table(db: Any) -> None:
    db.execute("CREATE OR REPLACE TABLE none AS SELECT i AS k FROM range(0) AS r(i)")
    assert db.sql("SELECT k, count(*) FROM none GROUP BY k").fetchall() == []


def test_shared_rows_are_computed_once(db: Any) -> None:
    plan = db.sql(
        "WITH s AS (SELECT k, v FROM runs WHERE v > 3) SELECT * FROM (SELECT k, count(*) FROM s GROUP BY "
        "k) AS a, (SELECT count(*) FROM s) AS b"
    ).plan()
    assert plan.count("= scan runs") == 1 and " ranges=" not in plan


def test_explain_says_how_rows_are_placed(db: Any) -> None:
    assert "placed by ranges of (k)" in db.sql(QUERIES["plain"]).explain("PHYSICAL")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("t = scan runs columns=(k, v) ranges=v", "table runs is not sorted by v"),
        ("t = scan runs columns=(v) ranges=k", "ranges: the scan has no column k"),
        ("t = scan runs columns=(k) ranges=k shards=0", "shards=0: it is a number from 1 to 16384"),
    ],
)
def test_plans_that_are_refused(line: str, message: str, db: Any) -> None:
    with pytest.raises(PlanError) as raised:
        tsql.load_plan_text(f"plan version 1\ntarget local shards=2\n{line}\nall = gather t\noutput all (k)\n").run(
            db
        ).arrow()
    assert message in str(raised.value) and "line 3" in str(raised.value)


def test_ranges_are_of_one_process(db: Any) -> None:
    with pytest.raises(
        PlanError, match="deals out the ranges of a table in the memory of one process, and the target is spark"
    ):
        tsql.load_plan_text(
            "plan version 1\ntarget spark shards=2\nt = scan runs columns=(k) ranges=k\nall = gather "
            "t\noutput all (k)\n"
        ).run(db).arrow()


def test_ranges_do_not_meet_in_a_join(db: Any) -> None:
    """Two tables that are cut into as many ranges are not cut at the same values."""
    plan = (
        "plan version 1\ntarget local shards=2\na = scan runs columns=(k) ranges=k\nb = scan few "
        "columns=(id) ranges=id\nj = hash_join a b kind=inner on=(k = id)\nall = gather j\noutput all (k)\n"
    )
    with pytest.raises(PlanError, match="requires of b: all rows in every shard"):
        tsql.load_plan_text(plan).run(db).arrow()
