"""Arithmetic of dates, times and intervals against DuckDB."""

from __future__ import annotations

import pytest

from tests.kernels.datetime.times import make_times
from tests.kernels.harness import both
from tests.kernels.oracle import call, check, col, lit
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.types import BIGINT, DATE, DOUBLE, INTEGER, INTERVAL, TIME, TIMESTAMP

TABLE = make_times()


def c(name):
    return col(TABLE, name)


def binary(op, a, b):
    return f"{a} {op} {b}", call(op, c(a), c(b))


def test_times_and_intervals():
    pairs = [binary(op, a, "iv") for op in "+-" for a in ("d", "ts", "tz", "tm", "iw")]
    pairs += [binary("+", "iv", b) for b in ("d", "ts", "tz", "tm")]
    pairs += [binary("-", a, b) for a, b in (("d", "e"), ("ts", "us"), ("tz", "uz"), ("d", "n"))]
    pairs += [binary("+", a, b) for a, b in (("d", "n"), ("n", "d"), ("d", "tm"), ("tm", "d"))]
    pairs += [("- iv", call("neg", c("iv")))]
    check(pairs, TABLE)


def test_scaled_intervals():
    pairs = [
        ("iv * 3", call("*", c("iv"), lit(3, BIGINT))),
        ("iv * x", call("*", c("iv"), c("x"))),
        ("x * iv", call("*", c("x"), c("iv"))),
        ("iv / x", call("/", c("iv"), c("x"))),
    ]
    check(pairs, TABLE)


def test_constant_intervals():
    pairs = [
        (f"{column} + INTERVAL '{text}'", call("+", c(column), lit(parts, INTERVAL)))
        for column in ("d", "ts", "tz", "tm")
        for text, parts in (("5 minutes", (0, 0, 300_000_000)), ("-3 days", (0, -3, 0)), ("13 months", (13, 0, 0)))
    ]
    check(pairs, TABLE)


def test_makers_of_intervals():
    pairs = []
    for name in (
        "to_millennia",
        "to_centuries",
        "to_decades",
        "to_years",
        "to_quarters",
        "to_months",
        "to_weeks",
        "to_days",
        "to_hours",
        "to_minutes",
        "to_microseconds",
    ):
        pairs += [(f"{name}({value})", call(name, lit(value, BIGINT))) for value in (5, -7, 0)]
    pairs += [(f"{name}(x)", call(name, c("x"))) for name in ("to_seconds", "to_milliseconds")]
    check(pairs, TABLE)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda: call("+", lit(18292, DATE), lit(2**31 - 1, INTEGER)), "Date out of range"),
        (
            lambda: call("+", lit(2**63 - 2, TIMESTAMP), lit((0, 1, 0), INTERVAL)),
            "Date and time not in timestamp range",
        ),
        (
            lambda: call("-", lit(-9223372022400000000, TIMESTAMP), lit((0, 0, 1), INTERVAL)),
            "Date and time not in timestamp range",
        ),
        (
            lambda: call("+", lit(0, TIMESTAMP), lit((2**31 - 1, 0, 0), INTERVAL)),
            "Date and time not in timestamp range",
        ),
        (lambda: call("+", lit(2**31 - 5, DATE), lit((0, 1, 0), INTERVAL)), "Date and time not in timestamp range"),
        (lambda: call("-", lit(2**63 - 1, TIMESTAMP), lit(0, TIMESTAMP)), "Cannot subtract infinite timestamps"),
        (
            lambda: call("+", lit((2**31 - 1, 0, 0), INTERVAL), lit((1, 0, 0), INTERVAL)),
            "Overflow in addition of INT32",
        ),
        (lambda: call("*", lit((2**31 - 1, 0, 0), INTERVAL), lit(2, BIGINT)), "Overflow in multiplication of INT32"),
        (lambda: call("*", lit((1, 0, 0), INTERVAL), lit(1e30, DOUBLE)), "Overflow in multiplication of INTERVAL."),
        (lambda: call("/", lit((1, 0, 0), INTERVAL), lit(0.0, DOUBLE)), "Division by zero"),
        (lambda: call("/", lit((1, 0, 0), INTERVAL), lit(1e-30, DOUBLE)), "Overflow in INTERVAL division"),
        (lambda: call("neg", lit((-(2**31), 0, 0), INTERVAL)), "Overflow in negation of numeric value!"),
        (lambda: call("to_years", lit(300_000_000, BIGINT)), "Interval value 300000000 years out of range"),
    ],
)
def test_errors(expression, message):
    with pytest.raises(ExecutionError, match=message):
        both([expression()])


def test_infinity_stays():
    check(
        [
            ("DATE 'infinity' + 5", call("+", lit(2**31 - 1, DATE), lit(5, INTEGER))),
            ("DATE '-infinity' + INTERVAL 5 DAY", call("+", lit(-(2**31) + 1, DATE), lit((0, 5, 0), INTERVAL))),
            ("TIMESTAMP 'infinity' - INTERVAL 1 MONTH", call("-", lit(2**63 - 1, TIMESTAMP), lit((1, 0, 0), INTERVAL))),
            ("DATE 'infinity' + TIME '10:00:00'", call("+", lit(2**31 - 1, DATE), lit(36_000_000_000, TIME))),
            ("DATE 'infinity' - DATE '2019-01-01'", call("-", lit(2**31 - 1, DATE), lit(17897, DATE))),
        ]
    )
