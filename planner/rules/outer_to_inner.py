"""outer_to_inner: an outer join whose padded rows are dropped above becomes an inner join, or a full join a left join.

filter b.y > 5                  filter b.y > 5
  left join on a.x = b.x   ->     inner join on a.x = b.x
    a                               a
    b                               b

A filter or the condition of a join above drops a row if it is not true where a column is NULL. What is dropped is
handed down from node to node; a node with several users knows nothing, since each may drop other rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tsql.kernels.expr.nodes import Expr
from tsql.planner.logical.nodes import (
    Aggregate,
    Apply,
    Distinct,
    Filter,
    Join,
    Node,
    Output,
    Project,
    SetOperation,
    Sort,
)
from tsql.planner.logical.predicates import column, conjuncts, is_null_with, rejects
from tsql.planner.logical.tree import hand_down
from tsql.planner.rules.framework import WHOLE, Surroundings, rule

NOTHING: frozenset[str] = frozenset()


@rule(WHOLE, about=(Join,))
def outer_to_inner(plan: Node, around: Surroundings) -> Node:
    """Whole: what a node knows is handed down from its user."""

    def change(node: Node, dropped: frozenset[str]) -> tuple[Node, list[frozenset[str]]]:
        if isinstance(node, Join) and not isinstance(node, Apply):
            node = _convert(node, dropped)
        handed = _handed_down(node, dropped)
        return node, [d & set(i.schema.names) for i, d in zip(node.inputs, handed, strict=True)]

    return hand_down(plan, NOTHING, change, around.shared)


def _convert(node: Join, dropped: frozenset[str]) -> Node:
    left, right = bool(dropped & set(node.left.schema.names)), bool(dropped & set(node.right.schema.names))
    match node.kind:
        case "left" if right:
            return replace(node, kind="inner")
        case "full" if left and right:
            return replace(node, kind="inner")
        case "full" if left:
            return replace(node, kind="left")
        case "full" if right:
            exchanged = Join("left", node.right, node.left, node.condition)
            return Project(exchanged, tuple((n, column(exchanged.schema[n])) for n in node.schema.names))
    return node


def _handed_down(node: Node, dropped: frozenset[str]) -> list[frozenset[str]]:
    """For each input, columns such that a row in which one is NULL cannot reach the result."""
    match node:
        case Filter():
            return [dropped | _rejected([node.predicate])]
        case Sort() | Output():
            return [dropped]
        case Distinct() if node.on is None:
            return [dropped]
        case Project():
            return [_through((e for n, e in node.columns if n in dropped))]
        case Aggregate() if node.sets is None:
            return [_through((e for n, e in node.keys if n in dropped))]
        case SetOperation() if node.kind == "union":
            places = [i for i, f in enumerate(node.left.schema) if f.name in dropped]
            return [frozenset(side.schema.fields[i].name for i in places) for side in node.inputs]
        case Apply():
            return [dropped if node.kind != "full" else NOTHING, NOTHING]
        case Join():
            return _through_join(node, dropped)
    return [NOTHING] * len(node.inputs)


def _through_join(node: Join, dropped: frozenset[str]) -> list[frozenset[str]]:
    tested = _rejected(conjuncts(node.condition))
    match node.kind:
        case "inner":
            return [dropped | tested, dropped | tested]
        case "semi":
            return [dropped | tested, tested]
        case "left" | "single" | "anti":
            return [dropped, tested]
        case "mark":
            return [dropped, NOTHING]
    return [NOTHING, NOTHING]


def _rejected(parts: list[Expr]) -> frozenset[str]:
    return frozenset(c for part in parts for c in part.columns() if rejects(part, (c,)))


def _through(exprs: Iterable[Expr]) -> frozenset[str]:
    return frozenset(c for e in exprs for c in e.columns() if is_null_with(e, (c,)))
