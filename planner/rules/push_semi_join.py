"""push_semi_join: a semi or anti join whose condition is over one side of the join below it moves to that side.

    semi join o.k = s.k             join o.k = l.k
      join o.k = l.k                  semi join o.k = s.k
        o                   ->          o
        l                               s
      s                               l

It is a filter of that side: fewer of its rows are joined. It moves below inner joins, below the left side of left, semi,
anti, mark and single joins, and below filters and projections that only pass its columns on.
"""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr import Column, substitute
from tsql.planner.logical import Apply, Filter, Join, Node, Project
from tsql.planner.rules.push_filter_down import may_fail
from tsql.planner.tree import shared, transform_down


def push_semi_join(plan: Node) -> Node:
    several = shared(plan)

    def change(node: Node) -> Node:
        if not isinstance(node, Join) or isinstance(node, Apply) or node.kind not in ("semi", "anti") or node.condition is None:
            return node
        below = node.left
        if id(below) in several or may_fail(node.condition):
            return node
        used = {c for c in node.condition.columns() if c in below.schema}
        match below:
            case Filter() if not may_fail(below.predicate):
                return below.with_inputs((replace(node, left=below.input),))
            case Project():
                columns = dict(below.columns)
                if not all(isinstance(columns[c], Column) for c in used):
                    return node
                inner = {c: columns[c] for c in used}
                taken = set(below.input.schema.names) & set(node.right.schema.names)
                if taken:
                    return node
                return below.with_inputs((replace(node, left=below.input, condition=substitute(node.condition, inner)),))
            case Join() if not isinstance(below, Apply):
                if used <= set(below.left.schema.names) and used and below.kind != "full":
                    return replace(below, left=replace(node, left=below.left))
                if used <= set(below.right.schema.names) and used and below.kind == "inner":
                    return replace(below, right=replace(node, left=below.right))
        return node

    return transform_down(plan, change)
