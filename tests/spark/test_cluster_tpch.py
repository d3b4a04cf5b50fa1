"""The 22 queries of TPC-H on a real cluster: the answers are DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tsql
from tsql.tpch import data
from tsql.tpch.check import Oracle
from tsql.tpch.queries import NUMBERS, query

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]

SCALE = 0.01
DEFAULT = (4, 9, 13, 15, 16, 18, 21, 22)
"""What runs without `--all-configurations`: a semi join, six tables, an outer join, a CTE used twice, distinct counts
behind an anti join, a grouped subquery, EXISTS with NOT EXISTS, and a scalar subquery.
`tests/tpch/test_configurations.py` runs all in this process."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    made = Oracle(SCALE, data.tables(SCALE))
    yield made
    made.close()


@pytest.fixture(scope="module")
def db(spark: Any) -> Iterator[Any]:
    with tsql.connect(spark=spark) as session:
        for name, path in data.tables(SCALE).items():
            session.sql(f"CREATE VIEW {name} AS SELECT * FROM '{path}'")
        yield session


@pytest.mark.parametrize(
    "number",
    [pytest.param(number, marks=() if number in DEFAULT else pytest.mark.all_configurations) for number in NUMBERS],
)
def test_answers(db: Any, oracle: Oracle, number: int) -> None:
    outcome = oracle.compare("tsql", number, lambda: db.sql(query(number, SCALE)).arrow())
    assert outcome.right, str(outcome)
