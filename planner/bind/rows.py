"""Binds comparisons of rows: `(a, b) = (1, 'x')`, `<`, BETWEEN and IN lists. Values are compared from left to right.

As in DuckDB, a comparison of rows is never NULL: inside rows NULL equals NULL and is greater than any other value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from tsql.kernels.expr.nodes import Call, Case, Expr, Literal
from tsql.kernels.expr.types import BOOLEAN
from tsql.planner.bind.operators import COMPARISON, compare
from tsql.planner.bind.syntax_nodes import CallNode

if TYPE_CHECKING:
    from tsql.planner.bind.binder import Binder

Handler = Callable[["Binder", exp.Expr], Expr]
TRUE, FALSE = Literal(True, BOOLEAN), Literal(False, BOOLEAN)


def row_of(node: exp.Expr | None) -> list[exp.Expr] | None:
    """The values of a row; None for anything else."""
    while isinstance(node, exp.Paren):
        node = node.this
    is_row = isinstance(node, exp.Tuple) or (isinstance(node, CallNode) and node.name == "row")
    return node.expressions if is_row else None


def with_rows(handlers: dict[type[exp.Expr], Handler]) -> dict[type[exp.Expr], Handler]:
    """The handlers of comparisons, IN and BETWEEN, with rows as operands too."""
    return {kind: _either(kind, handler) for kind, handler in handlers.items()}


def _either(kind: type[exp.Expr], handler: Handler) -> Handler:
    if kind not in COMPARISON and kind not in (exp.In, exp.Between):
        return handler

    def bind(binder: Binder, node: exp.Expr) -> Expr:
        values = row_of(node.this)
        if values is None:
            return handler(binder, node)
        if kind is exp.In:
            return (
                _in(binder, node, values)
                if node.expressions and all(row_of(e) is not None for e in node.expressions)
                else handler(binder, node)
            )
        if kind is exp.Between:
            low, high = (_operands(binder, node, node.args[key], values) for key in ("low", "high"))
            bounds = _compare(binder, ">=", *low, node), _compare(binder, "<=", *high, node)
            return Call("and", bounds, BOOLEAN, binder.position(node))
        if row_of(node.expression) is None:
            return handler(binder, node)
        return _compare(binder, COMPARISON[kind], *_operands(binder, node, node.expression, values), node)

    return bind


def _operands(binder: Binder, node: exp.Expr, other: exp.Expr, values: list[exp.Expr]) -> tuple[list[Expr], list[Expr]]:
    others = row_of(other)
    if others is None or len(others) != len(values):
        raise binder.error(
            f"a row of {len(values)} values is compared with {'no row' if others is None else f'one of {len(others)}'}",
            node,
        )
    return [binder.operand(v) for v in values], [binder.operand(v) for v in others]


def _in(binder: Binder, node: exp.In, values: list[exp.Expr]) -> Expr:
    tests = tuple(_compare(binder, "=", *_operands(binder, node, option, values), node) for option in node.expressions)
    return tests[0] if len(tests) == 1 else Call("or", tests, BOOLEAN, binder.position(node))


def _compare(binder: Binder, op: str, left: list[Expr], right: list[Expr], node: exp.Expr) -> Expr:
    position = binder.position(node)
    if op in (">", ">="):
        left, right, op = right, left, "<" if op == ">" else "<="
    same = [compare(binder, "is_not_distinct_from", a, b, position) for a, b in zip(left, right, strict=True)]
    if op in ("=", "is_not_distinct_from", "<>", "is_distinct_from"):
        equal = same[0] if len(same) == 1 else Call("and", tuple(same), BOOLEAN, position)
        return equal if op in ("=", "is_not_distinct_from") else Call("not", (equal,), BOOLEAN, position)
    result: Expr = TRUE if op == "<=" else FALSE
    for a, b, equal in reversed(list(zip(left, right, same, strict=True))):
        less = compare(binder, "<", a, b, position)
        a_null, b_null = (Call("is_null", (arg,), BOOLEAN) for arg in less.args)
        result = Case(((equal, result), (a_null, FALSE), (b_null, TRUE)), less)
    return result
