"""Which expressions may fail for some row, and which casts cannot. An expression that may fail is not moved to a place
with more rows."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Call, Cast, Expr
from tsql.kernels.expr.types import Type
from tsql.kernels.functions.registry import SCALARS

DAY_US = 86_400_000_000
OUT_OF_RANGE_ONLY = {
    "+",
    "-",
    "*",
    "neg",
    "abs",
    "round",
    "substring",
    "substr",
    "left",
    "right",
    "date_part",
    "date_trunc",
}
"""Functions that fail only for numbers and dates out of range."""


def widening_unit(source: Type, target: Type) -> int | None:
    """How many units of the target's stored form make one of the source's; None if the cast is not such a widening."""
    if source.name == "DATE" and target.name in ("TIMESTAMP", "TIMESTAMPTZ"):
        return DAY_US
    if source.is_integer and target.is_integer:
        wider = target.bounds[0] <= source.bounds[0] and source.bounds[1] <= target.bounds[1]
        return 1 if wider else None
    if (source.is_integer or source.is_decimal) and target.is_decimal:
        factor = 10 ** (target.scale - source.scale) if target.scale >= source.scale else None
        if factor is None:
            return None
        low, high = source.bounds
        return factor if target.bounds[0] <= low * factor and high * factor <= target.bounds[1] else None
    return None


def is_widening(source: Type, target: Type) -> bool:
    """Whether every value of the source has a value of the target: such a cast cannot fail."""
    return source == target or source.name == "NULL" or widening_unit(source, target) is not None


def may_fail(expr: Expr) -> bool:
    """Whether some row could make an expression raise an error."""
    for node in expr.walk():
        match node:
            case Call() if SCALARS.find(node.name, tuple(a.type for a in node.args)).can_fail:
                return True
            case Cast() if not node.safe and not is_widening(node.arg.type, node.type):
                return True
    return False


def is_risky(expr: Expr) -> bool:
    """Whether an expression may fail for another reason than a number out of range. Such a condition stays above a join
    whose condition may keep bad rows away from it. (Arithmetic does move: all engines do it, and joins need their
    filters early.)"""
    for node in expr.walk():
        match node:
            case Call() if node.name in OUT_OF_RANGE_ONLY:
                continue
            case Call() if SCALARS.find(node.name, tuple(a.type for a in node.args)).can_fail:
                return True
            case Cast() if (
                not node.safe
                and not (node.arg.type.is_numeric and node.type.is_numeric)
                and not is_widening(node.arg.type, node.type)
            ):
                return True
    return False
