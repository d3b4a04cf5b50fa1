"""Strings of Parquet pages in the kernel language: plain values and dictionary look-up, to Arrow's offsets and bytes.

The bytes grow in memory of the C library. Its address and size are in a `TEXT` record; the host takes it over.
"""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.parquet.bits import (
    CUT,
    NO_MEMORY,
    PADDING,
    TOO_LONG,
    WRONG_TEXT,
    bytes_until,
    pointer,
    put,
    word,
)

ADDRESS, ROOM, USED = range(3)
TEXT_WORDS = 3
MAX_OFFSET = (1 << 31) - 1


@routine("parquet_text_room", ("ptr", "i64"), "i64")
def text_room(k: Kernel, text: Val, more: Val) -> None:
    """Make room for this many more bytes, and padding: the status."""
    wanted = word(k, text, USED) + more
    with k.when(wanted > MAX_OFFSET):
        k.ret(k.i64(TOO_LONG))
    with k.when(wanted + PADDING > word(k, text, ROOM)):
        room = k.max(wanted + PADDING, word(k, text, ROOM) * 2)
        grown = k.call("realloc", pointer(k, text, ADDRESS), room)
        with k.when(grown == k.null):
            k.ret(k.i64(NO_MEMORY))
        put(k, text, ADDRESS, grown)
        put(k, text, ROOM, room)
    k.ret(k.i64(0))


@routine("parquet_not_ascii", ("ptr", "i64"), "i64")
def not_ascii(k: Kernel, text: Val, size: Val) -> None:
    """Whether a text has a byte with its highest bit set. Text without such bytes is valid UTF-8 however it is cut."""
    whole, seen = size & ~7, k.var(k.i64(0))
    with k.range(whole.ushr(3)) as i:
        seen.set(seen.value | k.load("i64", text, i))
    with k.range(size, whole) as i:
        seen.set(seen.value | (k.load("i8", text, i).uto("i64")))
    k.ret(((seen.value & -0x7F7F7F7F7F7F7F80) != 0).to("i64"))


@routine("parquet_copy", ("ptr", "ptr", "i64"), None)
def copy(k: Kernel, target: Val, source: Val, size: Val) -> None:
    """Copy a string; a short one as two 16-byte words, since both sides are padded."""
    with k.when(size <= 32):
        first, second = k.load("i128", source, 0), k.load("i128", source, 1)
        k.store(target, first, 0)
        k.store(target, second, 1)
    with k.otherwise():
        k.call("memcpy", target, source, size)


def next_text(k: Kernel, at: Val, end: Val) -> Val:
    """The size of the string at an address. Returns the status from the routine if the string does not end before
    `end`."""
    left = bytes_until(at, end) - 4
    with k.when(left < 0):
        k.ret(k.i64(CUT))
    size = k.load("i32", at).uto("i64")
    with k.when(size > left):
        k.ret(k.i64(WRONG_TEXT))
    return size


@routine("parquet_plain_text", ("ptr", "ptr", "i64", "i64", "ptr", "ptr", "i64"), "i64")
def plain_text(
    k: Kernel, stream: Val, text: Val, values: Val, rows: Val, offsets: Val, bitmap: Val, start: Val
) -> None:
    """The next `values` strings, each a length and its bytes, as `rows` rows; a row whose bit is not set has none.
    `offsets` has one more entry than rows; the first is already there. A stream is its address and its end. The
    status."""
    at, end, total = k.var(pointer(k, stream, 0)), pointer(k, stream, 1), k.var(k.i64(0))
    with k.range(values):
        size = next_text(k, at.value, end)
        at.set(at.value + size + 4)
        total.set(total.value + size)
    status = text_room(k, text, total.value)
    with k.when(status != 0):
        k.ret(status)
    place, used = pointer(k, text, ADDRESS), k.var(word(k, text, USED))
    at.set(pointer(k, stream, 0))
    with k.range(rows) as row:
        valid = k.var(k.true)
        with k.when(bitmap != k.null):
            valid.set(k.load_bit(bitmap, start + row))
        with k.when(valid.value):
            size = k.load("i32", at.value).uto("i64")
            copy(k, place + used.value, at.value + 4, size)
            at.set(at.value + size + 4)
            used.set(used.value + size)
        k.store(offsets, used.value.to("i32"), row + 1)
    put(k, stream, 0, at.value)
    put(k, text, USED, used.value)
    k.ret(k.i64(0))


@routine("parquet_dictionary_text", ("ptr", "ptr", "ptr", "ptr", "i64", "i64", "ptr", "ptr", "i64"), "i64")
def dictionary_text(
    k: Kernel,
    dictionary: Val,
    words: Val,
    text: Val,
    indices: Val,
    values: Val,
    rows: Val,
    offsets: Val,
    bitmap: Val,
    start: Val,
) -> None:
    """Strings of a dictionary (offsets, bytes) by checked indices, as `rows` rows like `plain_text` makes them: the
    status."""
    total = k.var(k.i64(0))
    with k.range(values) as i:
        index = k.load("i32", indices, i).uto("i64")
        total.set(total.value + (k.load("i32", dictionary, index + 1) - k.load("i32", dictionary, index)).to("i64"))
    status = text_room(k, text, total.value)
    with k.when(status != 0):
        k.ret(status)
    place, used, taken = pointer(k, text, ADDRESS), k.var(word(k, text, USED)), k.var(k.i64(0))
    with k.range(rows) as row:
        valid = k.var(k.true)
        with k.when(bitmap != k.null):
            valid.set(k.load_bit(bitmap, start + row))
        with k.when(valid.value):
            index = k.load("i32", indices, taken.value).uto("i64")
            first = k.load("i32", dictionary, index).to("i64")
            size = k.load("i32", dictionary, index + 1).to("i64") - first
            copy(k, place + used.value, words + first, size)
            taken.set(taken.value + 1)
            used.set(used.value + size)
        k.store(offsets, used.value.to("i32"), row + 1)
    put(k, text, USED, used.value)
    k.ret(k.i64(0))
