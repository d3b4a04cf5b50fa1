"""split_conjunctions: a filter on `a AND b` becomes two filters, so that each can move and be ordered by itself.

    filter (a AND b)        filter b
      x                 ->    filter a
                                x
"""

from __future__ import annotations

from tsql.kernels.expr import Call, Expr
from tsql.planner.logical import Filter, Node
from tsql.planner.tree import transform_up


def conjuncts(expr: Expr) -> list[Expr]:
    """The parts of a conjunction, in order."""
    if isinstance(expr, Call) and expr.name == "and":
        return [part for arg in expr.args for part in conjuncts(arg)]
    return [expr]


def split_conjunctions(plan: Node) -> Node:
    return transform_up(plan, _split)


def _split(node: Node) -> Node:
    if not isinstance(node, Filter):
        return node
    parts = conjuncts(node.predicate)
    if len(parts) == 1:
        return node
    result = node.input
    for part in parts:
        result = Filter(result, part)
    return result
