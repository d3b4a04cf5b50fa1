"""LIMIT, OFFSET and FETCH: numbers and percentages of rows, which are constants, to a Limit node. Called by `analyze_query.py`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from tsql.analyze_scope import Relation
from tsql.kernels.expr import Call, Expr, Literal
from tsql.kernels.types import BIGINT, DOUBLE, NULL, VARCHAR
from tsql.planner import logical
from tsql.planner.bind import Binder
from tsql.planner.bind_types import coerce

_WHOLE = {"+": operator.add, "-": operator.sub, "*": operator.mul}
Constants = Callable[[str], Binder]
"""Gives the binder of constants for a clause, which errors name."""


def limited(node: exp.Expr, relation: Relation, constants: Constants) -> Relation:
    """The relation, cut as LIMIT, OFFSET or FETCH of `node` say."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    if limit is None and offset is None:
        return relation
    options = limit.args.get("limit_options") if limit is not None else None
    percent = options is not None and bool(options.args.get("percent"))
    if isinstance(limit, exp.Fetch):
        if percent or (options is not None and options.args.get("with_ties")):
            raise constants("FETCH").error("FETCH with PERCENT or WITH TIES is not supported", limit)
        count_node = limit.args.get("count")
    else:
        count_node = limit.expression if limit is not None else None
    count = _percentage(count_node, constants("LIMIT")) if percent else _row_count(count_node, "LIMIT", constants("LIMIT"))
    skip = _row_count(offset.expression if offset is not None else None, "OFFSET", constants("OFFSET"))
    if count is None and skip is None:
        return relation
    return replace(relation, plan=logical.Limit(relation.plan, count, skip))


def _percentage(node: exp.Expr, binder: Binder) -> Expr | None:
    """The DOUBLE of `LIMIT n%`; None means all rows."""
    bound = binder.operand(node)
    if not (bound.type.is_numeric or bound.type in (NULL, VARCHAR)):
        raise binder.error(f"LIMIT takes a number, not {bound.type}", node)
    value = coerce(bound, DOUBLE)
    if isinstance(value, Literal) and value.value is not None and not 0 <= value.value <= 100:
        raise binder.error("Limit percent out of range, should be between 0% and 100%", node)
    return None if isinstance(value, Literal) and value.value is None else value


def _row_count(node: exp.Expr | None, clause: str, binder: Binder) -> Expr | None:
    """The BIGINT of LIMIT or OFFSET; None means all rows, or none to skip."""
    if node is None or (isinstance(node, (exp.Column, exp.Var)) and node.name.upper() == "ALL"):
        return None
    bound = _evaluate(binder.operand(node))
    if not (bound.type.is_numeric or bound.type in (NULL, VARCHAR)):
        raise binder.error(f"{clause} takes a number, not {bound.type}", node)
    value = coerce(bound, BIGINT)
    if isinstance(bound, Literal) and not isinstance(value, Literal):
        raise binder.error(f"{clause} takes a number: this cannot be cast to BIGINT", node)
    if isinstance(value, Literal):
        if value.value is None:
            return None
        if value.value < 0:
            raise binder.error(f"{clause} cannot be negative", node)
    return value


def _evaluate(expr: Expr) -> Expr:
    """Sums, differences and products of whole numbers, done: `LIMIT 2 * 10` is a constant for every later stage."""
    if not isinstance(expr, Call) or expr.name not in _WHOLE or not expr.dtype.is_integer:
        return expr
    args = [_evaluate(arg) for arg in expr.args]
    if not all(isinstance(arg, Literal) and isinstance(arg.value, int) for arg in args):
        return expr
    value = _WHOLE[expr.name](*(arg.value for arg in args))
    low, high = expr.dtype.bounds
    return Literal(value, expr.dtype, expr.position) if low <= value <= high else expr
