"""Walks logical plans for rules: a rule sees one node and returns the same object if it has nothing to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from tsql.kernels.process import stopping
from tsql.planner.logical.nodes import Node

Handed = TypeVar("Handed")


def transform_up(node: Node, change: Callable[[Node], Node]) -> Node:
    """Apply `change` to every node, inputs first. Shared nodes stay shared."""
    return _up(node, change, {})


def _up(node: Node, change: Callable[[Node], Node], done: dict[int, Node]) -> Node:
    found = done.get(id(node))
    if found is None:
        stopping.check()
        found = done[id(node)] = change(node.with_inputs(tuple([_up(i, change, done) for i in node.inputs])))
    return found


def transform_down(node: Node, change: Callable[[Node], Node]) -> Node:
    """Apply `change` to every node, users before inputs. Shared nodes stay shared."""
    return _down(node, change, {})


def _down(node: Node, change: Callable[[Node], Node], done: dict[int, tuple[Node, Node]]) -> Node:
    found = done.get(id(node))
    if found is None:
        stopping.check()
        changed = change(node)
        found = done[id(node)] = (node, changed.with_inputs(tuple([_down(i, change, done) for i in changed.inputs])))
    return found[1]


def hand_down(
    plan: Node, start: Handed, change: Callable[[Node, Handed], tuple[Node, list[Handed]]], several: Collection[int]
) -> Node:
    """Apply `change` to every node, users before inputs. It also returns what is handed down to each input of the new
    node. A node with several users (`several`, by id) gets `start`, because each user knows something else about it."""
    done: dict[int, Node] = {}

    def visit(node: Node, handed: Handed) -> Node:
        if id(node) not in several:
            return walk(node, handed)
        if id(node) not in done:
            done[id(node)] = walk(node, start)
        return done[id(node)]

    def walk(node: Node, handed: Handed) -> Node:
        changed, below = change(node, handed)
        return changed.with_inputs(tuple(visit(i, h) for i, h in zip(changed.inputs, below, strict=True)))

    return visit(plan, start)


def nodes(plan: Node) -> Iterator[Node]:
    """Every node once. Users come before inputs where no node is shared; a shared node comes at its first user."""
    return plan.walk()


def shared(plan: Node) -> set[int]:
    """The ids of nodes with more than one user. Each is computed once, so a rule must not change it for one user
    alone."""
    users = Counter(id(i) for node in nodes(plan) for i in node.inputs)
    return {node for node, count in users.items() if count > 1}
