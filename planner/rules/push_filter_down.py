"""push_filter_down: a filter moves below projections, sorts, distincts, unions, and below an aggregate or a window if it is on
keys.

    filter (y > 5)          project y = x + 1
      project y = x + 1 ->    filter (x + 1 > 5)
        t                       t

It does not move below a limit (other rows would be counted), nor below an aggregate with grouping sets (a key is NULL in
rows that had it), nor past a filter that stays if it may fail: it would then see rows that the other one removes.
Filters that lie on each other move together and keep their order.
"""

from __future__ import annotations

from tsql.kernels.expr import Call, Cast, Column, Expr, substitute
from tsql.kernels.functions.registry import SCALARS
from tsql.planner.logical import Aggregate, Distinct, Filter, Node, Project, SetOperation, Sort, Window
from tsql.planner.rules.unwrap_casts import is_widening
from tsql.planner.tree import transform_down


def push_filter_down(plan: Node) -> Node:
    return transform_down(plan, _push)


def _push(node: Node) -> Node:
    """One level down; `transform_down` comes back to the filters where they are now."""
    predicates: list[Expr] = []
    below = node
    while isinstance(below, Filter):
        predicates.append(below.predicate)
        below = below.input
    moved: list[Expr] = []
    kept: list[Expr] = []
    for predicate in reversed(predicates):
        movable = _moves_below(predicate, below) and not (kept and may_fail(predicate))
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
            return bool(predicate.columns()) and all(any(isinstance(e, Column) and e.name == c for e in node.keys) for c in predicate.columns())
        case SetOperation():
            return node.kind == "union"
    return False


def _lower(node: Node, predicates: list[Expr]) -> Node:
    """The node over inputs that are filtered, with what the columns mean there."""
    match node:
        case Project() | Aggregate():
            computed = dict(node.columns if isinstance(node, Project) else node.keys)
            return node.with_inputs((_stack(node.input, [substitute(p, computed) for p in predicates]),))
        case SetOperation():
            sides = []
            for side in node.inputs:
                renamed: dict[str, Expr] = {f.name: Column(g.name, g.type, g.nullable) for f, g in zip(node.schema, side.schema, strict=True)}
                sides.append(_stack(side, [substitute(p, renamed) for p in predicates]))
            return node.with_inputs(tuple(sides))
    return node.with_inputs((_stack(node.inputs[0], predicates),))


def _stack(node: Node, predicates: list[Expr]) -> Node:
    for predicate in predicates:
        node = Filter(node, predicate)
    return node


def _is_cheap(expr: Expr) -> bool:
    """A column or a short expression: evaluating it once more costs little."""
    return sum(1 for _ in expr.walk()) <= 8


def may_fail(expr: Expr) -> bool:
    """Whether some row could make an expression raise an error."""
    for node in expr.walk():
        match node:
            case Call() if SCALARS.find(node.name, tuple(a.type for a in node.args)).can_fail:
                return True
            case Cast() if not node.safe and not is_widening(node.arg.type, node.type):
                return True
    return False
