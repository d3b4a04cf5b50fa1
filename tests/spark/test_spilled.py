"""Tasks whose steps spill."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.duck import empty_duckdb
from tests.spark.cluster import InProcess
from tests.spark.queries import bag

ROWS, FILES = 6000, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of several row groups. `i` is the place of a row in all of them."""
    found, rng = tmp_path_factory.mktemp("rows"), random.Random(3)
    table = pa.table(
        {
            # Keys far from each other: an array of all possible keys would not spill.
            "k": [rng.randrange(700) * 1_000_003 for _ in range(ROWS)],
            "v": [rng.choice((None, 1, 2, 3)) for _ in range(ROWS)],
            "s": [rng.choice((None, "a", "b")) for _ in range(ROWS)],
            "i": list(range(ROWS)),
        }
    )
    for number in range(FILES):
        rows = ROWS // FILES
        pq.write_table(table.slice(number * rows, rows), found / f"t{number}.parquet", row_group_size=200)
    return found


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Iterator[Any]:
    with empty_duckdb() as connection:
        connection.execute(f"CREATE VIEW t AS FROM '{folder}/t*.parquet'")
        yield connection


ORDERED = {
    "first(i)": "min(i)",
    "last(i)": "max(i)",
    "first(s)": "arg_min_null(s, i)",
    "any_value(v)": "arg_min(v, i)",
    "first(i) FILTER (v > 1)": "min(i) FILTER (v > 1)",
    "first(i ORDER BY v)": "first(i ORDER BY v, i)",
    "first(i ORDER BY v DESC NULLS FIRST)": "first(i ORDER BY v DESC NULLS FIRST, i)",
    "last(i ORDER BY v)": "first(i ORDER BY v DESC NULLS FIRST, i)",
    "arg_min(i, v)": "first(i ORDER BY v, i) FILTER (v IS NOT NULL)",
    "arg_max(i, v)": "first(i ORDER BY v DESC, i) FILTER (v IS NOT NULL)",
    "arg_max_null(s, v)": "first(s ORDER BY v DESC, i) FILTER (v IS NOT NULL)",
    "arg_min_nulls_last(i, v)": "first(i ORDER BY v NULLS LAST, i)",
    "string_agg(s, ',')": "string_agg(s, ',' ORDER BY i)",
}
"""Aggregates that depend on order, and the same said without the order of the input."""


@pytest.mark.parametrize("cpus", [1, 2])
@pytest.mark.parametrize("hint", ["two_phase", "two_phase_gather", "one_phase"])
def test_aggregates_that_depend_on_order(folder: Path, oracle: Any, hint: str, cpus: int) -> None:
    """Rows that were written to partitions keep the positions that rows of all tasks are compared by."""
    files = f"'{folder}/t*.parquet'"
    calls = [c for c in ORDERED if hint == "one_phase" or not ("ORDER BY" in c or c.startswith("string_agg"))]
    with tsql.connect(spark=InProcess(3, cpus), spill_after=900) as db:
        given = db.sql(f"SELECT /*+ AGG('{hint}') */ k, {', '.join(calls)} FROM {files} GROUP BY k ORDER BY k")
        assert ("phase=partial" in given.plan()) == (hint != "one_phase")
        rows = given.fetchall()
    assert rows == oracle.sql(f"SELECT k, {', '.join(map(ORDERED.get, calls))} FROM t GROUP BY k ORDER BY k").fetchall()


@pytest.mark.parametrize("spill_after", [0, 900])
@pytest.mark.parametrize("cpus", [1, 2])
def test_host_functions_keep_positions(folder: Path, oracle: Any, cpus: int, spill_after: int) -> None:
    """Their results are columns of rows that were collected, here twice."""
    sql = (
        "SELECT /*+ AGG('two_phase') */ k, first(f), last(f), last(parse_filename(f || '/' || i)) FROM (SELECT k, i, "
        f"parse_filename('x/' || i) AS f FROM '{folder}/t*.parquet' WHERE parse_filename('x/' || v) <> '2') "
        "GROUP BY k ORDER BY k"
    )
    expected = "SELECT k, min(i)::VARCHAR, max(i)::VARCHAR, max(i)::VARCHAR FROM t WHERE v <> 2 GROUP BY k ORDER BY k"
    with tsql.connect(spark=InProcess(3, cpus), spill_after=spill_after) as db:
        relation = db.sql(sql)
        assert "phase=partial" in relation.plan()
        assert relation.fetchall() == oracle.sql(expected).fetchall()


HEAD = """plan version 1
target spark shards=2

t     = scan '{folder}/t*.parquet' columns=(k, i)
u     = scan '{folder}/t*.parquet' columns=(k, i)
some  = filter u where=(i % 7 = 0)
named = project some g=k j=i
one   = gather named
all   = broadcast one scope=global how={how}
"""
NAMED = "(SELECT k AS g, i AS j FROM t WHERE i % 7 = 0)"
JOINS = {
    "hash_join t all kind=inner on=(k = g) build=right": f"SELECT k, i, j FROM t JOIN {NAMED} ON k = g",
    "hash_join all t kind=inner on=(g = k) build=left": f"SELECT k, i, j FROM t JOIN {NAMED} ON k = g",
    "hash_join t all kind=left on=(k = g) build=right": f"SELECT k, i, j FROM t LEFT JOIN {NAMED} ON k = g",
    "hash_join t all kind=semi on=(k = g) build=right": f"SELECT k, i FROM t SEMI JOIN {NAMED} ON k = g",
    "hash_join t all kind=anti on=(i = j) build=right": f"SELECT k, i FROM t ANTI JOIN {NAMED} ON i = j",
    "merge_join t all kind=inner on=(i = j) build=right": f"SELECT k, i, j FROM t JOIN {NAMED} ON i = j",
}


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("how", ["read", "send", "collect"])
def test_broadcast_rows_beside_a_scan_of_two_threads(folder: Path, oracle: Any, join: str, how: str) -> None:
    """The rows of a broadcast are one shard, and a scan has a shard for each thread of the task."""
    columns = JOINS[join][len("SELECT ") :].partition(" FROM ")[0]
    text = f"{HEAD.format(folder=folder, how=how)}pairs = {join}\nlast = gather pairs\noutput last ({columns})\n"
    with tsql.connect(spark=InProcess(2, cpus=2), spill_after=900) as db:
        given = tsql.load_plan_text(text).run(db).fetchall()
    assert bag(given) == bag(oracle.sql(JOINS[join]).fetchall())
