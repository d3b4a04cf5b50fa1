"""Unnesting: no plan keeps an Apply, and none changes its meaning, which `reference.py` defines row by row."""

from __future__ import annotations

import pytest

import tsql
from tests.planner.random_plans import Generator
from tests.planner.reference import TooManyRows, rows_of
from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.expr.types import Type
from tsql.planner.logical.nodes import Apply, Join, Node, show
from tsql.planner.logical.tree import nodes
from tsql.planner.rules import optimize
from tsql.planner.unnest.dependent import Free
from tsql.planner.unnest.push_dependent import ZERO_FOR_NO_ROWS
from tsql.planner.unnest.unnest import unnest

BATCHES = 6
PLANS = 90


def fails_alone(plan: Node) -> bool:
    """Whether a part that depends on nothing has too many rows: that may be found out even where no outer row asks for
    it."""
    free = Free()
    for node in nodes(plan):
        if isinstance(node, Join) and node.kind == "single" and not free.of(node):
            try:
                rows_of(node)
            except TooManyRows:
                return True
    return False


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_plans(batch: int) -> None:
    """The same bag of rows before and after, and after the rules."""
    for seed in range(batch * PLANS, (batch + 1) * PLANS):
        plan = Generator(seed).plan()
        if fails_alone(plan):
            continue
        flat = unnest(plan)
        assert not any(isinstance(node, Apply) for node in nodes(flat))
        assert [(f.name, f.type) for f in flat.schema] == [(f.name, f.type) for f in plan.schema], seed
        try:
            expected = rows_of(plan)
        except TooManyRows:
            with pytest.raises(TooManyRows):
                rows_of(flat)
            continue
        assert rows_of(flat) == expected, f"seed {seed}\n{show(plan)}\n--\n{show(flat)}"
        best = optimize(flat)
        assert rows_of(best) == expected, f"seed {seed} with rules\n{show(plan)}\n--\n{show(flat)}\n--\n{show(best)}"


def test_aggregates_of_no_rows() -> None:
    """Every registered aggregate gives NULL for no rows, but for those that unnesting knows to give 0."""
    db = tsql.connect(threads=1)
    names = {"any": "BIGINT", "any:T": "BIGINT", "integer": "BIGINT", "decimal": "DECIMAL(9, 2)", "numeric": "DOUBLE"}
    for name in AGGREGATES.names():
        overload = AGGREGATES.overloads[name][0]
        args = [f"CAST(x AS {arg if isinstance(arg, Type) else names[arg]})" for arg in overload.args]
        for place in overload.constant:
            args[place] = "','" if args[place].endswith("VARCHAR)") else "0.5"
        call = f"{name}({', '.join(args) or '*'})" if name != "count_star" else "count(*)"
        ((value,),) = db.sql(f"SELECT {call} FROM (SELECT NULL AS x WHERE false)").fetchall()
        assert value == (0 if name in ZERO_FOR_NO_ROWS else None), name
