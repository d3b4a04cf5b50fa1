"""Arithmetic of dates and times: + and - with intervals and days, differences, date_diff, date_sub, age.

Adding months keeps the day of the month, or takes the last day of a shorter month. Infinity stays infinity.
"""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, DATE, INTEGER, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ
from tsql.kernels.functions.datetime.parts import is_finite
from tsql.kernels.functions.registry import function
from tsql.kernels.runtime.calendar import (
    DATE_MAX,
    DATE_MIN,
    MICROS_PER_DAY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    civil_from_days,
    days_from_civil,
    days_in_month,
    floor_div,
    floor_mod,
    split_micros,
)  # fmt: skip

OUT_OF_RANGE = "Date and time not in timestamp range"


@routine("add_months", ("i64", "i64"), "i64")
def add_months(k: Kernel, days: Val, months: Val) -> None:
    """Days since 1970, some months later (or earlier); the day of the month is cut to the length of the month."""
    year, month, day = civil_from_days(k, days)
    total = year * 12 + month - 1 + months
    new_year = floor_div(k, total, 12)
    new_month = total - new_year * 12 + 1
    last = days_in_month(k, new_year, new_month)
    k.ret(days_from_civil(k, new_year, new_month, k.min(day, last)))


def add_interval(k: PipelineKernel, micros: Val, interval: tuple[Val, Val, Val], finite: Val | None = None) -> Val:
    """A timestamp some months, then days, then microseconds later; fails where it leaves the type and was finite."""
    months, days, rest = interval
    shifted = k.var(micros)
    wrong = k.var(k.false)
    with k.when(months != 0 if finite is None else (months != 0) & finite):
        day, time = split_micros(k, micros)
        moved = add_months(k, day, months.to("i64"))
        wrong.set((moved < TIMESTAMP_MIN // MICROS_PER_DAY) | (moved > TIMESTAMP_MAX // MICROS_PER_DAY))
        shifted.set(k.select(wrong.value, k.i64(0), moved) * MICROS_PER_DAY + time)
    start = shifted.value
    # The steps may leave 64 bits and come back: the exact sum decides.
    exact = start.to("i128") + days.to("i128") * MICROS_PER_DAY + rest.to("i128")
    bad = wrong.value | (exact < TIMESTAMP_MIN) | (exact > TIMESTAMP_MAX)
    k.fail(bad if finite is None else bad & finite, OUT_OF_RANGE)
    total = exact.to("i64")
    return total if finite is None else k.select(finite, total, micros)


def _negated(k: PipelineKernel, d: Datum) -> tuple[Val, Val, Val]:
    """The parts of -interval; a part that cannot be negated is out of every range anyway."""
    for part in d.parts:
        k.fail(part == -(2 ** (int(part.type[1:]) - 1)), OUT_OF_RANGE)
    months, days, micros = d.parts
    return -months, -days, -micros


def _instant_plus(k: PipelineKernel, d: Datum, interval: tuple[Val, Val, Val]) -> Val:
    return add_interval(k, d.value.to("i64"), interval, is_finite(k, d))


def _register_timestamps() -> None:
    for t in (TIMESTAMP, TIMESTAMPTZ):

        @function(
            "+",
            args=(t, INTERVAL),
            returns=t,
            ranged=True,
            can_fail=True,
            lazy=True,
            examples=((f"{t} '1992-03-22' + INTERVAL 5 DAY", None),),
        )
        def plus(k: PipelineKernel, d: Datum, interval: Datum) -> Val:
            return _instant_plus(k, d, interval.span)

        @function("+", args=(INTERVAL, t), returns=t, ranged=True, can_fail=True, lazy=True)
        def plus_swapped(k: PipelineKernel, interval: Datum, d: Datum) -> Val:
            return _instant_plus(k, d, interval.span)

        @function(
            "-",
            args=(t, INTERVAL),
            returns=t,
            ranged=True,
            can_fail=True,
            lazy=True,
            examples=((f"{t} '1992-03-27' - INTERVAL 5 DAY", None),),
        )
        def minus(k: PipelineKernel, d: Datum, interval: Datum) -> Val:
            return _instant_plus(k, d, _negated(k, interval))

        @function(
            "-",
            args=(t, t),
            returns=INTERVAL,
            can_fail=True,
            examples=((f"{t} '1992-03-27' - {t} '1992-03-22'", None),),
        )
        def difference(k: PipelineKernel, a: Datum, b: Datum) -> tuple[Val, Val, Val]:
            """Whole days and the rest of the time, both with the sign of the difference."""
            for d in (a, b):
                finite = is_finite(k, d)
                if finite is not None:
                    k.fail(~finite, "Cannot subtract infinite timestamps")
            k.fail(k.overflows("sub", a.value, b.value), "Overflow in subtraction of INT64")
            micros = a.value - b.value
            return k.i32(0), (micros // MICROS_PER_DAY).to("i32"), micros % MICROS_PER_DAY


_register_timestamps()


def timestamp_of(k: PipelineKernel, d: Datum) -> Val:
    """A DATE as a timestamp at midnight, in an i64; infinity stays."""
    days = d.value.to("i64")
    finite = is_finite(k, d)
    outside = (days < TIMESTAMP_MIN // MICROS_PER_DAY) | (days > TIMESTAMP_MAX // MICROS_PER_DAY)
    low, high = d.bounds
    if low < TIMESTAMP_MIN // MICROS_PER_DAY or high > TIMESTAMP_MAX // MICROS_PER_DAY:
        k.fail(outside if finite is None else outside & finite, OUT_OF_RANGE)
    micros = days * MICROS_PER_DAY
    if finite is None:
        return micros
    return k.select(finite, micros, k.select(days > 0, k.i64(TIMESTAMP_INFINITY), k.i64(-TIMESTAMP_INFINITY)))


def _as_timestamp(k: PipelineKernel, d: Datum) -> Datum:
    known = None if d.range is None else (d.range[0] * MICROS_PER_DAY, d.range[1] * MICROS_PER_DAY)
    return Datum(TIMESTAMP, (timestamp_of(k, d),), None, known)


@function(
    "+",
    args=(DATE, INTERVAL),
    returns=TIMESTAMP,
    ranged=True,
    can_fail=True,
    lazy=True,
    examples=(("DATE '2020-01-31' + INTERVAL 1 MONTH", None),),
)
def date_plus_interval(k: PipelineKernel, d: Datum, interval: Datum) -> Val:
    return _instant_plus(k, _as_timestamp(k, d), interval.span)


@function("+", args=(INTERVAL, DATE), returns=TIMESTAMP, ranged=True, can_fail=True, lazy=True)
def interval_plus_date(k: PipelineKernel, interval: Datum, d: Datum) -> Val:
    return _instant_plus(k, _as_timestamp(k, d), interval.span)


@function("-", args=(DATE, INTERVAL), returns=TIMESTAMP, ranged=True, can_fail=True, lazy=True)
def date_minus_interval(k: PipelineKernel, d: Datum, interval: Datum) -> Val:
    return _instant_plus(k, _as_timestamp(k, d), _negated(k, interval))


def _shift_days(k: PipelineKernel, d: Datum, days: Val) -> Datum:
    start = d.value.to("i64")
    moved = start + days
    finite = is_finite(k, d)
    outside = (moved < DATE_MIN) | (moved > DATE_MAX)
    k.fail(outside if finite is None else outside & finite, "Date out of range")
    return Datum(DATE, ((moved if finite is None else k.select(finite, moved, start)).to("i32"),))


@function(
    "+", args=(DATE, INTEGER), returns=DATE, ranged=True, can_fail=True, examples=(("DATE '2020-01-31' + 5", None),)
)
def date_plus_days(k: PipelineKernel, d: Datum, days: Datum) -> Datum:
    return _shift_days(k, d, days.value.to("i64"))


@function("+", args=(INTEGER, DATE), returns=DATE, ranged=True, can_fail=True)
def days_plus_date(k: PipelineKernel, days: Datum, d: Datum) -> Datum:
    return _shift_days(k, d, days.value.to("i64"))


@function(
    "-", args=(DATE, INTEGER), returns=DATE, ranged=True, can_fail=True, examples=(("DATE '2020-01-31' - 5", None),)
)
def date_minus_days(k: PipelineKernel, d: Datum, days: Datum) -> Datum:
    return _shift_days(k, d, -days.value.to("i64"))


@function(
    "-", args=(DATE, DATE), returns=BIGINT, ranged=True, examples=(("DATE '2020-01-31' - DATE '2019-01-01'", 395),)
)
def date_difference(k: PipelineKernel, a: Datum, b: Datum) -> Datum:
    """Days between two dates; infinity counts as the number that stands for it, as in DuckDB."""
    bounds = (a.bounds[0] - b.bounds[1], a.bounds[1] - b.bounds[0])
    return Datum(BIGINT, (a.value.to("i64") - b.value.to("i64"),), None, bounds)


def _date_and_time(k: PipelineKernel, d: Datum, time: Datum) -> Val:
    start = timestamp_of(k, d)
    finite = is_finite(k, d)
    total = start + time.value.to("i64")
    bad = k.overflows("add", start, time.value.to("i64"))
    k.fail(bad if finite is None else bad & finite, OUT_OF_RANGE)
    return total if finite is None else k.select(finite, total, start)


@function(
    "+",
    args=(DATE, TIME),
    returns=TIMESTAMP,
    ranged=True,
    can_fail=True,
    examples=(("DATE '2020-01-01' + TIME '10:00:00'", None),),
)
def date_plus_time(k: PipelineKernel, d: Datum, time: Datum) -> Val:
    return _date_and_time(k, d, time)


@function("+", args=(TIME, DATE), returns=TIMESTAMP, ranged=True, can_fail=True)
def time_plus_date(k: PipelineKernel, time: Datum, d: Datum) -> Val:
    return _date_and_time(k, d, time)


def _clock_plus(k: PipelineKernel, time: Datum, interval: Datum, sign: int) -> Val:
    """A time some hours later, around the clock; months and days do not count."""
    rest = interval.parts[2] % MICROS_PER_DAY
    return floor_mod(k, time.value + rest if sign > 0 else time.value - rest, MICROS_PER_DAY)


@function("+", args=(TIME, INTERVAL), returns=TIME, examples=(("TIME '23:00:00' + INTERVAL 2 HOUR", None),))
def time_plus_interval(k: PipelineKernel, time: Datum, interval: Datum) -> Val:
    return _clock_plus(k, time, interval, 1)


@function("+", args=(INTERVAL, TIME), returns=TIME)
def interval_plus_time(k: PipelineKernel, interval: Datum, time: Datum) -> Val:
    return _clock_plus(k, time, interval, 1)


@function("-", args=(TIME, INTERVAL), returns=TIME, examples=(("TIME '01:00:00' - INTERVAL 2 HOUR", None),))
def time_minus_interval(k: PipelineKernel, time: Datum, interval: Datum) -> Val:
    return _clock_plus(k, time, interval, -1)
