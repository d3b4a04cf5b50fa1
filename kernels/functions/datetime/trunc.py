"""Rounding of times down: date_trunc to a calendar unit, time_bucket to a multiple of an interval, last_day of a
month."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, Row, both, null
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Call
from tsql.kernels.expr.types import DATE, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ, VARCHAR, Type
from tsql.kernels.functions.datetime.arithmetic import OUT_OF_RANGE, add_interval, timestamp_of
from tsql.kernels.functions.datetime.difference import DAYS, TICKS, WEEKS
from tsql.kernels.functions.datetime.parts import MONTHS_PER, at_runtime, is_finite, is_null_part, moment, part_literal
from tsql.kernels.functions.registry import function
from tsql.kernels.runtime.calendar import (
    DATE_MAX,
    MICROS_PER_DAY,
    TIMESTAMP_MIN,
    civil_from_days,
    days_from_civil,
    days_in_month,
    floor_div,
    floor_mod,
)

YEARS = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}
TRUNCATABLE = (*YEARS, "isoyear", "quarter", "month", *WEEKS, *DAYS, *TICKS)
NOT_IMPLEMENTED = "Specifier type not implemented for DATETRUNC"


@routine("iso_year_start", ("i64",), "i64")
def iso_year_start(k: Kernel, days: Val) -> None:
    """The Monday of week 1 of the ISO year: the week that holds the 4th of January."""
    year, _, _ = civil_from_days(k, days - floor_mod(k, days + 3, 7) + 3)
    fourth = days_from_civil(k, year, 1, 4)
    k.ret(fourth - floor_mod(k, fourth + 3, 7))


def _first_day(k: Kernel, part: str, days: Val) -> Val:
    """Days since 1970 of the first day of the part."""
    if part in DAYS:
        return days
    if part in WEEKS:
        return days - floor_mod(k, days + 3, 7)
    if part == "isoyear":
        return iso_year_start(k, days)
    year, month, day = civil_from_days(k, days)
    if part == "month":
        return days - (day - 1)
    if part == "quarter":
        return days_from_civil(k, year, (month - 1) // 3 * 3 + 1, k.i64(1))
    span = YEARS[part]
    return days_from_civil(k, year if span == 1 else year // span * span, k.i64(1), k.i64(1))


def _trunc(k: PipelineKernel, part: str, d: Datum) -> Datum:
    result = TIMESTAMP if d.type == DATE else d.type
    if d.type == DATE and part in TICKS:
        return Datum(result, (timestamp_of(k, d),))
    finite = is_finite(k, d)
    known = None
    if d.range is not None:
        low, high = d.range if d.type != DATE else (d.range[0] * MICROS_PER_DAY, d.range[1] * MICROS_PER_DAY)
        known = (low - 1000 * 366 * MICROS_PER_DAY, high)
    source = timestamp_of(k, d) if d.type == DATE else d.value.to("i64")
    if part in TICKS and part != "microsecond":
        cut = source - floor_mod(k, source, TICKS[part])
    elif part == "microsecond":
        cut = source
    else:
        first = _first_day(k, part, moment(k, d).days)
        if known is None or known[0] < TIMESTAMP_MIN:
            early = first < TIMESTAMP_MIN // MICROS_PER_DAY
            k.fail(early if finite is None else early & finite, OUT_OF_RANGE)
        cut = first * MICROS_PER_DAY
    return Datum(result, (cut if finite is None else k.select(finite, cut, source),), None, known)


def _trunc_interval(k: PipelineKernel, part: str, d: Datum) -> Datum:
    months, days, micros = d.parts
    part = "year" if part == "isoyear" else part
    spans = {**MONTHS_PER, "quarter": 3, "month": 1}
    if part in spans:
        return Datum(INTERVAL, (months - months % spans[part] if spans[part] > 1 else months, k.i32(0), k.i64(0)))
    if part in WEEKS:
        return Datum(INTERVAL, (months, days - days % 7, k.i64(0)))
    if part in DAYS:
        return Datum(INTERVAL, (months, days, k.i64(0)))
    unit = TICKS[part]
    return Datum(INTERVAL, (months, days, micros - micros % unit if unit > 1 else micros))


def _register_trunc(t: Type, example: str) -> None:
    returns = TIMESTAMP if t == DATE else t
    cut = _trunc_interval if t == INTERVAL else _trunc

    @function(
        "date_trunc",
        "datetrunc",
        args=(VARCHAR, t),
        returns=returns,
        nulls="expression",
        can_fail=True,
        examples=((example, None),),
    )
    def date_trunc(k: PipelineKernel, call: Call, row: Row) -> Datum:
        from tsql.kernels.emit.expressions import emit

        if is_null_part(call):
            return null(k, returns)
        part = part_literal(call)
        if part is None:
            return at_runtime(k, call, row, lambda name, args: cut(k, name, args[0]), TRUNCATABLE)
        if part not in TRUNCATABLE:
            raise BindError(NOT_IMPLEMENTED, position=call.position)
        d = emit(k, call.args[1], row)
        with k.guarded(both(k.frame.guard, d.valid), call.position):
            result = cut(k, part, d)
        return result.with_valid(both(d.valid, result.valid))


for _type in (DATE, TIMESTAMP, TIMESTAMPTZ):
    _register_trunc(_type, f"date_trunc('month', {_type} '1992-03-22')")
_register_trunc(INTERVAL, "date_trunc('day', INTERVAL '1 day 5 hours')")


@function(
    "last_day",
    args=(DATE,),
    returns=DATE,
    ranged=True,
    can_fail=True,
    examples=(("last_day(DATE '2020-02-03')", None),),
)
@function("last_day", args=(TIMESTAMP,), returns=DATE, ranged=True)
@function("last_day", args=(TIMESTAMPTZ,), returns=DATE, ranged=True)
def last_day(k: PipelineKernel, d: Datum) -> Datum:
    """The last day of the month; NULL for infinity."""
    days = moment(k, d).days
    year, month, day = civil_from_days(k, days)
    last, finite = days + (days_in_month(k, year, month) - day), is_finite(k, d)
    if d.type == DATE and d.bounds[1] > DATE_MAX - 31:
        k.fail(last > DATE_MAX if finite is None else (last > DATE_MAX) & finite, "Date out of range")
    return Datum(DATE, (last.to("i32"),), finite)


ORIGIN = 10_959 * MICROS_PER_DAY
"""2000-01-03, a Monday, where buckets of days and less start; buckets of months start at 2000-01-01."""
ORIGIN_MONTH = 2000 * 12


def _behind(k: Kernel, value: Val, width: Val) -> Val:
    """The distance of a value from the multiple of a positive width at or below it."""
    rest = value % width
    return k.select(rest < 0, rest + width, rest)


def _floor_to(k: Kernel, value: Val, width: Val) -> Val:
    """The multiple of a positive width at or below a value."""
    return value - _behind(k, value, width)


def _bucket(k: PipelineKernel, width: Datum, micros: Val, origin: Val | None, guard: Val | None, zoned: bool) -> Val:
    """The start of the bucket that holds a timestamp; `guard` is false where the timestamp is infinite."""
    months, days, rest = (p.to("i64") for p in width.parts)

    def fail(cond: Val, message: str) -> None:
        k.fail(cond if guard is None else cond & guard, message)

    monthly = months != 0
    fail(k.overflows("mul", days, k.i64(MICROS_PER_DAY)), "Could not convert Day to Microseconds")
    span = days * MICROS_PER_DAY + rest
    fail(monthly & ((days != 0) | (rest != 0)), "Month intervals cannot have day or time component")
    fail(k.select(monthly, months, span) <= 0, "Period must be greater than 0")
    if zoned:
        fail(~monthly & (days != 0) & (rest != 0), "Day intervals cannot have time component")

    def by_month() -> tuple[Val, ...]:
        year, month, _ = civil_from_days(k, floor_div(k, micros, MICROS_PER_DAY))
        start = k.i64(ORIGIN_MONTH)
        if origin is not None:
            origin_year, origin_month, _ = civil_from_days(k, floor_div(k, origin, MICROS_PER_DAY))
            start = origin_year * 12 + origin_month - 1
        index = _floor_to(k, year * 12 + month - 1 - start, k.select(months > 0, months, k.i64(1))) + start
        bucket_year = floor_div(k, index, 12)
        day = days_from_civil(k, bucket_year, index - bucket_year * 12 + 1, k.i64(1))
        fail(day < TIMESTAMP_MIN // MICROS_PER_DAY, OUT_OF_RANGE)
        return (day * MICROS_PER_DAY,)

    def by_time() -> tuple[Val, ...]:
        width = k.select(span > 0, span, k.i64(1))
        start = (k.i64(ORIGIN) if origin is None else origin) % width
        fail(k.overflows("sub", micros, start), "Overflow in subtraction of INT64")
        behind = _behind(k, micros - start, width)
        fail(micros < TIMESTAMP_MIN + behind, OUT_OF_RANGE)
        return (micros - behind,)

    return k.choose(monthly, by_month, by_time, ("i64",))[0]


def _to_micros(k: PipelineKernel, d: Datum) -> Val:
    return timestamp_of(k, d) if d.type == DATE else d.value.to("i64")


def _from_micros(k: PipelineKernel, t: Type, micros: Val, given: Datum) -> Val:
    """A bucket as a value of the argument's type; infinity stays."""
    finite = is_finite(k, given)
    if t == TIME:
        return floor_mod(k, micros, MICROS_PER_DAY)
    if t == DATE:
        days = floor_div(k, micros, MICROS_PER_DAY).to("i32")
        return days if finite is None else k.select(finite, days, given.value.to("i32"))
    return micros if finite is None else k.select(finite, micros, given.value.to("i64"))


def _register_buckets() -> None:
    for t in (DATE, TIMESTAMP, TIMESTAMPTZ, TIME):
        literal = "TIME '13:14:15'" if t == TIME else f"{t} '1992-04-20'"

        @function(
            "time_bucket",
            args=(INTERVAL, t),
            returns=t,
            ranged=True,
            lazy=True,
            can_fail=True,
            examples=((f"time_bucket(INTERVAL '2 weeks', {literal})", None),),
        )
        def bucket(k: PipelineKernel, width: Datum, d: Datum, t: Type = t) -> Val:
            return _from_micros(k, t, _bucket(k, width, _to_micros(k, d), None, is_finite(k, d), t == TIMESTAMPTZ), d)

        @function("time_bucket", args=(INTERVAL, t, INTERVAL), returns=t, ranged=True, lazy=True, can_fail=True)
        def bucket_with_offset(k: PipelineKernel, width: Datum, d: Datum, offset: Datum, t: Type = t) -> Val:
            """Buckets shifted by an interval."""
            finite = is_finite(k, d)
            months, days, micros = offset.parts
            back = add_interval(k, _to_micros(k, d), (-months, -days, -micros), finite)
            start = _bucket(k, width, back, None, finite, t == TIMESTAMPTZ)
            return _from_micros(k, t, add_interval(k, start, offset.span, finite), d)

        @function("time_bucket", args=(INTERVAL, t, t), returns=t, ranged=True, lazy=True, can_fail=True)
        def bucket_with_origin(k: PipelineKernel, width: Datum, d: Datum, origin: Datum, t: Type = t) -> Datum:
            """Buckets aligned to an origin; NULL for an infinite one."""
            finite = both(is_finite(k, d), is_finite(k, origin))
            start = _bucket(k, width, _to_micros(k, d), _to_micros(k, origin), finite, t == TIMESTAMPTZ)
            return Datum(t, (_from_micros(k, t, start, d),), is_finite(k, origin))


_register_buckets()
