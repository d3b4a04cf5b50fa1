"""Walks logical plans for rules: a rule sees one node and returns the same object if it has nothing to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Expr, SortKey
from tsql.kernels.process import stopping
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.generating import Series
from tsql.planner.logical.match import Match
from tsql.planner.logical.nodes import Aggregate, Filter, Join, Limit, LimitBy, Node, Project, Sort, Values, Window
from tsql.planner.logical.snapshot import SnapshotAggregate


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


def nodes(plan: Node) -> Iterator[Node]:
    """Every node once, users before inputs where no node is shared; one that has several users comes at the first of
    them."""
    return plan.walk()


def shared(plan: Node) -> set[int]:
    """The ids of nodes with more than one user: each is computed once, so a rule must not change it for one of them
    alone."""
    users = Counter(id(i) for node in nodes(plan) for i in node.inputs)
    return {node for node, count in users.items() if count > 1}


def map_expressions(node: Node, change: Callable[[Expr], Expr]) -> Node:
    """The node with each of its own expressions changed; the same object if none is."""
    match node:
        case Filter():
            predicate = change(node.predicate)
            return node if predicate is node.predicate else replace(node, predicate=predicate)
        case Join() if node.condition is not None:
            condition = change(node.condition)
            return node if condition is node.condition else replace(node, condition=condition)
        case Project():
            columns = tuple((n, change(e)) for n, e in node.columns)
            return node if _same(columns, node.columns) else replace(node, columns=columns)
        case Aggregate():
            keys = tuple((n, change(e)) for n, e in node.keys)
            calls = tuple((n, map_call(c, change)) for n, c in node.aggregates)
            return (
                node
                if _same(keys, node.keys) and _same(calls, node.aggregates)
                else replace(node, keys=keys, aggregates=calls)
            )
        case Sort():
            keys = map_keys(node.keys, change)
            return node if keys is node.keys else replace(node, keys=keys)
        case Window() | Match():
            return node.changed(change)
        case AsofJoin():
            return node.changed(change)
        case LimitBy():
            order = map_keys(node.order, change)
            count, offset = (None if e is None else change(e) for e in (node.count, node.offset))
            return (
                node
                if order is node.order and count is node.count and offset is node.offset
                else replace(node, order=order, count=count, offset=offset)
            )
        case Limit():
            count, offset = (None if e is None else change(e) for e in (node.count, node.offset))
            return node if count is node.count and offset is node.offset else replace(node, count=count, offset=offset)
        case Values():
            rows = tuple(tuple(change(e) for e in row) for row in node.rows)
            unchanged = all(
                a is b for new, old in zip(rows, node.rows, strict=True) for a, b in zip(new, old, strict=True)
            )
            return node if unchanged else replace(node, rows=rows)
        case Series():
            return node.map(change)
        case SnapshotAggregate():
            return node.changed(lambda call: map_call(call, change))
    return node


def expressions(node: Node) -> list[Expr]:
    """The node's own expressions."""
    found: list[Expr] = []

    def see(expr: Expr) -> Expr:
        found.append(expr)
        return expr

    map_expressions(node, see)
    return found


def map_call(call: AggregateCall, change: Callable[[Expr], Expr]) -> AggregateCall:
    """The call of an aggregate with its expressions changed; the same object if none is."""
    args = tuple(change(a) for a in call.args)
    condition = None if call.filter is None else change(call.filter)
    order = map_keys(call.order, change)
    if condition is call.filter and order is call.order and all(a is b for a, b in zip(args, call.args, strict=True)):
        return call
    return replace(call, args=args, filter=condition, order=order)


def map_keys(keys: tuple[SortKey, ...], change: Callable[[Expr], Expr]) -> tuple[SortKey, ...]:
    """Sort keys with their expressions changed; the same object if none is."""
    changed = tuple(SortKey(change(k.expr), k.descending, k.nulls_first) for k in keys)
    return keys if all(a.expr is b.expr for a, b in zip(changed, keys, strict=True)) else changed


def _same(changed: tuple[tuple[str, object], ...], before: tuple[tuple[str, object], ...]) -> bool:
    return all(a[1] is b[1] for a, b in zip(changed, before, strict=True))
