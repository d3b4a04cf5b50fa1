"""Casts between times, and from text to times and intervals. TIMESTAMPTZ is in UTC."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, both
from tsql.kernels.expr.types import Type
from tsql.kernels.runtime.calendar import (
    DATE_INFINITY,
    MICROS_PER_DAY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    floor_div,
    split_micros,
)
from tsql.kernels.runtime.text import parse_interval, parse_time
from tsql.kernels.runtime.text.format import TIME_BYTES, put_date, text_between

FIRST_DAY, LAST_DAY = TIMESTAMP_MIN // MICROS_PER_DAY, TIMESTAMP_MAX // MICROS_PER_DAY
"""The days that a TIMESTAMP can be on."""


def cast_time(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    """A DATE, TIMESTAMP or TIMESTAMPTZ as another of them, or as a TIME."""
    if d.type.name == "DATE":
        return _date_to_timestamp(k, d, target, safe)
    if target.name == "DATE":
        return _timestamp_to_date(k, d, target)
    if target.name == "TIME":
        return _timestamp_to_time(k, d, target, safe)
    return Datum(target, d.parts, d.valid, d.range)


def _date_to_timestamp(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    days = d.value.to("i64")
    bounds = d.range or (-(2**31), 2**31 - 1)
    if FIRST_DAY <= bounds[0] and bounds[1] <= LAST_DAY:
        return Datum(
            target, (days * MICROS_PER_DAY,), d.valid, (bounds[0] * MICROS_PER_DAY, bounds[1] * MICROS_PER_DAY)
        )
    infinite = (days == DATE_INFINITY) | (days == -DATE_INFINITY)
    outside = ((days < FIRST_DAY) | (days > LAST_DAY)) & ~infinite
    valid = d.valid
    if safe:
        valid = both(valid, ~outside)
    else:
        guard = k.frame.guard
        with k.when(outside if guard is None else outside & guard):
            buffer = k.scratch(TIME_BYTES)
            shown = text_between(k, buffer, put_date(k, buffer, days))
            k.fail(k.true, "Type INT32 with value {detail} can't be cast to the destination type INT64", shown)
    far = k.select(days < 0, k.i64(-TIMESTAMP_INFINITY), k.i64(TIMESTAMP_INFINITY))
    return Datum(target, (k.select(infinite, far, days * MICROS_PER_DAY),), valid)


def is_infinite(k: PipelineKernel, micros: Val) -> Val:
    """i1: a TIMESTAMP that is infinity or -infinity."""
    return (micros == TIMESTAMP_INFINITY) | (micros == -TIMESTAMP_INFINITY)


def _timestamp_to_date(k: PipelineKernel, d: Datum, target: Type) -> Datum:
    micros = d.value
    days = floor_div(k, micros, MICROS_PER_DAY)
    if d.range is not None and -TIMESTAMP_INFINITY < d.range[0] and d.range[1] < TIMESTAMP_INFINITY:
        return Datum(target, (days,), d.valid, (d.range[0] // MICROS_PER_DAY, d.range[1] // MICROS_PER_DAY))
    far = k.select(micros < 0, k.i64(-DATE_INFINITY), k.i64(DATE_INFINITY))
    return Datum(target, (k.select(is_infinite(k, micros), far, days).to("i32"),), d.valid)


def _timestamp_to_time(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    infinite = is_infinite(k, d.value)
    valid = d.valid
    if safe:
        valid = both(valid, ~infinite)
    else:
        k.fail(infinite, "Can't get TIME of infinite TIMESTAMP")
    return Datum(target, (split_micros(k, d.value)[1],), valid, (0, MICROS_PER_DAY - 1))


FORMAT = "(YYYY-MM-DD HH:MM[:SS[.US]][±HH[:MM[:SS]]| ZONE])"
MESSAGES = {
    "DATE": {
        parse_time.BAD_FORMAT: 'invalid date field format: "{detail}", expected format is (YYYY-MM-DD)',
        parse_time.OUT_OF_RANGE: 'date field value out of range: "{detail}"',
    },
    "TIME": {
        parse_time.BAD_FORMAT: (
            'time field value out of range: "{detail}", expected format is ([YYYY-MM-DD ]HH:MM:SS[.MS])'
        )
    },
    "TIMESTAMP": {
        parse_time.BAD_FORMAT: f'invalid timestamp field format: "{{detail}}", expected format is {FORMAT}',
        parse_time.OUT_OF_RANGE: 'timestamp field value out of range: "{detail}"',
        parse_time.NOT_UTC: 'timestamp field value "{detail}" has a timestamp that is not UTC.',
    },
}
"""By type and status, what is said of a text that is no such time."""


def time_from_text(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    """A VARCHAR that is not NULL as a DATE, TIME, TIMESTAMP, TIMESTAMPTZ or INTERVAL."""
    if target.name == "INTERVAL":
        return _interval_from_text(k, d, target, safe)
    out = k.scratch(parse_time.OUT_BYTES)
    k.store(out, k.i64(0))
    zoned = target.name == "TIMESTAMPTZ"
    match target.name:
        case "DATE":
            status = parse_time.parse_whole_date(k, d.ptr, d.len, out)
        case "TIME":
            status = parse_time.parse_time(k, d.ptr, d.len, out)
        case _:
            status = parse_time.parse_timestamp(k, d.ptr, d.len, k.bool(zoned), out)
    value = k.load("i64", out).to(target.parts[0])
    if safe:
        return Datum(target, (value,), status == 0)
    with k.when(status != 0):
        for code, message in MESSAGES["TIMESTAMP" if zoned else target.name].items():
            k.fail(status == code, message, d.text)
        if zoned:
            k.fail(status == parse_time.UNKNOWN_ZONE, "Unknown TimeZone '{detail}'!", _part(k, d, out, 2))
    return Datum(target, (value,))


def _part(k: PipelineKernel, d: Datum, out: Val, index: int) -> tuple[Val, Val]:
    """The part of a text whose position and length were stored at `out`."""
    return d.ptr + k.load("i64", out, index), k.load("i64", out, index + 1)


def _interval_from_text(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    out = k.scratch(d.len + parse_interval.OUT_BYTES)
    status = parse_interval.parse_interval(k, d.ptr, d.len, out)
    parts = tuple(k.load("i64", out, i).to(t) for i, t in enumerate(target.parts))
    if safe:
        return Datum(target, parts, status == 0)
    with k.when(status != 0):
        k.fail(status == parse_interval.BAD_FORMAT, "Could not convert string '{detail}' to INTERVAL", d.text)
        k.fail(status == parse_interval.OUT_OF_RANGE, "interval value is out of range")
        k.fail(
            status == parse_interval.UNKNOWN_UNIT,
            'extract specifier "{detail}" not recognized',
            _part(k, d, out, parse_interval.WORD),
        )
    return Datum(target, parts)
