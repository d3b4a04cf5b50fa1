"""Logical plans to physical plans: rules, choice of steps by cost, movement, a last check. `make_plan` is the way in."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from tsql.planner.check import check
from tsql.planner.enforce import enforce
from tsql.planner.enumerate import Enumerator
from tsql.planner.hints import Hint, constraints
from tsql.planner.logical import Output
from tsql.planner.rules import optimize
from tsql.planner.step import PhysicalPlan, named
from tsql.planner.unnest import unnest


def make_plan(query: Output, settings: Any, text: str = "", target: str = "local", shards: int | None = None, hints: Iterable[Hint] = ()) -> PhysicalPlan:
    """The physical plan of a query: optimised unless the settings say otherwise, for `shards` shards, as its hints demand."""
    wanted = constraints(hints, query)
    shards = wanted.shards or shards or settings.shards or settings.threads or os.cpu_count() or 1
    scope = "global" if target == "spark" else "local"
    plan = unnest(query)
    plan = optimize(plan) if settings.optimizer else plan
    root = Enumerator(shards, wanted, scope).step(plan.input)
    root = enforce(root, shards, scope)
    physical = PhysicalPlan(named(root), plan.columns, plan.names, shards, target, text, wanted.notes())
    check(physical)
    return physical


__all__ = ["PhysicalPlan", "make_plan"]
