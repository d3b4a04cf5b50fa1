"""Expressions inside of plans: which outer columns a subquery's plan names, which names its nodes use, and plans with their
outer columns put as others. `analyze_subquery.py` and `analyze_from.py` call it; shared nodes stay shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tsql.kernels.expr import Column, Expr, Outer, rewrite
from tsql.planner import logical


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
    return is_dataclass(value) and not isinstance(value, (logical.Node, type)) and type(value).__module__ in (Expr.__module__, logical.Node.__module__)


def outers(plan: logical.Node) -> Iterator[Outer]:
    """All outer columns that a plan names, at any depth."""
    for node in nodes(plan):
        for expr in expressions(node):
            yield from (e for e in expr.walk() if isinstance(e, Outer))


def names_in(plan: logical.Node) -> set[str]:
    """The names of the columns of all nodes that an outer column could meet: not those inside of a part that names none."""
    found: set[str] = set()
    known: dict[int, bool] = {}

    def has_outer(node: logical.Node) -> bool:
        if id(node) not in known:
            below = [has_outer(i) for i in node.inputs]
            known[id(node)] = any(below) or any(isinstance(e, Outer) for expr in expressions(node) for e in expr.walk())
        return known[id(node)]

    seen: set[int] = set()
    stack = [plan]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            found.update(node.schema.names)
            if has_outer(node):
                stack.extend(node.inputs)
    return found


def map_outers(plan: logical.Node, change: Callable[[Outer], Expr]) -> logical.Node:
    """The plan with every outer column put through `change`; the same objects where nothing changes."""

    def leaf(expr: Expr) -> Expr:
        return change(expr) if isinstance(expr, Outer) else expr

    def map_expr(expr: Expr) -> Expr:
        return rewrite(expr, leaf)

    done: dict[int, logical.Node] = {}

    def visit(node: logical.Node) -> logical.Node:
        found = done.get(id(node))
        if found is None:
            found = done[id(node)] = map_node(node.with_inputs(tuple(visit(i) for i in node.inputs)), map_expr)
        return found

    return visit(plan)


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
    """An expression, a sort key, an aggregate or a tuple of these, put through `change`; the same object if nothing changes."""
    if isinstance(value, Expr):
        return change(value)
    if isinstance(value, tuple):
        items = tuple(map_value(item, change) for item in value)
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if not _has_parts(value):
        return value
    changed = {f.name: after for f in fields(value) if (after := map_value(getattr(value, f.name), change)) is not getattr(value, f.name)}
    return replace(value, **changed) if changed else value


def as_outer(expr: Expr, convert: Callable[[Column], Expr]) -> Expr:
    """An expression over an enclosing relation, as a subquery says it."""
    return rewrite(expr, lambda e: convert(e) if isinstance(e, Column) else e)
