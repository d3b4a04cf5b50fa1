"""push_join_conditions: parts of a join's condition that name one side only become a filter of that side, where the
kind allows.

left join on a.x = b.x AND b.y > 5        left join on a.x = b.x
  a                                  ->     a
  b                                         filter b.y > 5
                                              b

Inner and semi joins filter both sides. Left, single and anti joins only the right one: a left row that fails the
condition has no partner, but is there. A mark join may only drop right rows whose part is false, never NULL. A full
join filters nothing."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Expr
from tsql.planner.logical.facts import not_null
from tsql.planner.logical.failing import is_risky
from tsql.planner.logical.nodes import Apply, Filter, Join, Node
from tsql.planner.logical.null_assumptions import rely
from tsql.planner.logical.predicates import conjunction, conjuncts, never_null
from tsql.planner.rules.framework import TOP_DOWN, rule


@rule(TOP_DOWN, about=(Join,))
def push_join_conditions(node: Join) -> Node:
    if isinstance(node, Apply) or node.kind == "full" or node.condition is None:
        return node
    left_names, right_names = set(node.left.schema.names), set(node.right.schema.names)
    left: list[Expr] = []
    right: list[Expr] = []
    kept: list[Expr] = []
    for part in conjuncts(node.condition):
        used = set(part.columns())
        if is_risky(part):
            kept.append(part)
        elif used <= left_names and node.kind in ("inner", "semi"):
            left.append(part)
        elif (
            used and used <= right_names and (node.kind != "mark" or rely(never_null(part, not_null(node.right, used))))
        ):
            right.append(part)
        else:
            kept.append(part)
    if not left and not right:
        return node
    return replace(
        node, left=_filtered(node.left, left), right=_filtered(node.right, right), condition=conjunction(kept)
    )


def _filtered(node: Node, parts: list[Expr]) -> Node:
    for part in parts:
        node = Filter(node, part)
    return node
