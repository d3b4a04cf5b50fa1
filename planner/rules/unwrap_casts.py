"""unwrap_casts: a comparison of a widened column with a constant becomes a comparison of the column itself.

    CAST(d AS TIMESTAMP) <= TIMESTAMP '1998-09-02 00:00:00'   ->   d <= DATE '1998-09-02'

Done where the cast is exact and keeps the order, so that zone maps, codes and narrow columns can be used. A constant
that lies between two values of the column's type moves to the neighbour that keeps the meaning (`d < 5.5` is `d <= 5`).
"""

from __future__ import annotations

from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, InList, Literal, rewrite
from tsql.kernels.expr.types import BOOLEAN, Type
from tsql.planner.logical.nodes import Filter, Join, Node
from tsql.planner.logical.tree import map_expressions, transform_up

MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
DAY_US = 86_400_000_000


def unwrap_casts(plan: Node) -> Node:
    return transform_up(plan, _node)


def _node(node: Node) -> Node:
    return map_expressions(node, lambda e: rewrite(e, _unwrap)) if isinstance(node, Filter | Join) else node


def _unwrap(expr: Expr) -> Expr:
    match expr:
        case Call("<" | "<=" | ">" | ">=" | "=" | "<>" as op, (Literal() as literal, Cast() as cast)):
            return _compare(expr, MIRROR[op], cast, literal)
        case Call("<" | "<=" | ">" | ">=" | "=" | "<>" as op, (Cast() as cast, Literal() as literal)):
            return _compare(expr, op, cast, literal)
        case InList(Cast() as cast, options) if all(isinstance(o, Literal) for o in options):
            return _in_list(expr, cast, options)
    return expr


def _unit(source: Type, target: Type) -> int | None:
    """How many units of the target's stored form make one of the source's; None if the cast is not such a widening."""
    if source.name == "DATE" and target.name in ("TIMESTAMP", "TIMESTAMPTZ"):
        return DAY_US
    if source.is_integer and target.is_integer:
        wider = target.bounds[0] <= source.bounds[0] and source.bounds[1] <= target.bounds[1]
        return 1 if wider else None
    if (source.is_integer or source.is_decimal) and target.is_decimal:
        factor = 10 ** (target.scale - source.scale) if target.scale >= source.scale else None
        if factor is None:
            return None
        low, high = source.bounds
        return factor if target.bounds[0] <= low * factor and high * factor <= target.bounds[1] else None
    return None


def is_widening(source: Type, target: Type) -> bool:
    """Whether every value of the source has a value of the target: such a cast cannot fail."""
    return source == target or source.name == "NULL" or _unit(source, target) is not None


def _compare(expr: Call, op: str, cast: Cast, literal: Literal) -> Expr:
    column, unit = cast.arg, _unit(cast.arg.type, cast.type)
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


def _in_list(expr: InList, cast: Cast, options: tuple[Expr, ...]) -> Expr:
    column, unit = cast.arg, _unit(cast.arg.type, cast.type)
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
