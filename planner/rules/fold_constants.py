"""fold_constants: an expression over constants becomes its value.

    filter d <= DATE '1998-12-01' - INTERVAL '90 days'   ->   filter d <= TIMESTAMP '1998-09-02 00:00:00'

An expression that would fail is left alone: it fails at run time, with its position, and only if a row reaches it.
"""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.constant import evaluate
from tsql.kernels.expr.nodes import Call, Case, Cast, Expr, Literal, rewrite
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.functions.registry import SCALARS
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.match import Match
from tsql.planner.logical.nodes import Aggregate, Filter, Join, Node, Project, Sort, Window
from tsql.planner.logical.predicates import TRUE
from tsql.planner.rules.framework import BOTTOM_UP, rule


@rule(BOTTOM_UP, about=(Filter, Join, AsofJoin, Window, Match, Project, Aggregate, Sort))
def fold_constants(node: Node) -> Node:
    node = node.map_expressions(fold)
    if isinstance(node, Filter) and node.predicate == TRUE:
        return node.input
    return replace(node, condition=None) if isinstance(node, Join | AsofJoin) and node.condition == TRUE else node


def fold(expr: Expr) -> Expr:
    return rewrite(expr, _fold)


def _fold(expr: Expr) -> Expr:
    match expr:
        case Call("and" | "or" as name, args):
            return _fold_connective(expr, name, args)
        case Call() | Cast():
            if not all(isinstance(c, Literal) for c in expr.children) or not _is_foldable(expr):
                return expr
            value = evaluate(expr)
            return expr if value is None else value
        case Case(whens, otherwise) if isinstance(whens[0][0], Literal):
            if whens[0][0].value is True:
                return whens[0][1]
            return Case(whens[1:], otherwise, expr.position) if len(whens) > 1 else otherwise
    return expr


def _is_foldable(expr: Call | Cast) -> bool:
    if isinstance(expr, Cast):
        return True
    function = SCALARS.find(expr.name, tuple(a.type for a in expr.args))
    return function.emit is not None and bool(expr.args)


def _fold_connective(expr: Call, name: str, args: tuple[Expr, ...]) -> Expr:
    """true AND x is x; false AND x is false (and the same for OR). NULLs stay."""
    deciding = name == "or"
    if any(isinstance(a, Literal) and a.value is deciding for a in args):
        return Literal(deciding, BOOLEAN)
    left = tuple(a for a in args if not (isinstance(a, Literal) and a.value is (not deciding)))
    if len(left) == len(args):
        return expr
    if not left:
        return Literal(not deciding, BOOLEAN)
    return left[0] if len(left) == 1 else replace(expr, args=left)
