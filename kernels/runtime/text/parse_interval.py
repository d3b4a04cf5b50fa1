"""Text to INTERVAL in the kernel language: `1 year 2 months`, `3 days 04:05:06.7`, `90 min ago`, `1.5 hours`."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, Var, routine
from tsql.kernels.runtime.calendar import MICROS_PER_DAY, MICROS_PER_HOUR, MICROS_PER_MINUTE, MICROS_PER_SECOND
from tsql.kernels.runtime.text.parse import byte_at, is_digit, skip_spaces, word, word_lower
from tsql.kernels.runtime.text.parse_floats import parse_float
from tsql.kernels.runtime.text.parse_time import letters_end, parse_clock

MONTHS, DAYS, MICROS = 0, 1, 2
"""Fields at `out`, as i64; behind them the position and length of a unit that is unknown, and room to read a
fraction."""
WORD, WORD_LENGTH, WORK = 3, 4, 40
OUT_BYTES = 72
"""Bytes at `out`, beside those of the text itself."""
BAD_FORMAT, UNKNOWN_UNIT, OUT_OF_RANGE = 1, 2, 3

UNITS: tuple[tuple[tuple[str, ...], int, int, int, int, int, int], ...] = (
    (("millennium", "millenniums", "millennia", "millenium", "mil", "mils"), MONTHS, 12_000, MONTHS, 0, MONTHS, 12_000),
    (("century", "centuries", "cent", "c"), MONTHS, 1200, MONTHS, 0, MONTHS, 1200),
    (("decade", "decades", "dec", "decs"), MONTHS, 120, MONTHS, 0, MONTHS, 120),
    (("year", "years", "yr", "yrs", "y"), MONTHS, 12, MONTHS, 0, MONTHS, 12),
    (("quarter", "quarters"), MONTHS, 3, MONTHS, 3, DAYS, 30),
    (("month", "months", "mon", "mons"), MONTHS, 1, DAYS, 30, MICROS, MICROS_PER_DAY),
    (("week", "weeks", "w", "weekofyear"), DAYS, 7, DAYS, 7, MICROS, MICROS_PER_DAY),
    (("day", "days", "d", "dayofmonth"), DAYS, 1, DAYS, 0, MICROS, MICROS_PER_DAY),
    (("hour", "hours", "hr", "hrs", "h"), MICROS, MICROS_PER_HOUR, MICROS, 0, MICROS, MICROS_PER_HOUR),
    (("minute", "minutes", "min", "mins", "m"), MICROS, MICROS_PER_MINUTE, MICROS, 0, MICROS, MICROS_PER_MINUTE),
    (("second", "seconds", "sec", "secs", "s", ""), MICROS, MICROS_PER_SECOND, MICROS, 0, MICROS, MICROS_PER_SECOND),
    (
        ("milliseconds", "millisecond", "ms", "msec", "msecs", "msecond", "mseconds"),
        MICROS,
        1000,
        MICROS,
        0,
        MICROS,
        1000,
    ),
    (("microseconds", "microsecond", "us", "usec", "usecs", "usecond", "useconds"), MICROS, 1, MICROS, 0, MICROS, 0),
)
"""Names; the field and the factor of the whole number; of a fraction, the field and factor of its whole units of the
next smaller kind; and the field and factor to which the rest is rounded. The empty name is that of a number alone:
seconds."""


@routine("interval_add", ("ptr", "i64", "i64", "i64"), "i1")
def interval_add(k: Kernel, out: Val, field: Val, count: Val, factor: Val) -> None:
    """Add count * factor to a field; false if it leaves the field's type."""
    amount = count * factor
    held = k.load("i64", out, field)
    total = held + amount
    large = (field != MICROS) & ((total > 2**31 - 1) | (total < -(2**31)))
    with k.when(k.overflows("mul", count, factor) | k.overflows("add", held, amount) | large):
        k.ret(k.false)
    k.store(out, total, field)
    k.ret(k.true)


@routine("interval_add_unit", ("ptr", "i64", "f64", "i128"), "i64")
def interval_add_unit(k: Kernel, out: Val, count: Val, fraction: Val, name: Val) -> None:
    """Add a number with a fraction of the unit `name`; returns a status."""
    columns = [k.var(k.i64(-1)) for _ in range(6)]
    for names, *values in UNITS:
        hit = k.false
        for text in names:
            hit = hit | (name == word(text))
        with k.when(hit):
            for column, value in zip(columns, values, strict=True):
                column.set(k.i64(value))
    field, factor, next_field, next_factor, rest_field, rest_factor = (c.value for c in columns)
    with k.when(field < 0):
        k.ret(k.i64(UNKNOWN_UNIT))
    good = k.var(interval_add(k, out, field, count, factor))
    rest = k.var(fraction)
    with k.when(next_factor > 0):
        scaled = fraction * next_factor.to("f64")
        whole = scaled.to("i64")
        good.set(good.value & interval_add(k, out, next_field, whole, 1))
        rest.set(scaled - whole.to("f64"))
    with k.when(k.unary("fabs", rest.value) > 1e-10):
        amount = k.call("round", rest.value * rest_factor.to("f64")).to("i64")
        good.set(good.value & interval_add(k, out, rest_field, amount, 1))
    k.ret(k.select(good.value, k.i64(0), k.i64(OUT_OF_RANGE)))


def _ago(k: Kernel, p: Val, n: Val, start: Val, out: Val) -> Val:
    """i64 status of the word that turns an interval round: it must be the last."""
    end = letters_end(k, p, n, start)
    last = (word_lower(k, p, start, end) == word("ago")) & (skip_spaces(k, p, n, end) == n)
    good = k.true
    for field, lowest in ((MONTHS, -(2**31)), (DAYS, -(2**31)), (MICROS, -(2**63))):
        value = k.load("i64", out, field)
        good = good & (value != lowest)
        k.store(out, -value, field)
    return k.select(last, k.select(good, k.i64(0), k.i64(OUT_OF_RANGE)), k.i64(BAD_FORMAT))


def _fraction(k: Kernel, p: Val, n: Val, at: Var, out: Val) -> Val:
    """The digits behind a point, as a float below one."""
    value = k.var(k.f64(0.0))
    with k.when(byte_at(k, p, n, at.value) == 46):
        start = at.value
        at.set(start + 1)
        with k.forever() as loop:
            loop.stop_if(~is_digit(k, byte_at(k, p, n, at.value)))
            at.set(at.value + 1)
        with k.when(at.value > start + 1):
            parse_float(k, p + start, at.value - start, k.offset(out, WORK + 8), k.false, k.offset(out, WORK))
            value.set(k.load("f64", k.offset(out, WORK)))
    return value.value


@routine("parse_interval", ("ptr", "i64", "ptr"), "i64")
def parse_interval(k: Kernel, p: Val, n: Val, out: Val) -> None:
    """A status; months, days and microseconds at `out`."""
    for field in (MONTHS, DAYS, MICROS):
        k.store(out, k.i64(0), field)
    at = k.var((byte_at(k, p, n, k.i64(0)) == 64).to("i64"))
    found = k.var(k.false)
    with k.forever() as loop:
        at.set(skip_spaces(k, p, n, at.value))
        loop.stop_if(at.value >= n)
        byte = byte_at(k, p, n, at.value)
        with k.when((byte | 32) == 97):
            status = _ago(k, p, n, at.value, out)
            k.ret(k.select(found.value, status, k.i64(BAD_FORMAT)))
        minus = byte == 45
        start = at.value + minus.to("i64")
        at.set(start)
        number, large = k.var(k.i64(0)), k.var(k.false)
        with k.forever() as digits:
            digit = byte_at(k, p, n, at.value)
            digits.stop_if(~is_digit(k, digit))
            large.set(large.value | (number.value > (2**63 - 1) // 10))
            number.set(number.value * 10 + (digit - 48))
            large.set(large.value | (number.value < 0))
            at.set(at.value + 1)
        with k.when(byte_at(k, p, n, at.value) == 58):
            k.ret(interval_clock(k, p, n, start, minus, out))
        with k.when(at.value == start):
            k.ret(k.i64(BAD_FORMAT))
        with k.when(large.value):
            k.ret(k.i64(OUT_OF_RANGE))
        fraction = _fraction(k, p, n, at, out)
        unit = skip_spaces(k, p, n, at.value)
        end = letters_end(k, p, n, unit)
        k.store(out, unit, WORD)
        k.store(out, end - unit, WORD_LENGTH)
        with k.when(unit == end):
            with k.when(found.value):
                k.ret(k.i64(UNKNOWN_UNIT))
            with k.when(skip_spaces(k, p, n, end) < n):
                k.ret(k.i64(BAD_FORMAT))
        signed = k.select(minus, -number.value, number.value)
        status = interval_add_unit(k, out, signed, k.select(minus, -fraction, fraction), word_lower(k, p, unit, end))
        with k.when(status != 0):
            k.ret(status)
        found.set(k.true)
        at.set(end)
    k.ret((~found.value).to("i64"))


@routine("interval_clock", ("ptr", "i64", "i64", "i1", "ptr"), "i64")
def interval_clock(k: Kernel, p: Val, n: Val, start: Val, minus: Val, out: Val) -> None:
    """The time at the end of an interval (what follows it is not read)."""
    with k.when(parse_clock(k, p, n, start, k.offset(out, WORK)) != 0):
        k.ret(k.i64(BAD_FORMAT))
    micros = k.load("i64", k.offset(out, WORK))
    good = interval_add(k, out, MICROS, k.select(minus, -micros, micros), 1)
    k.ret(k.select(good & (micros >= 0), k.i64(0), k.i64(OUT_OF_RANGE)))
