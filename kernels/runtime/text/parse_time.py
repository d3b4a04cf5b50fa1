"""Text to DATE, TIME and TIMESTAMP in the kernel language, with DuckDB's grammar.

A routine returns a status (0 if all is well) and stores at `out`, as i64: the value, the position behind what was read,
and for an unknown time zone its position and length. `out` has `OUT_BYTES` bytes.
"""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, Var, routine
from tsql.kernels.runtime.calendar import (
    DATE_INFINITY,
    DATE_MAX,
    DATE_MIN,
    MICROS_PER_DAY,
    MICROS_PER_HOUR,
    MICROS_PER_MINUTE,
    MICROS_PER_SECOND,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    days_from_civil,
    days_in_month,
    split_micros,
)
from tsql.kernels.runtime.text.parse import byte_at, is_digit, is_space, lower_case, skip_spaces, word, word_lower

OUT_BYTES = 32
BAD_FORMAT, OUT_OF_RANGE, NOT_UTC, UNKNOWN_ZONE = 1, 2, 3, 4
FIRST_DAY, LAST_DAY = TIMESTAMP_MIN // MICROS_PER_DAY, TIMESTAMP_MAX // MICROS_PER_DAY
MOST_HOURS = 2_562_047_788
"""Hours in the largest i64 of microseconds."""
UTC_NAMES = (
    "utc",
    "gmt",
    "zulu",
    "uct",
    "universal",
    "greenwich",
    "etc/utc",
    "etc/gmt",
    "etc/uct",
    "etc/zulu",
    "etc/universal",
    "etc/greenwich",
    "gmt0",
    "etc/gmt0",
)
"""Zones that a TIMESTAMPTZ may name; others would need the tables of time zones."""


def _two_digits(k: Kernel, p: Val, n: Val, at: Var) -> Val:
    """One or two digits as a number, -1 if there is none."""
    first = byte_at(k, p, n, at.value)
    value = k.var(k.i64(-1))
    with k.when(is_digit(k, first)):
        value.set(first - 48)
        at.set(at.value + 1)
        second = byte_at(k, p, n, at.value)
        with k.when(is_digit(k, second)):
            value.set(value.value * 10 + (second - 48))
            at.set(at.value + 1)
    return value.value


@routine("letters_end", ("ptr", "i64", "i64"), "i64")
def letters_end(k: Kernel, p: Val, n: Val, start: Val) -> None:
    """The position behind a run of ASCII letters."""
    at = k.var(start)
    with k.forever() as loop:
        byte = lower_case(k, byte_at(k, p, n, at.value))
        loop.stop_if((byte < 97) | (byte > 122))
        at.set(at.value + 1)
    k.ret(at.value)


@routine("parse_date", ("ptr", "i64", "ptr"), "i64")
def parse_date(k: Kernel, p: Val, n: Val, out: Val) -> None:
    """[-]year-month-day[ (BC)] with - / \\ or a blank between, or epoch, infinity, -infinity. Text may follow a
    date."""
    at = k.var(skip_spaces(k, p, n, 0))
    minus = byte_at(k, p, n, at.value) == 45
    at.set(at.value + minus.to("i64"))
    with k.when(~is_digit(k, byte_at(k, p, n, at.value))):
        k.ret(special_date(k, p, n, at.value, minus, out))
    year = k.var(k.i64(0))
    with k.forever() as loop:
        byte = byte_at(k, p, n, at.value)
        loop.stop_if(~is_digit(k, byte))
        year.set(k.min(year.value * 10 + (byte - 48), k.i64(100_000_000)))
        at.set(at.value + 1)
    separator = byte_at(k, p, n, at.value)
    with k.when((separator != 45) & (separator != 47) & (separator != 92) & (separator != 32)):
        k.ret(k.i64(BAD_FORMAT))
    at.set(at.value + 1)
    month = _two_digits(k, p, n, at)
    with k.when((month < 0) | (byte_at(k, p, n, at.value) != separator)):
        k.ret(k.i64(BAD_FORMAT))
    at.set(at.value + 1)
    day = _two_digits(k, p, n, at)
    with k.when(day < 0):
        k.ret(k.i64(BAD_FORMAT))
    year.set(k.select(minus, -year.value, year.value))
    end = at.value
    with k.when(is_space(k, byte_at(k, p, n, end)) & (word_lower(k, p, end + 1, k.min(end + 5, n)) == word("(bc)"))):
        with k.when(minus | (year.value == 0)):
            k.ret(k.i64(BAD_FORMAT))
        year.set(1 - year.value)
        at.set(end + 5)
    with k.when(is_digit(k, byte_at(k, p, n, at.value))):
        k.ret(k.i64(BAD_FORMAT))
    sound_month = k.max(k.min(month, k.i64(12)), k.i64(1))
    days = days_from_civil(k, year.value, sound_month, day)
    known = (month == sound_month) & (day >= 1) & (day <= days_in_month(k, year.value, sound_month))
    with k.when(~known | (days < DATE_MIN) | (days > DATE_MAX)):
        k.ret(k.i64(OUT_OF_RANGE))
    k.store(out, days, 0)
    k.store(out, at.value, 1)
    k.ret(k.i64(0))


@routine("special_date", ("ptr", "i64", "i64", "i1", "ptr"), "i64")
def special_date(k: Kernel, p: Val, n: Val, start: Val, minus: Val, out: Val) -> None:
    end = letters_end(k, p, n, start)
    name = word_lower(k, p, start, end)
    infinite = (name == word("infinity")) | (name == word("inf"))
    with k.when(~(infinite | (name == word("epoch"))) | (skip_spaces(k, p, n, end) < n)):
        k.ret(k.i64(BAD_FORMAT))
    far = k.select(minus, k.i64(-DATE_INFINITY), k.i64(DATE_INFINITY))
    k.store(out, k.select(infinite, far, k.i64(0)), 0)
    k.store(out, n, 1)
    k.ret(k.i64(0))


@routine("parse_clock", ("ptr", "i64", "i64", "ptr"), "i64")
def parse_clock(k: Kernel, p: Val, n: Val, start: Val, out: Val) -> None:
    """hours:[minutes[:[seconds[.fraction]]]] from `start`; hours may be many, digits behind microseconds are
    dropped."""
    at = k.var(skip_spaces(k, p, n, start))
    first = at.value
    hours = k.var(k.i64(0))
    with k.forever() as loop:
        byte = byte_at(k, p, n, at.value)
        loop.stop_if(~is_digit(k, byte))
        hours.set(k.min(hours.value * 10 + (byte - 48), k.i64(MOST_HOURS + 1)))
        at.set(at.value + 1)
    with k.when((at.value == first) | (byte_at(k, p, n, at.value) != 58)):
        k.ret(k.i64(BAD_FORMAT))
    at.set(at.value + 1)
    parts = []
    more = k.var(k.true)
    for _ in ("minutes", "seconds"):
        part = k.var(k.i64(0))
        with k.when(more.value & (at.value < n)):
            part.set(_two_digits(k, p, n, at))
            with k.when((part.value < 0) | (part.value >= 60)):
                k.ret(k.i64(BAD_FORMAT))
        parts.append(part)
        if len(parts) == 1:
            with k.when(at.value < n):
                with k.when(byte_at(k, p, n, at.value) != 58):
                    k.ret(k.i64(BAD_FORMAT))
                at.set(at.value + 1)
            with k.otherwise():
                more.set(k.false)
    fraction, unit = k.var(k.i64(0)), k.var(k.i64(100_000))
    with k.when(byte_at(k, p, n, at.value) == 46):
        at.set(at.value + 1)
        with k.forever() as loop:
            byte = byte_at(k, p, n, at.value)
            loop.stop_if(~is_digit(k, byte))
            fraction.set(fraction.value + (byte - 48) * unit.value)
            unit.set(unit.value // 10)
            at.set(at.value + 1)
    clock = parts[0].value * MICROS_PER_MINUTE + parts[1].value * MICROS_PER_SECOND + fraction.value
    micros = hours.value * MICROS_PER_HOUR + clock
    k.store(out, micros, 0)
    k.store(out, at.value, 1)
    k.ret(k.select((hours.value > MOST_HOURS) | (micros < 0), k.i64(OUT_OF_RANGE), k.i64(0)))


@routine("parse_offset", ("ptr", "i64", "i64", "ptr"), "i64")
def parse_offset(k: Kernel, p: Val, n: Val, start: Val, out: Val) -> None:
    """(+|-)HH[[:]MM[:SS]] as microseconds; NOT_UTC if digits are missing."""
    seconds = k.var(k.i64(0))
    at = k.var(start + 1)
    for unit in (3600, 60, 1):
        colon = (byte_at(k, p, n, at.value) == 58) if unit != 3600 else k.false
        digits = at.value + colon.to("i64")
        tens, ones = byte_at(k, p, n, digits), byte_at(k, p, n, digits + 1)
        there = is_digit(k, tens) & is_digit(k, ones)
        if unit == 1:
            there = there & colon
        required = k.true if unit == 3600 else colon
        with k.when(required & ~there):
            k.ret(k.i64(NOT_UTC))
        with k.when(there):
            seconds.set(seconds.value + (tens * 10 + ones - 48 * 11) * unit)
            at.set(digits + 2)
    micros = seconds.value * MICROS_PER_SECOND
    k.store(out, k.select(k.load("i8", p + start) == 45, -micros, micros), 0)
    k.store(out, at.value, 1)
    k.ret(k.i64(0))


@routine("zone_end", ("ptr", "i64", "i64"), "i64")
def zone_end(k: Kernel, p: Val, n: Val, start: Val) -> None:
    """The position behind the name of a time zone: letters, digits and _ / + -."""
    at = k.var(start)
    with k.forever() as loop:
        byte = byte_at(k, p, n, at.value)
        letter = lower_case(k, byte)
        named = ((letter >= 97) & (letter <= 122)) | is_digit(k, byte)
        loop.stop_if(~(named | (byte == 95) | (byte == 47) | (byte == 43) | (byte == 45)))
        at.set(at.value + 1)
    k.ret(at.value)


@routine("parse_time_mark", ("ptr", "i64", "i64", "ptr"), "i64")
def parse_time_mark(k: Kernel, p: Val, n: Val, start: Val, out: Val) -> None:
    """The time behind a date: a blank or a T, then at most 24 hours."""
    mark = byte_at(k, p, n, start)
    status = parse_clock(k, p, n, start + ((mark == 32) | (mark == 84)).to("i64"), out)
    with k.when(status != 0):
        k.ret(status)
    k.ret(k.select(k.load("i64", out, 0) > MICROS_PER_DAY, k.i64(OUT_OF_RANGE), k.i64(0)))


@routine("parse_timestamp", ("ptr", "i64", "i1", "ptr"), "i64")
def parse_timestamp(k: Kernel, p: Val, n: Val, zoned: Val, out: Val) -> None:
    """date[( |T)time[Z|offset| zone]]. Offset and zone count for a TIMESTAMPTZ (`zoned`) and are ignored otherwise."""
    status = parse_date(k, p, n, out)
    with k.when(status != 0):
        k.ret(status)
    days = k.load("i64", out, 0)
    at = k.var(k.load("i64", out, 1))
    with k.when((days == DATE_INFINITY) | (days == -DATE_INFINITY)):
        k.store(out, k.select(days < 0, k.i64(-TIMESTAMP_INFINITY), k.i64(TIMESTAMP_INFINITY)), 0)
        k.ret(k.i64(0))
    with k.when((days < FIRST_DAY) | (days > LAST_DAY)):
        k.ret(k.i64(OUT_OF_RANGE))
    midnight = days * MICROS_PER_DAY
    with k.when(at.value == n):
        k.store(out, midnight, 0)
        k.ret(k.i64(0))
    time_status = parse_time_mark(k, p, n, at.value, out)
    with k.when(time_status != 0):
        k.ret(time_status)
    time = k.load("i64", out, 0)
    micros = k.var(midnight + time)
    with k.when(k.overflows("add", midnight, time) | (micros.value > TIMESTAMP_MAX)):
        k.ret(k.i64(OUT_OF_RANGE))
    at.set(k.load("i64", out, 1))
    with k.when(at.value < n):
        k.ret(parse_zone(k, p, n, at.value, micros.value, zoned, out))
    k.store(out, micros.value, 0)
    k.ret(k.i64(0))


@routine("parse_zone", ("ptr", "i64", "i64", "i64", "i1", "ptr"), "i64")
def parse_zone(k: Kernel, p: Val, n: Val, start: Val, local: Val, zoned: Val, out: Val) -> None:
    """What follows the time of a timestamp; stores the timestamp, moved to UTC if `zoned`."""
    mark = k.load("i8", p + start)
    end, micros = k.var(start + 1), k.var(local)
    with k.when((mark == 43) | (mark == 45)):
        with k.when(parse_offset(k, p, n, start, out) != 0):
            k.ret(k.select(zoned, k.i64(BAD_FORMAT), k.i64(NOT_UTC)))
        end.set(k.load("i64", out, 1))
        with k.when(zoned):
            offset = k.load("i64", out, 0)
            micros.set(local - offset)
            with k.when(
                k.overflows("sub", local, offset)
                | (micros.value > TIMESTAMP_MAX)
                | (micros.value <= -TIMESTAMP_INFINITY)
            ):
                k.ret(k.i64(OUT_OF_RANGE))
    with k.otherwise():
        with k.when(mark == 32):
            end.set(zone_end(k, p, n, start + 1))
            name = word_lower(k, p, start + 1, end.value)
            known = name == 0
            for utc in UTC_NAMES:
                known = known | (name == word(utc))
            with k.when(zoned & ~known):
                k.store(out, start + 1, 2)
                k.store(out, end.value - (start + 1), 3)
                k.ret(k.i64(UNKNOWN_ZONE))
        with k.otherwise():
            with k.when(mark != 90):
                k.ret(k.i64(BAD_FORMAT))
    with k.when(skip_spaces(k, p, n, end.value) < n):
        k.ret(k.i64(BAD_FORMAT))
    k.store(out, micros.value, 0)
    k.ret(k.i64(0))


@routine("parse_whole_date", ("ptr", "i64", "ptr"), "i64")
def parse_whole_date(k: Kernel, p: Val, n: Val, out: Val) -> None:
    """The text of a DATE: a date, or a timestamp of which the day counts."""
    status = parse_date(k, p, n, out)
    with k.when(status != 0):
        k.ret(status)
    days, end = k.load("i64", out, 0), k.load("i64", out, 1)
    with k.when(skip_spaces(k, p, n, end) == n):
        k.ret(k.i64(0))
    time_status = parse_time_mark(k, p, n, end, out)
    with k.when(time_status != 0):
        k.ret(time_status)
    end = k.load("i64", out, 1)
    good = k.var(k.true)
    with k.when(end < n):
        good.set(parse_zone(k, p, n, end, 0, k.false, out) == 0)
    k.store(out, days, 0)
    k.ret(k.select(good.value, k.i64(0), k.i64(BAD_FORMAT)))


@routine("parse_time", ("ptr", "i64", "ptr"), "i64")
def parse_time(k: Kernel, p: Val, n: Val, out: Val) -> None:
    """The text of a TIME: a time, whatever follows it, or a timestamp of which the time counts."""
    with k.when(parse_clock(k, p, n, 0, out) == 0):
        k.ret((k.load("i64", out, 0) > MICROS_PER_DAY).to("i64"))
    with k.when(parse_timestamp(k, p, n, k.false, out) != 0):
        k.ret(k.i64(BAD_FORMAT))
    micros = k.load("i64", out, 0)
    k.store(out, split_micros(k, micros)[1], 0)
    k.ret(((micros == TIMESTAMP_INFINITY) | (micros == -TIMESTAMP_INFINITY)).to("i64"))
