"""Text to floats in the kernel language: the grammar is checked here, the digits are read by C's strtod or strtof.

A number with up to 15 digits and a power of ten up to 22 is exact in one multiplication or division, so most texts need
no call.
"""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Kernel, Val, Var, routine
from tsql.kernels.runtime.text.format import put_bytes, put_huge, put_unsigned
from tsql.kernels.runtime.text.parse import byte_at, is_digit, skip_spaces, word, word_lower


@routine("parse_float", ("ptr", "i64", "ptr", "i1", "ptr"), "i1")
def parse_float(k: Kernel, p: Val, n: Val, copy: Val, single: Val, out: Val) -> None:
    """Stores an f64 at `out` (of a FLOAT's value if `single`). `copy` has room for the text and a NUL."""
    start = k.var(skip_spaces(k, p, n, 0))
    start.set(start.value + (byte_at(k, p, n, start.value) == 43).to("i64"))
    minus = byte_at(k, p, n, start.value) == 45
    first = start.value + minus.to("i64")
    at, size, good = k.var(first), k.var(k.i64(0)), k.var(k.true)
    mantissa, digits, point = k.var(k.i64(0)), k.var(k.i64(0)), k.var(k.i64(0))

    def keep(byte: Val) -> None:
        k.store(copy + size.value, byte.to("i8"))
        size.set(size.value + 1)
        at.set(at.value + 1)

    def add(digit: Val) -> None:
        digits.set(digits.value + 1)
        mantissa.set(k.select(digits.value <= 15, mantissa.value * 10 + digit, mantissa.value))

    _digits(k, p, n, at, good, keep, add)
    with k.when(byte_at(k, p, n, at.value) == 46):
        keep(k.i64(46))
        before = digits.value
        _digits(k, p, n, at, good, keep, add)
        point.set(digits.value - before)
    with k.when(digits.value == 0):
        k.ret(_named(k, p, n, first, minus, out))
    exponent = k.var(k.i64(0))
    mark = byte_at(k, p, n, at.value)
    with k.when((mark == 101) | (mark == 69)):
        exponent.set(_exponent(k, p, n, at, good, keep))
    with k.when(~good.value | (skip_spaces(k, p, n, at.value) < n)):
        k.ret(k.false)
    shift = exponent.value - point.value
    value = k.var(k.f64(0.0))
    with k.when((digits.value <= 15) & (shift >= -22) & (shift <= 22) & ~single):
        power = k.var(k.f64(1.0))
        with k.range(k.select(shift < 0, -shift, shift)):
            power.set(power.value * 10.0)
        exact = mantissa.value.to("f64")
        value.set(k.select(shift < 0, exact / power.value, exact * power.value))
    with k.otherwise():
        k.store(copy + size.value, k.i8(0))
        with k.when(single):
            value.set(k.call("strtof", copy, k.null).to("f64"))
        with k.otherwise():
            value.set(k.call("strtod", copy, k.null))
    k.store(out, k.select(minus, -value.value, value.value))
    k.ret(k.true)


def _digits(
    k: Kernel, p: Val, n: Val, at: Var, good: Var, keep: Callable[[Val], None], add: Callable[[Val], None]
) -> None:
    with k.forever() as loop:
        byte = byte_at(k, p, n, at.value)
        loop.stop_if(~is_digit(k, byte))
        keep(byte)
        add(byte - 48)
        with k.when(byte_at(k, p, n, at.value) == 95):
            at.set(at.value + 1)
            good.set(good.value & is_digit(k, byte_at(k, p, n, at.value)))


def _exponent(k: Kernel, p: Val, n: Val, at: Var, good: Var, keep: Callable[[Val], None]) -> Val:
    keep(k.i64(101))
    sign = byte_at(k, p, n, at.value)
    minus = sign == 45
    with k.when(minus | (sign == 43)):
        keep(sign)
    value, count = k.var(k.i64(0)), k.var(k.i64(0))

    def add(digit: Val) -> None:
        count.set(count.value + 1)
        value.set(k.min(value.value * 10 + digit, k.i64(100_000)))

    _digits(k, p, n, at, good, keep, add)
    good.set(good.value & (count.value > 0))
    return k.select(minus, -value.value, value.value)


def _named(k: Kernel, p: Val, n: Val, first: Val, minus: Val, out: Val) -> Val:
    """nan, inf or infinity."""
    end = k.var(n)
    with k.forever() as loop:
        loop.stop_if(end.value <= first)
        loop.stop_if(skip_spaces(k, p, n, end.value - 1) < n)
        end.set(end.value - 1)
    given = word_lower(k, p, first, end.value)
    infinite = (given == word("inf")) | (given == word("infinity"))
    value = k.select(infinite, k.f64(float("inf")), k.f64(float("nan")))
    k.store(out, k.select(minus, -value, value))
    return infinite | (given == word("nan"))


@routine("decimal_to_float", ("ptr", "i128", "i64", "i1"), "f64")
def decimal_to_float(k: Kernel, buffer: Val, value: Val, scale: Val, single: Val) -> None:
    """The float nearest to value / 10^scale, by way of its text (of up to 64 bytes in `buffer`)."""
    end = put_unsigned(k, put_bytes(k, put_huge(k, buffer, value), b"e-"), scale)
    put_bytes(k, end, b"\0")
    with k.when(single):
        k.ret(k.call("strtof", buffer, k.null).to("f64"))
    k.ret(k.call("strtod", buffer, k.null))
