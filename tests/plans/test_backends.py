"""The same plan file on both backends: plans made for Spark run on the local one, and the other way round, with equal
answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tsql
from tests.planner.support import session
from tests.plans.queries import QUERIES
from tests.spark.cluster import InProcess
from tsql.kernels.expr.errors import PlanError
from tsql.tpch import data
from tsql.tpch.check import Oracle
from tsql.tpch.queries import NUMBERS, query

SCALE = 0.01
DEFAULT = (2, 9, 13, 17, 21)
BACKENDS = ("local", "spark")
SHARED = (4, 20, 21, 22)
"""Queries whose local plans mark the rows of a semi or anti join in a table that all shards share: Spark refuses it."""


def connected(target: str) -> Any:
    return tsql.connect(spark=InProcess(3)) if target == "spark" else tsql.connect(threads=2, shards=3)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    made = Oracle(SCALE, data.tables(SCALE))
    yield made
    made.close()


@pytest.fixture(scope="module")
def tpch() -> Iterator[dict[str, Any]]:
    found = {target: connected(target) for target in BACKENDS}
    for db in found.values():
        for name, path in data.tables(SCALE).items():
            db.execute(f"CREATE VIEW {name} AS SELECT * FROM '{path}'")
    yield found
    for db in found.values():
        db.close()


def moved_to(text: str, target: str) -> str:
    """A plan of one backend for the other. Shards of the local backend share memory; those of Spark do not."""
    if target == "local":
        return text.replace("target spark", "target local")
    return text.replace("target local", "target spark").replace("scope=local", "scope=global")


def rounded(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows without their order. Shards add floats up in another order: the last digits may differ."""
    return sorted(repr([f"{value:.12g}" if isinstance(value, float) else value for value in row]) for row in rows)


@pytest.mark.parametrize("target", BACKENDS)
@pytest.mark.parametrize(
    "number",
    [pytest.param(number, marks=() if number in DEFAULT else pytest.mark.all_configurations) for number in NUMBERS],
)
def test_tpch(tpch: dict[str, Any], oracle: Oracle, number: int, target: str) -> None:
    """A plan of the other backend gives DuckDB's answer on this one."""
    other = next(name for name in BACKENDS if name != target)
    text = moved_to(tpch[other].sql(query(number, SCALE)).plan(), target)
    if target == "spark" and number in SHARED:
        with pytest.raises(PlanError, match="in memory that the shards share"):
            tsql.load_plan_text(text).run(tpch[target])
        return
    outcome = oracle.compare("tsql", number, lambda: tsql.load_plan_text(text).run(tpch[target]).arrow())
    assert outcome.right, str(outcome)


@pytest.mark.parametrize("name", QUERIES)
def test_queries(name: str) -> None:
    """A plan for Spark says what the local backend does with it, and is printed as it was."""
    sql, shards = QUERIES[name]
    with session(spark=InProcess(3), shards=shards) as spark, session() as local:
        text = spark.sql(sql).plan()
        loaded = tsql.load_plan_text(text)
        assert loaded.bind(spark).text() == text
        given = tsql.load_plan_text(moved_to(text, "local")).run(local).fetchall()
        assert rounded(given) == rounded(loaded.run(spark).fetchall())
