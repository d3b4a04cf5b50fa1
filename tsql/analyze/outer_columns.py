"""Outer columns in plans: finds those that a subquery's plan names, collects names, and replaces outer columns.
`subquery.py` and `from_.py` call it; shared nodes stay shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tsql.kernels.expr.nodes import Column, Expr, Outer, rewrite
from tsql.planner.logical import nodes as logical


def nodes(plan: logical.Node) -> Iterator[logical.Node]:
    """Every node of a plan once, however often it is used."""
    seen: set[int] = set()
    stack = [plan]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(node.inputs)


def expressions(node: logical.Node) -> Iterator[Expr]:
    """The expressions of one node, without those of its inputs."""
    for field in fields(node):
        yield from _expressions(getattr(node, field.name))


def _expressions(value: Any) -> Iterator[Expr]:
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _expressions(item)
    elif _has_parts(value):
        for field in fields(value):
            yield from _expressions(getattr(value, field.name))


def _has_parts(value: Any) -> bool:
    """Whether this is a piece of a node that holds expressions: a sort key, an aggregate, the frame of a window."""
    return (
        is_dataclass(value)
        and not isinstance(value, (logical.Node, type))
        and type(value).__module__ in (Expr.__module__, logical.Node.__module__)
    )


def own_outers(node: logical.Node) -> Iterator[Outer]:
    """The outer columns in the expressions of one node."""
    for expr in expressions(node):
        yield from (e for e in expr.walk() if isinstance(e, Outer))


def outers(plan: logical.Node) -> list[Outer]:
    """The outer columns that a plan takes from outside; not those that an Apply inside binds."""
    return free_outers(plan)[id(plan)]


def free_outers(plan: logical.Node) -> dict[int, list[Outer]]:
    """For each node, by id: the outer columns that it and its inputs take from outside."""
    found: dict[int, list[Outer]] = {}
    _find_outers(plan, found)
    return found


def _find_outers(node: logical.Node, found: dict[int, list[Outer]]) -> list[Outer]:
    if id(node) not in found:
        free = list(own_outers(node))
        for index, inner in enumerate(node.inputs):
            bound = bound_names(node, index)
            free += [outer for outer in _find_outers(inner, found) if outer.name not in bound]
        found[id(node)] = list(dict.fromkeys(free))
    return found[id(node)]


def bound_names(node: logical.Node, index: int) -> tuple[str, ...]:
    """The names that outer columns in input `index` of a node can mean in the node."""
    return node.left.schema.names if isinstance(node, logical.Apply) and index == 1 else ()


def names_in(plan: logical.Node) -> set[str]:
    """The column names that an outer column could clash with. Subtrees without outer columns are skipped."""
    free = free_outers(plan)
    found: set[str] = set()
    seen: set[int] = set()
    stack = [plan]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            found.update(node.schema.names)
            if free[id(node)]:
                stack.extend(node.inputs)
    return found


def map_outers(plan: logical.Node, change: Callable[[Outer], Expr]) -> logical.Node:
    """The plan with each of its `outers` replaced by `change`; the same objects where nothing changes."""
    return OuterChange(plan, change).visit(plan, frozenset())


class OuterChange:
    """One run of `map_outers`."""

    def __init__(self, plan: logical.Node, change: Callable[[Outer], Expr]):
        self.change = change
        self.named = {key: frozenset(outer.name for outer in found) for key, found in free_outers(plan).items()}
        self.done: dict[tuple[int, frozenset[str]], logical.Node] = {}

    def visit(self, node: logical.Node, bound: frozenset[str]) -> logical.Node:
        """The node; names in `bound` mean something inside of the plan."""
        free = self.named[id(node)]
        if not free - bound:
            return node
        key = (id(node), bound & free)
        if key not in self.done:
            inputs = tuple(
                [self.visit(inner, bound.union(bound_names(node, index))) for index, inner in enumerate(node.inputs)]
            )
            self.done[key] = map_node(
                node.with_inputs(inputs), lambda e: rewrite(e, lambda part: self._put(part, bound))
            )
        return self.done[key]

    def _put(self, expr: Expr, bound: frozenset[str]) -> Expr:
        return self.change(expr) if isinstance(expr, Outer) and expr.name not in bound else expr


def map_node(node: logical.Node, change: Callable[[Expr], Expr]) -> logical.Node:
    """One node with its own expressions put through `change`."""
    changed = {}
    for field in fields(node):
        before = getattr(node, field.name)
        after = map_value(before, change)
        if after is not before:
            changed[field.name] = after
    return replace(node, **changed) if changed else node


def map_value(value: Any, change: Callable[[Expr], Expr]) -> Any:
    """An expression, a sort key, an aggregate or a tuple of these, put through `change`; the same object if nothing
    changes."""
    if isinstance(value, Expr):
        return change(value)
    if isinstance(value, tuple):
        items = tuple(map_value(item, change) for item in value)
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if not _has_parts(value):
        return value
    changed = {
        f.name: after
        for f in fields(value)
        if (after := map_value(getattr(value, f.name), change)) is not getattr(value, f.name)
    }
    return replace(value, **changed) if changed else value


def as_outer(expr: Expr) -> Expr:
    """An expression over an enclosing relation, as seen from a subquery."""
    return rewrite(expr, lambda e: Outer(e.name, e.dtype, e.nullable, e.position) if isinstance(e, Column) else e)
