"""What the zones of columns say about expressions: the least and greatest value in each unit, and whether a condition
holds for all of its rows. NULLs are left out of ranges; who sums up must know whether there are any."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tsql.backends.local.progressive.zones import Zone
from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, InList, Literal

ZoneOf = Callable[[str], Zone | None]
Range = tuple[np.ndarray, np.ndarray]

FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_800_000_000
"""Times between the years 1 and 10,000 can be in windows, whatever these are."""

COMPARISONS = ("<", "<=", ">", ">=", "=")


def range_of(expr: Expr, zone: ZoneOf, units: int) -> Range | None:
    """The bounds of a number in each unit, as doubles; None if they are not known."""
    if isinstance(expr, Column):
        known = zone(expr.name)
        return None if known is None else known.doubles()
    found = _computed(expr, zone, units)
    return _of_floats(found) if found is not None and expr.type.name == "FLOAT" else found


def _of_floats(found: Range) -> Range:
    """Bounds of what is rounded to 24 bits."""
    with np.errstate(over="ignore"):
        low, high = (end.astype(np.float32) for end in found)
    none = np.float32(np.inf)
    return np.nextafter(low, -none).astype(np.float64), np.nextafter(high, none).astype(np.float64)


def _computed(expr: Expr, zone: ZoneOf, units: int) -> Range | None:
    match expr:
        case Literal(value, type) if type.is_numeric and value is not None:
            exact = float(value) / 10**type.scale if type.is_decimal else float(value)
            return np.full(units, exact), np.full(units, exact)
        case Literal(int(value), type) if type.is_temporal:
            return np.full(units, float(value)), np.full(units, float(value))
        case Cast(arg, type) if type.is_numeric and arg.type.is_numeric:
            return _rounded(range_of(arg, zone, units), arg, type)
        case Call("neg", (arg,)):
            inner = range_of(arg, zone, units)
            return None if inner is None else (-inner[1], -inner[0])
        case Call("abs", (arg,)):
            inner = range_of(arg, zone, units)
            if inner is None:
                return None
            low, high = inner
            return np.maximum(0.0, np.maximum(low, -high)), np.maximum(np.abs(low), np.abs(high))
        case Call("+" | "-" | "*" | "/" as op, (left, right)) if expr.type.is_numeric:
            return _of_two(op, range_of(left, zone, units), range_of(right, zone, units))
        case Case(whens, otherwise) if expr.type.is_numeric:
            values = [otherwise, *(value for _, value in whens)]
            return _hull([range_of(v, zone, units) for v in values if not _is_null(v)])
    return None


def _is_null(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value is None


def _rounded(inner: Range | None, arg: Expr, type: object) -> Range | None:
    """A cast moves a value by less than one, if it moves it at all."""
    if inner is None or arg.type == type or arg.type.is_integer:
        return inner
    return inner[0] - 1.0, inner[1] + 1.0


def _of_two(op: str, left: Range | None, right: Range | None) -> Range | None:
    if left is None or right is None:
        return None
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        if op == "+":
            low, high = left[0] + right[0], left[1] + right[1]
        elif op == "-":
            low, high = left[0] - right[1], left[1] - right[0]
        else:
            if op == "/" and np.any((right[0] <= 0) & (right[1] >= 0)):
                return None
            ends = [left[i] * right[j] if op == "*" else left[i] / right[j] for i in (0, 1) for j in (0, 1)]
            low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
    # Arithmetic of doubles rounds.
    return np.nextafter(low, -np.inf), np.nextafter(high, np.inf)


def _hull(ranges: list[Range | None]) -> Range | None:
    known = [one for one in ranges if one is not None]
    if not known or len(known) < len(ranges):
        return None
    return np.minimum.reduce([one[0] for one in known]), np.maximum.reduce([one[1] for one in known])


def always(condition: Expr | None, zone: ZoneOf, units: int) -> np.ndarray:
    """Whether a condition is true for all rows of a unit."""
    no = np.zeros(units, np.bool_)
    match condition:
        case Call("and", args):
            return np.logical_and.reduce([always(arg, zone, units) for arg in args])
        case Call("or", args):
            return np.logical_or.reduce([always(arg, zone, units) for arg in args])
        case Call(op, (left, right)) if op in COMPARISONS:
            if may_be_null(left, zone) or may_be_null(right, zone):
                return no
            a, b = range_of(left, zone, units), range_of(right, zone, units)
            if a is None or b is None:
                return no
            match op:
                case "<":
                    return a[1] < b[0]
                case "<=":
                    return a[1] <= b[0]
                case ">":
                    return a[0] > b[1]
                case ">=":
                    return a[0] >= b[1]
                case _:
                    return (a[0] == a[1]) & (b[0] == b[1]) & (a[0] == b[0])
        case Call("has_time", (Column(name), *_)):
            found = zone(name)
            if found is not None and not found.nullable:
                return (found.lows > FIRST_US) & (found.highs < LAST_US)
    return no


def never(condition: Expr | None, zone: ZoneOf, units: int) -> np.ndarray:
    """Whether a condition is true for no row of a unit."""
    no = np.zeros(units, np.bool_)
    match condition:
        case Call("and", args):
            return np.logical_or.reduce([never(arg, zone, units) for arg in args])
        case Call("or", args):
            return np.logical_and.reduce([never(arg, zone, units) for arg in args])
        case InList(arg, options):
            parts = [never(Call("=", (arg, option), condition.type), zone, units) for option in options]
            return np.logical_and.reduce(parts) if parts else no
        case Call(op, (left, right)) if op in COMPARISONS:
            a, b = range_of(left, zone, units), range_of(right, zone, units)
            if a is None or b is None or left.type.is_float or right.type.is_float:
                # NaN is above all numbers, and the statistics of files leave it out.
                return no
            match op:
                case "<":
                    return a[0] >= b[1]
                case "<=":
                    return a[0] > b[1]
                case ">":
                    return a[1] <= b[0]
                case ">=":
                    return a[1] < b[0]
                case _:
                    return (a[1] < b[0]) | (b[1] < a[0])
    return no


def may_be_null(expr: Expr, zone: ZoneOf) -> bool:
    """Whether an expression of the kinds above may be NULL for a row."""
    for node in expr.walk():
        if isinstance(node, Column):
            found = zone(node.name)
            if found is None or found.nullable:
                return True
        elif isinstance(node, Literal):
            if node.value is None:
                return True
        elif not (isinstance(node, Cast) and not node.safe) and not (
            isinstance(node, Call) and node.name in ("+", "-", "*", "neg", "abs", *COMPARISONS)
        ):
            return True
    return False
