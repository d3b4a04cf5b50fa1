"""The zones of group keys: of columns of the scan, and of expressions that keep their order (the hour of a time)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tsql.backends.local.progressive.populations import whole_numbers
from tsql.backends.local.progressive.zones import Zone
from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, Literal
from tsql.kernels.expr.types import Type

MONOTONE = {
    "time_pane": 0,
    "pane_time": 0,
    "date_trunc": 1,
    "time_bucket": 1,
    "year": 0,
    "epoch": 0,
    "epoch_ms": 0,
    "epoch_us": 0,
    "floor": 0,
    "ceil": 0,
    "ceiling": 0,
    "last_day": 0,
}
"""Functions that never decrease in this argument, if the others are constant."""

WHOLE_PARTS = ("year", "decade", "century", "millennium", "epoch")
"""Parts of a time that never decrease."""

Evaluate = Callable[[Expr, str, Type, np.ndarray], pa.Array]
"""The values of an expression over one column, given in stored form."""


def rising_column(expr: Expr) -> str | None:
    """The column with which an expression never decreases."""
    match expr:
        case Column(name):
            return name
        case Cast(arg, type, safe) if not safe and (_ordered(type) and _ordered(arg.type)):
            return rising_column(arg)
        case Call("+" | "-", (arg, Literal())) | Call("+", (Literal(), arg)):
            return rising_column(arg) if _ordered(expr.type) else None
        case Call("//" | "/", (arg, Literal(value, type))) if type.is_numeric and value is not None and value > 0:
            return rising_column(arg)
        case Call("date_part", (Literal(str(part)), arg)) if part.lower() in WHOLE_PARTS:
            return rising_column(arg)
        case Call(name, args) if name in MONOTONE:
            place = MONOTONE[name]
            others = [arg for i, arg in enumerate(args) if i != place]
            return rising_column(args[place]) if all(isinstance(one, Literal) for one in others) else None
    return None


def _ordered(type: Type) -> bool:
    return type.is_integer or type.is_decimal or type.is_temporal


def key_zone(expr: Expr | None, zone: Callable[[str], Zone | None], evaluate: Evaluate) -> Zone | None:
    """The zone of a key over the columns of the scan; None if it is not known."""
    if expr is None:
        return None
    if isinstance(expr, Column):
        return zone(expr.name)
    name = rising_column(expr)
    below = None if name is None or not _ordered(expr.type) else zone(name)
    if name is None or below is None or below.nullable or not _ordered(below.type) or below.dictionary is not None:
        return None
    column = next(node for node in expr.walk() if isinstance(node, Column))
    lows, highs = (evaluate(expr, name, column.type, ends) for ends in (below.lows, below.highs))
    if lows.null_count or highs.null_count:
        return None
    return Zone(expr.type, whole_numbers(lows, expr.type), whole_numbers(highs, expr.type), False)
