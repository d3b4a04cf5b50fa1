"""The proleptic Gregorian calendar in the kernel language: days since 1970-01-01 to year, month, day and back.

Used by casts and by the date functions. Years count as astronomers do (0 is 1 BC). All values are i64. The algorithms
are those of Howard Hinnant's "chrono-compatible low-level date algorithms".
"""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine

MICROS_PER_SECOND = 1_000_000
MICROS_PER_MINUTE = 60 * MICROS_PER_SECOND
MICROS_PER_HOUR = 60 * MICROS_PER_MINUTE
MICROS_PER_DAY = 24 * MICROS_PER_HOUR

DATE_INFINITY = 2**31 - 1
"""The DATE 'infinity', as stored; its negation is '-infinity'."""
TIMESTAMP_INFINITY = 2**63 - 1
"""The TIMESTAMP 'infinity', as stored; its negation is '-infinity'."""
DATE_MIN, DATE_MAX = -(2**31) + 2, 2**31 - 2
TIMESTAMP_MIN, TIMESTAMP_MAX = -9223372022400000000, 2**63 - 2
"""The earliest timestamp is 290309-12-22 (BC) 00:00:00, as in DuckDB."""


def floor_div(k: Kernel, a: Val, divisor: int) -> Val:
    """a / divisor rounded towards minus infinity, for a positive constant."""
    quotient = a // divisor
    return quotient - (a % divisor < 0).to(a.type)


def floor_mod(k: Kernel, a: Val, divisor: int) -> Val:
    """The remainder that belongs to `floor_div`: 0 .. divisor - 1."""
    rest = a % divisor
    return k.select(rest < 0, rest + divisor, rest)


def split_micros(k: Kernel, micros: Val) -> tuple[Val, Val]:
    """Microseconds since 1970 as (days, microseconds of the day)."""
    days = floor_div(k, micros, MICROS_PER_DAY)
    return days, micros - days * MICROS_PER_DAY


def split_time(k: Kernel, micros: Val) -> tuple[Val, Val, Val, Val]:
    """Microseconds of a day as (hour, minute, second, microsecond)."""
    seconds = micros // MICROS_PER_SECOND
    minutes = seconds // 60
    return minutes // 60, minutes % 60, seconds % 60, micros - seconds * MICROS_PER_SECOND


def is_leap_year(k: Kernel, year: Val) -> Val:
    """i1: whether a year has a 29th of February."""
    return ((year & 3) == 0) & ((year % 100 != 0) | ((year & 15) == 0))


def days_in_month(k: Kernel, year: Val, month: Val) -> Val:
    """28 to 31, for a month of 1 to 12."""
    usual = ((month ^ month.ushr(3)) & 1) + 30
    february = is_leap_year(k, year).to("i64") + 28
    return k.select(month == 2, february, usual)


def civil_from_days(k: Kernel, days: Val) -> tuple[Val, Val, Val]:
    """(year, month 1-12, day 1-31) of days since 1970-01-01 (any integer type)."""
    packed = civil_packed(k, days.to("i64"))
    return packed >> 9, packed.ushr(5) & 15, packed & 31


@routine("civil_packed", ("i64",), "i64")
def civil_packed(k: Kernel, days: Val) -> None:
    """year * 512 + month * 32 + day, because a routine returns one value. The year begins in March here, so the leap
    day is its last day."""
    z = days + 719_468
    era = floor_div(k, z, 146_097)
    day_of_era = z - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (year_of_era * 365 + year_of_era // 4 - year_of_era // 100)
    march_month = (day_of_year * 5 + 2) // 153
    day = day_of_year - (march_month * 153 + 2) // 5 + 1
    month = k.select(march_month < 10, march_month + 3, march_month - 9)
    year = year_of_era + era * 400 + (month <= 2).to("i64")
    k.ret((year << 9) | (month << 5) | day)


@routine("days_from_civil", ("i64", "i64", "i64"), "i64")
def days_from_civil(k: Kernel, year: Val, month: Val, day: Val) -> None:
    """Days since 1970-01-01 of a year, a month of 1 to 12 and a day (which may lie outside of the month)."""
    y = year - (month <= 2).to("i64")
    era = floor_div(k, y, 400)
    year_of_era = y - era * 400
    march_month = k.select(month > 2, month - 3, month + 9)
    day_of_year = (march_month * 153 + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    k.ret(era * 146_097 + day_of_era - 719_468)
