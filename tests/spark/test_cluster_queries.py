"""Recursion, series, samples, windows, subqueries and tables that change, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tsql
from tests.spark.queries import CHANGES, QUERIES, bag, changed, files, fill, oracle

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return files(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def db(spark: Any, path: str) -> Iterator[Any]:
    with tsql.connect(spark=spark) as session:
        yield fill(session, path)


DEFAULT = ("recursion with a join", "series beside files", "windows", "lateral", "full join", "cte used twice")
"""What runs without `--all-configurations`; `test_queries.py` runs all of them in this process."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DEFAULT else pytest.mark.all_configurations) for name in QUERIES]
)
def test_queries(db: Any, path: str, name: str) -> None:
    with oracle(path) as duck:
        assert bag(db.sql(QUERIES[name]).fetchall()) == bag(duck.sql(QUERIES[name]).fetchall())


def test_changes(db: Any, path: str) -> None:
    with oracle(path) as duck:
        for statement in CHANGES:
            db.execute(statement)
            duck.execute(statement)
        assert changed(db) == changed(duck)


def test_samples(db: Any, path: str) -> None:
    """The tasks choose the rows that the local backend chooses."""
    with tsql.connect(threads=1) as local:
        fill(local, path)
        sql = "SELECT k, v FROM f TABLESAMPLE bernoulli(30%) REPEATABLE (7)"
        assert bag(db.sql(sql).fetchall()) == bag(local.sql(sql).fetchall())
