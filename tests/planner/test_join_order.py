"""Join order in whole plans: a relation that is used twice is ordered and computed once, and deep nests take no
time."""

from __future__ import annotations

import cProfile
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb
from tests.planner.support import assert_same_rows

TABLES = {
    "a": pa.table({"a1": [1, 2, 3] * 50, "a2": range(150)}),
    "b": pa.table({"b1": range(150), "b2": [i % 4 for i in range(150)]}),
    "c": pa.table({"c1": [1, 2, 3], "c2": [5, 6, 7]}),
}


@pytest.fixture(scope="module")
def db() -> Any:
    session = tsql.connect(threads=2, shards=2)
    for name, table in TABLES.items():
        session.register(name, table)
    return session


@pytest.mark.parametrize(
    "query",
    [
        (
            "WITH w AS (SELECT a1, b2, c2, count(*) AS n FROM c, a, b WHERE a1 = c1 AND a2 = b1 AND b2 > 0 "
            "GROUP BY ALL) SELECT * FROM w x JOIN w y ON x.a1 = y.b2"
        ),
        (
            "WITH w AS (SELECT a1, b2, c2 FROM c, a, b WHERE a1 = c1 AND a2 = b1 AND b2 = 1) SELECT x.a1, y.c2 "
            "FROM w x, w y, c z WHERE x.a1 = y.b2 AND z.c1 = x.a1"
        ),
    ],
)
def test_a_relation_that_is_used_twice(query: str, db: Any) -> None:
    assert db.sql(query).plan().count("on=(a2 = b1)") == 1
    duck = empty_duckdb()
    for name, table in TABLES.items():
        duck.register(name, table)
    assert_same_rows(db.sql(query).arrow(), duck.sql(query).to_arrow_table())


def nested_pairs(levels: int) -> str:
    query = "SELECT c1, c2 FROM c"
    for _ in range(levels):
        query = (
            f"SELECT c1, max(c2) AS c2 FROM (SELECT x.c1, y.c2 FROM ({query}) x JOIN c y ON x.c1 = y.c1) GROUP BY c1"
        )
    return query


def calls_to_plan(db: Any, query: str) -> int:
    profile = cProfile.Profile()
    profile.enable()
    try:
        db.sql(query).plan()
    finally:
        profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def test_nested_pairs(db: Any) -> None:
    """Each level joins two relations, one of which is the level below. A level is visited once: twice the levels take
    twice the calls of functions, where visits from both sides would double with each level."""
    calls_to_plan(db, nested_pairs(1))
    assert calls_to_plan(db, nested_pairs(20)) < 3 * calls_to_plan(db, nested_pairs(10))
