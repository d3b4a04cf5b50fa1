"""Calls that DuckDB refuses because several overloads would do: a string literal or a bare NULL where the function is
defined for several types at the same cost, as in `year('2020-01-01')`. `bind_calls.scalar` asks before it resolves a
call."""

from __future__ import annotations

from collections.abc import Sequence

from tsql.kernels.expr.nodes import Expr, Literal
from tsql.kernels.expr.types import BIGINT, BLOB, BOOLEAN, NULL, Type
from tsql.planner.bind.types import is_bare_string

_PARTS = (
    "year", "quarter", "month", "week", "weekofyear", "yearweek", "isoyear", "day", "dayofmonth", "dayofweek",
    "dayofyear", "weekday", "isodow", "hour", "minute", "second", "millisecond", "microsecond", "nanosecond", "decade",
    "century", "millennium", "era", "epoch", "epoch_us", "epoch_ns", "timezone_hour", "timezone_minute",
)  # fmt: skip
_BOTH = (
    dict.fromkeys((*_PARTS, "octet_length"), (0,))
    | dict.fromkeys(("date_part", "date_trunc", "time_bucket"), (1,))
    | {"date_diff": (1, 2), "date_sub": (1, 2)}
)
_TEXT = (
    dict.fromkeys(
        ("dayname", "monthname", "last_day", "julian", "epoch_ms", "isnan", "isinf", "isfinite", "signbit"), (0,)
    )
    | dict.fromkeys(
        ("to_centuries", "to_days", "to_decades", "to_millennia", "to_months", "to_quarters", "to_weeks", "to_years"),
        (0,),
    )
    | dict.fromkeys(("round", "round_even", "roundbankers", "trunc"), (0,))
    | dict.fromkeys(("gcd", "greatest_common_divisor", "lcm", "least_common_multiple", "nextafter", "strftime"), (0, 1))
)
_NULLS = {"contains": (1,)}
_NULL_TYPES: dict[str, Type] = {
    "repeat": BLOB,
    "round": BIGINT,
    "round_even": BIGINT,
    "roundbankers": BIGINT,
    "trunc": BIGINT,
}
"""The type of a bare NULL as first argument, where the overloads do not tell."""


def is_ambiguous(name: str, args: Sequence[Expr]) -> bool:
    """Whether the arguments leave open which overload is meant: all those that tell it apart are NULLs or string
    literals."""
    for places, unsettled in (
        (_BOTH.get(name), lambda arg: arg.type == NULL or is_bare_string(arg)),
        (_TEXT.get(name) or (range(len(args)) if name == "age" else None), is_bare_string),
        (_NULLS.get(name), lambda arg: arg.type == NULL),
    ):
        if places and len(args) > max(places) and all(unsettled(args[place]) for place in places):
            return True
    return False


def with_typed_null(name: str, args: list[Expr]) -> list[Expr]:
    """The arguments, with a bare NULL in the first place as one of the type that DuckDB gives it."""
    if args and args[0].type == NULL and name in _NULL_TYPES:
        return [Literal(None, _NULL_TYPES[name]), *args[1:]]
    return args


def may_unify(args: Sequence[Expr]) -> bool:
    """Whether arguments of different types may be cast to a common one: a BOOLEAN is no number to a function."""
    return len(args) > 1 and not any(arg.type == BOOLEAN for arg in args)
