"""Literal intervals in the syntax tree: their lengths, and what a window, a step or a tolerance may be."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from sqlglot import exp

from tsql.planner.bind.fold import INTERVAL_UNITS, parse_interval

Parts = tuple[int, int, int]
"""Months, days, microseconds."""

DAY_US = 86_400_000_000
LONGEST_US = 2**62
"""The longest interval with which window arithmetic stays within 64 bits: 146 thousand years."""


def constant_interval(node: exp.Expr | None) -> Parts | None:
    """The value of an interval that is written as a literal; None for anything else."""
    match node:
        case exp.Paren():
            return constant_interval(node.this)
        case exp.Neg():
            inner = constant_interval(node.this)
            return None if inner is None else _times(inner, Decimal(-1))
        case exp.Cast(this=exp.Literal() as literal, to=target) if literal.is_string and target.is_type("interval"):
            return parse_interval(literal.name)
        case exp.Interval():
            return _interval(node)
    return None


def _interval(node: exp.Interval) -> Parts | None:
    unit, value = node.args.get("unit"), node.this
    sign = 1
    while isinstance(value, (exp.Paren, exp.Neg)):
        sign, value = (-sign if isinstance(value, exp.Neg) else sign), value.this
    if not isinstance(value, exp.Literal):
        return None
    if unit is None:
        return parse_interval(value.name)
    try:
        amount = Decimal(value.name)
    except InvalidOperation:
        return None
    lowered = unit.name.lower()
    if not lowered.startswith(("second", "millisecond")):
        amount = Decimal(int(amount))  # only these two have fractions, as in DuckDB
    singular = {"centuries": "century", "millennia": "millennium"}.get(lowered, lowered.removesuffix("s"))
    return _times(INTERVAL_UNITS[singular], sign * amount)


def _times(parts: Parts, amount: Decimal) -> Parts:
    months, days, us = parts
    return int(months * amount), int(days * amount), int(us * amount)


def length_us(parts: Parts) -> int:
    """Days and microseconds as microseconds; months have no length."""
    return parts[1] * DAY_US + parts[2]


def shown(us: int) -> str:
    """A length as an interval is written: `INTERVAL '90 minutes'`, in the largest unit that divides it."""
    for unit, step in (
        ("day", DAY_US),
        ("hour", 3_600_000_000),
        ("minute", 60_000_000),
        ("second", 1_000_000),
        ("millisecond", 1000),
        ("microsecond", 1),
    ):
        if us % step == 0:
            count = us // step
            return f"INTERVAL '{count} {unit}{'' if abs(count) == 1 else 's'}'"
    raise AssertionError("every length is a number of microseconds")
