"""push_filter_down: a filter moves below projections, sorts, distincts, unions, and below an aggregate if it is on keys.

    filter (y > 5)          project y = x + 1
      project y = x + 1 ->    filter (x + 1 > 5)
        t                       t

It does not move below a limit (other rows would be counted), nor below an aggregate with grouping sets (a key is NULL in
rows that had it), nor if it may fail and would then see rows that the step above it removes.
"""

from __future__ import annotations

from tsql.kernels.expr import Column, Expr, substitute
from tsql.planner.logical import Aggregate, Distinct, Filter, Node, Project, SetOperation, Sort
from tsql.planner.tree import transform_down


def push_filter_down(plan: Node) -> Node:
    return transform_down(plan, _push)


def _push(node: Node) -> Node:
    if not isinstance(node, Filter):
        return node
    below = node.input
    match below:
        case Filter():
            inner = _push(Filter(below.input, node.predicate))
            return node if isinstance(inner, Filter) else Filter(inner, below.predicate)
        case Project():
            columns = dict(below.columns)
            if not all(_is_cheap(columns[c]) for c in node.predicate.columns()):
                return node
            return below.with_inputs((_push(Filter(below.input, substitute(node.predicate, columns))),))
        case Sort():
            return below.with_inputs((_push(Filter(below.input, node.predicate)),))
        case Distinct() if below.on is None or set(node.predicate.columns()) <= set(below.on):
            return below.with_inputs((_push(Filter(below.input, node.predicate)),))
        case Aggregate() if below.sets is None and below.keys:
            keys = dict(below.keys)
            used = node.predicate.columns()
            if not used or any(c not in keys or not _is_cheap(keys[c]) for c in used):
                return node
            return below.with_inputs((_push(Filter(below.input, substitute(node.predicate, keys))),))
        case SetOperation() if below.kind == "union":
            sides = []
            for side in below.inputs:
                renamed: dict[str, Expr] = {f.name: Column(g.name, g.type, g.nullable) for f, g in zip(below.schema, side.schema, strict=True)}
                sides.append(_push(Filter(side, substitute(node.predicate, renamed))))
            return below.with_inputs(tuple(sides))
    return node


def _is_cheap(expr: Expr) -> bool:
    """A column or a short expression: evaluating it once more costs little."""
    return sum(1 for _ in expr.walk()) <= 8
