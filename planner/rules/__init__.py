"""Rewrite rules over logical plans, and the one door through which they run: by name, timed, verified.

`RULES` is the order. A rule is a function from plan to plan in a file of its own name; it keeps the output's columns and
types, which `optimize` checks after each.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tsql.planner.logical import Node
from tsql.planner.rules.collect_equalities import collect_equalities
from tsql.planner.rules.fold_constants import fold_constants
from tsql.planner.rules.order_joins import order_joins
from tsql.planner.rules.prune_columns import prune_columns
from tsql.planner.rules.push_filter_down import push_filter_down
from tsql.planner.rules.push_filter_into_scan import push_filter_into_scan
from tsql.planner.rules.remove_trivial_project import remove_trivial_project
from tsql.planner.rules.split_conjunctions import split_conjunctions
from tsql.planner.rules.unwrap_casts import unwrap_casts

RULES: tuple[Callable[[Node], Node], ...] = (
    fold_constants,
    split_conjunctions,
    push_filter_down,
    unwrap_casts,
    collect_equalities,
    order_joins,
    push_filter_into_scan,
    prune_columns,
    remove_trivial_project,
)


def optimize(plan: Node, disabled: frozenset[str] = frozenset(), trace: list[tuple[str, float, bool]] | None = None) -> Node:
    """The plan after all rules that are not disabled; `trace` receives (rule, milliseconds, changed)."""
    for rule in RULES:
        if rule.__name__ in disabled:
            continue
        start = time.perf_counter()
        changed = rule(plan)
        if changed is not plan:
            before, after = [(f.name, f.type) for f in plan.schema], [(f.name, f.type) for f in changed.schema]
            if before != after:
                raise AssertionError(f"rule {rule.__name__} changed the result's columns from {before} to {after}")
        if trace is not None:
            trace.append((rule.__name__, (time.perf_counter() - start) * 1000, changed is not plan))
        plan = changed
    return plan
