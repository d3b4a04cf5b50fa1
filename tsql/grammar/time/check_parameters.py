"""Checks arguments of functions of time that are wrong for any table. `functions.py` calls `check_function`. `query.py`
calls `check_parameters`: a parameter then has a type, but gets its value only when the query runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokens import Token

from tsql.grammar.time.intervals import constant_interval, length_us, shown
from tsql.grammar.time.nodes import Cumulate, Hop, Lifetime, Quantize, TimeFunction, Tumble
from tsql.grammar.time.parameters import PARAMETERS, USAGE, TimeParameter
from tsql.kernels.expr.types import INTERVAL, VARCHAR
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.syntax import parse_scalar

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer
    from tsql.grammar.time.base import TimeParser
    from tsql.grammar.time.functions import Argument, TimeFunctionParser

Given = dict[str, "Argument"]
_BY_TIME = ("size", "slide", "offset", "timezone")


def check_function(parser: TimeFunctionParser, kind: type[TimeFunction], given: Given, start: Token) -> None:
    """Refuse missing arguments, arguments that exclude each other, and literals that no window can have."""
    for parameter in PARAMETERS[kind]:
        if parameter.name in given:
            _check_value(parser, kind, parameter, given[parameter.name])
    for parameter in PARAMETERS[kind]:
        if parameter.required and parameter.name not in given:
            what = "the time of a row" if parameter.kind == "time" else parameter.name
            parser._refuse(f"{kind.sql_name} needs {what}", start, f"as in {USAGE[kind]}")
    if kind in (Tumble, Hop):
        _check_rows(parser, kind, given, start)
    if kind is Cumulate or (kind is Quantize and "step" in given):
        _check_multiple(parser, kind, given)
    if kind is Lifetime:
        _check_lifetime(parser, given)


def _check_rows(parser: TimeFunctionParser, kind: type[TimeFunction], given: Given, start: Token) -> None:
    if "rows" not in given:
        if "slide_rows" in given:
            parser._refuse(
                "slide_rows needs rows, the size of the window", given["slide_rows"].start, f"as in {USAGE[kind]}"
            )
        missing = [name for name in ("slide", "size") if name in kind.arg_types and name not in given]
        if missing:
            parser._refuse(f"{kind.sql_name} needs {' and '.join(missing)}", start, f"as in {USAGE[kind]}")
        return
    for name in _BY_TIME:
        if name in given:
            later = max((given["rows"], given[name]), key=lambda argument: argument.start.start)
            parser._refuse(
                f"{kind.sql_name} takes rows or {name}, not both: windows are by count or by time",
                later.start,
                f"as in {USAGE[kind]}",
            )
    if kind is Hop and "slide_rows" not in given:
        parser._refuse("HOP by count needs slide_rows", start, f"as in {USAGE[kind]}")


def _check_multiple(parser: TimeFunctionParser, kind: type[TimeFunction], given: Given) -> None:
    whole = "size" if "size" in given else "slide"
    size, step = (constant_interval(given[name].value) for name in (whole, "step"))
    if size is None or step is None:
        return
    length, unit = length_us(size), length_us(step)
    if length % unit:
        below, above = length // unit * unit, (length // unit + 1) * unit
        choices = " or ".join(f"{whole} => {shown(us)}" for us in (below, above) if us)
        parser._refuse(f"the {whole} of {kind.sql_name} must be a multiple of its step", given[whole].start, choices)


def _check_lifetime(parser: TimeFunctionParser, given: Given) -> None:
    if "duration" in given and "end" in given:
        later = max((given["duration"], given["end"]), key=lambda argument: argument.start.start)
        parser._refuse("LIFETIME takes a duration or an end, not both", later.start)
    for name in ("duration", "end"):
        if name in given and "start" not in given:
            parser._refuse(f"LIFETIME with {name} needs start", given[name].start, f"as in {USAGE[Lifetime]}")


def _check_value(
    parser: TimeFunctionParser, kind: type[TimeFunction], parameter: TimeParameter, argument: Argument
) -> None:
    value, place = argument.value, f"{parameter.name} of {kind.sql_name}"
    literal = value if isinstance(value, exp.Literal) else None
    match parameter.kind:
        case "time":
            if isinstance(value, (exp.Interval, exp.Literal)):
                parser._refuse(
                    f"{place} is the time of a row, such as a column", argument.start, f"as in {USAGE[kind]}"
                )
        case "count":
            _check_count(parser, place, argument)
        case "text":
            if literal is not None and not literal.is_string:
                parser._refuse(f"{place} takes a string, such as 'UTC'", argument.start)
        case _:
            if literal is not None:
                unit = literal.name if literal.is_string else f"{literal.name} minutes"
                parser._refuse(
                    f"{place} takes an interval, such as INTERVAL '10 minutes'", argument.start, f"INTERVAL '{unit}'"
                )
            check_interval(parser, value, place, argument.start, parameter.kind)


def _check_count(parser: TimeFunctionParser, place: str, argument: Argument) -> None:
    value = argument.value
    number = value.this if isinstance(value, exp.Neg) else value
    if (
        isinstance(number, (exp.Interval, exp.Boolean))
        or isinstance(number, exp.Literal)
        and (number.is_string or not number.name.isdigit())
    ):
        parser._refuse(f"{place} takes a whole number of rows", argument.start)
    if isinstance(number, exp.Literal) and (number is not value or int(number.name) == 0):
        parser._refuse(f"{place} must be at least 1", argument.start)


def check_interval(parser: TimeParser, value: exp.Expr, place: str, at: Token, kind: str) -> None:
    """Refuse a literal interval that `place` cannot have; `kind` is that of a Parameter, or "bound" for one that may be
    zero."""
    parts = constant_interval(value)
    if parts is None or kind == "move":
        return
    months, length = parts[0], length_us(parts)
    if months and kind not in ("duration", "growth"):
        hint = f"{shown(months * 30 * 86_400_000_000)} has a length"
        if kind == "length" and "size" in place:
            hint += "; for calendar months group by date_trunc('month', ts)"
        parser._refuse(
            f"{place} cannot be in months or years, which differ in length", at, hint if months > 0 else None
        )
    if kind == "offset":
        return
    if months < 0 or length < 0:
        parser._refuse(f"{place} cannot be negative", at)
    if kind in ("length", "duration") and months == length == 0:
        parser._refuse(f"{place} must be more than zero", at)


_PLANNED = {"length": "INTERVAL '10 minutes'", "offset": "INTERVAL '10 minutes'", "count": "100", "text": "'UTC'"}
"""The kinds of arguments that the plan depends on, with an example. They cannot be parameters: one plan serves all
values."""

_LEAST = {"growth": ("<", "cannot be negative"), "duration": ("<=", "must be more than zero")}


def check_parameters(queries: QueryAnalyzer, node: TimeFunction) -> TimeFunction:
    """The function, with run-time checks for arguments that depend only on a parameter such as `$1`. `check_interval`
    refuses the same values as literals. Without the check, EXTEND by a negative interval would silently shorten
    lifetimes."""
    for parameter in PARAMETERS[type(node)]:
        value = node.args.get(parameter.name)
        if value is None or value.find(exp.Placeholder) is None or value.find(exp.Column, exp.Query) is not None:
            continue
        place = f"{parameter.name} of {node.sql_name}"
        if parameter.kind in _PLANNED:
            hint = f"write the value, as in {_PLANNED[parameter.kind]}"
            raise queries.error(f"{place} cannot be a parameter: the plan of the query depends on it", value, hint)
        if parameter.kind in _LEAST and queries._constant_binder(place).operand(value).type in (INTERVAL, VARCHAR):
            node = node.copy()
            node.set(parameter.name, _guarded(value, place, *_LEAST[parameter.kind]))
    return node


def _guarded(value: exp.Expr, place: str, wrong: str, message: str) -> exp.Expr:
    """The interval, or an error where it is wrong."""
    length = "CAST(value AS INTERVAL)"
    guard, _ = parse_scalar(
        f"CASE WHEN {length} {wrong} INTERVAL '0 seconds' THEN error('{place} {message}: ' || CAST(value "
        f"AS VARCHAR)) ELSE {length} END"
    )
    at = position_of(value)
    for part in guard.walk():
        part.meta["at"] = at
    return guard.transform(lambda part: value.copy() if isinstance(part, exp.Column) else part)
