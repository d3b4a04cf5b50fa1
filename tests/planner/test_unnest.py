"""Unnesting: no plan keeps an Apply, and none changes its meaning, which `reference.py` defines row by row."""

from __future__ import annotations

import pytest

from tests.planner.random_plans import Generator
from tests.planner.reference import TooManyRows, rows_of
from tsql.planner.logical import Apply, show
from tsql.planner.rules import optimize
from tsql.planner.tree import nodes
from tsql.planner.unnest import unnest

BATCHES = 8
PLANS = 250


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_plans(batch: int) -> None:
    """The same bag of rows before and after, and after the rules."""
    for seed in range(batch * PLANS, (batch + 1) * PLANS):
        plan = Generator(seed).plan()
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
