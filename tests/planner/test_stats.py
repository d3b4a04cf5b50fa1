"""Estimates: sane for every query of the golden plans, exact where statistics are, and followed by the choice of
plans."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.planner.support import logical_plan, physical_plan, session
from tests.plans.queries import QUERIES
from tsql.planner.cost import stats
from tsql.planner.logical.nodes import Filter, Limit
from tsql.planner.rules import optimize


@pytest.fixture(scope="module")
def db() -> Any:
    return session()


@pytest.mark.parametrize("name", QUERIES)
def test_sane(name: str, db: Any) -> None:
    """Never negative, never more rows out of a filter, a limit or a grouping than went in."""
    for node in optimize(logical_plan(db, QUERIES[name][0])).walk():
        rows = stats.rows(node)
        assert 0 <= rows < 1e7, node.describe()
        if isinstance(node, Filter | Limit):
            assert rows <= stats.rows(node.input), node.describe()


def estimate(db: Any, sql: str) -> float:
    return stats.rows(logical_plan(db, sql))


def test_rows(db: Any) -> None:
    assert estimate(db, "SELECT * FROM clicks") == 300
    assert estimate(db, "SELECT * FROM nothing") == 0
    assert estimate(db, "SELECT * FROM (VALUES (1), (2)) AS v(x)") == 2
    assert estimate(db, "SELECT count(*) FROM clicks") == 1
    assert estimate(db, "SELECT ad_id FROM clicks LIMIT 5") <= 300
    assert estimate(db, "SELECT ad_id FROM clicks UNION ALL SELECT ad_id FROM clicks") == 600


def test_selectivity(db: Any) -> None:
    """A conjunction is narrower than its parts, a disjunction wider, and each is a part of the whole."""
    one, other = "user_id < 10", "price > 5"
    both, either = (
        estimate(db, f"SELECT * FROM clicks WHERE {one} AND {other}"),
        estimate(db, f"SELECT * FROM clicks WHERE {one} OR {other}"),
    )
    alone = estimate(db, f"SELECT * FROM clicks WHERE {one}")
    assert 0 < both <= alone <= either <= 300
    assert estimate(db, "SELECT * FROM clicks WHERE NOT user_id < 10") == pytest.approx(300 - alone)


def test_statistics_of_blocks(db: Any) -> None:
    """A table in memory knows the range of its integers, so a range predicate is estimated from it."""
    db.execute("CREATE OR REPLACE TABLE stored AS SELECT * FROM clicks")
    assert estimate(db, "SELECT * FROM stored WHERE user_id < 25") == pytest.approx(150, rel=0.1)
    assert estimate(db, "SELECT * FROM stored WHERE user_id >= 25") == pytest.approx(150, rel=0.1)
    assert estimate(db, "SELECT ad_id, count(*) FROM stored GROUP BY ad_id") == 4


def grouping(sql: str, rows: int) -> list[str]:
    """The steps between the scan and the result of a grouping over so many different keys."""
    db = tsql.connect(threads=2)
    db.register(
        "t",
        pa.table(
            {
                "k": pa.array(range(rows), pa.int64()),
                "mixed": pa.array([i * 7 % rows for i in range(rows)], pa.int64()),
                "few": pa.array([i % 5 for i in range(rows)], pa.int64()),
            }
        ),
    )
    db.execute("CREATE TABLE stored AS SELECT * FROM t")
    return [step.op for step in physical_plan(db, sql.replace("t", "stored"), shards=4).root.walk()]


def test_choice_of_the_aggregation() -> None:
    """Few groups are merged on one shard; nearly as many groups as rows move as rows, once; sorted rows do not move."""
    rows = 40_000
    assert grouping("SELECT few FROM t GROUP BY few", rows) == ["scan", "aggregate", "gather", "aggregate"]
    assert grouping("SELECT mixed FROM t GROUP BY mixed", rows) == [
        "scan",
        "rekey",
        "redistribute",
        "aggregate",
        "gather",
    ]
    assert grouping("SELECT k FROM t GROUP BY k", rows) == ["scan", "aggregate", "gather"]
    assert grouping("SELECT k % 30000 FROM t GROUP BY 1", rows)[0] == "scan"


def test_one_shard_needs_no_second_phase(db: Any) -> None:
    """Behind a sort, a limit or VALUES there is one shard, and groups are made in one step."""
    for sql in (
        "SELECT count(*) FROM (SELECT * FROM clicks ORDER BY ts LIMIT 5)",
        "SELECT x, count(*) FROM (VALUES (1), (2)) AS v(x) GROUP BY x",
    ):
        assert [step.op for step in physical_plan(db, sql).root.walk()].count("aggregate") == 1


def test_groups_by_what_a_subquery_computes(db: Any) -> None:
    """The values of a column are those of the expression that computes it, through joins and filters."""
    computed = "(SELECT user_id % 10 AS digit, price FROM clicks) AS q"
    assert estimate(db, f"SELECT digit, count(*) FROM {computed} GROUP BY digit") == 10
    assert (
        estimate(
            db,
            (
                f"SELECT digit, count(*) FROM {computed} JOIN (SELECT DISTINCT ad_id FROM clicks) AS a ON "
                "digit = ad_id GROUP BY digit"
            ),
        )
        <= 10
    )


def test_what_a_window_adds_is_not_known_below(db: Any) -> None:
    sql = (
        "SELECT x, count(*) FROM (SELECT x FROM (SELECT ad_id + 1 AS x, ts FROM clicks) AS s QUALIFY lag(x) "
        "OVER (ORDER BY ts) <> 2) AS q GROUP BY x"
    )
    assert physical_plan(db, sql).root is not None
