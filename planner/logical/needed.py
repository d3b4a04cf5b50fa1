"""Which columns of each node something above uses; `prune_columns` and `remove_unused_join` act on it."""

from __future__ import annotations

from tsql.planner.logical.nodes import Node


def needed_columns(plan: Node) -> dict[int, set[str]]:
    """By id of the node, the columns that any of its users needs; all of the root's."""
    needed: dict[int, set[str]] = {id(plan): set(plan.schema.names)}
    for node in _users_first(plan):
        for below, names in zip(node.inputs, node.needs(needed[id(node)]), strict=True):
            needed.setdefault(id(below), set()).update(names)
    return needed


def _users_first(plan: Node) -> list[Node]:
    """Every node after all of its users."""
    order: dict[int, Node] = {}
    _inputs_first(plan, order)
    return [*order.values()][::-1]


def _inputs_first(node: Node, order: dict[int, Node]) -> None:
    for below in node.inputs:
        if id(below) not in order:
            _inputs_first(below, order)
    order[id(node)] = node
