"""unwrap_casts: a comparison of a widened column with a constant becomes a comparison of the column itself.

    CAST(d AS TIMESTAMP) <= TIMESTAMP '1998-09-02 00:00:00'   ->   d <= DATE '1998-09-02'

Done where the cast is exact and keeps the order, so that zone maps, codes and narrow columns can be used. A constant
that lies between two values of the column's type moves to the neighbour that keeps the meaning (`d < 5.5` is `d <= 5`).
"""

from __future__ import annotations

from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, InList, Literal, rewrite
from tsql.kernels.expr.types import BOOLEAN
from tsql.planner.logical.failing import widening_unit
from tsql.planner.logical.nodes import Filter, Join, Node
from tsql.planner.rules.framework import BOTTOM_UP, rule

MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


@rule(BOTTOM_UP, about=(Filter, Join))
def unwrap_casts(node: Filter | Join) -> Node:
    return node.map_expressions(lambda e: rewrite(e, _unwrap))


def _unwrap(expr: Expr) -> Expr:
    match expr:
        case Call("<" | "<=" | ">" | ">=" | "=" | "<>" as op, (Literal() as literal, Cast() as cast)):
            return _compare(expr, MIRROR[op], cast, literal)
        case Call("<" | "<=" | ">" | ">=" | "=" | "<>" as op, (Cast() as cast, Literal() as literal)):
            return _compare(expr, op, cast, literal)
        case InList(Cast() as cast, options):
            constants = tuple(o for o in options if isinstance(o, Literal))
            return _in_list(expr, cast, constants) if len(constants) == len(options) else expr
    return expr


def _compare(expr: Call, op: str, cast: Cast, literal: Literal) -> Expr:
    column, unit = cast.arg, widening_unit(cast.arg.type, cast.type)
    if (
        unit is None
        or cast.safe
        or not isinstance(column, Column)
        or literal.value is None
        or abs(literal.value) >= 2**62
    ):
        return expr
    whole, rest = divmod(literal.value, unit)
    if rest and op in ("=", "<>"):
        return expr
    if rest:
        op = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}[op]
    low, high = column.type.bounds
    if not low <= whole <= high:
        return expr
    return Call(op, (column, Literal(whole, column.type, literal.position)), BOOLEAN, expr.position)


def _in_list(expr: InList, cast: Cast, options: tuple[Literal, ...]) -> Expr:
    column, unit = cast.arg, widening_unit(cast.arg.type, cast.type)
    if unit is None or cast.safe or not isinstance(column, Column):
        return expr
    low, high = column.type.bounds
    kept = []
    for option in options:
        if option.value is None:
            kept.append(Literal(None, column.type))
        elif option.value % unit == 0 and low <= option.value // unit <= high:
            kept.append(Literal(option.value // unit, column.type, option.position))
    return InList(column, tuple(kept), expr.position) if kept else expr
