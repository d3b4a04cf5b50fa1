"""The registry of aggregate functions: signatures for the binder, state and emission for the kernels.

An aggregate is a state of machine words and functions over it: `init`, `update`, `finish`, `export` and `absorb`, and
optionally `remove` (`base.py`). `planner/bind/binder.py` uses only the signature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tsql.kernels.expr.types import Type
from tsql.kernels.functions.registry import Pattern, Registry


@dataclass(frozen=True)
class AggregateFunction:
    """One overload of an aggregate; `body` is the class with the emission (see kernels/aggregates/base.py).

    ordered: the result depends on the order of rows (first, last, string_agg, ..).
    constant: argument positions that must be constants; the binder turns them into literals.
    check: f(arguments) -> what is wrong with the constants, or None.
    """

    name: str
    args: tuple[Pattern, ...]
    returns: Type | Callable[..., Type]
    body: Any
    variadic: bool = False
    constant: tuple[int, ...] = ()
    ordered: bool = False
    check: Callable[[tuple[Any, ...]], str | None] | None = None

    def return_type(self, types: tuple[Type, ...]) -> Type:
        return self.returns(*types) if callable(self.returns) else self.returns


AGGREGATES = Registry()


def aggregate(
    *names: str,
    args: tuple[Pattern, ...],
    returns: Type | Callable[..., Type],
    variadic: bool = False,
    constant: tuple[int, ...] = (),
    ordered: bool = False,
    check: Callable[[tuple[Any, ...]], str | None] | None = None,
) -> Callable[[type], type]:
    """Register an aggregate class under one or more names."""

    def register(body: type) -> type:
        for name in names:
            AGGREGATES.add(AggregateFunction(name, tuple(args), returns, body, variadic, constant, ordered, check))
        return body

    return register
