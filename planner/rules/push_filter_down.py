"""push_filter_down: a filter moves below projections, sorts, distincts, unions, joins, and below an aggregate, a window
or a match if it is on keys.

    filter (y > 5)          project y = x + 1
      project y = x + 1 ->    filter (x + 1 > 5)
        t                       t

It does not move below a limit (other rows would be counted), nor below an aggregate with grouping sets (a key is NULL
in rows that had it), nor past a filter that stays if it may fail: it would then see rows that the other one removes.
Filters that lie on each other move together and keep their order.

Below a join it moves to the side that it names. What names both sides of an inner join becomes part of the condition.
The right side of a left, single, anti or mark join is not filtered from above, and no side of a full join: padded rows
and marks would change. Below an ASOF join only what names its left side moves. A node with several users keeps the
filters of each above it, so that it is computed once."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Column, Expr, substitute
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.failing import is_risky, may_fail
from tsql.planner.logical.generating import Series
from tsql.planner.logical.match import Match
from tsql.planner.logical.nodes import (
    Aggregate,
    Apply,
    Distinct,
    Filter,
    Join,
    LimitBy,
    Node,
    Project,
    SetOperation,
    Sort,
    Window,
)
from tsql.planner.logical.predicates import conjunction, conjuncts
from tsql.planner.logical.snapshot import SnapshotAggregate
from tsql.planner.rules.framework import TOP_DOWN, Surroundings, rule


@rule(TOP_DOWN, about=(Filter,))
def push_filter_down(node: Filter, around: Surroundings) -> Node:
    """One level down; the framework comes back to the filters where they are now."""
    predicates: list[Expr] = []
    below: Node = node
    while isinstance(below, Filter) and (below is node or id(below) not in around.shared):
        predicates.append(below.predicate)
        below = below.input
    if id(below) in around.shared:
        return node
    moved: list[Expr] = []
    kept: list[Expr] = []
    for predicate in reversed(predicates):
        may_raise = is_risky if isinstance(below, Join | AsofJoin) else may_fail
        movable = _moves_below(predicate, below) and not (kept and may_raise(predicate))
        (moved if movable else kept).append(predicate)
    return _stack(_lower(below, moved), kept) if moved else node


def _moves_below(predicate: Expr, node: Node) -> bool:
    match node:
        case Project():
            columns = dict(node.columns)
            return all(_is_cheap(columns[c]) for c in predicate.columns())
        case Sort():
            return True
        case Distinct():
            return node.on is None or set(predicate.columns()) <= set(node.on)
        case Aggregate() if node.sets is None and node.keys:
            keys, used = dict(node.keys), predicate.columns()
            return bool(used) and all(c in keys and _is_cheap(keys[c]) for c in used)
        case Window():
            # A filter on columns of PARTITION BY drops whole partitions; any other changes what the frames see.
            return bool(predicate.columns()) and all(
                any(isinstance(e, Column) and e.name == c for e in node.keys) for c in predicate.columns()
            )
        case SnapshotAggregate():
            return bool(predicate.columns()) and set(predicate.columns()) <= set(node.keys)
        case Match():
            return bool(predicate.columns()) and set(predicate.columns()) <= {c.name for c in node.spec.by}
        case SetOperation():
            return node.kind == "union"
        case LimitBy():
            return set(predicate.columns()) <= set(node.by)
        case Series():
            return node.column not in predicate.columns() and not is_risky(predicate)
        case Join() if not isinstance(node, Apply):
            return _moves_below_join(predicate, node)
        case AsofJoin():
            # A right row that a filter drops would have kept others from being the nearest.
            return set(predicate.columns()) <= set(node.left.schema.names) and not is_risky(predicate)
    return False


def _moves_below_join(predicate: Expr, node: Join) -> bool:
    used = set(predicate.columns())
    if node.kind == "full":
        return False
    if node.kind == "inner" and not used <= set(node.left.schema.names) and not used <= set(node.right.schema.names):
        return True
    return (node.kind == "inner" or used <= set(node.left.schema.names)) and not is_risky(predicate)


def _lower(node: Node, predicates: list[Expr]) -> Node:
    """The node over inputs that are filtered, with what the columns mean there."""
    match node:
        case Project() | Aggregate():
            computed = dict(node.columns if isinstance(node, Project) else node.keys)
            return node.with_inputs((_stack(node.input, [substitute(p, computed) for p in predicates]),))
        case SetOperation():
            sides = []
            for side in node.inputs:
                renamed: dict[str, Expr] = {
                    f.name: Column(g.name, g.type, g.nullable) for f, g in zip(node.schema, side.schema, strict=True)
                }
                sides.append(_stack(side, [substitute(p, renamed) for p in predicates]))
            return node.with_inputs(tuple(sides))
        case Join():
            return _lower_into_join(node, predicates)
        case AsofJoin():
            return node.with_inputs((_stack(node.left, predicates), node.right))
    return node.with_inputs((_stack(node.inputs[0], predicates),))


def _lower_into_join(node: Join, predicates: list[Expr]) -> Node:
    left = [p for p in predicates if set(p.columns()) <= set(node.left.schema.names)]
    right = [p for p in predicates if p not in left and set(p.columns()) <= set(node.right.schema.names)]
    both = [p for p in predicates if p not in left and p not in right]
    condition = conjunction((*conjuncts(node.condition), *both)) if both else node.condition
    return replace(node, left=_stack(node.left, left), right=_stack(node.right, right), condition=condition)


def _stack(node: Node, predicates: list[Expr]) -> Node:
    for predicate in predicates:
        node = Filter(node, predicate)
    return node


def _is_cheap(expr: Expr) -> bool:
    """A column or a short expression: evaluating it once more costs little."""
    return sum(1 for _ in expr.walk()) <= 8
