"""Calls of aggregates and sort keys over changed expressions. Nodes, steps and rules share this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Expr, SortKey


def map_call(call: AggregateCall, change: Callable[[Expr], Expr]) -> AggregateCall:
    """The call of an aggregate with its expressions changed; the same object if none is."""
    args = tuple(change(a) for a in call.args)
    condition = None if call.filter is None else change(call.filter)
    order = map_keys(call.order, change)
    if condition is call.filter and order is call.order and all(a is b for a, b in zip(args, call.args, strict=True)):
        return call
    return replace(call, args=args, filter=condition, order=order)


def map_calls(
    calls: tuple[tuple[str, AggregateCall], ...], change: Callable[[Expr], Expr]
) -> tuple[tuple[str, AggregateCall], ...]:
    """Named calls with their expressions changed; the same object if none is."""
    changed = tuple((name, map_call(call, change)) for name, call in calls)
    return calls if all(a[1] is b[1] for a, b in zip(changed, calls, strict=True)) else changed


def map_columns(columns: tuple[tuple[str, Expr], ...], change: Callable[[Expr], Expr]) -> tuple[tuple[str, Expr], ...]:
    """Named expressions changed; the same object if none is."""
    changed = tuple((name, change(e)) for name, e in columns)
    return columns if all(a[1] is b[1] for a, b in zip(changed, columns, strict=True)) else changed


def map_keys(keys: tuple[SortKey, ...], change: Callable[[Expr], Expr]) -> tuple[SortKey, ...]:
    """Sort keys with their expressions changed; the same object if none is."""
    changed = tuple(SortKey(change(k.expr), k.descending, k.nulls_first) for k in keys)
    return keys if all(a.expr is b.expr for a, b in zip(changed, keys, strict=True)) else changed
