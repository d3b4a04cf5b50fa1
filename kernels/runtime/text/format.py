"""Values to text in the kernel language: each `put_*` writes at a pointer and returns the pointer behind the last byte.

The caller supplies enough memory (`*_BYTES` below). Texts are those of DuckDB: shortest floats that read back, decimals
with all their digits, years of at least four digits with " (BC)" before year 1, fractions of a second without zeros at
the end."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.calendar import (
    DATE_INFINITY,
    MICROS_PER_HOUR,
    MICROS_PER_MINUTE,
    MICROS_PER_SECOND,
    TIMESTAMP_INFINITY,
    civil_from_days,
    split_micros,
)

NUMBER_BYTES = 48
FLOAT_BYTES = 128
TIME_BYTES = 64
INTERVAL_BYTES = 96


def text_between(k: Kernel, start: Val, end: Val) -> tuple[Val, Val]:
    """The (pointer, length) of what was written between two pointers."""
    return start, end.bits_as("i64") - start.bits_as("i64")


def put_bytes(k: Kernel, p: Val, text: bytes) -> Val:
    """Write a constant."""
    at = 0
    for type, size in (("i64", 8), ("i32", 4), ("i16", 2), ("i8", 1)):
        while len(text) - at >= size:
            k.store(p + at, k.const(type, int.from_bytes(text[at : at + size], "little")))
            at += size
    return p + at


def put_byte(k: Kernel, p: Val, byte: Val) -> Val:
    """Write the low byte of an integer."""
    k.store(p, byte.to("i8"))
    return p + 1


@routine("put_padded", ("ptr", "i64", "i64"), "ptr")
def put_padded(k: Kernel, p: Val, value: Val, digits: Val) -> None:
    """Exactly `digits` digits of an unsigned number, with zeros in front."""
    rest = k.var(value)
    at = k.var(digits)
    with k.forever() as loop:
        i = at.value - 1
        loop.stop_if(i < 0)
        v = rest.value
        quotient = v.udiv(10)
        k.store(p + i, (v - quotient * 10 + 48).to("i8"))
        rest.set(quotient)
        at.set(i)
    k.ret(p + digits)


@routine("put_unsigned", ("ptr", "i64"), "ptr")
def put_unsigned(k: Kernel, p: Val, value: Val) -> None:
    digits = k.var(k.i64(1))
    rest = k.var(value.udiv(10))
    with k.forever() as loop:
        v = rest.value
        loop.stop_if(v == 0)
        digits.set(digits.value + 1)
        rest.set(v.udiv(10))
    k.ret(put_padded(k, p, value, digits.value))


@routine("put_padded_huge", ("ptr", "i128", "i64"), "ptr")
def put_padded_huge(k: Kernel, p: Val, value: Val, digits: Val) -> None:
    """As `put_padded`, 18 digits at a time."""
    rest = k.var(value)
    left = k.var(digits)
    with k.forever() as loop:
        n = left.value
        loop.stop_if(n <= 18)
        v = rest.value
        quotient = v.udiv(10**18)
        put_padded(k, p + (n - 18), (v - quotient * 10**18).to("i64"), 18)
        rest.set(quotient)
        left.set(n - 18)
    put_padded(k, p, rest.value.to("i64"), left.value)
    k.ret(p + digits)


@routine("put_unsigned_huge", ("ptr", "i128"), "ptr")
def put_unsigned_huge(k: Kernel, p: Val, value: Val) -> None:
    with k.when(value.ult(2**64)):
        k.ret(put_unsigned(k, p, value.to("i64")))
    quotient = value.udiv(10**18)
    behind = put_unsigned_huge(k, p, quotient)
    k.ret(put_padded(k, behind, (value - quotient * 10**18).to("i64"), 18))


def put_sign(k: Kernel, p: Val, value: Val) -> tuple[Val, Val]:
    """A minus sign if the value is negative; returns where to go on, and the magnitude (unsigned)."""
    negative = value < 0
    with k.when(negative):
        put_bytes(k, p, b"-")
    return p + negative.to("i64"), k.select(negative, -value, value)


@routine("put_integer", ("ptr", "i64"), "ptr")
def put_integer(k: Kernel, p: Val, value: Val) -> None:
    p, magnitude = put_sign(k, p, value)
    k.ret(put_unsigned(k, p, magnitude))


@routine("put_huge", ("ptr", "i128"), "ptr")
def put_huge(k: Kernel, p: Val, value: Val) -> None:
    p, magnitude = put_sign(k, p, value)
    k.ret(put_unsigned_huge(k, p, magnitude))


@routine("put_decimal", ("ptr", "i64", "i64", "i64", "i1"), "ptr")
def put_decimal(k: Kernel, p: Val, value: Val, power: Val, scale: Val, lead: Val) -> None:
    """A decimal with `scale` > 0 digits after the point; power is 10^scale. `lead`: whether a zero precedes the point
    (DuckDB writes none if the type has no digit there)."""
    _decimal(k, (p, value, power, scale, lead), put_unsigned, put_padded)


@routine("put_decimal_huge", ("ptr", "i128", "i128", "i64", "i1"), "ptr")
def put_decimal_huge(k: Kernel, p: Val, value: Val, power: Val, scale: Val, lead: Val) -> None:
    """As `put_decimal`, for more than 18 digits."""
    _decimal(k, (p, value, power, scale, lead), put_unsigned_huge, put_padded_huge)


def _decimal(
    k: Kernel, params: tuple[Val, Val, Val, Val, Val], unsigned: Callable[..., Val], padded: Callable[..., Val]
) -> None:
    p, value, power, scale, lead = params
    p, magnitude = put_sign(k, p, value)
    whole = magnitude // power
    at = k.var(p)
    with k.when(lead | (whole != 0)):
        at.set(unsigned(k, p, whole))
    behind = put_bytes(k, at.value, b".")
    k.ret(padded(k, behind, magnitude - whole * power, scale))


@routine("put_fixed", ("ptr", "f64"), "ptr")
def put_fixed(k: Kernel, p: Val, value: Val) -> None:
    """A float with six digits behind the point, as C's %f. Needs 384 bytes."""
    put_bytes(k, p + 376, b"%.*f\0")
    k.ret(p + k.call("snprintf", p, 376, p + 376, 6, value).to("i64"))


def put_two(k: Kernel, p: Val, value: Val) -> Val:
    """Two digits."""
    tens = value.udiv(10)
    k.store(p, ((tens + 48) | ((value - tens * 10 + 48) << 8)).to("i16"))
    return p + 2


@routine("put_fraction", ("ptr", "i64"), "ptr")
def put_fraction(k: Kernel, p: Val, micros: Val) -> None:
    """A point and up to six digits, without zeros at the end; nothing for zero."""
    with k.when(micros == 0):
        k.ret(p)
    put_bytes(k, p, b".")
    at = k.var(put_padded(k, p + 1, micros, 6))
    with k.forever() as loop:
        loop.stop_if(k.load("i8", at.value + -1) != 48)
        at.set(at.value + -1)
    k.ret(at.value)


@routine("put_clock", ("ptr", "i64"), "ptr")
def put_clock(k: Kernel, p: Val, micros: Val) -> None:
    """hh:mm:ss[.ffffff] of unsigned microseconds; hours may have more than two digits."""
    hours = micros.udiv(MICROS_PER_HOUR)
    rest = micros - hours * MICROS_PER_HOUR
    minutes = rest // MICROS_PER_MINUTE
    rest = rest - minutes * MICROS_PER_MINUTE
    seconds = rest // MICROS_PER_SECOND
    at = k.var(p)
    with k.when(hours < 100):
        at.set(put_two(k, p, hours))
    with k.otherwise():
        at.set(put_unsigned(k, p, hours))
    p = put_two(k, put_bytes(k, at.value, b":"), minutes)
    p = put_two(k, put_bytes(k, p, b":"), seconds)
    k.ret(put_fraction(k, p, rest - seconds * MICROS_PER_SECOND))


@routine("put_date", ("ptr", "i64"), "ptr")
def put_date(k: Kernel, p: Val, days: Val) -> None:
    with k.when(days == DATE_INFINITY):
        k.ret(put_bytes(k, p, b"infinity"))
    with k.when(days == -DATE_INFINITY):
        k.ret(put_bytes(k, p, b"-infinity"))
    year, month, day = civil_from_days(k, days)
    shown = k.select(year > 0, year, 1 - year)
    at = k.var(p)
    with k.when(shown < 10_000):
        at.set(put_padded(k, p, shown, 4))
    with k.otherwise():
        at.set(put_unsigned(k, p, shown))
    behind = put_two(k, put_bytes(k, at.value, b"-"), month)
    behind = put_two(k, put_bytes(k, behind, b"-"), day)
    with k.when(year <= 0):
        k.ret(put_bytes(k, behind, b" (BC)"))
    k.ret(behind)


@routine("put_timestamp", ("ptr", "i64", "i1"), "ptr")
def put_timestamp(k: Kernel, p: Val, micros: Val, zoned: Val) -> None:
    """Date, blank, time; with "+00" if `zoned`."""
    with k.when(micros == TIMESTAMP_INFINITY):
        k.ret(put_bytes(k, p, b"infinity"))
    with k.when(micros == -TIMESTAMP_INFINITY):
        k.ret(put_bytes(k, p, b"-infinity"))
    days, time = split_micros(k, micros)
    behind = put_bytes(k, put_date(k, p, days), b" ")
    behind = put_clock(k, behind, time)
    with k.when(zoned):
        k.ret(put_bytes(k, behind, b"+00"))
    k.ret(behind)


@routine("put_count", ("ptr", "ptr", "i64", "i64", "i64"), "ptr")
def put_count(k: Kernel, start: Val, p: Val, count: Val, name: Val, size: Val) -> None:
    """A part of an interval: count, blank, name (its bytes as a number), and an s unless the count is 1 or -1. Parts
    are separated by a blank."""
    with k.when(count == 0):
        k.ret(p)
    at = k.var(p)
    with k.when(p != start):
        at.set(put_bytes(k, p, b" "))
    behind = put_bytes(k, put_integer(k, at.value, count), b" ")
    k.store(behind, name)
    behind = behind + size
    with k.when((count == 1) | (count == -1)):
        k.ret(behind)
    k.ret(put_bytes(k, behind, b"s"))


@routine("put_interval", ("ptr", "i64", "i64", "i64"), "ptr")
def put_interval(k: Kernel, start: Val, months: Val, days: Val, micros: Val) -> None:
    p = start
    for count, name in ((months // 12, b"year"), (months % 12, b"month"), (days, b"day")):
        p = put_count(k, start, p, count, int.from_bytes(name, "little"), len(name))
    at = k.var(p)
    with k.when((micros != 0) | (p == start)):
        with k.when(p != start):
            at.set(put_bytes(k, p, b" "))
        behind, magnitude = put_sign(k, at.value, micros)
        at.set(put_clock(k, behind, magnitude))
    k.ret(at.value)


@routine("put_blob", ("ptr", "ptr", "i64"), "ptr")
def put_blob(k: Kernel, p: Val, data: Val, size: Val) -> None:
    r"""Bytes as text: printable ASCII as it is, the rest and \ ' " as \xHH. Needs four bytes for each."""
    at = k.var(p)
    with k.range(size) as i:
        byte = k.load("i8", data + i).uto("i64")
        plain = (byte >= 32) & (byte < 127) & (byte != 92) & (byte != 34) & (byte != 39)
        with k.when(plain):
            at.set(put_byte(k, at.value, byte))
        with k.otherwise():
            behind = put_bytes(k, at.value, b"\\x")
            for nibble in (byte.ushr(4), byte & 15):
                behind = put_byte(k, behind, nibble + k.select(nibble < 10, k.i64(48), k.i64(55)))
            at.set(behind)
    k.ret(at.value)
