"""Differences of dates and times: date_diff counts boundaries crossed, date_sub counts whole units, age gives an
interval."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel, Slot
from tsql.kernels.emit.datum import Datum, Row, both, null
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Call
from tsql.kernels.expr.types import BIGINT, DATE, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ, VARCHAR, Type
from tsql.kernels.functions.datetime.arithmetic import timestamp_of
from tsql.kernels.functions.datetime.parts import (
    CLOCK,
    Moment,
    at_runtime,
    is_finite,
    is_null_part,
    iso_week,
    moment,
    part_literal,
)
from tsql.kernels.functions.registry import function
from tsql.kernels.runtime.calendar import MICROS_PER_DAY, civil_from_days, days_in_month, floor_div, split_micros

YEARS_PER = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}
DAYS = ("day", "dow", "isodow", "doy", "julian")
WEEKS = ("week", "yearweek")
TICKS = {part: unit for part, (unit, _, _) in CLOCK.items()} | {"epoch": 1_000_000}
"""Parts that are a fixed number of microseconds."""
COUNTABLE = (*YEARS_PER, "isoyear", "quarter", "month", *WEEKS, *DAYS, *TICKS)


def _month_index(k: Kernel, m: Moment) -> Val:
    year, month, _ = civil_from_days(k, m.days)
    return year * 12 + month - 1


def _boundary(k: Kernel, part: str, d: Datum, m: Moment) -> Val:
    """A number that grows by one at each boundary of a part."""
    if part in YEARS_PER:
        year, _, _ = civil_from_days(k, m.days)
        return year if part == "year" else year // YEARS_PER[part]
    if part == "isoyear":
        return iso_week(k, m.days) >> 6
    if part == "month":
        return _month_index(k, m)
    if part == "quarter":
        return _month_index(k, m) // 3
    unit = TICKS[part]
    if d.type == DATE:
        return m.days * (MICROS_PER_DAY // unit)
    value = d.value.to("i64")
    return value if unit == 1 else floor_div(k, value, unit)


def _diff(k: PipelineKernel, part: str, a: Datum, b: Datum) -> Datum:
    if a.type == TIME:
        unit = TICKS[part]
        return Datum(BIGINT, (b.value.to("i64") // unit - a.value.to("i64") // unit,))
    valid = both(is_finite(k, a), is_finite(k, b))
    first, last = moment(k, a), moment(k, b)
    if part in DAYS or part in WEEKS:
        days = last.days - first.days
        if part == "yearweek" and a.type == TIMESTAMPTZ:
            days = floor_div(k, last.days + 3, 7) * 7 - floor_div(k, first.days + 3, 7) * 7
        return Datum(BIGINT, (days // 7 if part in WEEKS else days,), valid)
    if a.type == DATE and TICKS.get(part, MICROS_PER_DAY) < 1_000_000:
        large = k.overflows("mul", first.days, k.i64(MICROS_PER_DAY)) | k.overflows(
            "mul", last.days, k.i64(MICROS_PER_DAY)
        )
        k.fail(large if valid is None else large & valid, "Could not convert DATE to microseconds")
    x, y = _boundary(k, part, a, first), _boundary(k, part, b, last)
    if part == "microsecond":
        overflows = k.overflows("sub", y, x)
        k.fail(overflows if valid is None else overflows & valid, "Overflow in subtraction of INT64")
    return Datum(BIGINT, (y - x,), valid)


@routine("months_between", ("i64", "i64"), "i64")
def months_between(k: Kernel, start: Val, end: Val) -> None:
    """Whole months from one timestamp to a later one. The last day of a month completes a month that began on a later
    day."""
    start_days, start_time = split_micros(k, start)
    end_days, end_time = split_micros(k, end)
    start_year, start_month, start_day = civil_from_days(k, start_days)
    end_year, end_month, end_day = civil_from_days(k, end_days)
    last = days_in_month(k, end_year, end_month)
    start_day = k.select((end_day == last) & (start_day > last), last, start_day)
    incomplete = (end_day < start_day) | ((end_day == start_day) & (end_time < start_time))
    k.ret((end_year - start_year) * 12 + (end_month - start_month) - incomplete.to("i64"))


MONTHS = {"month": 1, "quarter": 3, "year": 12, "isoyear": 12, "decade": 120, "century": 1200, "millennium": 12_000}


def _whole_units(k: PipelineKernel, part: str, a: Datum, b: Datum) -> Datum:
    if a.type == TIME:
        return Datum(BIGINT, ((b.value.to("i64") - a.value.to("i64")) // TICKS[part],))
    valid = both(is_finite(k, a), is_finite(k, b))
    with k.guarded(both(k.frame.guard, valid), k.frame.position):
        x, y = (timestamp_of(k, d) if d.type == DATE else d.value.to("i64") for d in (a, b))
    if part in MONTHS:
        backwards = x > y
        months = months_between(k, k.select(backwards, y, x), k.select(backwards, x, y))
        return Datum(BIGINT, (k.select(backwards, -months, months) // MONTHS[part],), valid)
    unit = MICROS_PER_DAY if part in DAYS else 7 * MICROS_PER_DAY if part in WEEKS else TICKS[part]
    overflows = k.overflows("sub", y, x)
    k.fail(overflows if valid is None else overflows & valid, "Overflow in subtraction of INT64")
    return Datum(BIGINT, ((y - x) // unit,), valid)


Counter = Callable[[PipelineKernel, str, Datum, Datum], Datum]


def _register(names: tuple[str, ...], t: Type, count: Counter, example: tuple[str, int]) -> None:
    parts = tuple(TICKS) if t == TIME else COUNTABLE

    @function(*names, args=(VARCHAR, t, t), returns=BIGINT, nulls="expression", can_fail=True, examples=(example,))
    def difference(k: PipelineKernel, call: Call, row: Row) -> Datum:
        from tsql.kernels.emit.expressions import emit

        if is_null_part(call):
            return null(k, BIGINT)
        part = part_literal(call)
        if part is None:
            return at_runtime(k, call, row, lambda name, args: count(k, name, *args), parts)
        if part not in parts:
            message = (
                f'"time" units "{part}" not recognized'
                if t == TIME
                else f"Specifier type not implemented for {names[1].upper()}"
            )
            raise BindError(message, position=call.position)
        a, b = (emit(k, arg, row) for arg in call.args[1:])
        valid = both(a.valid, b.valid)
        with k.guarded(both(k.frame.guard, valid), call.position):
            result = count(k, part, a, b)
        return result.with_valid(both(valid, result.valid))


for _type, _ago, _later in (
    (DATE, "1992-09-15", "1992-11-14"),
    (TIMESTAMP, "1992-09-15", "1992-11-14"),
    (TIMESTAMPTZ, "1992-09-15", "1992-11-14"),
    (TIME, "01:59:00", "03:01:00"),
):
    _unit = "hour" if _type == TIME else "month"
    _register(
        ("date_diff", "datediff"), _type, _diff, (f"date_diff('{_unit}', {_type} '{_ago}', {_type} '{_later}')", 2)
    )
    _register(
        ("date_sub", "datesub"), _type, _whole_units, (f"date_sub('{_unit}', {_type} '{_ago}', {_type} '{_later}')", 1)
    )


def _age(k: PipelineKernel, a: Datum, b: Datum) -> Datum:
    """Years, months, days and time from b to a, field by field; a day is borrowed from the month of the earlier one."""
    valid = both(is_finite(k, a), is_finite(k, b))
    backwards = a.value < b.value
    late, early = k.select(backwards, b.value, a.value), k.select(backwards, a.value, b.value)
    late_days, late_time = split_micros(k, late)
    early_days, early_time = split_micros(k, early)
    late_year, late_month, late_day = civil_from_days(k, late_days)
    early_year, early_month, early_day = civil_from_days(k, early_days)
    time = late_time - early_time
    borrow_day = time < 0
    time = k.select(borrow_day, time + MICROS_PER_DAY, time)
    days = late_day - early_day - borrow_day.to("i64")
    borrow_month = days < 0
    days = k.select(borrow_month, days + days_in_month(k, early_year, early_month), days)
    months = (late_year - early_year) * 12 + (late_month - early_month) - borrow_month.to("i64")
    parts = (months.to("i32"), days.to("i32"), time)
    return Datum(INTERVAL, tuple(k.select(backwards, -p, p) for p in parts), valid)


def now(k: PipelineKernel) -> Val:
    """The time at which the query began, in microseconds: the same for all its rows."""
    return k.slot(Slot("now", TIMESTAMPTZ, None), ("i64",))[0]


for _type in (TIMESTAMP, TIMESTAMPTZ):

    @function(
        "age",
        args=(_type, _type),
        returns=INTERVAL,
        examples=((f"age({_type} '2001-04-10', {_type} '1992-09-20')", None),),
    )
    def age(k: PipelineKernel, a: Datum, b: Datum) -> Datum:
        return _age(k, a, b)

    @function("age", args=(_type,), returns=INTERVAL)
    def age_today(k: PipelineKernel, d: Datum) -> Datum:
        """The age at midnight of the current day."""
        today = floor_div(k, now(k), MICROS_PER_DAY) * MICROS_PER_DAY
        return _age(k, Datum(d.type, (today,), None, (0, 2**62)), d)
