"""Searching in strings, in the kernel language: first occurrence, counts, parts, LIKE. Positions are in bytes."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.text.utf8 import code_width, pack, utf8_length, utf8_skip

ONES, HIGH_BITS = 0x0101010101010101, 0x8080808080808080
LONG_NEEDLE = 64
"""Past this, memmem: its time is linear whatever the needle is."""

LIKE_BAD_PATTERN = 2
"""What `like_match` returns for a pattern that ends with the escape character."""


@routine("str_find", ("ptr", "i64", "ptr", "i64"), "i64")
def str_find(k: Kernel, p: Val, n: Val, needle: Val, m: Val) -> None:
    """The first place of `needle`, or -1. UTF-8 is self-synchronising, so that a match of bytes is one of characters.

    Eight places at a time: a word of text xor eight copies of the first byte, or the word that lies m - 1 later xor the
    last byte, has a zero byte where both match; only there the rest is compared. The last word overlaps the one before.
    """
    with k.when(m == 0):
        k.ret(k.i64(0))
    with k.when(m > n):
        k.ret(k.i64(-1))
    places = n - m + 1
    with k.when((m == 1) | (m > LONG_NEEDLE) | (places < 8)):
        found = k.call("memmem", p, n, needle, m)
        k.ret(k.select(found == k.null, k.i64(-1), found.bits_as("i64") - p.bits_as("i64")))
    first = k.load("i8", needle).uto("i64") * ONES
    last = k.load("i8", needle, m - 1).uto("i64") * ONES
    at = k.var(k.i64(0))
    with k.forever() as loop:
        here = p + at.value
        word = (k.load("i64", here) ^ first) | (k.load("i64", here + (m - 1)) ^ last)
        # The lowest flag is exact; a borrow may set higher ones for nothing, which the comparison then finds out.
        flags = k.var((word - ONES) & ~word & HIGH_BITS)
        with k.forever() as candidates:
            candidates.stop_if(flags.value == 0)
            place = k.unary("trailing_zeros", flags.value).ushr(3)
            with k.when(k.call("memcmp", here + place, needle, m) == 0):
                k.ret(at.value + place)
            flags.set(flags.value & (flags.value - 1))
        loop.stop_if(at.value >= places - 8)
        at.set(k.min(at.value + 8, places - 8))
    k.ret(k.i64(-1))


@routine("str_count", ("ptr", "i64", "ptr", "i64"), "i64")
def str_count(k: Kernel, p: Val, n: Val, needle: Val, m: Val) -> None:
    """How many times `needle` (not empty) occurs, without overlaps, from the left."""
    total, at = k.var(k.i64(0)), k.var(k.i64(0))
    with k.forever() as loop:
        found = str_find(k, p + at.value, n - at.value, needle, m)
        loop.stop_if(found < 0)
        at.set(at.value + found + m)
        total.set(total.value + 1)
    k.ret(total.value)


@routine("str_position", ("ptr", "i64", "ptr", "i64"), "i64")
def str_position(k: Kernel, p: Val, n: Val, needle: Val, m: Val) -> None:
    """The 1-based place of `needle` in code points, or 0."""
    found = str_find(k, p, n, needle, m)
    with k.when(found < 0):
        k.ret(k.i64(0))
    k.ret(utf8_length(k, p, found) + 1)


@routine("str_starts", ("ptr", "i64", "ptr", "i64"), "i1")
def str_starts(k: Kernel, p: Val, n: Val, prefix: Val, m: Val) -> None:
    with k.when(m > n):
        k.ret(k.false)
    with k.when(m == 0):
        k.ret(k.true)
    k.ret(k.call("memcmp", p, prefix, m) == 0)


@routine("str_ends", ("ptr", "i64", "ptr", "i64"), "i1")
def str_ends(k: Kernel, p: Val, n: Val, suffix: Val, m: Val) -> None:
    with k.when(m > n):
        k.ret(k.false)
    with k.when(m == 0):
        k.ret(k.true)
    k.ret(k.call("memcmp", p + (n - m), suffix, m) == 0)


@routine("str_part", ("ptr", "i64", "ptr", "i64", "i64"), "i64")
def str_part(k: Kernel, p: Val, n: Val, separator: Val, m: Val, index: Val) -> None:
    """The packed slice of the index-th part (from 1; from the end if negative); empty if there is none. An empty
    separator splits into characters."""
    with k.when(m == 0):
        count = utf8_length(k, p, n)
        place = k.select(index < 0, count + index + 1, index)
        with k.when((place < 1) | (place > count)):
            k.ret(k.i64(0))
        start = utf8_skip(k, p, n, place - 1)
        k.ret(pack(start, utf8_skip(k, p + start, n - start, k.i64(1))))
    left = k.var(index - 1)
    with k.when(index < 0):
        left.set(str_count(k, p, n, separator, m) + 1 + index)
    with k.when((index == 0) | (left.value < 0)):
        k.ret(k.i64(0))
    at = k.var(k.i64(0))
    with k.forever() as loop:
        loop.stop_if(left.value == 0)
        found = str_find(k, p + at.value, n - at.value, separator, m)
        with k.when(found < 0):
            k.ret(k.i64(0))
        at.set(at.value + found + m)
        left.set(left.value - 1)
    end = str_find(k, p + at.value, n - at.value, separator, m)
    k.ret(pack(at.value, k.select(end < 0, n - at.value, end)))


@routine("like_match", ("ptr", "i64", "ptr", "i64", "i64"), "i64")
def like_match(k: Kernel, p: Val, n: Val, pattern: Val, m: Val, escape: Val) -> None:
    """LIKE: 1, 0, or LIKE_BAD_PATTERN. `escape` is a byte, or -1.

    Two pointers: on a mismatch the text after the last % moves on by one character, which is all the backtracking that
    LIKE needs (what an earlier % could try, the last one can too).
    """
    at, place = k.var(k.i64(0)), k.var(k.i64(0))
    after_percent, retry = k.var(k.i64(-1)), k.var(k.i64(0))
    with k.forever() as loop:
        kind = k.var(k.i64(0))  # 0: mismatch, 1: byte matches, 2: %, 3: the pattern is over and so is the text
        step, width = k.var(k.i64(1)), k.var(k.i64(1))
        with k.when(place.value >= m):
            with k.when(at.value >= n):
                kind.set(3)
        with k.otherwise():
            byte = k.load("i8", pattern, place.value).uto("i64")
            escaped = byte == escape
            wanted = k.var(byte)
            with k.when(escaped):
                with k.when(place.value + 1 >= m):
                    k.ret(k.i64(LIKE_BAD_PATTERN))
                step.set(2)
                wanted.set(k.load("i8", pattern, place.value + 1).uto("i64"))
            with k.when((byte == ord("%")) & ~escaped):
                kind.set(2)
            with k.otherwise():
                with k.when(at.value < n):
                    here = k.load("i8", p, at.value)
                    any_one = (byte == ord("_")) & ~escaped
                    with k.when(any_one | (here.uto("i64") == wanted.value)):
                        kind.set(1)
                        width.set(k.select(any_one, code_width(here), k.i64(1)))
        loop.stop_if(kind.value == 3)
        with k.when(kind.value == 1):
            at.set(at.value + width.value)
            place.set(place.value + step.value)
        with k.when(kind.value == 2):
            place.set(place.value + 1)
            with k.when(place.value == m):
                k.ret(k.i64(1))
            after_percent.set(place.value)
            retry.set(at.value)
        with k.when(kind.value == 0):
            with k.when((after_percent.value < 0) | (retry.value >= n)):
                k.ret(k.i64(0))
            retry.set(retry.value + code_width(k.load("i8", p, retry.value)))
            at.set(retry.value)
            place.set(after_percent.value)
    k.ret(k.i64(1))
