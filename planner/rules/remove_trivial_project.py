"""remove_trivial_project: a projection that passes all columns of its input on, in order and by their names, goes away.

project a, b
  scan t (a, b)   ->   scan t (a, b)
"""

from __future__ import annotations

from tsql.kernels.expr import Column
from tsql.planner.logical import Node, Project
from tsql.planner.tree import transform_up


def remove_trivial_project(plan: Node) -> Node:
    return transform_up(plan, _remove)


def _remove(node: Node) -> Node:
    if (
        isinstance(node, Project)
        and all(isinstance(e, Column) and e.name == n for n, e in node.columns)
        and tuple(n for n, _ in node.columns) == node.input.schema.names
    ):
        return node.input
    return node
