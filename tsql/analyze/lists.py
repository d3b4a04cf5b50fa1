"""Limited support for lists: `[1, 2, 3]` with expressions as elements, and range or generate_series.

A column cannot hold a list. A list can only be unnested: by UNNEST in FROM (`table_functions.py`) or in the select list
(`unnest.py`)."""

from __future__ import annotations

from sqlglot import exp

from tsql.kernels.expr.nodes import Call, Case, Expr, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN, INTERVAL, NULL, TIMESTAMP, VARCHAR, Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.binder import Binder
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.types import Bare, coerce, unify

ZERO, ONE = Literal(0, BIGINT), Literal(1, BIGINT)


@dataclass(frozen=True)
class Literals:
    """A list literal: its elements, all of one type. `is_null`: not an empty list but NULL."""

    values: tuple[Expr, ...]
    type: Type
    is_null: bool = False

    def expressions(self) -> tuple[Expr, ...]:
        return self.values

    def count(self) -> Expr:
        return Literal(len(self.values), BIGINT)

    def at(self, place: Expr) -> Expr:
        """The element at a place, from 1; NULL behind the last."""
        if not self.values:
            return Literal(None, self.type)
        whens = tuple(
            (Call("=", (place, Literal(i, BIGINT)), BOOLEAN), value) for i, value in enumerate(self.values, 1)
        )
        return Case(whens, Literal(None, self.type))


@dataclass(frozen=True)
class Ranged:
    """range(..) or generate_series(..) as a list."""

    start: Expr
    stop: Expr
    step: Expr
    inclusive: bool

    @property
    def type(self) -> Type:
        return self.start.type

    @property
    def is_numeric(self) -> bool:
        return self.start.type == BIGINT

    def expressions(self) -> tuple[Expr, ...]:
        return self.start, self.stop, self.step

    def count(self) -> Expr:
        """The number of values; 0 if a bound is NULL. (Series of times have no count.)"""
        span = Call("-", (self.stop, self.start), BIGINT)
        up = Call(">", (self.step, ZERO), BOOLEAN)
        last = span if self.inclusive else Call("-", (span, Case(((up, ONE),), Literal(-1, BIGINT))), BIGINT)
        counted = Call("+", (Call("//", (last, self.step), BIGINT), ONE), BIGINT)
        tests = ("<=", ">=") if self.inclusive else ("<", ">")
        some = (Call(tests[0], (self.start, self.stop), BOOLEAN), Call(tests[1], (self.start, self.stop), BOOLEAN))
        there = Call(
            "or",
            (
                Call("and", (up, some[0]), BOOLEAN),
                Call("and", (Call("<", (self.step, ZERO), BOOLEAN), some[1]), BOOLEAN),
            ),
            BOOLEAN,
        )
        return Case(((there, counted),), ZERO)

    def at(self, place: Expr) -> Expr:
        inside = Call("<=", (place, self.count()), BOOLEAN)
        value = Call("+", (self.start, Call("*", (Call("-", (place, ONE), BIGINT), self.step), BIGINT)), BIGINT)
        return Case(((inside, value),), Literal(None, BIGINT))


Listed = Literals | Ranged


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def read_list(binder: Binder, node: exp.Expr) -> Listed | None:
    """The list that an expression is; None if it is none."""
    inner = _bare(node)
    match inner:
        case exp.Null():
            return Literals((), NULL, is_null=True)
        case exp.Array():
            return _literals(binder, inner.expressions, node)
        case CallNode() if inner.name in ("list_value", "list_pack"):
            return _literals(binder, inner.expressions, node)
        case CallNode() if inner.name in ("range", "generate_series"):
            return Ranged(*series_arguments(binder, inner), inner.name == "generate_series")
    return None


def _literals(binder: Binder, elements: list[exp.Expr], node: exp.Expr) -> Literals:
    for element in elements:
        if isinstance(_bare(element), (exp.Array, exp.Struct)):
            raise binder.error("a list of lists or structs is not supported", element)
    values = [binder.operand(e) for e in elements]
    if not values:
        return Literals((), NULL)
    dtype = unify(values)
    if dtype is None:
        raise binder.error(
            (
                "the elements of a list have types that do not fit: "
                f"{', '.join(dict.fromkeys(str(v.type) for v in values))}"
            ),
            node,
        )
    return Literals(tuple(coerce(v, dtype) for v in values), dtype)


def series_arguments(binder: Binder, node: CallNode) -> tuple[Expr, Expr, Expr]:
    """start, stop and step of a call of range or generate_series."""
    given = [binder.operand(a) for a in node.expressions]
    types = ", ".join(str(g.type) for g in given)
    mismatch = binder.error(
        (
            f"No function matches the given name and argument types '{node.name}({types})'. You might need to "
            "add explicit type casts."
        ),
        node,
    )
    if len(given) == 3 and (given[2].type == INTERVAL or any(_is_time(g.type) for g in given[:2])):
        if given[2].type not in (INTERVAL, NULL) or not all(
            _is_time(g.type) or g.type == NULL or isinstance(g, Bare) and g.type == VARCHAR for g in given[:2]
        ):
            raise mismatch
        zoned = next(
            (
                g.type
                for g in given[:2]
                if g.type.name not in ("DATE", "TIMESTAMP", "NULL", "VARCHAR") and g.type.name == "TIMESTAMPTZ"
            ),
            TIMESTAMP,
        )
        start, stop = (coerce(g, zoned) for g in given[:2])
        return start, stop, coerce(given[2], INTERVAL)
    if not 1 <= len(given) <= 3 or not all(
        g.type.is_integer or g.type == NULL or isinstance(g, Bare) and g.type == VARCHAR for g in given
    ):
        raise mismatch
    numbers = [coerce(g, BIGINT) for g in given]
    if len(numbers) == 1:
        return ZERO, numbers[0], ONE
    return numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else ONE


def _is_time(dtype: Type) -> bool:
    return dtype.name == "DATE" or dtype.name.startswith("TIMESTAMP")
