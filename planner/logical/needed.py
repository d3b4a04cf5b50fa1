"""Which columns of each node something above uses; `prune_columns` and `remove_unused_join` act on it."""

from __future__ import annotations

from collections.abc import Iterable

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Expr
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.generating import Sample, Series
from tsql.planner.logical.match import Match
from tsql.planner.logical.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Limit,
    LimitBy,
    Node,
    Output,
    Project,
    Scan,
    SetOperation,
    Sort,
    Window,
)
from tsql.planner.logical.snapshot import SnapshotAggregate
from tsql.planner.logical.tree import expressions


def needed_columns(plan: Node) -> dict[int, set[str]]:
    """By id of the node, the columns that any of its users needs; all of the root's."""
    needed: dict[int, set[str]] = {id(plan): set(plan.schema.names)}
    for node in _users_first(plan):
        for below, names in zip(node.inputs, _of_inputs(node, needed[id(node)]), strict=True):
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


def kept_calls(node: Aggregate, needed: set[str]) -> tuple[tuple[str, AggregateCall], ...]:
    """The aggregates that are used; one at least where there are no keys, since a relation has a column."""
    calls = tuple((n, c) for n, c in node.aggregates if n in needed)
    return calls if calls or node.keys else node.aggregates[:1]


def _of_inputs(node: Node, needed: set[str]) -> list[set[str]]:
    match node:
        case Output():
            return [set(node.columns)]
        case Project():
            return [_columns(e for n, e in node.columns if n in needed)]
        case Aggregate():
            calls = kept_calls(node, needed)
            return [_columns(e for _, e in node.keys) | _columns(e for _, c in calls for e in c.expressions())]
        case Filter() | Sort() | Limit() | Sample():
            return [needed | _columns(expressions(node))]
        case Window():
            calls = [c for n, c in node.calls if n in needed]
            if not calls:
                return [needed]
            used = _columns(
                e for e in (*node.keys, *(k.expr for k in node.order), *(e for c in calls for e in c.expressions()))
            )
            return [(needed - {n for n, _ in node.calls}) | used]
        case SnapshotAggregate():
            # All results are compared to know when they change: none can be left out.
            return [{*node.keys, node.start, node.end} | _columns(expressions(node))]
        case Match():
            return [node.spec.used(needed)]
        case Series():
            return [(needed - {node.column}) | _columns(expressions(node))]
        case LimitBy():
            return [needed | set(node.by) | _columns(expressions(node))]
        case Distinct() if node.on is not None:
            return [needed | set(node.on)]
        case SetOperation() if node.kind == "union":
            places = [i for i, f in enumerate(node.left.schema) if f.name in needed]
            return [{side.schema.fields[i].name for i in places} for side in node.inputs]
        case Join() | AsofJoin():
            used = needed | _columns(expressions(node))
            return [used & set(side.schema.names) for side in node.inputs]
    return [set(i.schema.names) for i in node.inputs]


def _columns(exprs: Iterable[Expr]) -> set[str]:
    return {c for e in exprs for c in e.columns()}


def kept_columns(node: Scan, needed: set[str]) -> tuple[str, ...]:
    """The columns that a scan reads: those needed, and those that its filter names."""
    return tuple(c for c in node.columns if c in needed or (node.filter is not None and c in node.filter.columns()))
