"""reduce_aggregate: groups that a join will drop are not made: the aggregate's input is reduced by the keys of the other side.

    join g.k = t.k                       join g.k = t.k
      t (few rows)                         t
      aggregate by=(k)          ->         aggregate by=(k)
        big                                  semi join k = t.k
                                               big
                                               t

It holds where groups without a partner are dropped: inner joins, and the right side of left, single, semi and anti joins.
It is done where the other side has far fewer keys than there are groups.
"""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr import Call, Column, Expr
from tsql.kernels.types import BOOLEAN
from tsql.planner import cost, stats
from tsql.planner.join_stats import equalities
from tsql.planner.logical import Aggregate, Apply, Filter, Join, Node, Project
from tsql.planner.predicates import conjunction
from tsql.planner.tree import transform_up


def reduce_aggregate(plan: Node) -> Node:
    return transform_up(plan, _reduce)


def _reduce(node: Node) -> Node:
    if not isinstance(node, Join) or isinstance(node, Apply):
        return node
    pairs, _ = equalities(node)
    if node.kind in ("inner", "left", "single", "semi", "anti"):
        reduced = _side(node.right, node.left, [(b, a) for a, b in pairs])
        if reduced is not None:
            return replace(node, right=reduced)
    if node.kind == "inner":
        reduced = _side(node.left, node.right, pairs)
        if reduced is not None:
            return replace(node, left=reduced)
    return node


def _side(side: Node, other: Node, pairs: list[tuple[Expr, Expr]]) -> Node | None:
    """The side with its aggregate reduced by the keys of the other, or None. Pairs are (of the side, of the other)."""
    if isinstance(side, Filter | Project):
        if isinstance(side, Project):
            columns = dict(side.columns)
            pairs = [(columns[a.name], b) for a, b in pairs if isinstance(a, Column) and isinstance(columns[a.name], Column)]
        below = _side(side.input, other, pairs)
        return None if below is None else side.with_inputs((below,))
    if not isinstance(side, Aggregate) or side.sets is not None:
        return None
    if isinstance(side.input, Join) and side.input.kind == "semi" and isinstance(side.input.right, Project) and side.input.right.input == other:
        return None
    keys = dict(side.keys)
    used = [(keys[a.name], b) for a, b in pairs if isinstance(a, Column) and a.name in keys]
    if not used or stats.rows(other) * cost.REDUCTION_WORTH > stats.groups([e for e, _ in used], side.input):
        return None
    names = {f"{'_'.join(b.columns())}_wanted_{i}": b for i, (_, b) in enumerate(used)}
    wanted = Project(other, tuple(names.items()))
    equal: list[Expr] = [Call("=", (a, Column(name, b.type)), BOOLEAN) for name, (a, b) in zip(names, used, strict=True)]
    return replace(side, input=Join("semi", side.input, wanted, conjunction(equal)))
