"""Intervals: their arithmetic (+ - * / and unary minus) and the functions that make them (to_years ..
to_microseconds)."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, DOUBLE, INTERVAL
from tsql.kernels.functions.datetime.make import numbers_text
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.rounding import round_half_away

Parts = tuple[Val, Val, Val]
I32 = (-(2**31), 2**31 - 1)


def _register_sums() -> None:
    for name, op, word in (("+", "add", "addition"), ("-", "sub", "subtraction")):

        @function(
            name,
            args=(INTERVAL, INTERVAL),
            returns=INTERVAL,
            can_fail=True,
            examples=((f"INTERVAL 3 DAY {name} INTERVAL 2 HOUR", None),),
        )
        def combine(k: PipelineKernel, a: Datum, b: Datum, op: str = op, word: str = word) -> Parts:
            for x, y in zip(a.parts, b.parts, strict=True):
                k.fail(k.overflows(op, x, y), f"Overflow in {word} of INT{x.type[1:]}")
            months, days, micros = (k.emit(op, x.type, x, y) for x, y in zip(a.parts, b.parts, strict=True))
            return months, days, micros


_register_sums()


@function("neg", args=(INTERVAL,), returns=INTERVAL, can_fail=True)
def negate(k: PipelineKernel, a: Datum) -> Parts:
    for x in a.parts:
        k.fail(x == -(2 ** (int(x.type[1:]) - 1)), "Overflow in negation of numeric value!")
    months, days, micros = a.parts
    return -months, -days, -micros


def _times(k: PipelineKernel, a: Datum, factor: Val) -> Parts:
    months, days, micros = a.parts
    k.fail((factor < I32[0]) | (factor > I32[1]), "an INTERVAL can be multiplied by a number of 32 bits at most")
    parts = []
    for x in (months, days):
        product = x.to("i128") * factor.to("i128")
        k.fail((product < I32[0]) | (product > I32[1]), "Overflow in multiplication of INT32")
        parts.append(product.to("i32"))
    k.fail(k.overflows("mul", micros, factor), "Overflow in multiplication of INT64")
    return parts[0], parts[1], micros * factor


def _round_micro(k: Kernel, x: Val) -> Val:
    """Round to six digits after the point, which removes the error of binary fractions of months and days."""
    return k.unary("rint", x * 1e6) / 1e6


def _scaled(
    k: PipelineKernel, a: Datum, factor: Val, overflow: str = "Overflow in multiplication of INTERVAL."
) -> Parts:
    """Times a double, as PostgreSQL does: a fraction of a month becomes days (30 of them a month), a fraction of a day
    time."""
    months, days, micros = (p.to("f64") * factor for p in a.parts)
    whole_months, whole_days = k.unary("truncate", months), k.unary("truncate", days)
    carried_days = _round_micro(k, (months - whole_months) * 30.0)
    whole_carried = k.unary("truncate", carried_days)
    seconds = _round_micro(k, (days - whole_days + (carried_days - whole_carried)) * 86_400.0)
    overflow_days = k.select(k.unary("fabs", seconds) >= 86_400.0, k.unary("truncate", seconds / 86_400.0), k.f64(0.0))
    seconds = seconds - overflow_days * 86_400.0
    all_days = whole_days + overflow_days + whole_carried
    time = k.unary("rint", micros + seconds * 1e6)
    limits = ((whole_months, 2.0**31), (all_days, 2.0**31), (time, 2.0**63))
    # Months and days must fit before what is left of them becomes days and time.
    fits = (months >= -(2.0**31)) & (months <= 2.0**31 - 1) & (days >= -(2.0**31)) & (days <= 2.0**31 - 1)
    for value, limit in limits:
        fits = fits & (value >= -limit) & (value < limit)
    k.fail(~fits, overflow)
    safe = [k.select(fits, value, k.f64(0.0)) for value, _ in limits]
    return safe[0].to("i32"), safe[1].to("i32"), safe[2].to("i64")


@function("*", args=(INTERVAL, BIGINT), returns=INTERVAL, can_fail=True, examples=(("INTERVAL 3 DAY * 2", None),))
def times_integer(k: PipelineKernel, a: Datum, b: Datum) -> Parts:
    return _times(k, a, b.value)


@function("*", args=(BIGINT, INTERVAL), returns=INTERVAL, can_fail=True)
def integer_times(k: PipelineKernel, a: Datum, b: Datum) -> Parts:
    return _times(k, b, a.value)


@function("*", args=(INTERVAL, DOUBLE), returns=INTERVAL, can_fail=True, lazy=True)
def times_double(k: PipelineKernel, a: Datum, b: Datum) -> Parts:
    return _scaled(k, a, b.value)


@function("*", args=(DOUBLE, INTERVAL), returns=INTERVAL, can_fail=True, lazy=True)
def double_times(k: PipelineKernel, a: Datum, b: Datum) -> Parts:
    return _scaled(k, b, a.value)


@function(
    "/", args=(INTERVAL, DOUBLE), returns=INTERVAL, can_fail=True, lazy=True, examples=(("INTERVAL 1 DAY / 2", None),)
)
def divided(k: PipelineKernel, a: Datum, b: Datum) -> Parts:
    """Times the reciprocal, whose rounding shows in the last microsecond, as in DuckDB."""
    k.fail(b.value == 0.0, "Division by zero")
    return _scaled(k, a, 1.0 / k.select(b.value == 0.0, k.f64(1.0), b.value), "Overflow in INTERVAL division")


UNITS = {
    "to_millennia": (0, 12_000), "to_centuries": (0, 1200), "to_decades": (0, 120), "to_years": (0, 12),
    "to_quarters": (0, 3), "to_months": (0, 1), "to_weeks": (1, 7), "to_days": (1, 1), "to_hours": (2, 3_600_000_000),
    "to_minutes": (2, 60_000_000), "to_microseconds": (2, 1),
}  # fmt: skip
"""Function: the part of the interval that it sets (0 months, 1 days, 2 microseconds), and how many of those one is."""


def _out_of_range(k: PipelineKernel, bad: Val, unit: str, value: Val) -> None:
    with k.when(bad):
        k.fail(k.true, f"Interval value {{detail}} {unit} out of range", detail=numbers_text(k, (value,), b""))


def _register_units() -> None:
    for name, (position, factor) in UNITS.items():
        unit = name[3:]

        @function(name, args=(BIGINT,), returns=INTERVAL, can_fail=True, examples=((f"{name}(5)", None),))
        def make(
            k: PipelineKernel, a: Datum, position: int = position, factor: int = factor, unit: str = unit
        ) -> Parts:
            n = a.value
            low, high = (-(2**63), 2**63 - 1) if position == 2 else I32
            if factor > 1 or position < 2:
                least, most = -(-low // factor), high // factor
                _out_of_range(k, (n < least) | (n > most), unit, n)
            parts = [k.i32(0), k.i32(0), k.i64(0)]
            parts[position] = (n * factor).to("i64" if position == 2 else "i32")
            return parts[0], parts[1], parts[2]

    for name, micros_each in (("to_seconds", 1e6), ("to_milliseconds", 1e3)):

        @function(name, args=(DOUBLE,), returns=INTERVAL, can_fail=True, examples=((f"{name}(5.5)", None),))
        def make_fractional(k: PipelineKernel, a: Datum, factor: float = micros_each, unit: str = name[3:]) -> Parts:
            micros = round_half_away(k, a.value * factor)
            fits = (micros >= -(2.0**63)) & (micros < 2.0**63)
            k.fail(~fits, f"Interval value out of range for {unit}")
            return k.i32(0), k.i32(0), k.select(fits, micros, k.f64(0.0)).to("i64")


_register_units()


@function(
    "normalized_interval",
    args=(INTERVAL,),
    returns=INTERVAL,
    examples=(("normalized_interval(INTERVAL '40 days 50 hours')", None),),
)
def normalized(k: PipelineKernel, a: Datum) -> Parts:
    """Whole days out of the time and whole months (of 30 days) out of the days, as comparisons see an interval."""
    months, days, micros = (p.to("i64") for p in a.parts)
    all_days = days + micros // 86_400_000_000
    return (months + all_days // 30).to("i32"), (all_days % 30).to("i32"), micros % 86_400_000_000
