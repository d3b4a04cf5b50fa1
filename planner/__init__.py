"""Turns logical plans into physical plans: rules, choice of steps by cost, movement, and a final check. Call
`make_plan`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tsql.planner.cost.constants import DEFAULT, Costs
from tsql.planner.physical.step import PhysicalPlan

if TYPE_CHECKING:
    from tsql.planner.choose.enumerate import Enumerator
    from tsql.planner.hints.constraints import Hint
    from tsql.planner.logical.nodes import Output


def make_plan(
    query: Output,
    settings: Any,
    text: str = "",
    target: str = "local",
    shards: int | None = None,
    hints: Iterable[Hint] = (),
    costs: Costs = DEFAULT,
) -> PhysicalPlan:
    """The physical plan of a query for `shards` shards. Hints are obeyed; the plan is optimised unless the settings
    disable it."""
    return build(query, settings, text, target, shards, hints, costs)[0]


def build(
    query: Output,
    settings: Any,
    text: str,
    target: str,
    shards: int | None,
    hints: Iterable[Hint],
    costs: Costs,
    choices: tuple[str, ...] = (),
) -> tuple[PhysicalPlan, Enumerator]:
    """A plan and the enumerator that made it. `choices` decide where given, cost decides the rest."""
    # A plan that is found on disk needs none of these.
    from tsql.kernels.process.cores import CORES
    from tsql.planner.choose.enumerate import Enumerator
    from tsql.planner.choose.late_decoding import mark_late
    from tsql.planner.choose.progressive import with_progressive
    from tsql.planner.choose.scan_progress import with_progress
    from tsql.planner.choose.shard_sizes import size_shards
    from tsql.planner.hints.constraints import constraints
    from tsql.planner.logical.nodes import Scan
    from tsql.planner.logical.null_assumptions import watched
    from tsql.planner.logical.sources import is_live
    from tsql.planner.physical.check import check
    from tsql.planner.physical.enforce import enforce
    from tsql.planner.physical.operators.scan import source_notes, with_filled
    from tsql.planner.physical.prune_moved import prune_moved
    from tsql.planner.physical.step import named
    from tsql.planner.rules import optimize, without_products
    from tsql.planner.unnest.unnest import unnest

    wanted = constraints(hints, query)
    shards = wanted.shards or shards or settings.shards or settings.threads or CORES
    scope = "global" if target == "spark" else "local"
    with watched() as relied:
        plan = unnest(query)
        plan = optimize(plan, wanted=wanted) if settings.optimizer else without_products(plan, wanted)
    wanted.locate(plan)
    enumerator = Enumerator(shards, wanted, scope, costs, choices)
    enumerator.progressive = plan.progressive is not None
    enumerator.live = any(isinstance(node, Scan) and is_live(node.source) for node in plan.walk())
    root = enforce(enumerator.plan(plan.input), shards, scope)
    if settings.optimizer:
        if scope == "local":
            if plan.progressive is None:
                root = with_progress(root, enumerator.estimator, settings.memory_limit)
        else:
            root = prune_moved(root, set(plan.columns))
            if not (wanted.shards or settings.shards):
                root = size_shards(root, shards, enumerator.estimator)
        root = mark_late(root, enumerator.estimator)
    why: str | None = None
    if plan.progressive is not None:
        root, why = with_progressive(root, plan.progressive, enumerator.estimator, scope)
    if relied.on:
        root = with_filled(root)
    notes = (*wanted.notes(), *source_notes(root), *(() if why is None else (why,)))
    physical = PhysicalPlan(named(root), plan.columns, plan.names, shards, target, text, notes, plan.emission)
    check(physical)
    return physical, enumerator


__all__ = ["PhysicalPlan", "make_plan"]
