"""Hypothesis strategies for random typed SQL expressions, as text.

An expression has a kind ("int", "double", "decimal", "text", "bool", "date", "timestamp", "interval"). Over the columns
of `MIXED` an expression of this module never fails at run time: values are moderate, divisors are literals, casts that
may fail are TRY_CAST. Expressions that may fail are in `checked_arithmetic`, for positions where they are evaluated for
every row."""

from __future__ import annotations

import functools
from collections.abc import Callable

from hypothesis import strategies as st

Columns = dict[str, str]
Strategy = st.SearchStrategy[str]

MIXED: Columns = {
    "id": "int", "a": "small", "b": "int", "c": "int", "u": "small", "x": "double", "n": "decimal", "s": "text",
    "p": "bool", "d": "date", "ts": "timestamp", "g": "int",
}  # fmt: skip
"""The table `mixed` of the corpus. A "small" column has a type that arithmetic on it could leave; it is widened
first."""

KINDS = ("int", "double", "decimal", "text", "bool", "date", "timestamp", "interval")
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
PARTS = ("year", "month", "day", "quarter", "week", "dow", "isodow", "doy", "isoyear")
TIME_PARTS = ("hour", "minute", "microsecond")
UNITS = ("year", "quarter", "month", "week", "day")
INTERVALS = (
    "INTERVAL 1 DAY",
    "INTERVAL 1 MONTH",
    "INTERVAL '-1 month'",
    "INTERVAL '1 year 2 days'",
    "INTERVAL 90 MINUTE",
    "INTERVAL '-25 hours'",
)
TEXTS = ("''", "'a'", "'b'", "'abc'", "'Hello'", "'é'", "'日'", "' '", "'10'", "'%'")
PATTERNS = ("'%'", "'a%'", "'%b'", "'%l%'", "'_'", "'__'", "'a_b'", "'%é%'", "'H%o w%'", "''")


def expression(kind: str, columns: Columns, depth: int = 3) -> Strategy:
    """A random expression of a kind over these columns, at most `depth` operators deep."""
    return _expression(kind, tuple(columns.items()), depth)


@functools.cache
def _expression(kind: str, columns: tuple[tuple[str, str], ...], depth: int) -> Strategy:
    # Cached and deferred: the strategies of all kinds refer to each other, and to make a strategy costs more than to
    # draw from it.
    leaf = _leaf(kind, columns)
    if depth <= 0:
        return leaf

    def of(other: str) -> Strategy:
        return _expression(other, columns, depth - 1)

    return st.one_of(leaf, st.deferred(lambda: _common(kind, of)), st.deferred(lambda: _OPERATORS[kind](of)))


def _leaf(kind: str, columns: tuple[tuple[str, str], ...]) -> Strategy:
    named = [name for name, k in columns if k == kind]
    if kind == "int":
        named += [f"CAST({name} AS BIGINT)" for name, k in columns if k == "small"]
    return st.one_of(st.sampled_from(named), _LITERALS[kind]) if named else _LITERALS[kind]


_LITERALS: dict[str, Strategy] = {
    "int": st.integers(0, 50).map(str),
    "double": st.sampled_from(("0.5::DOUBLE", "1.25::DOUBLE", "2::DOUBLE", "(-3.75)::DOUBLE", "NULL::DOUBLE")),
    "decimal": st.sampled_from(("0.5", "1.25", "2.0", "(-3.7)", "10.00")),
    "text": st.sampled_from((*TEXTS, "NULL::VARCHAR")),
    "bool": st.sampled_from(("true", "false", "NULL::BOOLEAN")),
    "date": st.sampled_from(("DATE '2020-02-29'", "DATE '1969-12-31'", "DATE '2021-01-01'", "NULL::DATE")),
    "timestamp": st.sampled_from(
        ("TIMESTAMP '2020-02-29 12:30:00'", "TIMESTAMP '1969-12-31 23:59:59.999999'", "NULL::TIMESTAMP")
    ),
    "interval": st.sampled_from(INTERVALS),
}


def _common(kind: str, of: Callable[[str], Strategy]) -> Strategy:
    """What every kind has: CASE, COALESCE, NULLIF, and the larger or smaller of two."""
    value, condition = of(kind), of("bool")
    forms = [
        st.builds("CASE WHEN {} THEN {} ELSE {} END".format, condition, value, value),
        st.builds("CASE WHEN {} THEN {} WHEN {} THEN {} END".format, condition, value, condition, value),
        st.builds("coalesce({}, {})".format, value, value),
        st.builds("nullif({}, {})".format, value, value),
    ]
    if kind not in ("bool", "interval"):
        forms.append(st.builds("{}({}, {})".format, st.sampled_from(("greatest", "least")), value, value))
    return st.one_of(*forms)


def _int(of: Callable[[str], Strategy]) -> Strategy:
    factor, divisor = st.integers(2, 9), st.integers(2, 9)
    return st.one_of(
        st.builds("({} {} {})".format, of("int"), st.sampled_from("+-"), of("int")),
        st.builds("({} * {})".format, of("int"), factor),
        st.builds("({} {} {})".format, of("int"), st.sampled_from(("//", "%")), divisor),
        st.builds("{}({})".format, st.sampled_from(("abs", "sign")), of("int")),
        st.builds("(-{})".format, of("int")),
        st.builds("length({})".format, of("text")),
        st.builds("strpos({}, {})".format, of("text"), st.sampled_from(TEXTS)),
        # Cast: DuckDB types the extract of a constant NULL as DOUBLE.
        st.builds("CAST(extract({} FROM {}) AS BIGINT)".format, st.sampled_from(PARTS), of("date")),
        st.builds("CAST(extract({} FROM {}) AS BIGINT)".format, st.sampled_from(PARTS + TIME_PARTS), of("timestamp")),
        st.builds("date_diff('{}', {}, {})".format, st.sampled_from(UNITS), of("date"), of("date")),
        st.builds("({} - {})".format, of("date"), of("date")),
        st.builds("CAST({} AS INTEGER)".format, of("bool")),
        st.builds("TRY_CAST({} AS INTEGER)".format, of("text")),
        st.builds("TRY_CAST({} AS INTEGER)".format, of("double")),
    )


def _double(of: Callable[[str], Strategy]) -> Strategy:
    return st.one_of(
        st.builds("({} {} {})".format, of("double"), st.sampled_from("+-*"), of("double")),
        st.builds("({} / {})".format, of("int"), of("int")),
        st.builds("({} / 4)".format, of("double")),
        st.builds("{}({})".format, st.sampled_from(("abs", "floor", "ceil", "round", "trunc", "sign")), of("double")),
        st.builds("sqrt(abs({}))".format, of("double")),
        st.builds("(-{})".format, of("double")),
        st.builds("CAST({} AS DOUBLE)".format, of("int")),
        st.builds("CAST({} AS DOUBLE)".format, of("decimal")),
    )


def _decimal(of: Callable[[str], Strategy]) -> Strategy:
    return st.one_of(
        st.builds("({} {} {})".format, of("decimal"), st.sampled_from("+-"), of("decimal")),
        st.builds("({} * {})".format, of("decimal"), st.sampled_from(("2", "0.5", "1.1"))),
        st.builds("{}({})".format, st.sampled_from(("abs", "floor", "ceil", "round")), of("decimal")),
        st.builds("round({}, 1)".format, of("decimal")),
        st.builds("(-{})".format, of("decimal")),
    )


def _text(of: Callable[[str], Strategy]) -> Strategy:
    position = st.integers(-3, 4)
    return st.one_of(
        st.builds("({} || {})".format, of("text"), of("text")),
        st.builds(
            "{}({})".format, st.sampled_from(("upper", "lower", "trim", "ltrim", "rtrim", "reverse")), of("text")
        ),
        st.builds("substr({}, {}, {})".format, of("text"), position, st.integers(0, 4)),
        st.builds("{}({}, {})".format, st.sampled_from(("left", "right")), of("text"), position),
        st.builds("replace({}, {}, {})".format, of("text"), st.sampled_from(TEXTS), st.sampled_from(TEXTS)),
        st.builds("concat({}, {})".format, of("text"), of("int")),
        st.builds("split_part({}, {}, {})".format, of("text"), st.sampled_from(TEXTS), st.integers(1, 3)),
        st.builds("{}({}, 6, '*')".format, st.sampled_from(("lpad", "rpad")), of("text")),
        st.builds(
            "CAST({} AS VARCHAR)".format, st.one_of(of("int"), of("bool"), of("date"), of("timestamp"), of("decimal"))
        ),
        st.builds("strftime({}, '%Y/%m/%d')".format, of("date")),
    )


def _bool(of: Callable[[str], Strategy]) -> Strategy:
    compared = [st.builds("({} {} {})".format, of(kind), st.sampled_from(COMPARISONS), of(kind)) for kind in KINDS]
    tests = [
        st.builds("({} IS {}NULL)".format, of(kind), st.sampled_from(("", "NOT ")))
        for kind in ("int", "text", "date", "bool")
    ]
    return st.one_of(
        *compared,
        *tests,
        st.builds("({} {} {})".format, of("bool"), st.sampled_from(("AND", "OR")), of("bool")),
        st.builds("(NOT {})".format, of("bool")),
        st.builds("({} {}BETWEEN {} AND {})".format, of("int"), st.sampled_from(("", "NOT ")), of("int"), of("int")),
        st.builds(
            "({} {}IN ({}, {}, NULL))".format, of("int"), st.sampled_from(("", "NOT ")), of("int"), st.integers(-20, 20)
        ),
        st.builds("({} IN ({}, {}))".format, of("text"), st.sampled_from(TEXTS), st.sampled_from(TEXTS)),
        st.builds(
            "({} {} {})".format, of("text"), st.sampled_from(("LIKE", "NOT LIKE", "ILIKE")), st.sampled_from(PATTERNS)
        ),
        st.builds(
            "{}({}, {})".format,
            st.sampled_from(("contains", "starts_with", "ends_with")),
            of("text"),
            st.sampled_from(TEXTS),
        ),
        st.builds("({} < {})".format, of("date"), of("timestamp")),
        st.builds("({} > {})".format, of("int"), of("double")),
        st.builds("({} <= {})".format, of("decimal"), of("int")),
    )


def _date(of: Callable[[str], Strategy]) -> Strategy:
    return st.one_of(
        st.builds("({} {} {})".format, of("date"), st.sampled_from("+-"), st.integers(0, 400)),
        st.builds("CAST({} AS DATE)".format, of("timestamp")),
        st.builds("last_day({})".format, of("date")),
        st.builds("TRY_CAST({} AS DATE)".format, of("text")),
    )


def _timestamp(of: Callable[[str], Strategy]) -> Strategy:
    return st.one_of(
        st.builds("({} {} {})".format, of("timestamp"), st.sampled_from("+-"), of("interval")),
        st.builds("({} + {})".format, of("date"), of("interval")),
        st.builds("date_trunc('{}', {})".format, st.sampled_from((*UNITS, "hour", "minute")), of("timestamp")),
        st.builds(
            "time_bucket({}, {})".format,
            st.sampled_from(("INTERVAL 1 DAY", "INTERVAL 45 MINUTE", "INTERVAL 2 MONTH")),
            of("timestamp"),
        ),
        st.builds("CAST({} AS TIMESTAMP)".format, of("date")),
    )


def _interval(of: Callable[[str], Strategy]) -> Strategy:
    return st.one_of(
        st.builds("({} {} {})".format, st.sampled_from(INTERVALS), st.sampled_from("+-"), st.sampled_from(INTERVALS)),
        st.builds("({} - {})".format, of("timestamp"), of("timestamp")),
        st.builds("to_days(CAST({} % 100 AS INTEGER))".format, of("int")),
    )


_OPERATORS = {
    "int": _int,
    "double": _double,
    "decimal": _decimal,
    "text": _text,
    "bool": _bool,
    "date": _date,
    "timestamp": _timestamp,
    "interval": _interval,
}

_NUMERIC_TYPES = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "DOUBLE",
    "DECIMAL(9,2)",
    "DECIMAL(20,4)",
)
_NUMERIC_COLUMNS = ("i8", "i16", "i32", "i64", "i128", "u8", "u16", "u32", "u64", "d4", "d9", "d18")


@functools.cache
def checked_arithmetic(depth: int = 3) -> Strategy:
    """Arithmetic and casts over the extreme numbers of `all_types`: overflow, division by zero and casts out of range
    happen.

    No literal 0, 1 or NULL: an optimizer may drop the other operand together with its error, and be right.
    """
    if depth <= 0:
        return st.one_of(st.sampled_from(_NUMERIC_COLUMNS), st.integers(2, 100).map(str))
    below = st.deferred(lambda: checked_arithmetic(depth - 1))
    return st.one_of(
        st.sampled_from(_NUMERIC_COLUMNS),
        st.builds("({} {} {})".format, below, st.sampled_from(("+", "-", "*")), below),
        st.builds("({} {} {})".format, st.sampled_from(_NUMERIC_COLUMNS), st.sampled_from(("//", "%")), below),
        st.builds("{}(CAST({} AS {}))".format, st.sampled_from(("abs", "-")), below, st.sampled_from(_NUMERIC_TYPES)),
        st.builds("CAST({} AS {})".format, below, st.sampled_from(_NUMERIC_TYPES)),
        st.builds("TRY_CAST({} AS {})".format, below, st.sampled_from(_NUMERIC_TYPES)),
    )
