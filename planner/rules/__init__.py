"""Rewrite rules over logical plans, and the only way to run them: by name, timed, verified.

`RULES` is the order. A rule is a function over one node, in a file of the same name. The decorator `@rule` of
`framework.py` says how it is applied; its fixture is `tests/rules/<rule>.test`."""

from __future__ import annotations

from tsql.planner.hints.constraints import Constraints
from tsql.planner.logical.nodes import Join, Node
from tsql.planner.logical.tree import nodes
from tsql.planner.rules.aggregate_early import aggregate_early
from tsql.planner.rules.collect_equalities import collect_equalities
from tsql.planner.rules.extract_common_conjuncts import extract_common_conjuncts
from tsql.planner.rules.fold_constants import fold_constants
from tsql.planner.rules.framework import Rule, Trace, apply_all
from tsql.planner.rules.infer_filters import infer_filters
from tsql.planner.rules.mark_to_semi import mark_to_semi
from tsql.planner.rules.number_panes import number_panes
from tsql.planner.rules.order_joins import order_joins
from tsql.planner.rules.outer_to_inner import outer_to_inner
from tsql.planner.rules.prune_columns import prune_columns
from tsql.planner.rules.push_filter_down import push_filter_down
from tsql.planner.rules.push_filter_into_scan import push_filter_into_scan
from tsql.planner.rules.push_join_conditions import push_join_conditions
from tsql.planner.rules.push_semi_join import push_semi_join
from tsql.planner.rules.reduce_aggregate import reduce_aggregate
from tsql.planner.rules.remove_distinct import remove_distinct
from tsql.planner.rules.remove_idle_sort import remove_idle_sort
from tsql.planner.rules.remove_trivial_project import remove_trivial_project
from tsql.planner.rules.remove_unused_join import remove_unused_join
from tsql.planner.rules.simplify_join import simplify_join
from tsql.planner.rules.split_conjunctions import split_conjunctions
from tsql.planner.rules.unwrap_casts import unwrap_casts

RULES: tuple[Rule, ...] = (
    fold_constants,
    extract_common_conjuncts,
    split_conjunctions,
    remove_idle_sort,
    remove_unused_join,
    simplify_join,
    outer_to_inner,
    push_filter_down,
    unwrap_casts,
    mark_to_semi,
    push_join_conditions,
    infer_filters,
    push_filter_down,
    collect_equalities,
    remove_distinct,
    push_semi_join,
    order_joins,
    aggregate_early,
    reduce_aggregate,
    push_filter_down,
    push_filter_into_scan,
    number_panes,
    prune_columns,
    remove_trivial_project,
)
"""`push_filter_down` runs three times: before `mark_to_semi`, which needs the filter directly above the mark; after
joins have passed filters to their sides; and after joins are in order and aggregates have been moved."""


def optimize(
    plan: Node,
    disabled: frozenset[str] = frozenset(),
    trace: Trace | None = None,
    wanted: Constraints | None = None,
) -> Node:
    """The plan after all enabled rules; `trace` receives (rule, milliseconds, changed). `wanted`: hints that the order
    of joins obeys."""
    return apply_all(RULES, plan, disabled, trace, wanted)


def without_products(plan: Node, wanted: Constraints | None = None) -> Node:
    """The rewrite that runs with the optimizer off. If there are joins without a condition, conditions of WHERE become
    conditions of the joins that they connect, including a condition that every branch of an OR repeats: the product of
    three tables would take too long. An order of joins that a hint demands is obeyed."""
    if any(isinstance(node, Join) and node.kind == "inner" and node.condition is None for node in nodes(plan)):
        plan = push_filter_down(split_conjunctions(extract_common_conjuncts(plan)))
    return order_joins(plan, wanted) if wanted is not None and wanted.joins.leadings else plan
