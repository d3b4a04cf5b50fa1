"""simplify_join: a join becomes the simplest kind that means the same, by what is certain of its right side.

single join on a = k              left join on a = k
  x                         ->      x
  aggregate by=(k) n=max(b)         aggregate by=(k) n=max(b)

A single join whose condition equates a key of the right side never finds two partners: it is a left join. With no
condition and a right side of exactly one row (a scalar subquery that aggregates), left and single joins are inner
joins, a semi join is its left side, and a mark is true."""

from __future__ import annotations

from dataclasses import replace

from tsql.planner.logical.facts import exactly_one, pairs_at_most_once
from tsql.planner.logical.nodes import Apply, Join, Node, Project
from tsql.planner.logical.predicates import TRUE, column
from tsql.planner.rules.framework import BOTTOM_UP, rule


@rule(BOTTOM_UP, about=(Join,))
def simplify_join(node: Join) -> Node:
    if isinstance(node, Apply):
        return node
    if node.condition is None and node.kind in ("left", "single", "semi", "mark") and exactly_one(node.right):
        match node.kind:
            case "semi":
                return node.left
            case "mark":
                return Project(node.left, (*((f.name, column(f)) for f in node.left.schema), (node.mark or "", TRUE)))
        return replace(node, kind="inner")
    if node.kind == "single" and pairs_at_most_once(node):
        return replace(node, kind="left")
    return node
