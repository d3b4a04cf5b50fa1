"""Text to numbers, booleans and blobs in the kernel language, with DuckDB's grammar.

A `parse_*` routine returns whether the text is well formed and stores the value at `out`. Blanks may stand on both
sides of a number, a single underscore between two digits, an exponent behind it."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Kernel, Val, Var, routine

LARGEST = 2**127
"""The largest magnitude of a HUGEINT or DECIMAL, as an unsigned i128."""


def is_space(k: Kernel, byte: Val) -> Val:
    return (byte == 32) | ((byte >= 9) & (byte <= 13))


def is_digit(k: Kernel, byte: Val) -> Val:
    return (byte >= 48) & (byte <= 57)


def lower_case(k: Kernel, byte: Val) -> Val:
    return k.select((byte >= 65) & (byte <= 90), byte + 32, byte)


def byte_at(k: Kernel, p: Val, n: Val, at: Val) -> Val:
    """The byte at `at` as i64, 0 to 255; 0 at or behind the end."""
    slot = k.var(k.i64(0))
    with k.when(at < n):
        slot.set(k.load("i8", p + at).uto("i64"))
    return slot.value


@routine("skip_spaces", ("ptr", "i64", "i64"), "i64")
def skip_spaces(k: Kernel, p: Val, n: Val, start: Val) -> None:
    """The position of the first byte from `start` that is no blank."""
    at = k.var(start)
    with k.forever() as loop:
        loop.stop_if(at.value >= n)
        loop.stop_if(~is_space(k, k.load("i8", p + at.value)))
        at.set(at.value + 1)
    k.ret(at.value)


@routine("word_lower", ("ptr", "i64", "i64"), "i128")
def word_lower(k: Kernel, p: Val, start: Val, end: Val) -> None:
    """Up to 16 bytes as a number, letters in lower case, to compare with `word`; -1 for more than 16."""
    with k.when(end - start > 16):
        k.ret(k.i128(-1))
    value = k.var(k.i128(0))
    with k.range(end, start) as i:
        byte = lower_case(k, k.load("i8", p + i)).uto("i128")
        value.set(value.value | (byte << ((i - start) << 3).to("i128")))
    k.ret(value.value)


def word(text: str) -> int:
    """A lower-case word as `word_lower` gives it."""
    return int.from_bytes(text.encode(), "little")


@routine("power_of_ten", ("i64",), "i128")
def power_of_ten(k: Kernel, exponent: Val) -> None:
    """10^exponent for 0 to 38, as an unsigned i128."""
    value = k.var(k.i128(1))
    with k.range(exponent):
        value.set(value.value * 10)
    k.ret(value.value)


@routine("parse_integer", ("ptr", "i64", "i64", "i128", "i1", "ptr"), "i1")
def parse_integer(k: Kernel, p: Val, n: Val, scale: Val, limit: Val, based: Val, out: Val) -> None:
    """An integer: up to 18 plain digits at once, anything else by `parse_number`."""
    with k.when((n > 0) & (n <= 18)):
        minus = k.load("i8", p) == 45
        at = k.var(minus.to("i64"))
        value = k.var(k.i64(0))
        with k.forever() as loop:
            i = at.value
            loop.stop_if(i >= n)
            byte = k.load("i8", p + i)
            loop.stop_if(~is_digit(k, byte))
            value.set(value.value * 10 + (byte.to("i64") - 48))
            at.set(i + 1)
        with k.when((at.value == n) & (n > minus.to("i64"))):
            wide = value.value.to("i128")
            k.store(out, k.select(minus, -wide, wide))
            k.ret(k.true)
    k.ret(parse_number(k, p, n, scale, limit, based, out))


@routine("parse_number", ("ptr", "i64", "i64", "i128", "i1", "ptr"), "i1")
def parse_number(k: Kernel, p: Val, n: Val, scale: Val, limit: Val, based: Val, out: Val) -> None:
    """[+-]digits[.digits][e[+-]digits] times 10^scale, rounded half away from zero, as an i128 at `out`.

    limit: the largest magnitude of what stands before the point. based: 0x and 0b are understood.
    """
    start = skip_spaces(k, p, n, 0)
    sign = byte_at(k, p, n, start)
    minus = sign == 45
    first = start + (minus | (sign == 43)).to("i64")
    base = lower_case(k, byte_at(k, p, n, first + 1))
    with k.when(based & (first == start) & (sign == 48) & ((base == 120) | (base == 98))):
        k.ret(parse_based(k, p, n, first + 2, k.select(base == 120, k.i64(4), k.i64(1)), limit, out))
    at = k.var(first)
    whole, whole_digits = k.var(k.i128(0)), k.var(k.i64(0))
    tenth = limit.udiv(10)
    good = k.var(k.true)

    def add_whole(digit: Val) -> None:
        good.set(good.value & whole.value.ule(tenth))
        grown = whole.value * 10 + digit.to("i128")
        good.set(good.value & grown.ule(limit))
        whole.set(grown)
        whole_digits.set(whole_digits.value + 1)

    fraction, kept, seen = k.var(k.i128(0)), k.var(k.i64(0)), k.var(k.i64(0))

    def add_fraction(digit: Val) -> None:
        seen.set(seen.value + 1)
        with k.when(kept.value < 37):
            fraction.set(fraction.value * 10 + digit.to("i128"))
            kept.set(kept.value + 1)

    _digits(k, p, n, at, good, add_whole)
    with k.when(byte_at(k, p, n, at.value) == 46):
        at.set(at.value + 1)
        _digits(k, p, n, at, good, add_fraction)
    with k.when(~good.value | (whole_digits.value + seen.value == 0)):
        k.ret(k.false)
    exponent = k.var(k.i64(0))
    mark = byte_at(k, p, n, at.value)
    with k.when((mark == 101) | (mark == 69)):
        at.set(at.value + 1)
        exponent.set(_exponent(k, p, n, at, good))
    with k.when(~good.value | (skip_spaces(k, p, n, at.value) < n)):
        k.ret(k.false)
    with k.when(seen.value > kept.value):
        k.ret(digits_up_to(k, p, n, first, whole_digits.value + exponent.value + scale, minus, out))
    k.ret(shift_number(k, whole.value, fraction.value, kept.value, exponent.value + scale, minus, out))


@routine("digits_up_to", ("ptr", "i64", "i64", "i64", "i1", "ptr"), "i1")
def digits_up_to(k: Kernel, p: Val, n: Val, start: Val, cut: Val, minus: Val, out: Val) -> None:
    """The first `cut` of the digits from `start` on (padded with zeros) as a signed number, rounded by the next digit;
    false if it is too large. No digit is lost, however long the number is."""
    at, place, value, up = k.var(start), k.var(k.i64(0)), k.var(k.i128(0)), k.var(k.false)
    room = k.i128((LARGEST - 9) // 10)
    with k.forever() as loop:
        byte = byte_at(k, p, n, at.value)
        loop.stop_if(~is_digit(k, byte) & (byte != 46) & (byte != 95))
        with k.when(is_digit(k, byte)):
            with k.when(place.value < cut):
                with k.when(value.value.ugt(room)):
                    k.ret(k.false)
                value.set(value.value * 10 + (byte - 48).to("i128"))
            up.set(up.value | ((place.value == cut) & (byte >= 53)))
            place.set(place.value + 1)
        at.set(at.value + 1)
    missing = k.max(cut - place.value, k.i64(0))
    with k.when(value.value != 0):
        with k.when(missing > 38):
            k.ret(k.false)
        power = power_of_ten(k, missing)
        with k.when(value.value.ugt(k.i128(LARGEST).udiv(power))):
            k.ret(k.false)
        value.set(value.value * power)
    magnitude = value.value + up.value.to("i128")
    with k.when(magnitude.ugt(k.select(minus, k.i128(LARGEST), k.i128(LARGEST - 1)))):
        k.ret(k.false)
    k.store(out, k.select(minus, -magnitude, magnitude))
    k.ret(k.true)


def _digits(k: Kernel, p: Val, n: Val, at: Var, good: Var, add: Callable[[Val], None]) -> None:
    """A run of digits, which an underscore may join; `good` becomes false where no digit follows an underscore."""
    with k.forever() as loop:
        byte = byte_at(k, p, n, at.value)
        loop.stop_if(~is_digit(k, byte))
        add(byte - 48)
        at.set(at.value + 1)
        with k.when(byte_at(k, p, n, at.value) == 95):
            at.set(at.value + 1)
            good.set(good.value & is_digit(k, byte_at(k, p, n, at.value)))


def _exponent(k: Kernel, p: Val, n: Val, at: Var, good: Var) -> Val:
    """What stands behind an e: a number of 16 bits."""
    sign = byte_at(k, p, n, at.value)
    minus = sign == 45
    at.set(at.value + (minus | (sign == 43)).to("i64"))
    value, count = k.var(k.i64(0)), k.var(k.i64(0))

    def add(digit: Val) -> None:
        count.set(count.value + 1)
        value.set(k.min(value.value * 10 + digit, k.i64(100_000)))

    _digits(k, p, n, at, good, add)
    good.set(good.value & (count.value > 0) & (value.value <= k.select(minus, k.i64(32_768), k.i64(32_767))))
    return k.select(minus, -value.value, value.value)


@routine("shift_number", ("i128", "i128", "i64", "i64", "i1", "ptr"), "i1")
def shift_number(k: Kernel, whole: Val, fraction: Val, digits: Val, shift: Val, minus: Val, out: Val) -> None:
    """(whole + fraction / 10^digits) * 10^shift with its sign, rounded half away from zero; false if it is too
    large."""
    value, up = k.var(k.i128(0)), k.var(k.false)

    def divide(a: Val, exponent: Val) -> Val:
        power = power_of_ten(k, exponent)
        quotient = a.udiv(power)
        up.set(((a - quotient * power) << 1).uge(power))
        return quotient

    with k.when(shift < 0):
        with k.when(shift >= -38):
            value.set(divide(whole, -shift))
    with k.otherwise():
        with k.when(whole != 0):
            with k.when(shift > 38):
                k.ret(k.false)
            power = power_of_ten(k, shift)
            with k.when(whole.ugt(k.i128(LARGEST).udiv(power))):
                k.ret(k.false)
            value.set(whole * power)
        with k.when(fraction != 0):
            with k.when(digits > shift):
                value.set(value.value + divide(fraction, digits - shift))
            with k.otherwise():
                with k.when(shift - digits > 38):
                    k.ret(k.false)
                power = power_of_ten(k, shift - digits)
                with k.when(fraction.ugt(k.i128(LARGEST).udiv(power))):
                    k.ret(k.false)
                value.set(value.value + fraction * power)
    magnitude = value.value + up.value.to("i128")
    with k.when(magnitude.ugt(k.select(minus, k.i128(LARGEST), k.i128(LARGEST - 1)))):
        k.ret(k.false)
    k.store(out, k.select(minus, -magnitude, magnitude))
    k.ret(k.true)


@routine("parse_based", ("ptr", "i64", "i64", "i64", "i128", "ptr"), "i1")
def parse_based(k: Kernel, p: Val, n: Val, start: Val, bits: Val, limit: Val, out: Val) -> None:
    """The digits behind 0x (4 bits each) or 0b (1 bit each), up to the end of the text."""
    at, value, good = k.var(start), k.var(k.i128(0)), k.var(start < n)
    highest = k.i64(1) << bits
    room = limit.ushr(bits.to("i128"))
    with k.forever() as loop:
        loop.stop_if((at.value >= n) | ~good.value)
        byte = lower_case(k, byte_at(k, p, n, at.value))
        digit = k.select(byte >= 97, byte - 87, byte - 48)
        known = (is_digit(k, byte) | ((byte >= 97) & (byte <= 102))) & (digit < highest)
        good.set(good.value & known & value.value.ule(room))
        value.set((value.value << bits.to("i128")) | digit.to("i128"))
        at.set(at.value + 1)
        with k.when(byte_at(k, p, n, at.value) == 95):
            at.set(at.value + 1)
            good.set(good.value & (at.value < n))
    k.store(out, value.value)
    k.ret(good.value & value.value.ule(limit))


@routine("negative_not_zero", ("ptr", "i64"), "i1")
def negative_not_zero(k: Kernel, p: Val, n: Val) -> None:
    """A minus sign with anything but zeros behind it: unsigned types take "-0" but not "-0.4", though it rounds to
    zero."""
    at = k.var(skip_spaces(k, p, n, 0))
    with k.when(byte_at(k, p, n, at.value) != 45):
        k.ret(k.false)
    with k.forever() as loop:
        at.set(at.value + 1)
        loop.stop_if(byte_at(k, p, n, at.value) != 48)
    k.ret(at.value < n)


@routine("parse_boolean", ("ptr", "i64", "ptr"), "i1")
def parse_boolean(k: Kernel, p: Val, n: Val, out: Val) -> None:
    given = word_lower(k, p, 0, n)
    yes, no = k.false, k.false
    for text in ("true", "t", "yes", "y", "1"):
        yes = yes | (given == word(text))
    for text in ("false", "f", "no", "n", "0"):
        no = no | (given == word(text))
    k.store(out, yes.to("i128"))
    k.ret(yes | no)


@routine("parse_blob", ("ptr", "i64", "ptr"), "i64")
def parse_blob(k: Kernel, p: Val, n: Val, out: Val) -> None:
    r"""ASCII with \xHH for other bytes, into the bytes at `out`. Returns their count, -1 for a bad escape, -2 for a
    byte above 127."""
    at, size = k.var(k.i64(0)), k.var(k.i64(0))
    with k.forever() as loop:
        loop.stop_if(at.value >= n)
        byte = byte_at(k, p, n, at.value)
        with k.when(byte >= 128):
            k.ret(k.i64(-2))
        with k.when(byte == 92):
            high = _hex_digit(k, byte_at(k, p, n, at.value + 2))
            low = _hex_digit(k, byte_at(k, p, n, at.value + 3))
            with k.when((at.value + 4 > n) | (byte_at(k, p, n, at.value + 1) != 120) | (high < 0) | (low < 0)):
                k.ret(k.i64(-1))
            k.store(out + size.value, ((high << 4) | low).to("i8"))
            at.set(at.value + 4)
        with k.otherwise():
            k.store(out + size.value, byte.to("i8"))
            at.set(at.value + 1)
        size.set(size.value + 1)
    k.ret(size.value)


def _hex_digit(k: Kernel, byte: Val) -> Val:
    """0 to 15, or -1."""
    byte = lower_case(k, byte)
    letter = (byte >= 97) & (byte <= 102)
    return k.select(is_digit(k, byte), byte - 48, k.select(letter, byte - 87, k.i64(-1)))
