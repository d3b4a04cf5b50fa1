"""Types of operators over every pair of types, and over literals: exactly DuckDB's, which runs beside."""

from __future__ import annotations

import pytest

from tests.frontend.support import TYPES, catalog, oracle, oracle_types, plan, result_types
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.types import parse_type
from tsql.planner.bind.types import castable, force_type

LITERALS = (
    "1",
    "300",
    "100000",
    "3000000000",
    "-1",
    "1.5",
    "123.456",
    "1e2",
    "'1'",
    "NULL",
    "true",
    "(1+1)",
    "10000000000000000000",
    "DATE '2020-01-01'",
    "INTERVAL 1 DAY",
)


@pytest.fixture(scope="module")
def duck():
    return oracle()


def check(duck, tables, expressions: list[str]) -> None:
    """Compare the types of expressions over `every`, one query each; for us those that DuckDB accepts are one query,
    unless we refuse one of them.

    DuckDB refuses some string literals and NULLs as ambiguous; there, a literal adapting to the other side is fine.
    """
    expected = {expression: oracle_types(duck, f"SELECT {expression} FROM every") for expression in expressions}
    accepted = [expression for expression, theirs in expected.items() if theirs is not None]
    try:
        together = (
            dict(
                zip(
                    accepted, result_types(plan(f"SELECT {', '.join(accepted)} FROM every", tables=tables)), strict=True
                )
            )
            if accepted
            else {}
        )
    except BindError:
        together = {}
    wrong = []
    for expression, theirs in expected.items():
        try:
            ours = (
                [together[expression]]
                if expression in together
                else result_types(plan(f"SELECT {expression} FROM every", tables=tables))
            )
        except BindError as error:
            ours = None
            reason = error.message
        if theirs is None:
            if ours is not None and not ("'1'" in expression or "NULL" in expression):
                wrong.append(f"{expression}: DuckDB refuses it, ours is {ours[0]}")
        elif ours is None:
            wrong.append(f"{expression}: DuckDB has {theirs[1][0]}, ours: {reason}")
        elif ours != theirs[1]:
            wrong.append(f"{expression}: DuckDB has {theirs[1][0]}, ours is {ours[0]}")
    assert not wrong, "\n".join(wrong)


COLUMNS = range(len(TYPES))


@pytest.mark.parametrize("op", ["+", "-", "*", "/", "//", "%"])
@pytest.mark.parametrize("left", COLUMNS)
@pytest.mark.in_turn(2)
def test_arithmetic_of_columns(duck, op, left):
    check(duck, catalog(), [f"c{left} {op} c{j}" for j in COLUMNS])


@pytest.mark.parametrize("op", ["&", "|", "<<", ">>"])
@pytest.mark.parametrize("left", COLUMNS)
@pytest.mark.in_turn(2)
def test_bit_operators_of_columns(duck, op, left):
    check(duck, catalog(), [f"c{left} {op} c{j}" for j in COLUMNS])


@pytest.mark.parametrize("op", ["<", "IS DISTINCT FROM"])
def test_comparison_of_columns(duck, op):
    pairs = [(i, j) for i in COLUMNS for j in COLUMNS]
    if op != "<":
        # Where there is no cast between the types, DuckDB fails on the first row and we fail when binding.
        types = [parse_type(t) for t in TYPES]
        pairs = [
            (i, j) for i, j in pairs if all(castable(t, force_type(types[i], types[j])) for t in (types[i], types[j]))
        ]
    check(duck, catalog(), [f"c{i} {op} c{j}" for i, j in pairs])


@pytest.mark.parametrize("form", ["CASE WHEN true THEN {} ELSE {} END", "COALESCE({}, {})"])
def test_common_types(duck, form):
    check(duck, catalog(), [form.format(f"c{i}", f"c{j}") for i in COLUMNS for j in COLUMNS])


@pytest.mark.parametrize("op", ["+", "-", "*", "/", "//", "%", "&"])
@pytest.mark.parametrize("left", COLUMNS)
@pytest.mark.in_turn(2)
def test_arithmetic_with_literals(duck, op, left):
    check(duck, catalog(), [f"c{left} {op} {literal}" for literal in LITERALS])


def test_common_types_with_literals(duck):
    check(duck, catalog(), [f"COALESCE(c{i}, {literal})" for i in COLUMNS for literal in LITERALS])


def test_literals_with_literals(duck):
    check(duck, catalog(), [f"{a} {op} {b}" for op in ("+", "*") for a in LITERALS for b in LITERALS])
    check(duck, catalog(), [f"COALESCE({a}, {b})" for a in LITERALS for b in LITERALS])


def test_unary_operators(duck):
    check(
        duck,
        catalog(),
        [
            f"{op}c{i}"
            for op in ("-", "+", "~", "NOT ")
            for i in COLUMNS
            if not (op == "NOT " and TYPES[i] in ("BLOB", "DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "INTERVAL"))
        ],
    )


def test_strings(duck):
    check(
        duck,
        catalog(),
        [f"c{i} || 'a'" for i in COLUMNS]
        + [f"c{i} || c{j}" for i in (0, 3, 15, 16, 17) for j in (0, 3, 15, 16, 17)]
        + [f"c{i} LIKE 'a'" for i in COLUMNS],
    )


@pytest.mark.parametrize("text",
                         ["1", "1.5", "1e3", "2147483647", "2147483648", "-2147483648", "9223372036854775807",
                          "9223372036854775808", "0.5", ".5", "10.", "00.10", "1_000",
                          "123456789012345678901234567890.123456789", "-1.5", "'a'", "NULL", "true", "x'ff'",
                          "DATE '2020-01-01'", "TIME '01:02:03'", "TIMESTAMP '2020-01-01'", "TIMESTAMPTZ '2020-01-01'",
                          "INTERVAL '3 days'", "INTERVAL 3 DAYS", "1 IN (1, 2.5)", "nullif(1, 2.5)",
                          "nullif(1::TINYINT, 2)", "if(true, 1, 2.5)", "1.5 * NULL", "2 ^ 3", "2 ** 3.5",
                          "typeof(1.5)"])  # fmt: skip
def test_literals(duck, text):
    check(duck, catalog(), [text])
