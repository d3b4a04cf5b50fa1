"""Floats to text: the shortest digits that read back to the same number, formatted as in DuckDB (and Python).

C's printf gives the nearest decimal with a number of digits, and strtod tells whether it reads back. If fewer than
fifteen digits (six for FLOAT) suffice, fifteen do too, after their trailing zeros are dropped. So at most three lengths
are tried, except for subnormal numbers, which have fewer digits.

A FLOAT whose shortest digits are a tie, either halfway to its neighbour or halfway between two numbers of as many
digits, is written as the DOUBLE of the same value: DuckDB does not decide such ties for FLOAT.
"""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.text.format import put_bytes, put_padded, put_unsigned

WORK = 64
"""The offset in the output buffer (of FLOAT_BYTES) where the digits are made."""


@routine("float_reads_back", ("ptr", "f64", "i1"), "i1")
def float_reads_back(k: Kernel, text: Val, value: Val, single: Val) -> None:
    with k.when(single):
        k.ret(k.call("strtof", text, k.null).to("f64") == value)
    k.ret(k.call("strtod", text, k.null) == value)


@routine("float_next_digit", ("ptr", "i64"), None)
def float_next_digit(k: Kernel, text: Val, digits: Val) -> None:
    """Add one to the last digit of d.ddde±xx. Carries stop before the point, which suffices for the numbers that need
    this."""
    at = k.var(digits)
    with k.forever() as loop:
        i = at.value
        loop.stop_if(i < 2)
        digit = k.load("i8", text + i)
        k.store(text + i, k.select(digit == 57, k.i8(48), digit + 1))
        loop.stop_if(digit != 57)
        at.set(i - 1)


@routine("float_is_between", ("ptr", "f64"), "i1")
def float_is_between(k: Kernel, text: Val, value: Val) -> None:
    """Whether a text is halfway between a FLOAT and one of its neighbours."""
    single = value.to("f32").bits_as("i32")
    read = k.call("strtod", text, k.null)
    below, above = ((single + step).bits_as("f32").to("f64") for step in (-1, 1))
    k.ret((read == (value + below) * 0.5) | (read == (value + above) * 0.5))


@routine("float_is_halfway", ("ptr", "i64", "f64", "ptr"), "i1")
def float_is_halfway(k: Kernel, text: Val, digits: Val, value: Val, form: Val) -> None:
    """Whether a FLOAT is halfway between two numbers with this many digits; leaves the text as it was."""
    k.call("snprintf", text, 48, form, digits.to("i32"), value)
    halfway = (k.load("i8", text + (digits + 1)) == 53) & (k.call("strtod", text, k.null) == value)
    k.call("snprintf", text, 48, form, (digits - 1).to("i32"), value)
    k.ret(halfway)


@routine("put_scientific", ("ptr", "f64", "i1"), "i64")
def put_scientific(k: Kernel, p: Val, value: Val, single: Val) -> None:
    """The shortest d.ddde±xx of a positive number; returns its number of digits.

    A power of two has a closer neighbour below than above: there the shortest number that reads back may be the one
    above the nearest.
    """
    form = put_bytes(k, p + 48, b"%.*e\0") + -5
    subnormal = value < k.select(single, k.f64(2.0**-126), k.f64(2.0**-1022))
    power_of_two = (value.bits_as("i64") & (2**52 - 1)) == 0
    usual = k.select(single, k.i64(6), k.i64(15))
    longest = k.select(single, k.i64(9), k.i64(17))
    digits = k.var(k.select(subnormal, k.i64(1), usual))
    with k.forever() as loop:
        n = digits.value
        k.call("snprintf", p, 48, form, (n - 1).to("i32"), value)
        loop.stop_if(n >= longest)
        with k.when(single & ~subnormal):
            with k.when(float_is_between(k, p, value)):
                k.ret(put_scientific(k, p, value, k.false))
        loop.stop_if(float_reads_back(k, p, value, single))
        above = k.var(k.false)
        with k.when(power_of_two):
            float_next_digit(k, p, n)
            above.set(float_reads_back(k, p, value, single))
        loop.stop_if(above.value)
        digits.set(n + 1)
    with k.when(single & (digits.value < longest) & ~subnormal):
        with k.when(float_is_halfway(k, p, digits.value, value, form)):
            k.ret(put_scientific(k, p, value, k.false))
    k.ret(digits.value)


@routine("put_float", ("ptr", "f64", "i1"), "ptr")
def put_float(k: Kernel, p: Val, value: Val, single: Val) -> None:
    """A float; exponents from -4 to 15 are written out. `single`: it is a FLOAT."""
    with k.when(value != value):
        k.ret(put_bytes(k, p, b"nan"))
    negative = value.bits_as("i64") < 0
    with k.when(negative):
        put_bytes(k, p, b"-")
    p = p + negative.to("i64")
    magnitude = k.unary("fabs", value)
    with k.when(magnitude == float("inf")):
        k.ret(put_bytes(k, p, b"inf"))
    with k.when(magnitude == 0.0):
        k.ret(put_bytes(k, p, b"0.0"))
    work = p + (WORK - 1)
    digits = k.var(put_scientific(k, work + 1, magnitude, single))
    exponent = _exponent(k, work + 1, digits.value)
    k.store(work + 2, k.load("i8", work + 1))  # d.ddd becomes ddddd at work + 2
    with k.forever() as loop:
        n = digits.value
        loop.stop_if(n <= 1)
        loop.stop_if(k.load("i8", work + 1 + n) != 48)
        digits.set(n - 1)
    k.ret(_layout(k, p, work + 2, digits.value, exponent))


def _exponent(k: Kernel, text: Val, digits: Val) -> Val:
    """The exponent of d.ddde±xx."""
    at = k.var(text + (digits + k.select(digits > 1, k.i64(2), k.i64(1))))
    minus = k.load("i8", at.value) == 45
    exponent = k.var(k.i64(0))
    with k.forever() as loop:
        at.set(at.value + 1)
        byte = k.load("i8", at.value)
        loop.stop_if(byte == 0)
        exponent.set(exponent.value * 10 + (byte.to("i64") - 48))
    return k.select(minus, -exponent.value, exponent.value)


def _layout(k: Kernel, p: Val, digits: Val, count: Val, exponent: Val) -> Val:
    end = k.var(p)
    with k.when((exponent < -4) | (exponent >= 16)):
        k.store(p, k.load("i8", digits))
        behind = k.var(p + 1)
        with k.when(count > 1):
            put_bytes(k, p + 1, b".")
            k.call("memmove", p + 2, digits + 1, count - 1)
            behind.set(p + (count + 1))
        minus = exponent < 0
        mark = put_bytes(k, behind.value, b"e+")
        with k.when(minus):
            put_bytes(k, behind.value, b"e-")
        magnitude = k.select(minus, -exponent, exponent)
        with k.when(magnitude < 10):
            end.set(put_padded(k, mark, magnitude, 2))
        with k.otherwise():
            end.set(put_unsigned(k, mark, magnitude))
    with k.otherwise():
        with k.when(exponent < 0):
            zeros = -1 - exponent
            put_bytes(k, p, b"0.")
            k.call("memset", p + 2, 48, zeros)
            k.call("memmove", p + (zeros + 2), digits, count)
            end.set(p + (zeros + 2 + count))
        with k.otherwise():
            whole = exponent + 1
            with k.when(count <= whole):
                k.call("memmove", p, digits, count)
                k.call("memset", p + count, 48, whole - count)
                end.set(put_bytes(k, p + whole, b".0"))
            with k.otherwise():
                k.call("memmove", p, digits, whole)
                k.call("memmove", p + (whole + 1), digits + whole, count - whole)
                put_bytes(k, p + whole, b".")
                end.set(p + (count + 1))
    return end.value
