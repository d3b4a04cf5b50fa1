"""Functions defined by an expression, like DuckDB's macros. The expression replaces the call before binding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from tsql.planner.bind.syntax_nodes import CallNode

if TYPE_CHECKING:
    from tsql.kernels.expr.nodes import Expr
    from tsql.planner.bind.binder import Binder


def _call(name: str, *args: exp.Expr) -> CallNode:
    return CallNode(this=name, expressions=[arg.copy() for arg in args])


def _weighted_avg(value: exp.Expr, weight: exp.Expr) -> exp.Expr:
    """The mean in which a value counts as much as its weight says."""
    known = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
    weights = exp.Case(ifs=[exp.If(this=known, true=weight.copy())], default=exp.Literal.number(0))
    product = exp.Mul(this=exp.Paren(this=value.copy()), expression=exp.Paren(this=weight.copy()))
    return exp.Div(this=_call("sum", product), expression=_call("sum", weights))


def _days_in_month(date: exp.Expr) -> exp.Expr:
    return _call("day", _call("last_day", date))


def _not(name: str) -> Callable[..., exp.Expr]:
    return lambda *args: exp.Not(this=_call(name, *args))


MACROS: dict[str, tuple[int, Callable[..., exp.Expr]]] = {
    "weighted_avg": (2, _weighted_avg),
    "wavg": (2, _weighted_avg),
    "days_in_month": (1, _days_in_month),
    "not_like_escape": (3, _not("like_escape")),
    "not_ilike_escape": (3, _not("ilike_escape")),
}
"""Maps a name to the number of arguments and the expression over them."""


def bind_macro(binder: Binder, node: CallNode) -> Expr:
    """The expression that a macro stands for, bound."""
    count, body = MACROS[node.name]
    if len(node.expressions) != count:
        raise binder.error(
            f"{node.name} takes {count} argument{'s' if count > 1 else ''}, not {len(node.expressions)}", node
        )
    expanded = body(*node.expressions)
    for part in expanded.walk():
        if isinstance(part, (CallNode, exp.Binary, exp.Not, exp.Case)) and not (part._meta or {}).get("at"):
            part.meta["at"] = binder.position(node)
    return binder.operand(expanded)
