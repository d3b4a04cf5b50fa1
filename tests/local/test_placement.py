"""A step that several others use is computed once, and its rows stay in the shards that they were placed in."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

import tsql

QUERY = """
WITH g AS (SELECT a, b, sum(v) AS v FROM t GROUP BY a, b)
SELECT x.a, x.b, x.n, y.m
FROM (SELECT /*+ AGG('one_phase') */ a, b, count(*) AS n FROM g GROUP BY a, b) x
JOIN (SELECT a, b, max(v) AS m FROM g GROUP BY a, b) y ON x.a = y.a AND x.b = y.b
ORDER BY x.a, x.b LIMIT 500
"""


def test_a_shared_aggregate_keeps_its_placement() -> None:
    random = np.random.default_rng(20261117)
    table = pa.table({"a": random.integers(0, 300, 60_000), "b": random.integers(0, 20, 60_000), "v": random.integers(0, 9, 60_000)})
    oracle = duckdb.connect()
    oracle.register("t", table)
    expected = oracle.execute(QUERY.replace("/*+ AGG('one_phase') */", "")).fetchall()
    for shards in (2, 7, 16):
        db = tsql.connect(threads=2, shards=shards)
        db.register("t", table)
        for hint in ("one_phase", "two_phase"):
            assert db.sql(QUERY.replace("one_phase", hint)).fetchall() == expected, (shards, hint)
