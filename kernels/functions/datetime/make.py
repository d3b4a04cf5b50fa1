"""Dates and times from numbers and back: make_date, make_time, make_timestamp, to_timestamp, epoch_ms, the current
time, names."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, Row, null
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Call, Literal
from tsql.kernels.expr.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
    Type,
)
from tsql.kernels.functions.datetime.difference import now
from tsql.kernels.functions.datetime.parts import emit_part, is_finite
from tsql.kernels.functions.registry import function
from tsql.kernels.runtime.calendar import (
    DATE_MAX,
    DATE_MIN,
    MICROS_PER_DAY,
    MICROS_PER_HOUR,
    MICROS_PER_MINUTE,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    days_from_civil,
    days_in_month,
    floor_div,
    floor_mod,
)  # fmt: skip
from tsql.kernels.runtime.text.format import NUMBER_BYTES, put_bytes, put_integer, text_between

TIMESTAMP_RANGE = "Date and time not in timestamp range"


def numbers_text(k: PipelineKernel, numbers: tuple[Val, ...], separator: bytes) -> tuple[Val, Val]:
    """Numbers joined by a separator, for the text of an error."""
    start = k.scratch(NUMBER_BYTES * len(numbers))
    at = start
    for index, value in enumerate(numbers):
        if index:
            at = put_bytes(k, at, separator)
        at = put_integer(k, at, value)
    return text_between(k, start, at)


def _civil_days(k: PipelineKernel, year: Val, month: Val, day: Val) -> Val:
    """Days since 1970, checked."""
    known_month = (month >= 1) & (month <= 12)
    known_year = (year >= -5_877_641) & (year <= 5_881_580)
    safe_year, safe_month = k.select(known_year, year, k.i64(1970)), k.select(known_month, month, k.i64(1))
    known_day = (day >= 1) & (day <= days_in_month(k, safe_year, safe_month))
    days = days_from_civil(k, safe_year, safe_month, k.select(known_day, day, k.i64(1)))
    bad = ~(known_year & known_month & known_day) | (days < DATE_MIN) | (days > DATE_MAX)
    with k.when(bad):
        k.fail(k.true, "Date out of range: {detail}", detail=numbers_text(k, (year, month, day), b"-"))
    return days


def _clock_micros(k: PipelineKernel, hour: Val, minute: Val, seconds: Val) -> Val:
    """Microseconds of the day, checked; 24:00:00 and a 60th second are times too."""
    sane = (seconds > -1e9) & (seconds < 1e9)
    safe = k.select(sane, seconds, k.f64(-1.0))
    whole = k.unary("truncate", safe)
    fraction = k.unary("rint", (safe - whole) * 1e6).to("i64")
    second = whole.to("i64")
    usual = (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60) & (second >= 0) & (second <= 60) & (fraction >= 0)
    midnight = (hour == 24) & (minute == 0) & (second == 0) & (fraction == 0)
    bad = ~(usual | midnight)
    with k.when(bad):
        k.fail(k.true, "Time out of range: {detail}", detail=numbers_text(k, (hour, minute, second), b":"))
    return (
        k.select(bad, k.i64(0), hour) * MICROS_PER_HOUR
        + k.select(bad, k.i64(0), minute) * MICROS_PER_MINUTE
        + second * 1_000_000
        + fraction
    )


@function(
    "make_date",
    args=(BIGINT, BIGINT, BIGINT),
    returns=DATE,
    lazy=True,
    can_fail=True,
    examples=(("make_date(1992, 9, 20)", None),),
)
def make_date(k: PipelineKernel, year: Datum, month: Datum, day: Datum) -> Val:
    return _civil_days(k, year.value, month.value, day.value).to("i32")


@function("make_date", args=(INTEGER,), returns=DATE, examples=(("make_date(5)", None),))
def make_date_from_days(k: PipelineKernel, days: Datum) -> Val:
    return days.value


@function(
    "make_time",
    args=(BIGINT, BIGINT, DOUBLE),
    returns=TIME,
    lazy=True,
    can_fail=True,
    examples=(("make_time(13, 34, 27.123456)", None),),
)
def make_time(k: PipelineKernel, hour: Datum, minute: Datum, second: Datum) -> Val:
    return _clock_micros(k, hour.value, minute.value, second.value)


def _register_timestamps() -> None:
    for name, t in (("make_timestamp", TIMESTAMP), ("make_timestamptz", TIMESTAMPTZ)):

        @function(
            name,
            args=(BIGINT, BIGINT, BIGINT, BIGINT, BIGINT, DOUBLE),
            returns=t,
            lazy=True,
            can_fail=True,
            examples=((f"{name}(1992, 9, 20, 13, 34, 27.123456)", None),),
        )
        def make_timestamp(
            k: PipelineKernel, year: Datum, month: Datum, day: Datum, hour: Datum, minute: Datum, second: Datum
        ) -> Val:
            days = _civil_days(k, year.value, month.value, day.value)
            time = _clock_micros(k, hour.value, minute.value, second.value)
            exact = days.to("i128") * MICROS_PER_DAY + time.to("i128")
            k.fail((exact < TIMESTAMP_MIN) | (exact > TIMESTAMP_MAX), TIMESTAMP_RANGE)
            return exact.to("i64")

        @function(name, args=(BIGINT,), returns=t, can_fail=True, examples=((f"{name}(1667810584123456)", None),))
        def from_micros(k: PipelineKernel, micros: Datum) -> Val:
            return _checked_micros(k, micros.value)


def _checked_micros(k: PipelineKernel, micros: Val) -> Val:
    k.fail((micros < TIMESTAMP_MIN) | (micros > TIMESTAMP_MAX), "Timestamp microseconds out of range")
    return micros


_register_timestamps()


@function(
    "epoch_ms",
    "make_timestamp_ms",
    args=(BIGINT,),
    returns=TIMESTAMP,
    can_fail=True,
    examples=(("epoch_ms(701222400000)", None),),
)
def from_millis(k: PipelineKernel, millis: Datum) -> Val:
    """The timestamp of milliseconds since 1970."""
    x = millis.value
    k.fail(
        (x < TIMESTAMP_MIN // 1000) | (x > TIMESTAMP_MAX // 1000), "Could not convert Timestamp(MS) to Timestamp(US)"
    )
    return x * 1000


@function(
    "to_timestamp", args=(DOUBLE,), returns=TIMESTAMPTZ, can_fail=True, examples=(("to_timestamp(1284352323.5)", None),)
)
def to_timestamp(k: PipelineKernel, seconds: Datum) -> Val:
    micros = k.unary("rint", seconds.value * 1e6)
    fits = (micros >= float(TIMESTAMP_MIN)) & (micros < 2.0**63)
    k.fail(~fits, "Epoch seconds out of range for TIMESTAMP WITH TIME ZONE")
    return k.select(fits, micros, k.f64(0.0)).to("i64")


EPOCHS = {"epoch_ms": 1_000, "epoch_us": 1_000_000, "epoch_ns": 1_000_000_000}
"""Function: how many of its units make a second."""


def _epoch(k: PipelineKernel, d: Datum, per_second: int) -> Datum:
    finite = is_finite(k, d)
    if d.type == DATE:
        days, day = d.value.to("i64"), 86_400 * per_second
        limit = 2**63 // day
        if limit < 2**31:
            outside = (days < -limit) | (days > limit)
            k.fail(outside if finite is None else outside & finite, "Could not convert DATE to microseconds")
        return Datum(BIGINT, (days * day,), finite)
    if d.type == INTERVAL:
        months, days, rest = (p.to("i128") for p in d.parts)
        time = rest // 1000 if per_second == 1000 else rest * (per_second // 1_000_000)
        total = (months * 30 + days) * (86_400 * per_second) + time
        k.fail((total < -(2**63)) | (total > 2**63 - 1), "Overflow in conversion of INTERVAL")
        return Datum(BIGINT, (total.to("i64"),))
    micros = d.value.to("i64")
    if per_second == 1000:
        # Timestamps round to the nearest, halves away from zero, as in DuckDB; times are cut.
        half = k.select(micros < 0, k.i64(-500), k.i64(500)) if d.type != TIME else k.i64(0)
        return Datum(BIGINT, (micros // 1000 + (micros % 1000 + half) // 1000,), finite)
    if per_second == 1_000_000:
        return Datum(BIGINT, (micros,), finite)
    overflows = k.overflows("mul", micros, k.i64(1000))
    k.fail(overflows if finite is None else overflows & finite, "Could not convert Timestamp(US) to Timestamp(NS)")
    return Datum(BIGINT, (micros * 1000,), finite)


def _register_epochs() -> None:
    for name, per_second in EPOCHS.items():
        for t in (DATE, TIMESTAMP, TIMESTAMPTZ, TIME, INTERVAL):
            literal = (
                "TIME '00:00:01.5'" if t == TIME else "INTERVAL '1 second'" if t == INTERVAL else f"{t} '1970-01-02'"
            )
            expected = (1.5 if t == TIME else 1 if t == INTERVAL else 86_400) * per_second

            @function(name, args=(t,), returns=BIGINT, can_fail=True, examples=((f"{name}({literal})", int(expected)),))
            def epoch_units(k: PipelineKernel, d: Datum, per_second: int = per_second) -> Datum:
                return _epoch(k, d, per_second)

    for t in (DATE, TIMESTAMP, TIMESTAMPTZ, TIME, INTERVAL):

        @function("nanosecond", args=(t,), returns=BIGINT)
        def nanosecond(k: PipelineKernel, d: Datum) -> Datum:
            micros = emit_part(k, "microsecond", d)
            return Datum(BIGINT, (micros.value * 1000,), micros.valid)


_register_epochs()


def _register_finiteness() -> None:
    for t in (DATE, TIMESTAMP, TIMESTAMPTZ):

        @function("isfinite", args=(t,), returns=BOOLEAN, ranged=True, examples=((f"isfinite({t} 'infinity')", False),))
        def finite(k: PipelineKernel, d: Datum) -> Val:
            test = is_finite(k, d)
            return k.true if test is None else test

        @function("isinf", args=(t,), returns=BOOLEAN, ranged=True, examples=((f"isinf({t} '-infinity')", True),))
        def infinite(k: PipelineKernel, d: Datum) -> Val:
            test = is_finite(k, d)
            return k.false if test is None else ~test


_register_finiteness()


@function("now", "current_timestamp", "transaction_timestamp", "get_current_timestamp", args=(), returns=TIMESTAMPTZ)
def current_timestamp(k: PipelineKernel) -> Val:
    """When the query began."""
    return now(k)


@function("localtimestamp", "current_localtimestamp", args=(), returns=TIMESTAMP)
def local_timestamp(k: PipelineKernel) -> Val:
    return now(k)


@function("current_date", "today", args=(), returns=DATE)
def current_date(k: PipelineKernel) -> Val:
    return floor_div(k, now(k), MICROS_PER_DAY).to("i32")


@function("localtime", "current_localtime", "current_time", "get_current_time", args=(), returns=TIME)
def local_time(k: PipelineKernel) -> Val:
    """The time of day at which the query began, in UTC. DuckDB's current_time has a time zone beside it, a type that
    there is none of here."""
    return floor_mod(k, now(k), MICROS_PER_DAY)


DAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTH_NAMES = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
NAME_BYTES = 16
"""Names lie in tables of 16 bytes each, with the length in the last."""


def name_of(k: PipelineKernel, names: tuple[str, ...], index: Val) -> tuple[Val, Val]:
    """The index-th of some constant names, as (pointer, length)."""
    table = b"".join(name.encode().ljust(NAME_BYTES - 1, b"\0") + bytes([len(name)]) for name in names)
    entry = k.static(table) + index * NAME_BYTES
    return entry, k.load("i8", entry, NAME_BYTES - 1).uto("i64")


def _register_names() -> None:
    for t in (DATE, TIMESTAMP, TIMESTAMPTZ):
        for name, part, names, first in (("dayname", "dow", DAY_NAMES, 0), ("monthname", "month", MONTH_NAMES, 1)):
            expected = "Sunday" if name == "dayname" else "September"

            @function(
                name,
                args=(t,),
                returns=VARCHAR,
                ranged=True,
                lazy=True,
                examples=((f"{name}({t} '1992-09-20')", expected),),
            )
            def named(
                k: PipelineKernel, d: Datum, part: str = part, names: tuple[str, ...] = names, first: int = first
            ) -> Datum:
                number = emit_part(k, part, d)
                return Datum(VARCHAR, name_of(k, names, number.value - first), number.valid)


_register_names()


UTC_NAMES = ("utc", "gmt", "etc/utc", "z", "zulu")


def _register_zones() -> None:
    for t, other in ((TIMESTAMP, TIMESTAMPTZ), (TIMESTAMPTZ, TIMESTAMP)):

        @function(
            "timezone",
            args=(VARCHAR, t),
            returns=other,
            constant=(0,),
            nulls="expression",
            examples=((f"timezone('UTC', {t} '1992-09-20 10:00:00')", None),),
        )
        def at_zone(k: PipelineKernel, call: Call, row: Row, other: Type = other) -> Datum:
            """AT TIME ZONE, for UTC: times in other zones are refused, as their rules are not known here."""
            from tsql.kernels.emit.expressions import emit

            zone = call.args[0]
            if not isinstance(zone, Literal):
                raise BindError("the time zone must be a constant", position=call.position)
            if zone.value is None:
                return null(k, other)
            if zone.value.lower() not in UTC_NAMES:
                raise BindError(f"time zone {zone.value} is not supported, only UTC", position=call.position)
            return replace(emit(k, call.args[1], row), type=other)


_register_zones()
