"""prune_columns: scans read and projections compute only what something above them uses.

project a               project a
  project a, b=f(c) ->    project a
    scan t (a, c, d)        scan t (a)

A node with several users keeps what any of them uses.
"""

from __future__ import annotations

from dataclasses import replace

from tsql.planner.logical.match import Match
from tsql.planner.logical.nodes import Aggregate, Node, Project, Scan, SetOperation, Window
from tsql.planner.logical.predicates import column
from tsql.planner.rules.framework import WHOLE, Surroundings, rule


@rule(WHOLE)
def prune_columns(plan: Node, around: Surroundings) -> Node:
    """Whole: a node is looked at as it was, for what its users need, and rebuilt over what is left of its inputs."""
    return _visit(plan, around.needed, {})


def _visit(node: Node, needed: dict[int, set[str]], done: dict[int, Node]) -> Node:
    found = done.get(id(node))
    if found is None:
        inputs = tuple([_visit(i, needed, done) for i in node.inputs])
        if isinstance(node, SetOperation) and node.kind == "union":
            inputs = _sides(node, inputs, needed[id(node)])
        found = done[id(node)] = _prune(node, inputs, needed[id(node)])
    return found


def _prune(node: Node, inputs: tuple[Node, ...], needed: set[str]) -> Node:
    """The node over pruned inputs with at least the needed columns, in the order that it had."""
    match node:
        case Scan():
            keep = node.kept_columns(needed)
            return node if keep == node.columns else replace(node, columns=keep)
        case Project():
            columns = tuple((n, e) for n, e in node.columns if n in needed)
            return node.with_inputs(inputs) if len(columns) == len(node.columns) else Project(inputs[0], columns)
        case Aggregate():
            calls = node.kept_calls(needed)
            return (
                node.with_inputs(inputs)
                if len(calls) == len(node.aggregates)
                else replace(node, input=inputs[0], aggregates=calls)
            )
        case Window():
            kept = tuple((n, c) for n, c in node.calls if n in needed)
            if not kept:
                return inputs[0]
            return (
                node.with_inputs(inputs) if len(kept) == len(node.calls) else replace(node, input=inputs[0], calls=kept)
            )
        case Match():
            return (
                replace(node, input=inputs[0], spec=node.spec.kept(needed))
                if node.spec.kept(needed) is not node.spec
                else node.with_inputs(inputs)
            )
    return node.with_inputs(inputs)


def _sides(node: SetOperation, inputs: tuple[Node, ...], needed: set[str]) -> tuple[Node, ...]:
    """Sides of a union with the same columns again, in the same order; a side that is shared may have kept more."""
    places = [i for i, f in enumerate(node.left.schema) if f.name in needed]
    sides = []
    for old, side in zip(node.inputs, inputs, strict=True):
        names = [old.schema.fields[i].name for i in places]
        sides.append(
            side
            if list(side.schema.names) == names
            else Project(side, tuple((n, column(side.schema[n])) for n in names))
        )
    return tuple(sides)
