"""Turns a scalar sqlglot AST into typed `kernels.expr`. `tsql/analyze/statements.py` binds queries with it; plan files
use `parse_expression` and `parse_aggregate`.

A `Binder` walks one expression. The caller says what a column name means and whether aggregates are allowed (`resolve`,
`aggregate`). Operators are in `operators.py`, calls in `calls.py` and `forms.py`, typing rules in `types.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Aggregate, Column, Expr, Literal, Parameter, SortKey
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, BLOB, BOOLEAN, DECIMAL, DOUBLE, HUGEINT, INTEGER, NULL, VARCHAR, Type
from tsql.kernels.process import stopping
from tsql.kernels.process.recursion import deep_recursion
from tsql.kernels.windows.call import WindowCall
from tsql.planner.bind import calls as bind_calls
from tsql.planner.bind import forms as bind_forms
from tsql.planner.bind import operators as bind_operators
from tsql.planner.bind import rows as bind_rows
from tsql.planner.bind import strings as bind_text
from tsql.planner.bind import subquery as bind_subquery
from tsql.planner.bind import windows as bind_windows
from tsql.planner.bind.near_names import nearest as nearest
from tsql.planner.bind.query_text import QueryText, position_of
from tsql.planner.bind.syntax import Absolute, UnaryPlus, parse_scalar
from tsql.planner.bind.types import Bare, castable, coerce, settle
from tsql.planner.bind.windows import WindowScope

MAX_DEPTH = 250
"""The maximum depth of a bound expression. Kernels and rules recurse over expressions, so a deeper one is refused
here."""


class Binder:
    """Binds expressions over one set of names.

    resolve: the meaning of a column reference (raises BindError for an unknown one).
    aggregate: takes a bound aggregate and the node, gives the expression that stands for its result; None where
        aggregates are not allowed, `clause` then says where we are.
    parameters: types of the prepared parameters by name; None if there are none.
    subquery: the value of a subquery (see `subquery.py`); None where there can be none.
    windows: as `aggregate`, for window functions.
    """

    forms = bind_forms.FORMS
    """Calls with their own syntax or typing, by name."""

    def __init__(
        self,
        source: QueryText,
        resolve: Callable[[exp.Column], Expr],
        *,
        aggregate: Callable[[Aggregate, exp.Expr], Expr] | None = None,
        clause: str = "an expression",
        parameters: dict[str, Type] | None = None,
        special: Mapping[str, Callable[[Binder, Any], Expr]] | None = None,
        subquery: Callable[[Binder, exp.Expr], Expr] | None = None,
        windows: WindowScope | None = None,
    ):
        self.source = source
        self.resolve = resolve
        self.aggregate = aggregate
        self.clause = clause
        self.parameters = parameters
        self.special = special or {}
        self.subquery = subquery
        self.windows = windows

    def bind(self, node: exp.Expr) -> Expr:
        """The typed expression of `node`, every implicit cast made explicit."""
        expr = settle(self.operand(node))
        check_depth(expr, self.position(node))
        return expr

    def bind_as(self, node: exp.Expr, target: Type) -> Expr:
        """`bind`, cast to `target`."""
        bound = self.operand(node)
        if not castable(bound.type, target):
            raise self.error(f"{bound.type} cannot be cast to {target}", node)
        expr = coerce(bound, target)
        check_depth(expr, self.position(node))
        return expr

    def operand(self, node: exp.Expr) -> Expr:
        """As `bind`, but a literal may still adapt to what it meets."""
        stopping.check()
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise self.error(f"{_describe(node)} is not supported", node)
        return handler(self, node)

    def position(self, node: exp.Expr | None) -> int | None:
        return position_of(node)

    def operator_position(self, node: exp.Binary) -> int | None:
        """Where the operator of a binary node stands."""
        right = position_of(node.expression)
        return None if right is None else self.source.before(right)

    def error(self, message: str, node: exp.Expr | int | None = None, hint: str | None = None) -> BindError:
        position = node if isinstance(node, int) or node is None else self.position(node)
        return BindError(message, position=position, text=self.source.text, hint=hint)

    def without_aggregates(self, clause: str) -> Binder:
        """A binder over the same names for a place where an aggregate is an error."""
        return Binder(self.source, self.resolve, clause=clause, parameters=self.parameters, subquery=self.subquery)

    def inside_window(self, clause: str) -> Binder:
        """A binder over the same names for the arguments of a window function, which may be aggregates and
        subqueries."""
        return Binder(
            self.source,
            self.resolve,
            aggregate=self.aggregate,
            clause=clause,
            parameters=self.parameters,
            special=self.special,
            subquery=self.subquery,
        )

    def bind_typed(self, node: exp.Expr) -> Expr:
        """`bind`, with a bare NULL as INTEGER."""
        expr = self.operand(node)
        return self.bind_as(node, INTEGER) if expr.type == NULL else self.bind(node)


def check_depth(expr: Expr, position: int | None) -> None:
    """Refuse an expression that later stages could not walk."""
    stack = [(expr, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise BindError(f"the expression is nested too deeply (more than {MAX_DEPTH} levels)", position=position)
        stack.extend((child, depth + 1) for child in node.children)


def _bind_literal(binder: Binder, node: exp.Literal) -> Expr:
    position = binder.position(node)
    if node.is_string:
        return Bare(node.this, VARCHAR, position)
    try:
        return number(node.this, position)
    except ValueError:
        raise binder.error(f"{node.this} is not a number", node) from None


def number(text: str, position: int | None) -> Literal:
    """The literal of a number as written: INTEGER, BIGINT, HUGEINT, DECIMAL or DOUBLE."""
    text = text.replace("_", "")
    if "e" in text or "E" in text:
        return Literal(float(text), DOUBLE, position)
    whole, point, fraction = text.partition(".")
    if not point:
        return integer(int(whole), position)
    width = len(whole) + len(fraction)
    if width > 38 or width == 0:
        return Literal(float(text), DOUBLE, position)
    return Literal(int(whole + fraction), DECIMAL(width, len(fraction)), position)


def integer(value: int, position: int | None) -> Literal:
    """A whole number, in the smallest of the types that DuckDB gives to literals."""
    for dtype in (INTEGER, BIGINT, HUGEINT):
        low, high = dtype.bounds
        if low <= value <= high:
            return Bare(value, dtype, position)
    return Literal(float(value), DOUBLE, position)


def _bind_negation(binder: Binder, node: exp.Neg) -> Expr:
    position = binder.position(node)
    inner = node.this
    if isinstance(inner, exp.Paren) and isinstance(inner.this, (exp.Neg, exp.Literal)):
        inner = inner.this
    if isinstance(inner, exp.Literal) and not inner.is_string and inner.this.isdigit():
        return integer(-int(inner.this), position)
    arg = binder.operand(inner)
    if isinstance(arg, Bare) and arg.dtype.is_integer:
        return integer(-arg.value, position)
    if (
        isinstance(inner, (exp.Literal, exp.Neg))
        and isinstance(arg, Literal)
        and arg.dtype != VARCHAR
        and arg.value is not None
    ):
        if arg.dtype.is_float or arg.dtype.is_decimal:
            return Literal(-arg.value, arg.dtype, position)
    return bind_operators.negate(binder, arg, node)


def _bind_plus(binder: Binder, node: UnaryPlus) -> Expr:
    arg = binder.operand(node.this)
    if not (arg.type.is_numeric or arg.type == NULL):
        raise binder.error(f"there is no operator + for {arg.type}", node)
    return arg


def _bind_column(binder: Binder, node: exp.Column) -> Expr:
    return binder.resolve(node)


def _bind_parameter(binder: Binder, node: exp.Placeholder) -> Expr:
    name = node.args.get("this")
    name = str(node.meta.get("number", 1)) if name is None else (name if isinstance(name, str) else name.name)
    if binder.parameters is None or name not in binder.parameters:
        known = ", ".join(f"${n}" for n in binder.parameters or ())
        raise binder.error(
            f"no value is given for parameter {'?' if node.args.get('this') is None else '$' + name}",
            node,
            hint=f"given: {known}" if known else None,
        )
    return Parameter(name, binder.parameters[name], binder.position(node))


def _bind_blob(binder: Binder, node: exp.HexString) -> Expr:
    try:
        return Literal(bytes.fromhex(node.name), BLOB, binder.position(node))
    except ValueError:
        raise binder.error(
            f"X'{node.name}' is not a BLOB: an even number of hexadecimal digits is expected", node
        ) from None


def _describe(node: exp.Expr) -> str:
    return {
        exp.Array: "a list",
        exp.Struct: "a struct",
        exp.Tuple: "a row",
        exp.Lambda: "a lambda",
        exp.Star: "* here",
    }.get(type(node), type(node).key.upper())


_HANDLERS: dict[type[exp.Expr], Callable[[Binder, Any], Expr]] = {
    exp.Literal: _bind_literal,
    exp.RawString: lambda binder, node: Bare(node.name, VARCHAR, binder.position(node)),
    exp.ByteString: lambda binder, node: Bare(node.name, VARCHAR, binder.position(node)),
    exp.HexString: _bind_blob,
    exp.Null: lambda binder, node: Literal(None, NULL, binder.position(node)),
    exp.Boolean: lambda binder, node: Literal(bool(node.this), BOOLEAN, binder.position(node)),
    exp.Column: _bind_column,
    exp.Placeholder: _bind_parameter,
    exp.Paren: lambda binder, node: binder.operand(node.this),
    exp.Neg: _bind_negation,
    UnaryPlus: _bind_plus,
    exp.Window: bind_windows.bind_window,
    Absolute: lambda binder, node: bind_calls.scalar(binder, "abs", [binder.operand(node.this)], node),
    **bind_subquery.HANDLERS,
    **bind_rows.with_rows(bind_operators.HANDLERS),
    **bind_text.HANDLERS,
    **bind_forms.HANDLERS,
}


def schema_resolver(schema: Schema, source: QueryText) -> Callable[[exp.Column], Expr]:
    """Columns of one schema: by exact name, or else regardless of case where that is not ambiguous."""
    exact = {f.name: f for f in schema}
    folded: dict[str, list[str]] = {}
    for name in exact:
        folded.setdefault(name.lower(), []).append(name)

    def resolve(node: exp.Column) -> Expr:
        name = ".".join(part.name for part in node.parts)
        field = exact.get(name)
        if field is None:
            similar = folded.get(name.lower(), [])
            if len(similar) != 1:
                raise BindError(
                    f'column "{name}" does not exist',
                    position=position_of(node),
                    text=source.text,
                    hint=nearest(name, exact),
                )
            field = exact[similar[0]]
        return Column(field.name, field.type, field.nullable, position_of(node))

    return resolve


def parse_expression(text: str, schema: Schema, parameters: dict[str, Type] | None = None) -> Expr:
    """The expression that `kernels/expr/printer.py` printed, or that a person wrote in a plan file."""
    node, source = parse_scalar(text)
    with deep_recursion():
        return Binder(source, schema_resolver(schema, source), parameters=parameters).bind(node)


def parse_aggregate(text: str, schema: Schema, parameters: dict[str, Type] | None = None) -> Aggregate:
    """One call of an aggregate, with its DISTINCT, ORDER BY and FILTER."""
    node, source = parse_scalar(text)
    found: list[Aggregate] = []

    def keep(call: Aggregate, _: exp.Expr) -> Expr:
        found.append(call)
        return Column("", call.type)

    with deep_recursion():
        binder = Binder(source, schema_resolver(schema, source), aggregate=keep, parameters=parameters)
        result = binder.operand(node)
    if len(found) != 1 or not isinstance(result, Column) or result.name:
        raise BindError("expected one call of an aggregate", position=position_of(node), text=text)
    return found[0]


def parse_window(
    text: str, schema: Schema, order: tuple[SortKey, ...], parameters: dict[str, Type] | None = None
) -> WindowCall:
    """One call of a window function with its frame, as a `window` step has it: `sum(x)`, `sum(x) OVER (ROWS 2
    PRECEDING)`."""
    node, source = parse_scalar(text)
    frame = None
    if isinstance(node, exp.Window):
        frame = node.args.get("spec")
        if any(node.args.get(part) for part in ("partition_by", "order", "alias")):
            raise BindError(
                "PARTITION BY and ORDER BY stand in by=(..) and order=(..) of the step",
                position=position_of(node),
                text=text,
            )
        node = node.this
    with deep_recursion():
        binder = Binder(source, schema_resolver(schema, source), clause=bind_windows.INSIDE, parameters=parameters)
        return bind_windows.bind_call(binder, node, frame, order)
