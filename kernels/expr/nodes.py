"""Typed scalar expressions: what the analyzer makes of SQL, what rules rewrite, what kernels emit.

Every node is frozen and hashable, knows its `type`, and prints as SQL that `planner/bind/binder.py` reads back to an
equal node (plan files rely on it). All implicit casts are explicit `Cast` nodes here: a `Call`'s argument types are
exactly those of its overload. `position` is the offset in the query's text and takes no part in equality."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import Any

from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BOOLEAN, Type
from tsql.kernels.process import stopping
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class Expr:
    """Base of all scalar expressions."""

    @property
    def type(self) -> Type:
        raise NotImplementedError

    @property
    def position(self) -> int | None:
        """The offset in the query's text, where the node has one."""
        return None

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """The same node over other children; itself if they are the same objects."""
        return self

    def walk(self) -> Iterator[Expr]:
        """This node and everything below it, parents first (no recursion: expressions may be very deep)."""
        stack: list[Expr] = [self]
        while stack:
            node = stack.pop()
            yield node
            children = node.children
            if children:
                stack.extend(reversed(children))

    def columns(self) -> tuple[str, ...]:
        """Names of the columns used, each once, in order of first use."""
        return tuple(dict.fromkeys(n.name for n in self.walk() if isinstance(n, Column)))

    def sql(self) -> str:
        from tsql.kernels.expr.printer import expression_sql

        return expression_sql(self)

    def __str__(self) -> str:
        return self.sql()


class Typed(Expr):
    """Base of expressions that state their type."""

    dtype: Type

    @property
    def type(self) -> Type:
        return self.dtype


@dataclass(frozen=True)
class Column(Typed):
    """A column of the input, by its unique name in the input's schema."""

    name: str
    dtype: Type
    nullable: bool = True
    position: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Outer(Typed):
    """A column of a relation outside of the subquery in which it stands. Plans hold these below an `Apply` only, and
    `planner/unnest/unnest.py` removes them: kernels never see one. It is no column of its own input, so `columns()`
    skips it."""

    name: str
    dtype: Type
    nullable: bool = True
    position: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Literal(Typed):
    """A constant. `value` is None (NULL) or the stored form: int for integers, decimals (unscaled), DATE (days), TIME,
    TIMESTAMP and TIMESTAMPTZ (microseconds); bool; float; str; bytes; (months, days, microseconds) for INTERVAL."""

    value: Any
    dtype: Type
    position: int | None = field(default=None, compare=False)

    def __eq__(self, other: object) -> bool:
        # 1 == True == 1.0 in Python, and 0.0 == -0.0: compare the exact value.
        return isinstance(other, Literal) and self.dtype == other.dtype and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash((repr(self.value), self.dtype))


@dataclass(frozen=True)
class Parameter(Typed):
    """A prepared parameter, `?`, `$1` or `$name`; its value arrives with each run and has this type."""

    name: str
    dtype: Type
    position: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Call(Typed):
    """A call of a registered scalar function or operator; `name` and the argument types select the overload."""

    name: str
    args: tuple[Expr, ...]
    dtype: Type
    position: int | None = field(default=None, compare=False)

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return (
            self
            if all(a is b for a, b in zip(self.args, children, strict=True))
            else replace(self, args=tuple(children))
        )


@dataclass(frozen=True)
class Cast(Typed):
    """CAST or, with `safe`, TRY_CAST (NULL instead of an error)."""

    arg: Expr
    dtype: Type
    safe: bool = False
    position: int | None = field(default=None, compare=False)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return self if children[0] is self.arg else replace(self, arg=children[0])


@dataclass(frozen=True)
class Case(Expr):
    """CASE WHEN c THEN v .. ELSE e END. Conditions are BOOLEAN; all values have the node's type. Branches are lazy:
    a branch that is not taken raises no error."""

    whens: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr
    position: int | None = field(default=None, compare=False)

    @property
    def type(self) -> Type:
        return self.otherwise.type

    @property
    def children(self) -> tuple[Expr, ...]:
        return tuple(e for when in self.whens for e in when) + (self.otherwise,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        if all(a is b for a, b in zip(self.children, children, strict=True)):
            return self
        pairs = tuple((children[i], children[i + 1]) for i in range(0, len(children) - 1, 2))
        return replace(self, whens=pairs, otherwise=children[-1])


@dataclass(frozen=True)
class InList(Expr):
    """`arg IN (options)`: every option is a Literal or a Parameter of the argument's type (other lists become ORs)."""

    arg: Expr
    options: tuple[Expr, ...]
    position: int | None = field(default=None, compare=False)

    @property
    def type(self) -> Type:
        return BOOLEAN

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg, *self.options)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        if all(a is b for a, b in zip(self.children, children, strict=True)):
            return self
        return replace(self, arg=children[0], options=tuple(children[1:]))


@dataclass(frozen=True)
class SortKey:
    """One key of an ORDER BY."""

    expr: Expr
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        return (
            f"{self.expr.sql()} {'desc' if self.descending else 'asc'} nulls {'first' if self.nulls_first else 'last'}"
        )


@dataclass(frozen=True)
class Aggregate:
    """A call of an aggregate: its arguments, DISTINCT, FILTER and ORDER BY, and its result type. Not an Expr: it stands
    only in the aggregate list of an Aggregate node. Constant parameters (a quantile, a separator) stay in `args`."""

    name: str
    args: tuple[Expr, ...]
    dtype: Type
    distinct: bool = False
    filter: Expr | None = None
    order: tuple[SortKey, ...] = ()
    position: int | None = field(default=None, compare=False)

    @property
    def type(self) -> Type:
        return self.dtype

    def expressions(self) -> tuple[Expr, ...]:
        return (*self.args, *((self.filter,) if self.filter else ()), *(k.expr for k in self.order))

    def sql(self) -> str:
        from tsql.kernels.expr.printer import aggregate_sql

        return aggregate_sql(self)

    def __str__(self) -> str:
        return self.sql()


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Rebuild `expr` bottom-up through `change`; the same object where nothing changed. Iterative, so depth is no
    limit."""
    stopping.check()
    done: dict[int, Expr] = {}
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if id(node) in done:
            continue
        if not ready:
            stack.append((node, True))
            stack.extend((child, False) for child in node.children if id(child) not in done)
        else:
            rebuilt = node.with_children(tuple(done[id(c)] for c in node.children)) if node.children else node
            done[id(node)] = change(rebuilt)
    return done[id(expr)]


def substitute(expr: Expr, columns: dict[str, Expr]) -> Expr:
    """Replace columns by expressions."""
    return rewrite(expr, lambda e: columns.get(e.name, e) if isinstance(e, Column) else e)


def check_columns(expr: Expr, schema: Schema) -> None:
    """Assert that `expr` refers to columns of `schema` only, with their types."""
    known = schema.by_name
    for node in expr.walk():
        if isinstance(node, Column) and (node.name not in known or known[node.name].type != node.dtype):
            raise ValueError(f"column {node.name} {node.dtype} is not in {schema}")
