"""Golden plans of unnesting: `unnest/*.test` state a plan with Apply, then what unnesting and the rules make of it.

Records are as in `tests/rules`, with plans `---- unnested` and `---- optimized`; `pytest --regen` rewrites them. Those
over the tables of the rules' fixtures must also keep their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.planner.plantext import read_plan
from tests.planner.reference import rows_of
from tests.planner.support import blocks_of
from tests.rules.tables import TABLES
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.statistics import ColumnStatistics, Statistics
from tsql.kernels.expr.types import parse_type
from tsql.planner.logical.nodes import Distinct, Node, show
from tsql.planner.logical.tree import nodes
from tsql.planner.rules import optimize
from tsql.planner.unnest.unnest import unnest

FOLDER = Path(__file__).parent / "unnest"
TPCH = {
    "part": (200_000, "p_partkey BIGINT, p_name VARCHAR, p_brand VARCHAR, p_size INTEGER"),
    "supplier": (
        10_000,
        "s_suppkey BIGINT, s_name VARCHAR, s_nationkey INTEGER, s_acctbal DECIMAL(15, 2), s_comment VARCHAR",
    ),
    "partsupp": (800_000, "ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INTEGER, ps_supplycost DECIMAL(15, 2)"),
    "nation": (25, "n_nationkey INTEGER, n_name VARCHAR"),
    "customer": (150_000, "c_custkey BIGINT, c_acctbal DECIMAL(15, 2)"),
    "orders": (1_500_000, "o_orderkey BIGINT, o_custkey BIGINT, o_orderdate DATE, o_orderpriority VARCHAR"),
    "lineitem": (
        6_000_000,
        "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_quantity DECIMAL(15, 2), l_extendedprice "
        "DECIMAL(15, 2), "
        "l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE",
    ),
}


class Described:
    """A table of which only the columns and the number of rows are known, and that it has no NULLs."""

    def __init__(self, rows: int, columns: str):
        fields = [item.split(" ", 1) for item in columns.replace("(15, 2)", "(15; 2)").split(", ")]
        self.rows, self.schema = rows, Schema(tuple(Field(n, parse_type(t.replace(";", ","))) for n, t in fields))

    def statistics(self) -> Statistics:
        return Statistics(self.rows, None, {f.name: ColumnStatistics(nulls=0) for f in self.schema})


SOURCES: dict[str, dict[str, Any]] = {"tpch": {n: Described(*about) for n, about in TPCH.items()}, "subqueries": TABLES}


def records(name: str) -> list[tuple[str, str, str, str]]:
    """(comments, plan, unnested, optimized) of a file."""
    found = []
    for block in blocks_of((FOLDER / f"{name}.test").read_text(encoding="utf-8")):
        plan, _, rest = block.partition("\n---- unnested\n")
        unnested, _, optimized = rest.partition("\n---- optimized\n")
        lines = plan.split("\n")
        found.append(
            (
                "\n".join(t for t in lines if t.startswith("#")),
                "\n".join(t for t in lines if not t.startswith("#")),
                unnested,
                optimized,
            )
        )
    return found


def uses_domain(plan: Node, before: Node) -> bool:
    return sum(isinstance(n, Distinct) for n in nodes(plan)) > sum(isinstance(n, Distinct) for n in nodes(before))


@pytest.mark.parametrize("name", SOURCES)
def test_plans(name: str, regen: bool) -> None:
    written = []
    for comments, text, unnested, optimized in records(name):
        flat = unnest(read_plan(text, SOURCES[name]))
        best = optimize(flat)
        if not regen:
            assert show(flat) == unnested, comments
            assert show(best) == optimized, comments
        written.append("\n".join([comments, text, "---- unnested", show(flat), "---- optimized", show(best)]))
    if regen:
        (FOLDER / f"{name}.test").write_text("\n====\n".join(written) + "\n", encoding="utf-8")


def test_rows() -> None:
    for comments, text, _, _ in records("subqueries"):
        plan = read_plan(text, TABLES)
        expected = rows_of(plan)
        assert rows_of(unnest(plan)) == expected, comments
        assert rows_of(optimize(unnest(plan))) == expected, comments


def test_no_domain_for_equalities() -> None:
    """The subqueries of TPC-H are correlated by equalities or tests of existence: none needs the distinct outer
    values."""
    for comments, text, _, _ in records("tpch"):
        plan = read_plan(text, SOURCES["tpch"])
        assert not uses_domain(unnest(plan), plan), comments


@pytest.mark.parametrize("name", SOURCES)
def test_texts_read_back(name: str) -> None:
    """The text of a plan, outer columns included, says the plan again."""
    seen = 0
    for _, text, _, _ in records(name):
        printed = show(read_plan(text, SOURCES[name]))
        if "values" not in printed:
            assert show(read_plan(printed, SOURCES[name])) == printed
            seen += "outer." in printed
    assert seen >= 5
