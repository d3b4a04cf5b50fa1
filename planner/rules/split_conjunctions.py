"""split_conjunctions: a filter on `a AND b` becomes two filters, so that each can move and be ordered by itself.

    filter (a AND b)        filter b
      x                 ->    filter a
                                x

The condition of a join stays one conjunction, without nesting: its parts belong to the join together.
Beyond `MAX_FILTERS` parts the rest stays one filter: plans of thousands of nodes cost more to walk than they save.
"""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Call
from tsql.kernels.expr.types import BOOLEAN
from tsql.planner.logical.nodes import Filter, Join, Node
from tsql.planner.logical.predicates import conjunction, conjuncts
from tsql.planner.rules.framework import BOTTOM_UP, rule

MAX_FILTERS = 32


@rule(BOTTOM_UP, about=(Filter, Join))
def split_conjunctions(node: Filter | Join) -> Node:
    if isinstance(node, Join) and isinstance(node.condition, Call) and node.condition.name == "and":
        parts = conjuncts(node.condition)
        return (
            node if tuple(dict.fromkeys(parts)) == node.condition.args else replace(node, condition=conjunction(parts))
        )
    if isinstance(node, Join):
        return node
    parts = conjuncts(node.predicate)
    if len(parts) == 1:
        return node
    if len(parts) > MAX_FILTERS:
        rest = parts[MAX_FILTERS - 1 :]
        parts = [
            *parts[: MAX_FILTERS - 1],
            rest[0] if len(rest) == 1 else Call("and", tuple(rest), BOOLEAN, getattr(node.predicate, "position", None)),
        ]
    result = node.input
    for part in parts:
        result = Filter(result, part)
    return result
