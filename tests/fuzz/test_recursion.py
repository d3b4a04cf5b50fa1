"""Random recursive queries that name outer columns give what DuckDB gives."""

from __future__ import annotations

from random import Random

import duckdb
import pytest

import tsql
from tests.duck import empty_duckdb
from tests.fuzz.amount import step
from tests.fuzz.recursion import recursive_query
from tests.slt.render import differing_row, render

SEED = 11


@pytest.mark.parametrize("start", (0, 16))
def test_correlated_recursions(start: int) -> None:
    ours, oracle = tsql.connect(), empty_duckdb()
    compared = 0
    for number in range(start, start + 16, step()):
        sql = recursive_query(Random(f"{SEED}/{number}"))
        try:
            expected = oracle.sql(sql).to_arrow_table()
        except duckdb.Error:
            # A scalar subquery may have two rows, and DuckDB cannot plan some of these queries.
            continue
        compared += 1
        wanted, given = render(expected), render(ours.sql(sql).arrow())
        difference = differing_row(given.sorted("rowsort"), wanted.sorted("rowsort"), wanted.types)
        assert difference is None, f"seed {SEED}, query {number}: {difference}\n{sql}"
    assert compared
