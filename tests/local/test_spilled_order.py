"""Aggregates that depend on the order of rows, over rows that had to leave memory: the same answers as DuckDB's, which
is told the order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb

ROWS = 3000
RNG = random.Random(5)
TABLE = pa.table(
    {
        # Keys far from each other: an array of all possible keys would not spill.
        "k": [RNG.randrange(40) * 1_000_003 for _ in range(ROWS)],
        "x": RNG.sample(range(1_000_000), ROWS),
        "v": [RNG.choice((None, 1, 2, 3)) for _ in range(ROWS)],
        "i": list(range(ROWS)),
    }
)
SETTINGS = ({"threads": 1}, {"threads": 2}, {"threads": 2, "shards": 3})


@pytest.fixture(scope="module")
def oracle() -> Iterator[Any]:
    with empty_duckdb() as connection:
        connection.register("t", TABLE)
        yield connection


def check(oracle: Any, sql: str, expected: str, settings: dict[str, Any], spill_after: int) -> None:
    with tsql.connect(small_rows=0, spill_after=spill_after, **settings) as db:
        db.register("t", TABLE)
        assert db.sql(sql).fetchall() == oracle.sql(expected).fetchall()


@pytest.mark.parametrize("spill_after", [900, 30_000])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("by", ["", " GROUP BY k ORDER BY k"], ids=["one group", "groups"])
def test_rows_that_were_sorted_in_files(oracle: Any, by: str, settings: dict[str, Any], spill_after: int) -> None:
    """The blocks of a merge follow each other: their rows have positions in the whole of them."""
    calls = "first(i{0}), last(i{0}), arg_min(i, v{0}), string_agg(i::VARCHAR, ','{0})"
    check(
        oracle,
        f"SELECT {calls.format('')} FROM (SELECT * FROM t ORDER BY x){by}",
        f"SELECT {calls.format(' ORDER BY x').replace('arg_min(i, v ORDER BY x)', 'arg_min(i, v ORDER BY v, x)')} "
        f"FROM t{by}",
        settings,
        spill_after,
    )


@pytest.mark.parametrize("spill_after", [900, 30_000])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_rows_in_partitions_by_a_distinct_value(oracle: Any, settings: dict[str, Any], spill_after: int) -> None:
    """A group that is partitioned by the values of a DISTINCT aggregate."""
    check(
        oracle,
        "SELECT first(i), last(i), any_value(v), arg_min(i, v), arg_max(i, v), count(DISTINCT x) FROM t",
        "SELECT min(i), max(i), arg_min(v, i), first(i ORDER BY v, i) FILTER (v IS NOT NULL), "
        "first(i ORDER BY v DESC, i) FILTER (v IS NOT NULL), count(DISTINCT x) FROM t",
        settings,
        spill_after,
    )


@pytest.mark.parametrize("spill_after", [0, 900])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("by", ["", " GROUP BY k ORDER BY k"], ids=["one group", "groups"])
def test_rows_that_become_several(oracle: Any, by: str, settings: dict[str, Any], spill_after: int) -> None:
    """They have the same position, and come in order."""
    check(
        oracle,
        f"SELECT first(u), last(u) FROM (SELECT k, unnest([i * 10 + 5, i * 10, i * 10 + 7]) AS u FROM t){by}",
        f"SELECT min(i) * 10 + 5, max(i) * 10 + 7 FROM t{by}",
        settings,
        spill_after,
    )
