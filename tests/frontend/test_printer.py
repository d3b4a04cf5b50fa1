"""What `kernels/expr/printer.py` prints, `planner/bind/binder.py` reads back to an equal expression."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.amount import examples
from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.expr.nodes import Aggregate, Call, Case, Cast, Column, Expr, InList, Literal, SortKey
from tsql.kernels.expr.printer import INFIX
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DECIMAL, DOUBLE, INTEGER, NAMED, TINYINT, VARCHAR, Type
from tsql.kernels.functions.registry import SCALARS
from tsql.planner.bind.binder import parse_aggregate, parse_expression

SCHEMA = Schema.of(
    ("a", INTEGER), ("g", BIGINT), ("t", TINYINT), ("x", DOUBLE), ("s", VARCHAR), ("flag", BOOLEAN),
    ("m", DECIMAL(15, 2)), ("n", DECIMAL(30, 4)), ("h", NAMED["HUGEINT"]), ("u", NAMED["UBIGINT"]),
    ("d", NAMED["DATE"]), ("ts", NAMED["TIMESTAMP"]), ("tz", NAMED["TIMESTAMPTZ"]), ("tm", NAMED["TIME"]),
    ("i", NAMED["INTERVAL"]), ("f", NAMED["FLOAT"]), ("o", NAMED["BLOB"]), ("select", INTEGER), ("A b", INTEGER),
    ('q"q', VARCHAR), ("Upper", VARCHAR), ("date", NAMED["DATE"]), ("year", INTEGER), ("é", INTEGER), ("1st", INTEGER),
)  # fmt: skip
TYPES = [
    *(t for t in NAMED.values() if t.name != "NULL"),
    DECIMAL(1, 1),
    DECIMAL(4, 1),
    DECIMAL(15, 2),
    DECIMAL(18, 0),
    DECIMAL(38, 10),
    DECIMAL(38, 38),
]


def literal_values(dtype: Type) -> st.SearchStrategy:
    """Stored values of a type."""
    if dtype.name == "BOOLEAN":
        return st.booleans()
    if dtype.name == "DOUBLE":
        return st.floats()
    if dtype.name == "FLOAT":
        return st.floats(width=32)
    if dtype.name == "VARCHAR":
        return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
    if dtype.name == "BLOB":
        return st.binary(max_size=8)
    if dtype.name == "INTERVAL":
        return st.tuples(
            st.integers(-(2**31) + 1, 2**31 - 1),
            st.integers(-(2**31) + 1, 2**31 - 1),
            st.integers(-(2**63) + 1, 2**63 - 1),
        )
    if dtype.name == "TIME":
        return st.integers(0, 86_399_999_999)
    if dtype.name in ("TIMESTAMP", "TIMESTAMPTZ"):
        return st.integers(-(2**53), 2**53)
    if dtype.name == "DATE":
        return st.integers(-3_000_000, 100_000_000)
    return st.integers(*dtype.bounds)


@st.composite
def literals(draw, dtype: Type | None = None) -> Literal:
    dtype = dtype or draw(st.sampled_from(TYPES))
    return Literal(draw(st.none() | literal_values(dtype)), dtype)


def values(dtype: Type) -> st.SearchStrategy[Expr]:
    columns = [Column(f.name, f.type) for f in SCHEMA if f.type == dtype]
    leaves = literals(dtype) | st.sampled_from(columns) if columns else literals(dtype)
    return leaves | st.sampled_from(
        [Column(f.name, f.type) for f in SCHEMA if f.type != dtype and VARCHAR in (f.type, dtype)]
        or [Column("s", VARCHAR)]
    ).map(lambda c: c if c.dtype == dtype else Cast(c, dtype))


@st.composite
def expressions(draw, dtype: Type, depth: int = 3) -> Expr:
    """Expressions as the binder makes them, of a type."""
    if depth == 0:
        return draw(values(dtype))
    inner = lambda t: draw(expressions(t, depth - 1))  # noqa: E731
    kinds = ["leaf", "case", "coalesce", "cast"]
    if dtype == BOOLEAN:
        kinds += ["compare", "connector", "not", "null", "in", "like"]
    if dtype in (INTEGER, BIGINT, TINYINT, DOUBLE):
        kinds += ["arithmetic", "neg"]
    if dtype == VARCHAR:
        kinds += ["concat"]
    match draw(st.sampled_from(kinds)):
        case "case":
            return Case(tuple((inner(BOOLEAN), inner(dtype)) for _ in range(draw(st.integers(1, 2)))), inner(dtype))
        case "coalesce":
            return Call("coalesce", (inner(dtype), inner(dtype)), dtype)
        case "cast":
            arg = inner(VARCHAR)
            return (
                arg
                if dtype == VARCHAR
                else Cast(Column("s", VARCHAR) if isinstance(arg, Literal) else arg, dtype, draw(st.booleans()))
            )
        case "compare":
            of = draw(st.sampled_from(TYPES))
            return Call(
                draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "is_distinct_from", "is_not_distinct_from"])),
                (inner(of), inner(of)),
                BOOLEAN,
            )
        case "connector":
            name = draw(st.sampled_from(["and", "or"]))
            args = [inner(BOOLEAN) for _ in range(draw(st.integers(2, 4)))]
            return Call(
                name,
                tuple(p for a in args for p in (a.args if isinstance(a, Call) and a.name == name else (a,))),
                BOOLEAN,
            )
        case "not":
            return Call("not", (inner(BOOLEAN),), BOOLEAN)
        case "null":
            return Call(
                draw(st.sampled_from(["is_null", "is_not_null"])), (inner(draw(st.sampled_from(TYPES))),), BOOLEAN
            )
        case "in":
            of = draw(st.sampled_from(TYPES))
            return InList(inner(of), tuple(draw(st.lists(literals(of), min_size=2, max_size=4))))
        case "like":
            escape = (Literal("\\", VARCHAR),) if draw(st.booleans()) else ()
            return Call(draw(st.sampled_from(["like", "ilike"])), (inner(VARCHAR), inner(VARCHAR), *escape), BOOLEAN)
        case "arithmetic":
            ops = ["+", "-", "*", "//", "%"] + (["/"] if dtype == DOUBLE else ["&", "|", "<<", ">>"])
            return Call(draw(st.sampled_from(ops)), (inner(dtype), inner(dtype)), dtype)
        case "neg":
            return Call("neg", (inner(dtype),), dtype)
        case "concat":
            return Call("concat_op", (inner(VARCHAR), inner(VARCHAR)), VARCHAR)
    return draw(values(dtype))


@settings(max_examples=250, deadline=None, derandomize=True)
@given(literals())
def test_literals_round_trip(literal):
    assert parse_expression(literal.sql(), SCHEMA) == literal


@settings(max_examples=examples(250), deadline=None, derandomize=True)
@given(st.sampled_from(TYPES).flatmap(expressions))
def test_expressions_round_trip(expr):
    assert parse_expression(expr.sql(), SCHEMA) == expr


@pytest.mark.parametrize("text",
                         ["a + 1", "t + 1", "m * (1 - 0.05)", "d <= DATE '1998-12-01' - INTERVAL '90' DAY",
                          "m BETWEEN 0.05 AND 0.07 AND a < 24", "m + n", "m * n", "m % 2", "h + m", "h % m", "a / 2",
                          "a ^ 2", "d + 1", "1 + d", "d - d", "ts - d", "tz - ts", "d + tm", "i * 2", "2.5 * i",
                          "i / 3", "INTERVAL (a) DAY", "INTERVAL (x) DAY", "tm + i", "-i", "~a", "xor(a, 3)",
                          "a IN (1, g)", "s SIMILAR TO 'x'", "nullif(a, 1)", "greatest(a, 2.5)", "u + 1", "u - (-1)",
                          "f + 1.5", "flag = 1", "s = 1", "d = '2020-01-01'", "\"select\" + \"A b\"",
                          '"q""q" || "Upper"', "coalesce(m, 1, 2.5)", "CASE a WHEN 1 THEN 'x' ELSE s END",
                          "- (5::INTEGER)", "-(1::UTINYINT)", "m = 1", "m < 1.555", "n IN (1, 2.5)"])  # fmt: skip
def test_bound_text_round_trips(text):
    first = parse_expression(text, SCHEMA)
    assert parse_expression(first.sql(), SCHEMA) == first


@pytest.mark.parametrize("text",
                         ["count(*)", "count(a)", "count(DISTINCT s)", "sum(m * 2)", "sum(a) FILTER (WHERE flag)",
                          "min(s)", "string_agg(s, ',' ORDER BY a DESC NULLS FIRST, x)", "quantile_cont(x, 0.5)",
                          "percentile_cont(0.5) WITHIN GROUP (ORDER BY x)", "arg_max(s, a)"])  # fmt: skip
def test_aggregates_round_trip(text):
    first = parse_aggregate(text, SCHEMA)
    assert isinstance(first, Aggregate)
    assert parse_aggregate(first.sql(), SCHEMA) == first


@pytest.mark.parametrize(
    "value", ["a\nb", "a\r\n", "\x0b\x0c\x1c\x1d\x1e", "\x85", "\u2028x\u2029", "it's\n", "back\\n\n", "\\", "é\n"]
)
def test_strings_stay_on_one_line(value):
    text = Literal(value, VARCHAR).sql()
    assert len(text.splitlines()) == 1
    assert parse_expression(text, SCHEMA) == Literal(value, VARCHAR)


def test_sort_keys_print_as_they_are_read():
    call = Aggregate("first", (Column("a", INTEGER),), INTEGER, order=(SortKey(Column("s", VARCHAR), True, True),))
    assert call.sql() == "first(a ORDER BY s DESC NULLS FIRST)"


def test_every_registered_function_name_can_be_written():
    """A call by name parses as a call, whatever keywords the name is made of."""
    from tsql.planner.bind.syntax import parse_scalar
    from tsql.planner.bind.syntax_nodes import CallNode

    special = {"cast", "try_cast", "extract", "position", "trim", "overlay", "substring", *INFIX, "not"}
    for name in {*SCALARS.names(), *AGGREGATES.names()} - special:
        if name.isidentifier():
            node, _ = parse_scalar(f"{name}(a, b)")
            assert isinstance(node, CallNode), name
            assert node.name == name
