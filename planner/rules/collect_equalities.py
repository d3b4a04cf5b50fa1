"""collect_equalities: a disjunction of equalities of one expression with constants becomes a list.

filter x = 1 OR x = 2 OR y > 3   ->   filter x IN (1, 2) OR y > 3
"""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Call, Column, Expr, InList, Literal, rewrite
from tsql.kernels.expr.types import BOOLEAN
from tsql.planner.logical.nodes import Filter, Join, Node
from tsql.planner.rules.framework import BOTTOM_UP, rule


@rule(BOTTOM_UP, about=(Filter, Join))
def collect_equalities(node: Filter | Join) -> Node:
    return node.map_expressions(lambda e: rewrite(e, _collect))


def _collect(expr: Expr) -> Expr:
    if not (isinstance(expr, Call) and expr.name == "or"):
        return expr
    lists: dict[Column, list[Literal]] = {}
    merged = False
    for arg in expr.args:
        for column, options in _options(arg):
            merged |= column in lists
            lists.setdefault(column, []).extend(options)
    if not merged:
        return expr
    args: list[Expr] = []
    placed: set[Column] = set()
    for arg in expr.args:
        found = _options(arg)
        if not found:
            args.append(arg)
        elif found[0][0] not in placed:
            column = found[0][0]
            placed.add(column)
            args.append(InList(column, tuple(dict.fromkeys(lists[column])), getattr(arg, "position", None)))
    return args[0] if len(args) == 1 else replace(expr, args=tuple(args), dtype=BOOLEAN)


def _options(expr: Expr) -> list[tuple[Column, list[Literal]]]:
    """(column, constants) of `column = constant` or `column IN (constants)`."""
    match expr:
        case Call("=", (Column() as column, Literal() as literal)) | Call(
            "=", (Literal() as literal, Column() as column)
        ):
            return [(column, [literal])]
        case InList(Column() as column, options):
            constants = [o for o in options if isinstance(o, Literal)]
            return [(column, constants)] if len(constants) == len(options) else []
    return []
