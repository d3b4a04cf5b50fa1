"""Estimates of columns: a source's statistics of a column behind other nodes, and the distinct values of an
expression."""

from __future__ import annotations

from typing import Any

from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.statistics import ColumnStatistics
from tsql.kernels.expr.types import BOOLEAN
from tsql.planner.cost import constants as cost
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.generating import Recursive, Series
from tsql.planner.logical.match import Match
from tsql.planner.logical.nodes import (
    Aggregate,
    Filter,
    Join,
    Limit,
    Node,
    Project,
    Scan,
    SetOperation,
    Sort,
    Values,
    Window,
)
from tsql.planner.logical.snapshot import SnapshotAggregate


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


def column_statistics(node: Node, name: str) -> ColumnStatistics | None:
    """What the source says of a column that a node passes through unchanged."""
    while True:
        match node:
            case Scan():
                columns = node.source.statistics().columns if hasattr(node.source, "statistics") else {}
                known: ColumnStatistics | None = columns.get(name)
                return known
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
