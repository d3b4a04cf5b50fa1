"""Estimates: how many rows a logical node yields, how many groups keys make. Only costs depend on them, never
results."""

from __future__ import annotations

from typing import Any

from tsql.kernels.expr.nodes import Call, Column, Expr, InList, Literal
from tsql.kernels.expr.statistics import ColumnStatistics
from tsql.kernels.expr.types import BOOLEAN
from tsql.planner.cost import constants as cost
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.generating import Recursive, Sample, Series, Working
from tsql.planner.logical.match import Match
from tsql.planner.logical.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Limit,
    LimitBy,
    Node,
    Project,
    Scan,
    SetOperation,
    Sort,
    Values,
    Window,
)
from tsql.planner.logical.snapshot import SnapshotAggregate


def rows(node: Node) -> float:
    """The estimated number of rows; it is remembered with the node."""
    known: float | None = node.__dict__.get("_rows")
    if known is None:
        known = _rows(node)
        object.__setattr__(node, "_rows", known)
    return known


def _rows(node: Node) -> float:
    match node:
        case Scan():
            known = node.source.statistics().rows if hasattr(node.source, "statistics") else None
            return cost.UNKNOWN_ROWS if known is None else float(known)
        case Values():
            return float(len(node.rows))
        case Filter():
            below, parts = node, []
            while isinstance(below, Filter):
                parts.append(below.predicate)
                below = below.input
            return rows(below) * joint_selectivity(parts, below)
        case Aggregate():
            return groups([e for _, e in node.keys], node.input) * (len(node.sets) if node.sets else 1)
        case Distinct():
            return groups([Column(f.name, f.type) for f in node.schema], node.input)
        case Limit() if isinstance(node.count, Literal) and node.count.value is not None:
            below = rows(node.input)
            return below * node.count.value / 100 if node.count.type.is_float else min(below, float(node.count.value))
        case LimitBy() if isinstance(node.count, Literal) and node.count.value is not None:
            keys: list[Expr] = [Column(n, node.schema[n].type) for n in node.by]
            return min(rows(node.input), groups(keys, node.input) * float(node.count.value))
        case SetOperation():
            return rows(node.left) + rows(node.right)
        case AsofJoin():
            return rows(node.left)
        case Join():
            from tsql.planner.cost.join_stats import join_rows

            return join_rows(node)
        case SnapshotAggregate():
            return 2 * rows(node.input)
        case Series():
            return rows(node.input) * series_rows(node.start, node.stop, node.step)
        case Sample():
            below = rows(node.input)
            return below * node.percent / 100 if node.rows is None else min(below, float(node.rows))
        case Match() if node.spec.is_one_row:
            return rows(node.input) * cost.MATCHED
        case Recursive():
            return rows(node.initial) * cost.ROUNDS
        case Working():
            return cost.WORKING_ROWS
    return rows(node.inputs[0]) if node.inputs else 1.0


def series_rows(start: Expr, stop: Expr, step: Expr) -> float:
    """The estimated number of values of a series."""
    known = [e.value for e in (start, stop, step) if isinstance(e, Literal) and isinstance(e.value, int)]
    if len(known) < 3 or known[2] == 0:
        return cost.SERIES_ROWS
    return max(0.0, (known[1] - known[0]) / known[2])


def _series_statistics(node: Series) -> ColumnStatistics | None:
    known = [e.value for e in (node.start, node.stop, node.step) if isinstance(e, Literal) and isinstance(e.value, int)]
    if len(known) < 3 or known[2] == 0:
        return None
    return ColumnStatistics(
        min(known[:2]), max(known[:2]), 0, max(1, int(series_rows(node.start, node.stop, node.step)))
    )


def column_statistics(node: Node, name: str) -> object | None:
    """What the source says of a column that a node passes through unchanged."""
    while True:
        match node:
            case Scan():
                return node.source.statistics().columns.get(name) if hasattr(node.source, "statistics") else None
            case Project():
                expr = dict(node.columns).get(name)
                if not isinstance(expr, Column):
                    return None
                name, node = expr.name, node.input
            case Aggregate():
                expr = dict(node.keys).get(name)
                if not isinstance(expr, Column):
                    return None
                name, node = expr.name, node.input
            case Join() | AsofJoin():
                side = node.left if name in node.left.schema else node.right
                if name not in side.schema:
                    return None
                node = side
            case SetOperation() | Values() | Recursive():
                return None
            case Series() if name == node.column:
                return _series_statistics(node)
            case Window() | Match() if name not in node.input.schema:
                return None
            case SnapshotAggregate() if name not in node.keys:
                return None
            case _:
                if len(node.inputs) != 1:
                    return None
                node = node.inputs[0]


def _computed(column: Column, node: Node) -> tuple[Expr, Node] | None:
    """The expression that computes a column, and the node that it is computed from; None for what no projection
    computes."""
    while True:
        match node:
            case Project():
                expr = dict(node.columns).get(column.name)
                if not isinstance(expr, Column):
                    return None if expr is None else (expr, node.input)
                column, node = expr, node.input
            case Filter() | Sort() | Limit():
                node = node.input
            case Join():
                node = node.left if column.name in node.left.schema else node.right
            case _:
                return None
        if column.name not in node.schema:
            return None


def distinct(expr: Expr, node: Node) -> float | None:
    """The estimated number of distinct values of an expression, if anything is known."""
    if expr.type == BOOLEAN:
        return 2.0
    if (
        isinstance(expr, Call)
        and expr.name == "%"
        and isinstance(expr.args[1], Literal)
        and isinstance(expr.args[1].value, int)
    ):
        return float(max(1, abs(expr.args[1].value)))
    columns = expr.columns()
    if len(columns) != 1:
        return None
    known = column_statistics(node, columns[0])
    if known is None:
        below = _computed(expr, node) if isinstance(expr, Column) else None
        return None if below is None else distinct(*below)
    values = _values_of_part(expr, known)
    if values is not None:
        return values
    if known.distinct is not None:
        return float(known.distinct)
    if isinstance(known.minimum, int) and isinstance(known.maximum, int):
        return float(known.maximum - known.minimum + 1)
    return None


def groups(keys: list[Expr], node: Node) -> float:
    """The estimated number of groups."""
    total = rows(node)
    if not keys:
        return 1.0
    product = 1.0
    for key in keys:
        known = distinct(key, node)
        product *= max(1.0, total * cost.GROUPS_OF_UNKNOWN_KEYS) if known is None else known
    return max(1.0, min(product, total))


PARTS_OF_DATES = {
    "month": 12.0,
    "quarter": 4.0,
    "day": 31.0,
    "dow": 7.0,
    "dayofweek": 7.0,
    "isodow": 7.0,
    "week": 53.0,
    "doy": 366.0,
    "hour": 24.0,
    "minute": 60.0,
    "second": 60.0,
}
DAYS = {"DATE": 1, "TIMESTAMP": 86_400_000_000, "TIMESTAMPTZ": 86_400_000_000}


def _values_of_part(expr: Expr, known: Any) -> float | None:
    """How many values a part of a date has, and how many panes a time is in."""
    match expr:
        case Call("date_part", (Literal() as part, Column() as column)):
            name = str(part.value).lower()
            if (
                name == "year"
                and column.type.name in DAYS
                and isinstance(known.minimum, int)
                and isinstance(known.maximum, int)
            ):
                return (known.maximum - known.minimum) / (DAYS[column.type.name] * 365.25) + 1
            return PARTS_OF_DATES.get(name)
        case Call("time_pane" | "time_floor", (Column(), Literal(value=int() as width), Literal())) if (
            width > 0 and isinstance(known.minimum, int) and isinstance(known.maximum, int)
        ):
            return float((known.maximum - known.minimum) // width + 1)
    return None


def joint_selectivity(parts: list[Expr], node: Node) -> float:
    """The estimated part of rows for which all predicates are true; a lower and an upper bound of one column are a
    range."""
    result = 1.0
    bounds: dict[str, list[float]] = {}
    for part in parts:
        match part:
            case Call("<" | "<=" | ">" | ">=" as name, (Column() as column, Literal() as literal)):
                kept = _range_selectivity(name, column, literal, node)
                if kept is not None:
                    span = bounds.setdefault(column.name, [0.0, 1.0])
                    span[0 if name[0] == ">" else 1] = (
                        max(span[0], 1.0 - kept) if name[0] == ">" else min(span[1], kept)
                    )
                    continue
        result *= selectivity(part, node)
    for low, high in bounds.values():
        result *= max(cost.LEAST_RANGE, high - low)
    return result


def selectivity(predicate: Expr, node: Node) -> float:
    """The estimated part of rows for which a predicate is true."""
    match predicate:
        case Call("and", args):
            return joint_selectivity(list(args), node)
        case Call("or", args):
            return min(1.0, sum(selectivity(a, node) for a in args))
        case Call("not", (arg,)):
            return 1.0 - selectivity(arg, node)
        case Call("=" | "is_not_distinct_from", (Column() as column, Column() as other)):
            both = [d for d in (distinct(column, node), distinct(other, node)) if d is not None]
            return 1.0 / max(*both, 1.0) if both else cost.EQUALITY_SELECTIVITY
        case Call("=", (Column() as column, _)):
            known = distinct(column, node)
            return cost.EQUALITY_SELECTIVITY if known is None else 1.0 / max(known, 1.0)
        case Call("<>", args):
            return 1.0 - selectivity(Call("=", args, predicate.type), node)
        case Call("has_time" | "has_start", (arg, *_)):
            return 1.0 - _null_part(arg, node)
        case Call("is_null", (arg,)):
            return _null_part(arg, node)
        case Call("is_not_null" | "isfinite", (arg,)):
            return 1.0 - _null_part(arg, node)
        case Call("<" | "<=" | ">" | ">=" as name, (Column() as column, Literal() as literal)):
            kept = _range_selectivity(name, column, literal, node)
            return cost.FILTER_SELECTIVITY if kept is None else kept
        case Call("like" | "ilike" | "contains" | "starts_with" | "ends_with" | "prefix" | "suffix" | "glob"):
            return cost.LIKE_SELECTIVITY
        case InList(arg, options):
            return min(1.0, len(options) * selectivity(Call("=", (arg, options[0]), predicate.type), node))
    return cost.FILTER_SELECTIVITY


def _null_part(expr: Expr, node: Node) -> float:
    """The estimated part of rows in which an expression is NULL."""
    known = column_statistics(node, expr.name) if isinstance(expr, Column) else None
    if known is None or known.nulls is None:
        return cost.NULL_PART
    while isinstance(node, Join):
        # The rows of the join itself are what is being estimated.
        node = node.left if expr.name in node.left.schema else node.right
    return min(1.0, known.nulls / max(1.0, rows(node)))


def _range_selectivity(name: str, column: Column, literal: Literal, node: Node) -> float | None:
    known = column_statistics(node, column.name)
    low, high, value = getattr(known, "minimum", None), getattr(known, "maximum", None), literal.value
    if not all(isinstance(v, int | float) for v in (low, high, value)) or high <= low:
        return None
    below = min(1.0, max(0.0, (value - low) / (high - low)))
    return below if name[0] == "<" else 1.0 - below
