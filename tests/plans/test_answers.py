"""`LoadedPlan.check`: a plan is compared with its query line, as a bag of rows, in order where the query orders."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.planner.support import session as support_session
from tests.plans.queries import QUERIES
from tsql.kernels.expr.errors import PlanError, TsqlError

ROWS = pa.table(
    {
        "k": [1, 1, 2, 2, 3],
        "v": [10, 20, 30, 40, None],
        "f": [0.1, 0.2, 0.3, 1e16, 1.0],
        "s": ["a", "b", "c", "d", None],
    }
)


@pytest.fixture(scope="module")
def db() -> Any:
    with tsql.connect(threads=2) as session:
        session.register("t", ROWS)
        yield session


def plan(query: str, steps: str) -> tsql.loaded.LoadedPlan:
    body = "\n".join(line.strip() for line in steps.strip().splitlines())
    return tsql.load_plan_text(f'plan version 1\nquery "{query}"\ntarget local shards=2\n{body}\n', "mine.plan")


@pytest.mark.parametrize("name", QUERIES)
def test_planned_queries_agree(name: str) -> None:
    db = support_session()
    assert tsql.load_plan_text(db.sql(QUERIES[name][0]).plan()).check(db) is not None


def test_without_a_query_there_is_nothing_to_compare(db: Any) -> None:
    assert (
        tsql.load_plan_text("plan version 1\ntarget local shards=1\nt = scan t columns=(k)\noutput t (k)\n").check(db)
        is None
    )


def test_rows_that_differ(db: Any) -> None:
    mine = plan(
        "SELECT k, v FROM t WHERE v > 10",
        "t = scan t columns=(k, v)\nkept = filter t where=(v >= 10 AND v < 40)\nall = gather kept\noutput all (k, v)",
    )
    with pytest.raises(PlanError) as caught:
        mine.check(db)
    assert str(caught.value) == (
        "mine.plan: its answer is not that of its query\n  3 rows, expected 3: 1 missing, 1 too many\n  "
        "missing   (k 2, v 40)\n  too many  (k 1, v 10)"
    )


def test_repeated_rows_count(db: Any) -> None:
    mine = plan(
        "SELECT k FROM t",
        (
            "t = scan t columns=(k)\ng = aggregate t phase=partial by=(k)\nh = gather g\ni = aggregate h "
            "phase=final by=(k)\noutput i (k)"
        ),
    )
    with pytest.raises(
        PlanError, match=r"3 rows, expected 5: 2 missing, 0 too many\n  missing   \(k 1\)\n  missing   \(k 2\)$"
    ):
        mine.check(db)


def test_many_differences_are_cut(db: Any) -> None:
    mine = plan(
        "SELECT k FROM t UNION ALL SELECT v FROM t",
        "t = scan t columns=(k)\nn = filter t where=(k > 9)\nall = gather n\noutput all (k)",
    )
    with pytest.raises(
        PlanError,
        match=r"0 rows, expected 10: 10 missing, 0 too many(\n  missing   \(k .*\)){5}\n  missing   .. and 5 more$",
    ):
        mine.check(db)


def test_order_counts_where_the_query_orders(db: Any) -> None:
    steps = "t = scan t columns=(k, v)\nall = gather t\nsorted = sort all by=({})\noutput sorted (k, v)"
    plan("SELECT k, v FROM t ORDER BY k", steps.format("k asc nulls last, v desc nulls last")).check(db)
    with pytest.raises(PlanError, match=r"not in its order\n  row 1: \(k 3, v NULL\), expected \(k 1, v 10\)$"):
        plan("SELECT k, v FROM t ORDER BY k", steps.format("k desc nulls last, v desc nulls last")).check(db)
    plan("SELECT k, v FROM t", steps.format("k desc nulls last")).check(db)


def test_order_by_what_is_not_selected(db: Any) -> None:
    steps = "t = scan t columns=(k, v, s)\nall = gather t\nsorted = sort all by=({})\noutput sorted (s)"
    plan("SELECT s FROM t ORDER BY k", steps.format("k asc nulls last, v desc nulls last")).check(db)
    with pytest.raises(PlanError, match="not in its order"):
        plan("SELECT s FROM t ORDER BY k", steps.format("v asc nulls first")).check(db)


def test_any_of_the_rows_that_tie_at_a_limit(db: Any) -> None:
    steps = (
        "t = scan t columns=(k, s)\nall = gather t\nsorted = sort all by=({})\ncut = limit sorted "
        "count=(CAST({} AS BIGINT)) offset=(CAST({} AS BIGINT))\noutput cut (s)"
    )
    for query, order, count, offset in [
        ("SELECT s FROM t ORDER BY k LIMIT 1", "k asc nulls last, s desc nulls last", 1, 0),
        ("SELECT s FROM t ORDER BY k LIMIT 3", "k asc nulls last, s desc nulls last", 3, 0),
        ("SELECT s FROM t ORDER BY k LIMIT 2 OFFSET 1", "k asc nulls last, s desc nulls last", 2, 1),
        ("SELECT s FROM t LIMIT 2", "s desc nulls last", 2, 0),
    ]:
        assert plan(query, steps.format(order, count, offset)).check(db) == count
    for query, order, count, offset in [
        ("SELECT s FROM t ORDER BY k LIMIT 1", "k desc nulls last, s desc nulls last", 1, 0),
        ("SELECT s FROM t ORDER BY k LIMIT 2 OFFSET 1", "k asc nulls last, s desc nulls last", 2, 2),
        ("SELECT s FROM t WHERE k < 3 LIMIT 2", "k desc nulls last, s desc nulls first", 2, 0),
        ("SELECT s FROM t LIMIT 2", "s desc nulls last", 3, 0),
    ]:
        with pytest.raises(PlanError, match="not that of its query"):
            plan(query, steps.format(order, count, offset)).check(db)


def test_floats_up_to_rounding(db: Any) -> None:
    steps = "t = scan t columns=(k, f)\np = project t k=k f=({})\nall = gather p\noutput all (k, f)"
    plan("SELECT k, f FROM t", steps.format("f * 3 / 3 + 1e-15")).check(db)
    with pytest.raises(PlanError, match=r"missing   \(k 1, f 0.1\)"):
        plan("SELECT k, f FROM t", steps.format("f + 1e-6")).check(db)
    plan(
        "SELECT k, sqrt(-f) / 0 AS f FROM t WHERE FALSE",
        "t = scan t columns=(k, f)\nn = filter t where=(FALSE)\nall = gather n\noutput all (k, f)",
    ).check(db)


def test_nan_is_one_value(db: Any) -> None:
    query = "SELECT s, f * 'nan'::DOUBLE AS f FROM t"
    assert (
        plan(
            query,
            (
                "t = scan t columns=(s, f)\np = project t s=s f=(f * CAST('nan' AS DOUBLE))\nall = gather "
                "p\noutput all (s, f)"
            ),
        ).check(db)
        == 5
    )


def test_other_columns(db: Any) -> None:
    with pytest.raises(PlanError) as caught:
        plan("SELECT k, v FROM t", "t = scan t columns=(k, f)\nall = gather t\noutput all (k, f as v)").check(db)
    assert caught.value.message == "the plan gives (k BIGINT, v DOUBLE), its query (k BIGINT, v BIGINT)"
    assert caught.value.line_column == (6, 1)


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE t",
        "SELECT 1; SELECT 2",
        "SET threads = 1",
        "COMPILE PLAN 'x.plan' FOR SELECT 1",
        "SELECT nothing FROM t",
        "SELECT k FROM",
    ],
)
def test_a_query_line_that_is_no_query(db: Any, query: str) -> None:
    with pytest.raises(TsqlError, match=r"^mine\.plan \(query\):1:"):
        plan(query, "t = scan t columns=(k)\nall = gather t\noutput all (k)").check(db)
    assert db.tables() == ["t"]


def test_parameters(db: Any) -> None:
    mine = plan(
        "SELECT k FROM t WHERE v > $low",
        "t = scan t columns=(k, v)\nf = filter t where=(v > $low)\nall = gather f\noutput all (k)",
    )
    assert mine.check(db, {"low": 20}) == 2
