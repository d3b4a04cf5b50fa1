"""Walks logical plans for rules: a rule sees one node and returns the same object if it has nothing to say."""

from __future__ import annotations

from collections.abc import Callable

from tsql.planner.logical import Node


def transform_up(node: Node, change: Callable[[Node], Node]) -> Node:
    """Apply `change` to every node, inputs first. Shared nodes stay shared."""
    done: dict[int, Node] = {}

    def visit(n: Node) -> Node:
        found = done.get(id(n))
        if found is None:
            found = done[id(n)] = change(n.with_inputs(tuple(visit(i) for i in n.inputs)))
        return found

    return visit(node)


def transform_down(node: Node, change: Callable[[Node], Node]) -> Node:
    """Apply `change` to every node, users before inputs."""
    changed = change(node)
    return changed.with_inputs(tuple(transform_down(i, change) for i in changed.inputs))
