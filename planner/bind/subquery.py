"""Binds subqueries in expressions. The caller defines their meaning: `Binder.subquery` gets the node of the whole
construct (the IN, the comparison with ANY, the EXISTS, or the query itself) and returns the expression of its value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.kernels.expr.nodes import Expr

if TYPE_CHECKING:
    from tsql.planner.bind.binder import Binder

QUERIES = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)


def bind_subquery(binder: Binder, node: exp.Expr) -> Expr:
    """The value of a subquery construct."""
    if binder.subquery is None:
        raise binder.error(f"a subquery is not allowed in {binder.clause}", node)
    return binder.subquery(binder, node)


def quantified(node: exp.Expr) -> tuple[exp.Expr, bool] | None:
    """The query of the right side of `x = ANY (SELECT ..)`, and whether the word is ALL; None for other operands."""
    if isinstance(node, (exp.Any, exp.All)) and isinstance(node.this, QUERIES):
        return node.this, isinstance(node, exp.All)
    return None


def listed_query(node: exp.In) -> exp.Expr | None:
    """The query of `x IN (SELECT ..)`; None for a list of values."""
    query = node.args.get("query")
    if query is None and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Values):
        return node.expressions[0]
    return query


def _bind_alone(binder: Binder, node: exp.Expr) -> Expr:
    word = "ALL" if isinstance(node, exp.All) else "ANY"
    raise binder.error(f"{word} stands behind a comparison with a subquery: x = {word} (SELECT ..)", node)


HANDLERS: dict[type[exp.Expr], Callable[[Binder, Any], Expr]] = {
    **dict.fromkeys(
        (exp.Subquery, exp.Select, exp.Union, exp.Intersect, exp.Except, exp.Values, exp.Exists), bind_subquery
    ),
    exp.Any: _bind_alone,
    exp.All: _bind_alone,
}
