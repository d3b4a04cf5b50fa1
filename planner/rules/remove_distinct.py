"""remove_distinct: DISTINCT goes away where there are no duplicates, or where nobody can tell.

distinct
  aggregate by=(k) n=count(*)   ->   aggregate by=(k) n=count(*)

The right side of a semi, anti or mark join may have duplicates: only whether there is a partner counts.
"""

from __future__ import annotations

from tsql.planner.logical.facts import keys
from tsql.planner.logical.nodes import Distinct, Join, Node
from tsql.planner.rules.framework import BOTTOM_UP, rule


@rule(BOTTOM_UP, about=(Distinct, Join), needs=(Distinct,))
def remove_distinct(node: Distinct | Join) -> Node:
    match node:
        case Distinct():
            on = set(node.schema.names if node.on is None else node.on)
            return node.input if any(key <= on for key in keys(node.input)) else node
        case Join() if (
            node.kind in ("semi", "anti", "mark") and isinstance(node.right, Distinct) and node.right.on is None
        ):
            return node.with_inputs((node.left, node.right.input))
    return node
