"""prune_columns: scans read and projections compute only what something above them uses.

project a               project a
  project a, b=f(c) ->    project a
    scan t (a, c, d)        scan t (a)
"""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr import Column
from tsql.planner.logical import Aggregate, Distinct, Filter, Limit, Node, Output, Project, Scan, SetOperation, Sort, Values, Window


def prune_columns(plan: Node) -> Node:
    return _prune(plan, set(plan.schema.names))


def _prune(node: Node, needed: set[str]) -> Node:
    """The node with at least the needed columns, in the order that it had."""
    match node:
        case Output():
            return node.with_inputs((_prune(node.input, set(node.columns)),))
        case Scan():
            keep = tuple(c for c in node.columns if c in needed or (node.filter is not None and c in node.filter.columns()))
            return node if keep == node.columns else replace(node, columns=keep)
        case Filter():
            return node.with_inputs((_prune(node.input, needed | set(node.predicate.columns())),))
        case Project():
            keep = tuple((n, e) for n, e in node.columns if n in needed)
            used = {c for _, e in keep for c in e.columns()}
            below = _prune(node.input, used)
            return node if below is node.input and len(keep) == len(node.columns) else Project(below, keep)
        case Aggregate():
            calls = tuple((n, c) for n, c in node.aggregates if n in needed)
            used = {c for _, e in node.keys for c in e.columns()}
            used |= {c for _, call in calls for e in call.expressions() for c in e.columns()}
            if not calls and not node.keys:
                calls = node.aggregates[:1]
                used |= {c for _, call in calls for e in call.expressions() for c in e.columns()}
            below = _prune(node.input, used)
            return node if below is node.input and len(calls) == len(node.aggregates) else replace(node, input=below, aggregates=calls)
        case Sort():
            return node.with_inputs((_prune(node.input, needed | {c for k in node.keys for c in k.expr.columns()}),))
        case Window():
            calls = tuple((n, c) for n, c in node.calls if n in needed)
            if not calls:
                return _prune(node.input, needed)
            kept = node if len(calls) == len(node.calls) else replace(node, calls=calls)
            used = {c for e in kept.expressions() for c in e.columns()}
            return kept.with_inputs((_prune(node.input, (needed | used) & set(node.input.schema.names)),))
        case Limit():
            return node.with_inputs((_prune(node.input, needed),))
        case Distinct():
            return node.with_inputs((_prune(node.input, needed | set(node.on) if node.on is not None else set(node.input.schema.names)),))
        case SetOperation() if node.kind == "union":
            return _prune_union(node, needed)
        case Values():
            return node
    return node.with_inputs(tuple(_prune(i, set(i.schema.names)) for i in node.inputs))


def _prune_union(node: SetOperation, needed: set[str]) -> Node:
    positions = [i for i, f in enumerate(node.left.schema) if f.name in needed]
    sides = []
    for side in node.inputs:
        names = [side.schema.fields[i].name for i in positions]
        pruned = _prune(side, set(names))
        if list(pruned.schema.names) != names:
            pruned = Project(pruned, tuple((n, Column(n, pruned.schema[n].type, pruned.schema[n].nullable)) for n in names))
        sides.append(pruned)
    return node.with_inputs(tuple(sides))
