"""The 22 queries in every configuration in which the corpus runs, and through the Spark backend: the answers are
DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.spark.cluster import InProcess
from tsql.loaded import load_plan_text
from tsql.tpch import data
from tsql.tpch.check import Oracle
from tsql.tpch.queries import NUMBERS, query

SCALE = 0.01
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "parquet": {"threads": 2},
    "three shards": {"threads": 2, "shards": 3},
    "no optimizer": {"threads": 2, "optimizer": False},
    "plan text": {"threads": 2},
    "small morsels": {"threads": 2, "batch_rows": 1000},
}


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    made = Oracle(SCALE, data.tables(SCALE))
    yield made
    made.close()


def answer(db: Any, number: int, configuration: str) -> pa.Table:
    relation = db.sql(query(number, SCALE))
    if configuration != "plan text":
        return relation.arrow()
    return load_plan_text(relation.plan()).run(db).arrow()


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_answers(oracle: Oracle, configuration: str) -> None:
    with closing(tsql.connect(**CONFIGURATIONS[configuration])) as db:
        for name, path in data.tables(SCALE).items():
            kind = "VIEW" if configuration == "parquet" else "TABLE"
            db.sql(f"CREATE {kind} {name} AS SELECT * FROM '{path}'")
        for number in NUMBERS:
            outcome = oracle.compare("tsql", number, lambda number=number: answer(db, number, configuration))
            assert outcome.right, str(outcome)


def test_answers_of_spark(oracle: Oracle) -> None:
    """Cut into stages and sent as text and blobs, in this process."""
    with closing(tsql.connect(spark=InProcess())) as db:
        for name, path in data.tables(SCALE).items():
            db.sql(f"CREATE VIEW {name} AS SELECT * FROM '{path}'")
        for number in NUMBERS:
            outcome = oracle.compare("tsql", number, lambda number=number: db.sql(query(number, SCALE)).arrow())
            assert outcome.right, str(outcome)
