"""Probes at the head of a pipeline that are decided for many rows at once (`early=yes`)."""

from __future__ import annotations

import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.kernels.emit.batch import Layout, SourceColumn
from tsql.kernels.emit.pipeline import ColumnarScan, Pipeline
from tsql.kernels.expr.nodes import Call, Column, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.kernels.operators.collect import Collect
from tsql.kernels.operators.filter import Filter
from tsql.kernels.operators.project import Project

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


RENAMED = """plan version 1
target local shards=2

a       = scan a columns=(x, v)
other   = project a k=x w=v
again   = project other key=k w=w
few     = filter again how=select where=(w % 2 = 0)
b       = scan b columns=(y)
b_all   = broadcast b scope=local shards=2
joined  = hash_join few b_all kind={kind} on=(key = y) build=right early=yes
partial = aggregate joined phase=partial by=() n=count(*) s=sum(w)
all     = gather partial
total   = aggregate all phase=final by=() n=count(*) s=sum(w)
output total (n, s)
"""


@pytest.mark.parametrize("kind", ["inner", "semi"])
def test_a_probe_behind_other_names_of_columns(kind: str) -> None:
    """Rows are told apart before the names are changed: what looks at columns by other names is decided for many rows
    too."""
    with tsql.connect(threads=2) as db, empty_duckdb() as oracle:
        for engine in (db, oracle):
            engine.execute(
                "CREATE TABLE a AS SELECT CASE WHEN range % 11 = 3 THEN NULL ELSE range * 7 % 100003 END "
                "AS x, range AS v FROM range(300000)"
            )
            engine.execute("CREATE TABLE b AS SELECT range * 500 AS y FROM range(200)")
        plan = tsql.load_plan_text(RENAMED.format(kind=kind))
        expected = oracle.sql("SELECT count(*), sum(v)::BIGINT FROM a JOIN b ON x = y WHERE v % 2 = 0").fetchall()
        assert plan.run(db).fetchall() == expected


def test_what_is_looked_at_ahead() -> None:
    """A renaming is seen through, also twice; what is computed is not, and neither is a column that is not the
    scan's."""
    scan = ColumnarScan(tuple(SourceColumn(name, BIGINT, Layout("fixed", "i64", False)) for name in ("x", "v")))
    over = lambda name, **columns: [
        Project(tuple(columns.items())),
        Filter(Call(">", (Column(name, BIGINT), Literal(5, BIGINT)), BOOLEAN), selects=True),
    ]  # noqa: E731
    first = over("k", k=Column("x", BIGINT))
    second = over("z", z=Column("k", BIGINT))
    computed = over("c", c=Call("+", (Column("z", BIGINT), Literal(1, BIGINT)), BIGINT))
    found = Pipeline(scan, [*first, *second, *computed], Collect(()))._first()
    assert [ahead.operator for ahead in found] == [first[1], second[1]]
    assert [len(ahead.renames) for ahead in found] == [1, 2]
