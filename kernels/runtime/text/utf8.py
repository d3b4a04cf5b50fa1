"""UTF-8 in the kernel language: counting and skipping code points, slices of strings, decoding, encoding, trimming.

Strings are (pointer, length in bytes) and hold valid UTF-8. A routine has one result, so a part of a string is returned
as a packed slice (`start << 32 | size`, both in bytes) and a new string as the address of its length followed by its
bytes; `sliced` and `counted` turn the two into (pointer, length)."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import scratch_alloc

SPACES = (0x20, 0xA0, 0x1680, (0x2000, 0x200A), 0x202F, 0x205F, 0x3000)
"""The code points of category Zs, which trim() removes."""


def sliced(k: Kernel, p: Val, packed: Val) -> tuple[Val, Val]:
    """The part of the string at `p` that a packed slice stands for."""
    return p + packed.ushr(32), packed & 0xFFFFFFFF


def pack(start: Val, size: Val) -> Val:
    return (start << 32) | size


def counted(k: Kernel, record: Val) -> tuple[Val, Val]:
    """The string of a record made by `new_record`."""
    return record + 8, k.load("i64", record)


def new_record(k: Kernel, ctx: Val, bytes: Val) -> tuple[Val, Val]:
    """Memory for a new string of at most `bytes`: the record, and where its text starts. `k.store(record, length)` ends
    it."""
    record = scratch_alloc(k, ctx, bytes + 8)
    return record, record + 8


def is_start(byte: Val) -> Val:
    """i1: whether this byte starts a code point, that is, is no continuation byte (10xxxxxx)."""
    return byte > -65


def code_width(lead: Val) -> Val:
    """The bytes of the code point that starts with `lead` (an i8), as i64."""
    byte = lead.uto("i64")
    return (byte >= 0xC0).to("i64") + (byte >= 0xE0).to("i64") + (byte >= 0xF0).to("i64") + 1


@routine("utf8_length", ("ptr", "i64"), "i64")
def utf8_length(k: Kernel, p: Val, n: Val) -> None:
    """How many code points: the bytes without the continuation bytes, eight at a time."""
    total, at = k.var(n), k.var(k.i64(0))

    def without(word: Val) -> Val:
        return total.value - k.unary("popcount", word.ushr(7) & (~word).ushr(6) & 0x0101010101010101)

    with k.when(n < 8):
        with k.range(n) as i:
            total.set(total.value - (~is_start(k.load("i8", p, i))).to("i64"))
        k.ret(total.value)
    with k.forever() as loop:
        total.set(without(k.load("i64", p + at.value)))
        at.set(at.value + 8)
        loop.stop_if(at.value + 8 > n)
    # The last word ends with the string; what was counted before is shifted out.
    rest = n & 7
    with k.when(rest > 0):
        total.set(without(k.load("i64", p + (n - 8)).ushr((8 - rest) << 3)))
    k.ret(total.value)


@routine("utf8_skip", ("ptr", "i64", "i64"), "i64")
def utf8_skip(k: Kernel, p: Val, n: Val, count: Val) -> None:
    """The bytes of the first `count` code points (at most n); eight ASCII bytes at once."""
    at, left = k.var(k.i64(0)), k.var(count)
    with k.forever() as loop:
        loop.stop_if((left.value < 8) | (at.value + 8 > n))
        loop.stop_if((k.load("i64", p + at.value) & 0x8080808080808080) != 0)
        at.set(at.value + 8)
        left.set(left.value - 8)
    with k.forever() as loop:
        loop.stop_if((left.value <= 0) | (at.value >= n))
        at.set(at.value + code_width(k.load("i8", p, at.value)))
        left.set(left.value - 1)
    k.ret(k.min(at.value, n))


@routine("utf8_previous", ("ptr", "i64"), "i64")
def utf8_previous(k: Kernel, p: Val, end: Val) -> None:
    """Where the code point starts that ends at byte `end` (> 0)."""
    at = k.var(end - 1)
    with k.forever() as loop:
        loop.stop_if(at.value <= 0)
        loop.stop_if(is_start(k.load("i8", p, at.value)))
        at.set(at.value - 1)
    k.ret(at.value)


@routine("utf8_decode", ("ptr",), "i64")
def utf8_decode(k: Kernel, p: Val) -> None:
    """The code point that starts at p."""
    first = k.load("i8", p).uto("i64")
    with k.when(first < 0x80):
        k.ret(first)

    def tail(i: int) -> Val:
        return k.load("i8", p, i).uto("i64") & 0x3F

    with k.when(first < 0xE0):
        k.ret(((first & 0x1F) << 6) | tail(1))
    with k.when(first < 0xF0):
        k.ret(((first & 0x0F) << 12) | (tail(1) << 6) | tail(2))
    k.ret(((first & 0x07) << 18) | (tail(1) << 12) | (tail(2) << 6) | tail(3))


@routine("utf8_encode", ("ptr", "i64"), "i64")
def utf8_encode(k: Kernel, p: Val, code: Val) -> None:
    """Write a code point at p (four bytes of room); returns how many bytes it took."""

    def put(i: int, value: Val) -> None:
        k.store(p, value.to("i8"), i)

    def tail(shift: int) -> Val:
        return ((code.ushr(shift) if shift else code) & 0x3F) | 0x80

    with k.when(code < 0x80):
        put(0, code)
        k.ret(k.i64(1))
    with k.when(code < 0x800):
        put(0, code.ushr(6) | 0xC0)
        put(1, tail(0))
        k.ret(k.i64(2))
    with k.when(code < 0x10000):
        put(0, code.ushr(12) | 0xE0)
        put(1, tail(6))
        put(2, tail(0))
        k.ret(k.i64(3))
    put(0, code.ushr(18) | 0xF0)
    put(1, tail(12))
    put(2, tail(6))
    put(3, tail(0))
    k.ret(k.i64(4))


@routine("utf8_is_ascii", ("ptr", "i64"), "i1")
def utf8_is_ascii(k: Kernel, p: Val, n: Val) -> None:
    """Whether no byte has its high bit set."""
    seen, at = k.var(k.i64(0)), k.var(k.i64(0))
    with k.when(n < 8):
        with k.range(n) as i:
            seen.set(seen.value | k.load("i8", p, i).uto("i64"))
        k.ret((seen.value & 0x80) == 0)
    with k.forever() as loop:
        seen.set(seen.value | k.load("i64", p + at.value))
        at.set(at.value + 8)
        loop.stop_if(at.value + 8 > n)
    k.ret(((seen.value | k.load("i64", p + (n - 8))) & 0x8080808080808080) == 0)


@routine("utf8_substring", ("ptr", "i64", "i64", "i64"), "i64")
def utf8_substring(k: Kernel, p: Val, n: Val, offset: Val, length: Val) -> None:
    """substr as a packed slice. The window of `length` characters starts at the 1-based `offset` (0 is the place before
    the first, negative counts from the end), or ends there if `length` is negative, and is cut to the string."""
    with k.when((offset > 0) & (length >= 0)):
        start = utf8_skip(k, p, n, offset - 1)
        k.ret(pack(start, utf8_skip(k, p + start, n - start, length)))
    count = utf8_length(k, p, n)
    first = k.select(offset > 0, offset - 1, k.select(offset < 0, count + offset, k.i64(-1)))
    last = first + length
    low = k.select(length < 0, last, first)
    high = k.select(length < 0, first, last)
    low = k.min(k.max(low, k.i64(0)), count)
    high = k.min(k.max(high, k.i64(0)), count)
    start = utf8_skip(k, p, n, low)
    k.ret(pack(start, utf8_skip(k, p + start, n - start, high - low)))


@routine("utf8_is_space", ("i64",), "i1")
def utf8_is_space(k: Kernel, code: Val) -> None:
    """Whether a code point is a space (category Zs)."""
    found = k.false
    for space in SPACES:
        found = found | (code == space if isinstance(space, int) else (code >= space[0]) & (code <= space[1]))
    k.ret(found)


@routine("utf8_has", ("ptr", "i64", "i64"), "i1")
def utf8_has(k: Kernel, p: Val, n: Val, code: Val) -> None:
    """Whether a string holds a code point."""
    at = k.var(k.i64(0))
    with k.forever() as loop:
        loop.stop_if(at.value >= n)
        here = p + at.value
        with k.when(utf8_decode(k, here) == code):
            k.ret(k.true)
        at.set(at.value + code_width(k.load("i8", here)))
    k.ret(k.false)


@routine("utf8_trim", ("ptr", "i64", "ptr", "i64", "i1", "i1"), "i64")
def utf8_trim(k: Kernel, p: Val, n: Val, characters: Val, characters_n: Val, left: Val, right: Val) -> None:
    """The slice without the leading and trailing code points that are among `characters` (spaces if that is null)."""
    start, end = k.var(k.i64(0)), k.var(n)
    spaces = characters == k.null

    def removable(at: Val) -> Val:
        code = utf8_decode(k, p + at)
        found = k.var(k.false)
        with k.when(spaces):
            found.set(utf8_is_space(k, code))
        with k.otherwise():
            found.set(utf8_has(k, characters, characters_n, code))
        return found.value

    with k.when(left):
        with k.forever() as loop:
            loop.stop_if(start.value >= n)
            loop.stop_if(~removable(start.value))
            start.set(start.value + code_width(k.load("i8", p, start.value)))
    with k.when(right):
        with k.forever() as loop:
            loop.stop_if(end.value <= start.value)
            before = utf8_previous(k, p, end.value)
            loop.stop_if(~removable(before))
            end.set(before)
    k.ret(pack(start.value, end.value - start.value))
