"""The expressions within an attribute of a step: in lists, calls, sort keys, join keys and patterns. `Step` finds and
replaces its expressions with it, so operators need no code for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Expr, SortKey
from tsql.kernels.patterns.spec import MatchSpec
from tsql.kernels.windows.call import WindowCall
from tsql.planner.logical.calls import map_call
from tsql.planner.logical.predicates import JoinKey


def expressions_in(value: Any) -> Iterator[Expr]:
    """The expressions of an attribute, in order."""
    match value:
        case Expr():
            yield value
        case SortKey():
            yield value.expr
        case JoinKey():
            yield from (value.left, value.right)
        case AggregateCall() | WindowCall() | MatchSpec():
            yield from value.expressions()
        case tuple():
            for item in value:
                yield from expressions_in(item)


def map_in(value: Any, change: Callable[[Expr], Expr]) -> Any:
    """The attribute over changed expressions; the same object if none is."""
    match value:
        case Expr():
            return change(value)
        case SortKey():
            expr = change(value.expr)
            return value if expr is value.expr else SortKey(expr, value.descending, value.nulls_first)
        case JoinKey():
            left, right = change(value.left), change(value.right)
            return value if left is value.left and right is value.right else replace(value, left=left, right=right)
        case AggregateCall():
            return map_call(value, change)
        case WindowCall() | MatchSpec():
            return value.changed(change)
        case tuple():
            items = tuple(map_in(item, change) for item in value)
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    return value
