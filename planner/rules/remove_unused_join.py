"""remove_unused_join: a join goes away if nothing uses what it adds and it neither drops nor repeats a left row.

    project a                     project a
      left join on a = k    ->      project a, k=NULL, n=NULL
        x                             x
        aggregate by=(k) n=..

A left join must find at most one partner for each row: its condition equates a key of the right side. A single join of
which that is not certain stays, since it may have to fail. A mark that nothing uses goes too. Where a projection above
still names columns of the right side, which nothing uses there, they are NULL until `prune_columns` drops them."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Literal
from tsql.kernels.expr.schema import Schema
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.facts import pairs_at_most_once
from tsql.planner.logical.nodes import Apply, Join, Node, Project
from tsql.planner.logical.predicates import column
from tsql.planner.rules.framework import TOP_DOWN, Surroundings, rule


@rule(TOP_DOWN, about=(Join, AsofJoin))
def remove_unused_join(node: Join | AsofJoin, around: Surroundings) -> Node:
    return _padded(node.left, node.schema) if _is_unused(node, around.needed[id(node)]) else node


def _padded(node: Node, schema: Schema) -> Node:
    return Project(
        node,
        tuple(
            (f.name, column(node.schema[f.name]) if f.name in node.schema else Literal(None, f.type)) for f in schema
        ),
    )


def _is_unused(node: Join | AsofJoin, needed: set[str]) -> bool:
    if isinstance(node, AsofJoin):
        return node.kind == "left" and not needed & set(node.right.schema.names)
    if isinstance(node, Apply):
        return False
    if node.kind == "mark":
        return node.mark not in needed
    return node.kind in ("left", "single") and not needed & set(node.right.schema.names) and pairs_at_most_once(node)
