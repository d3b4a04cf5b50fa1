"""Probes at the head of a pipeline that are decided for many rows at once (`early=yes`)."""

from __future__ import annotations

import tsql

CHAIN = """plan version 1
target local shards=2

a       = scan a columns=(x)
b       = scan b columns=(y, z)
b_all   = broadcast b scope=local shards=2
first   = hash_join b_all a kind=inner on=(y = x) build=left early=yes
c       = scan c columns=(n)
c_all   = broadcast c scope=local shards=2
second  = hash_join c_all first kind=inner on=(n = z) build=left early=yes
rows    = project second x=x n=n
all     = gather rows
output all (x, n)
"""


def test_a_probe_by_a_column_that_the_probe_before_it_adds() -> None:
    """Seed 5, query 787 of the campaign: the second key is no column of the scan, and was looked for there."""
    with tsql.connect() as db:
        db.execute("CREATE TABLE a AS SELECT range AS x FROM range(5)")
        db.execute("CREATE TABLE b AS SELECT range AS y, range * 10 AS z FROM range(3, 9)")
        db.execute("CREATE TABLE c AS SELECT range * 20 AS n FROM range(4)")
        assert tsql.load_plan_text(CHAIN).run(db).fetchall() == [(4, 40)]
