"""reduce_aggregate: groups that a join will drop are not made: the aggregate's input is reduced by the keys of the
other side.

    join g.k = t.k                       join g.k = t.k
      t (few rows)                         t
      aggregate by=(k)          ->         aggregate by=(k)
        big                                  semi join k = t.k
                                               big
                                               t

It holds where groups without a partner are dropped: inner joins, and the right side of left, single, semi and anti
joins. It is done where the other side has far fewer keys than there are groups. It is not done to an aggregate that has
other users (TPC-H Q15): they would need its groups all the same, and it would be computed once for each."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Column
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.cost.stats import equalities
from tsql.planner.logical.nodes import Aggregate, Apply, Filter, Join, Node, Project
from tsql.planner.logical.predicates import JoinKey, conjunction
from tsql.planner.rules.framework import BOTTOM_UP, Surroundings, rule


@rule(BOTTOM_UP, about=(Join,))
def reduce_aggregate(node: Join, around: Surroundings) -> Node:
    if isinstance(node, Apply):
        return node
    keys, _ = equalities(node)
    if node.kind in ("inner", "left", "single", "semi", "anti"):
        reduced = _side(node.right, node.left, [k.turned() for k in keys], around.shared)
        if reduced is not None:
            return replace(node, right=reduced)
    if node.kind == "inner":
        reduced = _side(node.left, node.right, keys, around.shared)
        if reduced is not None:
            return replace(node, left=reduced)
    return node


def _side(side: Node, other: Node, keys: list[JoinKey], kept: set[int]) -> Node | None:
    """The side with its aggregate reduced by the keys of the other, or None. The left of a key is of the side."""
    if id(side) in kept:
        return None
    if isinstance(side, Filter | Project):
        if isinstance(side, Project):
            columns = dict(side.columns)
            keys = [
                replace(k, left=columns[k.left.name])
                for k in keys
                if isinstance(k.left, Column) and isinstance(columns[k.left.name], Column)
            ]
        below = _side(side.input, other, keys, kept)
        return None if below is None else side.with_inputs((below,))
    if not isinstance(side, Aggregate) or side.sets is not None:
        return None
    if (
        isinstance(side.input, Join)
        and side.input.kind == "semi"
        and isinstance(side.input.right, Project)
        and side.input.right.input == other
    ):
        return None
    groups = dict(side.keys)
    used = [replace(k, left=groups[k.left.name]) for k in keys if isinstance(k.left, Column) and k.left.name in groups]
    if not used or stats.rows(other) * cost.REDUCTION_WORTH > stats.groups([k.left for k in used], side.input):
        return None
    wanted = tuple((f"{'_'.join(k.right.columns())}_wanted_{i}", k.right) for i, k in enumerate(used))
    equal = [replace(k, right=Column(name, e.type)).expr for k, (name, e) in zip(used, wanted, strict=True)]
    return replace(side, input=Join("semi", side.input, Project(other, wanted), conjunction(equal)))
