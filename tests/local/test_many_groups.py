"""Groupings with more groups than a core's cache holds: rows are placed into many shards and aggregated in one
phase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.kernels.expr.errors import ExecutionError

ROWS = 300_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(11)
    keys = rng.integers(-150_000, 150_000, ROWS)
    return pa.table({
        "k": pa.array(keys, mask=rng.random(ROWS) < 0.001),
        "s": pa.array([f"name {key * 7919 % 200_003:07d}" for key in keys.tolist()]),
        "x": pa.array(rng.integers(0, 1000, ROWS), mask=rng.random(ROWS) < 0.1),
    })  # fmt: skip


@pytest.fixture(scope="module", params=["arrow", "blocks"])
def db(request: Any, table: pa.Table) -> Any:
    session = tsql.connect(threads=2)
    session.register("arrow", table)
    session.execute("CREATE TABLE blocks AS SELECT * FROM arrow")
    session.execute(f"CREATE VIEW t AS SELECT * FROM {request.param}")
    return session


QUERIES = [
    "SELECT k, count(*) AS n, sum(x) AS total, min(x) AS low FROM t GROUP BY k ORDER BY k",
    "SELECT s, count(x) AS n, max(k) AS high FROM t GROUP BY s ORDER BY s",
    "SELECT k, s, avg(x) AS mean FROM t GROUP BY k, s ORDER BY k, s",
    "SELECT DISTINCT s FROM t ORDER BY s",
    "SELECT k % 200000 AS r, count(*) AS n FROM t GROUP BY r ORDER BY r",
    "SELECT count(*) AS n, max(n) AS most FROM (SELECT s, count(*) AS n FROM t GROUP BY s)",
]


@pytest.mark.parametrize("query", QUERIES)
def test_agrees_with_duckdb(db: Any, table: pa.Table, query: str) -> None:
    with empty_duckdb() as con:
        con.register("t", table)
        expected = con.sql(query).to_arrow_table()
    assert db.sql(query).arrow().cast(expected.schema).equals(expected)


def test_first_and_last_follow_the_input(db: Any, table: pa.Table) -> None:
    """DuckDB leaves this open when it uses several threads; here it is the order of the input."""
    texts = table["s"].combine_chunks().dictionary_encode()
    numbers = np.asarray(texts.indices)
    names, first = np.unique(numbers, return_index=True)
    last = len(numbers) - 1 - np.unique(numbers[::-1], return_index=True)[1]
    expected = pa.table(
        {"s": texts.dictionary.take(pa.array(names)), "f": table["x"].take(first), "l": table["x"].take(last)}
    ).sort_by("s")
    found = db.sql("SELECT s, first(x) AS f, last(x) AS l FROM t GROUP BY s").arrow()
    assert found.sort_by("s").cast(expected.schema).equals(expected)


def test_many_groups_are_placed_first(db: Any) -> None:
    """The table in memory knows how many distinct strings it has, so the choice is certain."""
    plan = db.sql("SELECT s, count(*) FROM blocks GROUP BY s").plan()
    assert "redistribute" in plan and "phase=partial" not in plan


def test_chunks_are_filled_across_the_batches_of_a_file(tmp_path: Path) -> None:
    """Rows that are placed by key come from many batches with NULLs and strings; a failure in a late batch leaves
    nothing open."""
    path = tmp_path / "f.parquet"
    rows = 60_000
    table = pa.table(
        {
            "k": pa.array([None if i % 97 == 0 else i * 7919 % 50_021 for i in range(rows)], pa.int64()),
            "s": pa.array([None if i % 11 == 0 else f"text {i % 1000}" for i in range(rows)]),
            "b": pa.array([None if i % 5 == 0 else i % 3 == 0 for i in range(rows)]),
            "t": pa.array(["x" if i == rows - 5 else "1" for i in range(rows)]),
        }
    )
    pq.write_table(table, path, row_group_size=3000)
    db = tsql.connect(threads=2, small_rows=0)
    query = "SELECT {} k, count(*) AS n, max(s) AS s, bool_or(b) AS b FROM '{}' GROUP BY k ORDER BY k NULLS FIRST"
    ours = db.sql(query.format("/*+ AGG('one_phase') */", path))
    assert "= redistribute " in ours.plan()
    assert ours.fetchall() == duckdb.sql(query.format("", path)).fetchall()
    with pytest.raises(ExecutionError, match="convert"):
        db.sql(
            f"SELECT /*+ AGG('one_phase') */ q, count(*) FROM (SELECT k + t::INTEGER AS q FROM '{path}') "
            "AS t GROUP BY q"
        ).arrow()
    assert ours.fetchall() == duckdb.sql(query.format("", path)).fetchall()
