"""push_semi_join: a semi or anti join whose condition is over one side of the join below it moves to that side.

    semi join o.k = s.k             join o.k = l.k
      join o.k = l.k                  semi join o.k = s.k
        o                   ->          o
        l                               s
      s                               l

It is a filter of that side: fewer of its rows are joined. It moves below inner joins, below the left side of left,
semi, anti, mark and single joins, and below filters and projections that only pass its columns on.

It stays where it is if the joins below it are the better filter, and the right side has so many rows that the left one
is built into the table: a table of what the joins leave is smaller than that of the side. TPC-H Q21 asks for lines of
which no other supplier of the order is late: the suppliers are of one nation, which leaves one line of 25, and the
table is of these lines and not of all late ones."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Column, substitute
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.logical.failing import may_fail
from tsql.planner.logical.nodes import Apply, Filter, Join, Node, Project
from tsql.planner.rules.framework import TOP_DOWN, Surroundings, rule


@rule(TOP_DOWN, about=(Join,))
def push_semi_join(node: Join, around: Surroundings) -> Node:
    if isinstance(node, Apply) or node.kind not in ("semi", "anti") or node.condition is None:
        return node
    below = node.left
    if id(below) in around.shared or may_fail(node.condition):
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
            side = _side(below, used)
            if side is not None and not _is_better_late(node, used):
                if side == "left":
                    return replace(below, left=replace(node, left=below.left))
                return replace(below, right=replace(node, left=below.right))
    return node


def _side(below: Join, used: set[str]) -> str | None:
    """The side of a join that a condition over these columns filters."""
    if used and used <= set(below.left.schema.names) and below.kind != "full":
        return "left"
    if used and used <= set(below.right.schema.names) and below.kind == "inner":
        return "right"
    return None


def _is_better_late(node: Join, used: set[str]) -> bool:
    """Whether the joins below leave fewer rows than the semi join would of the side that it would come to, and few
    against its right side."""
    left = stats.rows(node.left)
    if left * cost.MARKING_WORTH >= stats.rows(node.right):
        return False
    filtered = node.left
    while (
        isinstance(filtered, Join) and not isinstance(filtered, Apply) and (side := _side(filtered, used)) is not None
    ):
        filtered = getattr(filtered, side)
    return left < stats.rows(replace(node, left=filtered))
