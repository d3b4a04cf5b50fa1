"""The registry of aggregate functions: signatures for the binder, state and emission for the kernels.

An aggregate is a state of machine words and functions over it: `init`, `update`, `finish`, `export` and `absorb`, and
optionally `remove` (`base.py`). `planner/bind/binder.py` uses only the signature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tsql.kernels.expr.types import Type
from tsql.kernels.functions.registry import Pattern, Registry
from tsql.kernels.process.quick_dataclass import dataclass

if TYPE_CHECKING:
    from tsql.kernels.aggregates.base import Body

B = TypeVar("B", bound="Body")


@dataclass(frozen=True)
class AggregateFunction:
    """One overload of an aggregate; `body` is the class with the emission (see kernels/aggregates/base.py).

    ordered: the result depends on the order of rows (first, last, string_agg, ..).
    ignores_repeats: it makes no difference how often a value occurs; DISTINCT is dropped, as DuckDB does.
    constant: argument positions that must be constants; the binder turns them into literals.
    check: f(arguments) -> what is wrong with the constants, or None.
    """

    name: str
    args: tuple[Pattern, ...]
    returns: Type | Callable[..., Type]
    body: Callable[..., Body]
    variadic: bool = False
    constant: tuple[int, ...] = ()
    ordered: bool = False
    check: Callable[[tuple[Any, ...]], str | None] | None = None
    ignores_repeats: bool = False

    def return_type(self, types: tuple[Type, ...]) -> Type:
        return self.returns(*types) if callable(self.returns) else self.returns

    @property
    def module(self) -> str:
        """Where it is registered."""
        return self.body.__module__


AGGREGATES: Registry[AggregateFunction] = Registry("tsql.kernels.aggregates")


def aggregate(
    *names: str,
    args: tuple[Pattern, ...],
    returns: Type | Callable[..., Type],
    variadic: bool = False,
    constant: tuple[int, ...] = (),
    ordered: bool = False,
    check: Callable[[tuple[Any, ...]], str | None] | None = None,
    ignores_repeats: bool = False,
) -> Callable[[type[B]], type[B]]:
    """Register an aggregate class under one or more names."""

    def register(body: type[B]) -> type[B]:
        for name in names:
            found = AggregateFunction(
                name, tuple(args), returns, body, variadic, constant, ordered, check, ignores_repeats
            )
            AGGREGATES.add(found)
        return body

    return register
