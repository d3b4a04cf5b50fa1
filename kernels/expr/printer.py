"""Expressions and aggregates as SQL text that `planner/bind/binder.py` reads back to equal objects: plan files and
`explain` use it.

Literals carry their exact type. A number may be written short (`x < 5` for a BIGINT) only where the reader gives it the
same type again: beside a value of that integer type, or as an argument for which the registry asks for it.
"""

from __future__ import annotations

import math
from typing import Any

from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.nodes import (
    Aggregate,
    Call,
    Case,
    Cast,
    Column,
    Expr,
    InList,
    Literal,
    Outer,
    Parameter,
    SortKey,
)
from tsql.kernels.expr.types import INTEGER, Type
from tsql.kernels.patterns.reads import Read
from tsql.kernels.windows.call import DEFAULT_FRAME, WindowCall
from tsql.kernels.windows.registry import WINDOW_FUNCTIONS

INFIX = {
    "+": "+", "-": "-", "*": "*", "/": "/", "//": "//", "%": "%", "&": "&", "|": "|", "<<": "<<", ">>": ">>", "=": "=",
    "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "concat_op": "||", "and": "AND", "or": "OR",
    "is_distinct_from": "IS DISTINCT FROM", "is_not_distinct_from": "IS NOT DISTINCT FROM", "like": "LIKE",
    "ilike": "ILIKE", "glob": "GLOB",
}  # fmt: skip
_COMPARISONS = {"=", "<>", "<", "<=", ">", ">=", "is_distinct_from", "is_not_distinct_from"}
_DAY_US = 86_400_000_000
_LINE_ENDS = frozenset("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")

TIME_UNITS = (
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
    ("microsecond", 1),
)
"""The units in which intervals are shown, and their microseconds. The largest unit with a whole number is used."""


def expression_sql(expr: Expr) -> str:
    """The text of an expression, without parentheses around the whole."""
    text = _sql(expr)
    return text[1:-1] if text.startswith("(") and not isinstance(expr, Literal) else text


def aggregate_sql(call: Aggregate) -> str:
    """The text of an aggregate call with its modifiers."""
    if call.name == "count" and not call.args:
        text = "count(*"
    else:
        arguments = ", ".join(_arguments(call.name, call.args))
        text = f"{_function(call.name)}({'DISTINCT ' if call.distinct else ''}{arguments}"
    if call.order:
        text += " ORDER BY " + ", ".join(map(sort_key_sql, call.order))
    text += ")"
    return text if call.filter is None else f"{text} FILTER (WHERE {expression_sql(call.filter)})"


def window_sql(call: WindowCall) -> str:
    """The text of a window function without PARTITION BY and ORDER BY, which the plan node has; a default frame is left
    out."""
    if call.name in WINDOW_FUNCTIONS:
        whole = WINDOW_FUNCTIONS[call.name].integers
        args = [
            str(a.value) if i in whole and isinstance(a, Literal) and a.value is not None else expression_sql(a)
            for i, a in enumerate(call.args)
        ]
        order = " ORDER BY " + ", ".join(map(sort_key_sql, call.order)) if call.order else ""
        text = f"{call.name}({', '.join(args)}{order}{' IGNORE NULLS' if call.ignore_nulls else ''})"
    else:
        text = aggregate_sql(call.aggregate())
    return text if call.frame == DEFAULT_FRAME else f"{text} OVER ({call.frame.sql()})"


def sort_key_sql(key: SortKey) -> str:
    return f"{_sql(key.expr)}{' DESC' if key.descending else ''}{' NULLS FIRST' if key.nulls_first else ''}"


def _sql(expr: Expr) -> str:
    match expr:
        case Column():
            return quote(expr.name)
        case Outer():
            return f"outer.{quote(expr.name)}"
        case Literal():
            return literal_sql(expr)
        case Parameter():
            return f"${expr.name}"
        case Cast():
            return f"{'TRY_CAST' if expr.safe else 'CAST'}({expression_sql(expr.arg)} AS {expr.dtype})"
        case Case():
            whens = " ".join(f"WHEN {expression_sql(c)} THEN {expression_sql(v)}" for c, v in expr.whens)
            return f"CASE {whens} ELSE {expression_sql(expr.otherwise)} END"
        case InList():
            options = (_beside(option, expr.arg, compared=True) for option in expr.options)
            return f"({_sql(expr.arg)} IN ({', '.join(options)}))"
        case Call():
            return _call(expr)
        case Read():
            return expr.text()
    raise TypeError(f"no text for {type(expr).__name__}")


def _call(expr: Call) -> str:
    args = expr.args
    match expr.name:
        case "and" | "or":
            return f"({f' {INFIX[expr.name]} '.join(map(_sql, args))})"
        case "not":
            return f"(NOT {_sql(args[0])})"
        case "neg":
            return f"(-{_cast(args[0]) if isinstance(args[0], Literal) else _sql(args[0])})"
        case "~":
            return f"(~{_sql(args[0])})"
        case "is_null":
            return f"({_sql(args[0])} IS NULL)"
        case "is_not_null":
            return f"({_sql(args[0])} IS NOT NULL)"
        case "like" | "ilike" if len(args) == 3:
            return f"({_sql(args[0])} {INFIX[expr.name]} {_sql(args[1])} ESCAPE {_sql(args[2])})"
        case "position" if len(args) == 2:
            return f"position({_sql(args[1])} IN {_sql(args[0])})"
    if expr.name in INFIX:
        compared = expr.name in _COMPARISONS
        left, right = _beside(args[0], args[1], compared), _beside(args[1], args[0], compared)
        return f"({left} {INFIX[expr.name]} {right})"
    return f"{_function(expr.name)}({', '.join(_arguments(expr.name, args))})"


def _function(name: str) -> str:
    return name if name.isidentifier() else quote(name)


def _beside(value: Expr, other: Expr, compared: bool = False) -> str:
    """A side of an operator: an integer of the other side's type is written short, a compared decimal too."""
    if (
        isinstance(value, Literal)
        and value.value is not None
        and value.dtype == other.type
        and not isinstance(other, Literal)
    ):
        if value.dtype.is_integer and abs(value.value) < 2**63:
            return str(value.value)
        if value.dtype.is_decimal and compared and value.dtype.scale > 0:
            return _decimal(value.value, value.dtype.scale)
    return _sql(value)


def _arguments(name: str, args: tuple[Expr, ...]) -> list[str]:
    from tsql.kernels.aggregates.registry import AGGREGATES
    from tsql.kernels.functions.registry import SCALARS, Registry

    types = tuple(arg.type for arg in args)
    short = [a if isinstance(a, Literal) and _is_short(a) else None for a in args]
    if any(short):
        literals = tuple(
            s.value if s else ("string" if isinstance(a, Literal) and a.dtype.name == "VARCHAR" else None)
            for a, s in zip(args, short, strict=True)
        )
        written = tuple(INTEGER if s else t for s, t in zip(short, types, strict=True))
        registries: tuple[Registry[Any], ...] = (SCALARS, AGGREGATES)
        for registry in registries:
            found = registry.resolve(name, written, literals)
            if found is not None and found[1] == types:
                return [str(s.value) if s else expression_sql(a) for a, s in zip(args, short, strict=True)]
        return [_cast(s) if s else expression_sql(a) for a, s in zip(args, short, strict=True)]
    return [expression_sql(a) for a in args]


def _is_short(literal: Literal) -> bool:
    """Whether a reader takes the bare digits for an INTEGER."""
    return literal.dtype.is_integer and literal.value is not None and abs(literal.value) < 2**31


def literal_sql(literal: Literal) -> str:
    """A literal whose text has exactly its type and value."""
    value, dtype = literal.value, literal.dtype
    if value is None:
        return "NULL" if dtype.name == "NULL" else f"CAST(NULL AS {dtype})"
    if _natural(value, dtype):
        return str(value) if dtype.is_integer else _decimal(value, dtype.scale)
    match dtype.name:
        case "BOOLEAN":
            return "true" if value else "false"
        case "DOUBLE" if math.isfinite(value):
            text = repr(float(value))
            return text if "e" in text else f"{text}e0"
        case "VARCHAR":
            return string_sql(value)
        case "BLOB":
            return f"X'{value.hex()}'"
        case "DATE" | "TIME" | "TIMESTAMP" | "TIMESTAMPTZ" | "INTERVAL":
            return f"{dtype} '{_time_text(value, dtype)}'"
    return _cast(literal)


def string_sql(value: str) -> str:
    """A string on one line: line ends of every kind are escaped, because plan files are read line by line."""
    quoted = value.replace("'", "''")
    if _LINE_ENDS.isdisjoint(value):
        return f"'{quoted}'"
    escaped = quoted.replace("\\", "\\\\")
    return "E'" + "".join(_escape(c) if c in _LINE_ENDS else c for c in escaped) + "'"


def _escape(character: str) -> str:
    named = {"\n": "\\n", "\r": "\\r"}.get(character)
    return named or "".join(f"\\x{byte:02x}" for byte in character.encode())


def _natural(value: Any, dtype: Type) -> bool:
    """Whether a number without a cast reads as exactly this type."""
    if dtype.name == "INTEGER":
        return True
    if dtype.name == "BIGINT":
        return not -(2**31) <= value < 2**31
    if dtype.name == "HUGEINT":
        return not -(2**63) <= value < 2**63 and value > -(2**127)
    return dtype.is_decimal and dtype.scale > 0 and len(_decimal(abs(value), dtype.scale)) - 1 == dtype.width


def _cast(literal: Literal) -> str:
    value, dtype = literal.value, literal.dtype
    if value is None:
        return f"CAST(NULL AS {dtype})"
    if dtype.is_float:
        text = repr(float(value)) if math.isfinite(value) else f"'{value}'"
        return f"CAST({text if 'e' in text or text.startswith(chr(39)) else text + 'e0'} AS {dtype})"
    if dtype.is_decimal:
        return (
            f"CAST('{_decimal(value, dtype.scale)}' AS {dtype})"
            if dtype.width > 30
            else f"CAST({_decimal(value, dtype.scale)} AS {dtype})"
        )
    if dtype.is_integer:
        return f"CAST('{value}' AS {dtype})" if abs(value) >= 2**63 else f"CAST({value} AS {dtype})"
    return literal_sql(literal)


def _decimal(value: int, scale: int) -> str:
    if scale == 0:
        return str(value)
    digits = str(abs(value)).rjust(scale + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _time_text(value: Any, dtype: Type) -> str:
    match dtype.name:
        case "DATE":
            return date_text(value)
        case "TIME":
            return _clock(value)
        case "INTERVAL":
            micros, size = next((unit, size) for unit, size in TIME_UNITS if value[2] % size == 0)
            amounts = (value[0], "month"), (value[1], "day"), (value[2] // size, micros)
            parts = [f"{count} {unit}{'' if abs(count) == 1 else 's'}" for count, unit in amounts if count]
            return " ".join(parts) or "0 days"
    if abs(value) == 2**63 - 1:
        return "infinity" if value > 0 else "-infinity"
    days, us = divmod(value, _DAY_US)
    date, _, era = date_text(days).partition(" ")
    return f"{date} {_clock(us)}{'+00' if dtype.name == 'TIMESTAMPTZ' else ''}{' ' + era if era else ''}"


def _clock(us: int) -> str:
    seconds, micros = divmod(us, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{micros:06d}" if micros else text


def date_text(days: int) -> str:
    """A day as DuckDB writes it; years before 1 are counted from 1 BC."""
    if abs(days) == 2**31 - 1:
        return "infinity" if days > 0 else "-infinity"
    year, month, day = civil(days)
    return f"{year:04d}-{month:02d}-{day:02d}" if year > 0 else f"{1 - year:04d}-{month:02d}-{day:02d} (BC)"


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar, for any year."""
    era, rest = divmod(days + 719_468, 146_097)
    year_of_era = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    day_of_year = rest - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1
