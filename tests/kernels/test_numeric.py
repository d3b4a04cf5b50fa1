"""Numeric functions against DuckDB."""

from __future__ import annotations

import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.kernels.harness import both
from tests.kernels.oracle import call, check, col, lit
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.types import BIGINT, DECIMAL, DOUBLE, HUGEINT, INTEGER, SMALLINT, TINYINT, VARCHAR

ROWS = 80


def numbers() -> pa.Table:
    """Random numbers of every type, with NULLs, zeros, halves and extremes."""
    rng = random.Random(5)

    def some(make, special):
        return [None if rng.random() < 0.1 else special[i] if i < len(special) else make() for i in range(ROWS)]

    def ints(bits):
        top = 2 ** (bits - 1) - 1
        return some(lambda: rng.randint(-top, top) >> rng.randrange(bits), [0, 1, -1, 5, -5, top, -top])

    def unsigned(bits):
        return some(lambda: rng.getrandbits(bits) >> rng.randrange(bits), [0, 1, 5, 2**bits - 1])

    def decimals(width, scale):
        return some(
            lambda: Decimal(rng.randint(-(10**width) + 1, 10**width - 1) // 10 ** rng.randrange(width)).scaleb(-scale),
            [Decimal(0), Decimal(5).scaleb(-1) if scale else Decimal(5)],
        )

    specials = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        0.49999999999999994,
        1e300,
        -1e300,
        math.inf,
        -math.inf,
        math.nan,
        1e-300,
        4503599627370497.5,
        1.0,
        -1.0,
        2.0,
    ]
    doubles = lambda: some(
        lambda: rng.choice(
            [rng.uniform(-10, 10), rng.uniform(-1e6, 1e6), rng.uniform(-1, 1), float(rng.randint(-100, 100)) / 2]
        ),
        specials,
    )
    return pa.table(
        {
            "i8": pa.array(ints(8), pa.int8()), "i16": pa.array(ints(16), pa.int16()),
            "i32": pa.array(ints(32), pa.int32()), "i64": pa.array(ints(64), pa.int64()),
            "j32": pa.array(ints(32), pa.int32()), "j64": pa.array(ints(64), pa.int64()),
            "n": pa.array(some(lambda: rng.randint(-12, 12), [0, -1, -2, 1, 2, 400, -400]), pa.int32()),
            "u8": pa.array(unsigned(8), pa.uint8()), "u16": pa.array(unsigned(16), pa.uint16()),
            "u32": pa.array(unsigned(32), pa.uint32()), "u64": pa.array(unsigned(64), pa.uint64()),
            "f32": pa.array(doubles(), pa.float32()), "f64": pa.array(doubles(), pa.float64()),
            "g64": pa.array(list(reversed(doubles())), pa.float64()),
            "g32": pa.array(list(reversed(doubles())), pa.float32()),
            "d4": pa.array(decimals(4, 2), pa.decimal128(4, 2)), "d10": pa.array(decimals(10, 3), pa.decimal128(10, 3)),
            "d18": pa.array(decimals(18, 0), pa.decimal128(18, 0)),
            "d30": pa.array(decimals(30, 10), pa.decimal128(30, 10)),
            "e10": pa.array(decimals(10, 3), pa.decimal128(10, 3)),
            "s": pa.array(some(lambda: rng.choice(["a", "ab", "", "zoé", "b"]), []), pa.string()),
            "r": pa.array(some(lambda: rng.choice(["a", "ab", "", "zo", "c"]), []), pa.string()),
        }
    )  # fmt: skip


TABLE = numbers()
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
DECIMALS = ("d4", "d10", "d18", "d30")
EXACT = (*INTEGERS, *DECIMALS)


def c(name):
    return col(TABLE, name)


@pytest.mark.parametrize("name", ["abs", "round", "floor", "ceil", "trunc", "sign"])
def test_rounding_of_every_type(name):
    columns = EXACT + ("f32", "f64")
    check([(f"{name}({column})", call(name, c(column))) for column in columns], TABLE)


@pytest.mark.parametrize("name", ["round", "trunc"])
def test_rounding_to_constant_digits(name):
    pairs = []
    for digits in (-4, -2, -1, 0, 1, 2, 5):
        for column in ("i32", "d4", "d10", "d18", "d30", "f32", "f64"):
            if (name, column) == ("round", "i32") or (column == "d4" and digits <= -2):
                continue  # The first overflows; for the second DuckDB makes 0 of NULL.
            pairs.append((f"{name}({column}, {digits})", call(name, c(column), lit(digits))))
    check(pairs, TABLE)


def test_rounding_to_digits_of_the_row():
    small = [("i32 % 100000", call("%", c("i32"), lit(100000)))]
    pairs = [
        (f"{name}({column}, n)", call(name, c(column), c("n")))
        for name in ("round", "trunc")
        for column in ("f32", "f64")
    ]
    pairs += [(f"round({sql}, n)", call("round", e, c("n"))) for sql, e in small]
    pairs += [(f"trunc({column}, n)", call("trunc", c(column), c("n"))) for column in INTEGERS]
    check(pairs, TABLE)


@pytest.mark.parametrize(
    "name",
    ["sqrt", "cbrt", "exp", "ln", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
     "tanh", "asinh", "acosh", "atanh", "cot", "degrees", "radians", "even", "isnan", "isinf", "isfinite", "signbit"],
)  # fmt: skip
def test_functions_of_one_double(name):
    check([(f"{name}(f64)", call(name, c("f64")))], TABLE)


def test_functions_of_two_numbers():
    pairs = [
        (f"{name}(f64, g64)", call(name, c("f64"), c("g64")))
        for name in ("pow", "atan2", "log", "nextafter", "fmod", "fdiv")
    ]
    pairs += [("nextafter(f32, g32)", call("nextafter", c("f32"), c("g32"))), ("pi()", call("pi"))]
    pairs += [("gcd(i64, j64)", call("gcd", c("i64"), c("j64")))]
    pairs += [(f"bit_count({column})", call("bit_count", c(column))) for column in INTEGERS]
    check(pairs, TABLE)


def test_gamma_of_positive_numbers():
    table = pa.table({"x": pa.array([0.5, 1.0, 2.5, 5.0, 10.25, None])})
    check([(f"{name}(x)", call(name, col(table, "x"))) for name in ("gamma", "lgamma")], table)


def test_modulo():
    table = pa.table(
        {"a": pa.array([5, -5, 0, None, 2**31 - 1], pa.int32()), "b": pa.array([3, 3, 7, 1, -1], pa.int32())}
    )
    check([("mod(a, b)", call("mod", col(table, "a"), col(table, "b")))], table)


def test_lcm_and_factorial():
    rng = random.Random(3)
    table = pa.table(
        {
            "a": [rng.randint(-(10**6), 10**6) for _ in range(50)] + [0, 5],
            "b": [rng.randint(-(10**6), 10**6) for _ in range(50)] + [4, 0],
        }
    )
    check([("lcm(a, b)", call("lcm", col(table, "a"), col(table, "b")))], table)
    table = pa.table({"n": pa.array([*range(34), None], pa.int32())})
    check([("factorial(n)", call("factorial", col(table, "n")))], table)


@pytest.mark.parametrize("name", ["greatest", "least"])
def test_extremes(name):
    groups = [
        ("i32", "j32"),
        ("i64", "j64"),
        ("f64", "g64"),
        ("f32", "g32"),
        ("d10", "e10"),
        ("s", "r"),
        ("i32", "j32", "n"),
        ("u64",),
    ]
    check([(f"{name}({', '.join(g)})", call(name, *(c(x) for x in g))) for g in groups], TABLE)


def test_extremes_of_intervals_compare_months_first():
    table = pa.table(
        {
            "a": pa.array([(1, 0, 0), (0, 31, 0), (0, 0, 10**9), None], pa.month_day_nano_interval()),
            "b": pa.array([(0, 31, 0), (1, 0, 0), (0, 1, 0), (0, 2, 0)], pa.month_day_nano_interval()),
        }
    )
    check([(f"{name}(a, b)", call(name, col(table, "a"), col(table, "b"))) for name in ("greatest", "least")], table)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda: call("abs", lit(-128, TINYINT)), "Overflow on abs(-128)"),
        (lambda: call("abs", lit(-(2**63), BIGINT)), "Overflow on abs(-9223372036854775808)"),
        (lambda: call("factorial", lit(-1)), "factorial of a negative number is undefined"),
        (lambda: call("factorial", lit(34)), "Value out of range"),
        (lambda: call("round", lit(127, TINYINT), lit(-1)), "Overflow in ROUND of integer"),
        (lambda: call("round", lit(2**63 - 1, BIGINT), lit(-19)), "Overflow in ROUND of integer"),
        (lambda: call("round", lit(2**127 - 1, HUGEINT), lit(-1)), "Overflow in ROUND of integer"),
        (lambda: call("round", lit(2**127 - 1, HUGEINT), lit(-38)), "Overflow in ROUND of integer"),
        (lambda: call("lcm", lit(2**63 - 1, BIGINT), lit(2, BIGINT)), "lcm value is out of range"),
        (lambda: call("gcd", lit(-(2**63), BIGINT), lit(0, BIGINT)), "Overflow on abs(-9223372036854775808)"),
        (lambda: call("mod", lit(5), lit(0)), "Division by zero"),
    ],
)
def test_errors(expression, message):
    with pytest.raises(ExecutionError, match=message.replace("(", r"\(").replace(")", r"\)")):
        both([expression()])


def test_round_of_extremes():
    check(
        [
            ("round(32767::SMALLINT, -5)", call("round", lit(32767, SMALLINT), lit(-5))),
            (
                "round(170141183460469231731687303715884105727::HUGEINT, -39)",
                call("round", lit(2**127 - 1, HUGEINT), lit(-39)),
            ),
            ("gcd((-9223372036854775808)::BIGINT, -1)", call("gcd", lit(-(2**63), BIGINT), lit(-1, BIGINT))),
            ("round(1.5::DOUBLE, NULL)", call("round", lit(1.5), lit(None, INTEGER))),
            ("round(99.95::DECIMAL(4,2), 7)", call("round", lit(9995, DECIMAL(4, 2)), lit(7))),
            ("greatest('a', NULL)", call("greatest", lit("a"), lit(None, VARCHAR))),
            ("even(2.9)", call("even", lit(2.9, DOUBLE))),
        ]
    )
