"""LIMIT, OFFSET and FETCH: numbers and percentages of rows, to a Limit node. Called by `query.py`.

A Limit node takes constants. If a subquery gives the number of rows, the rows are numbered and joined with the single
row of these values, and a filter on the number replaces the limit."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from tsql.analyze.scope import AnalyzedRelation, Names
from tsql.analyze.subquery import Level, computed_rows, pendings
from tsql.kernels.expr.nodes import Call, Case, Column, Expr, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DOUBLE, NULL, VARCHAR
from tsql.kernels.windows.call import WHOLE_PARTITION, WindowCall
from tsql.planner.bind.binder import Binder
from tsql.planner.bind.types import coerce
from tsql.planner.logical import nodes as logical

_WHOLE = {"+": operator.add, "-": operator.sub, "*": operator.mul}
Constants = Callable[[str], Binder]
"""Gives the binder of constants for a clause, which errors name."""
_PERCENT_RANGE = "Limit percent out of range, should be between 0% and 100%"


def limited(node: exp.Expr, relation: AnalyzedRelation, level: Level, constants: Constants) -> AnalyzedRelation:
    """The relation, cut as LIMIT, OFFSET or FETCH of `node` say; `level` has their subqueries."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    if limit is None and offset is None:
        return relation
    options = limit.args.get("limit_options") if limit is not None else None
    percent = options is not None and bool(options.args.get("percent"))
    if isinstance(limit, exp.Fetch):
        if percent:
            raise constants("FETCH").error(
                "FETCH with PERCENT is not supported", limit, "LIMIT 10% takes a part of the rows"
            )
        count_node = limit.args.get("count")
    else:
        count_node = limit.expression if limit is not None else None
    count = (
        _percentage(count_node, constants("LIMIT")) if percent else _row_count(count_node, "LIMIT", constants("LIMIT"))
    )
    skip = _row_count(offset.expression if offset is not None else None, "OFFSET", constants("OFFSET"))
    if count is None and skip is None:
        return relation
    if any(value is not None and pendings(value) for value in (count, skip)):
        return _limited_by_query(relation, level, count, skip)
    return replace(relation, plan=logical.Limit(relation.plan, count, skip))


def _percentage(node: exp.Expr, binder: Binder) -> Expr | None:
    """The DOUBLE of `LIMIT n%`; None means all rows."""
    bound = binder.operand(node)
    if not (bound.type.is_numeric or bound.type in (NULL, VARCHAR)):
        raise binder.error(f"LIMIT takes a number, not {bound.type}", node)
    value = coerce(bound, DOUBLE)
    if isinstance(value, Literal) and value.value is not None and not 0 <= value.value <= 100:
        raise binder.error(_PERCENT_RANGE, node)
    return None if isinstance(value, Literal) and value.value is None else value


def _row_count(node: exp.Expr | None, clause: str, binder: Binder) -> Expr | None:
    """The BIGINT of LIMIT or OFFSET; None means all rows, or none to skip."""
    if node is None or (isinstance(node, (exp.Column, exp.Var)) and node.name.upper() == "ALL"):
        return None
    bound = _evaluate(binder.operand(node))
    if not (bound.type.is_numeric or bound.type in (NULL, VARCHAR, BOOLEAN)):
        raise binder.error(f"{clause} takes a number, not {bound.type}", node)
    # As in DuckDB, a DECIMAL of a subquery is rounded as a DOUBLE is, the half to the even number.
    value = coerce(coerce(bound, DOUBLE) if bound.type.is_decimal and pendings(bound) else bound, BIGINT)
    if isinstance(bound, Literal) and not isinstance(value, Literal):
        raise binder.error(f"{clause} takes a number: this cannot be cast to BIGINT", node)
    if isinstance(value, Literal):
        if value.value is None:
            return None
        if value.value < 0:
            raise binder.error(f"{clause} cannot be negative", node)
    return value


def _limited_by_query(
    relation: AnalyzedRelation, level: Level, count: Expr | None, skip: Expr | None
) -> AnalyzedRelation:
    """The relation limited by values of subqueries. `rows`: how many rows (NULL: all), or which percentage. `skipped`:
    how many rows to skip."""
    plan, is_part = relation.plan, count is not None and count.type.is_float
    names = Names((*plan.schema.names, *level.queries.taken))
    number, total, rows, skipped = (
        names.unique(name) for name in ("row_number", "rows_in_all", "rows_wanted", "rows_skipped")
    )
    order = plan.keys if isinstance(plan, logical.Sort) else ()
    numbered: logical.Node = logical.Window(plan, (), order, ((number, WindowCall("row_number", (), BIGINT)),))
    if is_part:
        numbered = logical.Window(numbered, (), (), ((total, WindowCall("count_star", (), BIGINT, WHOLE_PARTITION)),))
    wanted = Literal(None, BIGINT) if count is None else _checked(count, "LIMIT")
    values = computed_rows(
        level, [(wanted, Literal(0, BIGINT) if skip is None else _checked(skip, "OFFSET"))], [rows, skipped]
    )
    start = Call("coalesce", (Column(skipped, BIGINT), Literal(0, BIGINT)), BIGINT)
    # rows - skipped > 0: neither side of the comparisons can overflow.
    place = Call("-", (Column(number, BIGINT), start), BIGINT)
    last: Expr = Column(rows, wanted.type)
    if is_part:
        last = coerce(
            Call(
                "floor",
                (
                    Call(
                        "*",
                        (Call("/", (last, Literal(100.0, DOUBLE)), DOUBLE), coerce(Column(total, BIGINT), DOUBLE)),
                        DOUBLE,
                    ),
                ),
                DOUBLE,
            ),
            BIGINT,
        )
    within = Call("or", (Call("is_null", (last,), BOOLEAN), Call("<=", (place, last), BOOLEAN)), BOOLEAN)
    condition = Call("and", (Call(">", (place, Literal(0, BIGINT)), BOOLEAN), within), BOOLEAN)
    cut: logical.Node = logical.Filter(logical.Join("inner", numbered, values), condition)
    cut = logical.Project(cut, tuple((f.name, Column(f.name, f.type, f.nullable)) for f in plan.schema))
    return replace(relation, plan=logical.Sort(cut, order) if order else cut)


def _checked(value: Expr, clause: str) -> Expr:
    """The value of a subquery in LIMIT or OFFSET; it fails where it is out of range."""
    low, high = Literal(0, BIGINT), Literal(100, BIGINT)
    wrong, message = Call("<", (value, coerce(low, value.type)), BOOLEAN), f"{clause} cannot be negative"
    if value.type.is_float:
        wrong, message = (
            Call("or", (wrong, Call(">", (value, coerce(high, value.type)), BOOLEAN)), BOOLEAN),
            _PERCENT_RANGE,
        )
    failure = Call("error", (Literal(message, VARCHAR),), NULL, value.position)
    return Case(((wrong, coerce(failure, value.type)),), value)


def _evaluate(expr: Expr) -> Expr:
    """Evaluates sums, differences and products of integers, so that `LIMIT 2 * 10` is a constant for every later
    stage."""
    if not isinstance(expr, Call) or expr.name not in _WHOLE or not expr.dtype.is_integer:
        return expr
    args = [_evaluate(arg) for arg in expr.args]
    if not all(isinstance(arg, Literal) and isinstance(arg.value, int) for arg in args):
        return expr
    value = _WHOLE[expr.name](*(arg.value for arg in args))
    low, high = expr.dtype.bounds
    return Literal(value, expr.dtype, expr.position) if low <= value <= high else expr
