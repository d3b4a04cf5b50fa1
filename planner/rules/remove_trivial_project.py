"""remove_trivial_project: a projection that passes all columns of its input on, in order and by their names, goes away.

project a, b
  scan t (a, b)   ->   scan t (a, b)

So does one between two joins that only leaves out columns: the join above names those that it uses, and joins that lie
on each other can be put in another order. It stays where a column that it hides has the name of one on the other side.
"""

from __future__ import annotations

from typing import TypeGuard

from tsql.kernels.expr.nodes import Column
from tsql.planner.logical.nodes import (
    Aggregate,
    Apply,
    Distinct,
    Filter,
    Join,
    Limit,
    LimitBy,
    Node,
    Output,
    Project,
    Sort,
)
from tsql.planner.logical.tree import nodes, shared, transform_up
from tsql.planner.rules.framework import WHOLE, rule


@rule(WHOLE, about=(Project,))
def remove_trivial_project(plan: Node) -> Node:
    """Whole: between joins, what may go depends on how far up columns are taken by their names."""
    return _between_joins(transform_up(plan, _remove))


def _remove(node: Node) -> Node:
    return node.input if _passes(node) and tuple(n for n, _ in node.columns) == node.input.schema.names else node


def _passes(node: Node) -> TypeGuard[Project]:
    return isinstance(node, Project) and all(isinstance(e, Column) and e.name == n for n, e in node.columns)


def _between_joins(plan: Node) -> Node:
    if not any(isinstance(node, Join) for node in nodes(plan)):
        return plan
    return _visit(plan, False, shared(plan), {})


def _visit(node: Node, by_name: bool, several: set[int], done: dict[int, Node]) -> Node:
    """`by_name`: what uses the node takes columns by their names, so that more of them do not matter."""
    by_name = by_name and id(node) not in several
    if id(node) in done:
        return done[id(node)]
    inputs = [_visit(i, named, several, done) for i, named in zip(node.inputs, _by_name(node, by_name), strict=True)]
    if isinstance(node, Join) and len({node.mark, *(n for i in inputs for n in i.schema.names)}) <= sum(
        len(i.schema) for i in inputs
    ):
        inputs = [_visit(i, False, several, done) for i in node.inputs]
    elif isinstance(node, Join) and not isinstance(node, Apply):
        inputs = _opened(node, inputs, _by_name(node, by_name), several)
    result = node.with_inputs(tuple(inputs))
    if id(node) in several:
        done[id(node)] = result
    return result


def _by_name(node: Node, by_name: bool) -> list[bool]:
    match node:
        case Project() | Aggregate() | Output():
            return [True]
        case Filter() | Sort() | Limit() | LimitBy():
            return [by_name]
        case Distinct() if node.on is not None:
            return [by_name]
        case Join():
            return [by_name, by_name or node.kind in ("semi", "anti", "mark")]
    return [False] * len(node.inputs)


def _opened(node: Join, inputs: list[Node], by_name: list[bool], several: set[int]) -> list[Node]:
    """The inputs of a join without projections that stand on a join and only leave out columns."""
    opened = list(inputs)
    for place, (old, named) in enumerate(zip(node.inputs, by_name, strict=True)):
        side, other = opened[place], opened[1 - place]
        if not (named and _passes(side) and isinstance(side.input, Join)) or id(old) in several:
            continue
        taken = {node.mark, *other.schema.names}
        if not taken & set(side.input.schema.names):
            opened[place] = side.input
    return opened
