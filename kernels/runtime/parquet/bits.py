"""Parquet's hybrid of run-length and bit-packed integers in the kernel language: dictionary indices, levels, booleans.

A stream is a record of words (`STREAM_WORDS`): the read position, the end of the page, and the current run, so a page
can be decoded piece by piece. Nothing is read at or after the end of a page, except that loads of whole words may touch
up to `PADDING` bytes after it, which every buffer has."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine

PADDING = 64
"""Bytes after the end of every buffer that is read or written in whole words."""

BLOCK = 1024
"""Values decoded at a time, so that intermediate results stay in the first-level cache."""

AT, END, LEFT, PACKED, VALUE, WIDTH = range(6)
STREAM_WORDS = 6
"""The words of a stream. LEFT is the number of values left in the run. PACKED is the address of a bit-packed run and
VALUE the values already taken from it; PACKED is 0 for a repeated value, which is VALUE."""

(
    CUT,
    WRONG_INDEX,
    WRONG_LEVEL,
    WRONG_SIZE,
    WRONG_RUN,
    WRONG_TEXT,
    TOO_LONG,
    NO_MEMORY,
    NO_PAGE,
    WRONG_CODE,
    NO_DICTIONARY,
) = range(1, 12)
NEED_PAGE = 100
"""Status codes other than 0 (success); `MESSAGES` has the texts for users. NEED_PAGE asks the host for a page."""

MESSAGES = {
    CUT: "it ends before its last value",
    WRONG_INDEX: "an index is outside of the dictionary",
    WRONG_LEVEL: "a definition level is not 0 or 1",
    WRONG_SIZE: "its size is not what its header says",
    WRONG_RUN: "a run of values is malformed",
    WRONG_TEXT: "the length of a value is negative or reaches behind its end",
    TOO_LONG: "its values take more than 2 GiB",
    NO_MEMORY: "the system has no memory left for its values",
    NO_PAGE: "there are fewer values than the footer says",
    WRONG_CODE: "its compressed bytes are malformed",
    NO_DICTIONARY: "it refers to a dictionary that is not there",
}


def word(k: Kernel, record: Val, number: int) -> Val:
    """A word of a record."""
    return k.load("i64", record, number)


def pointer(k: Kernel, record: Val, number: int) -> Val:
    """A word of a record that is an address."""
    return k.load("ptr", record, number)


def put(k: Kernel, record: Val, number: int, value: Val | int) -> None:
    k.store(record, value if isinstance(value, Val) else k.i64(value), number)


def bytes_until(start: Val, end: Val) -> Val:
    """The number of bytes between two addresses."""
    return end.bits_as("i64") - start.bits_as("i64")


@routine("parquet_run", ("ptr",), "i64")
def next_run(k: Kernel, stream: Val) -> None:
    """Start the next run of a stream: the status. A run of no values is rejected, because decoding would never
    advance."""
    end, width = pointer(k, stream, END), word(k, stream, WIDTH)
    at, header, shift, more = k.var(pointer(k, stream, AT)), k.var(k.i64(0)), k.var(k.i64(0)), k.var(k.true)
    with k.forever() as loop:
        loop.stop_if(~more.value)
        with k.when(bytes_until(at.value, end) <= 0):
            k.ret(k.i64(CUT))
        with k.when(shift.value > 28):
            k.ret(k.i64(WRONG_RUN))
        byte = k.load("i8", at.value).uto("i64")
        header.set(header.value | ((byte & 127) << shift.value))
        shift.set(shift.value + 7)
        at.set(at.value + 1)
        more.set(byte >= 128)
    with k.when(header.value < 2):
        k.ret(k.i64(WRONG_RUN))
    available = bytes_until(at.value, end)
    with k.when((header.value & 1) != 0):
        groups = header.value.ushr(1)
        size = k.min(groups * width, available)
        put(k, stream, PACKED, at.value)
        put(k, stream, VALUE, 0)
        # Some writers omit the unneeded bytes of the last group.
        count = k.var(groups * 8)
        with k.when(size < groups * width):
            count.set((size * 8).udiv(width))
        put(k, stream, LEFT, count.value)
        put(k, stream, AT, at.value + size)
        k.ret(k.select(count.value == 0, k.i64(CUT), k.i64(0)))
    size = (width + 7).ushr(3)
    with k.when(available < size):
        k.ret(k.i64(CUT))
    value = k.load("i64", at.value) & ((k.i64(1) << (size << 3)) - 1)
    put(k, stream, PACKED, 0)
    put(k, stream, VALUE, value)
    put(k, stream, LEFT, header.value.ushr(1))
    put(k, stream, AT, at.value + size)
    k.ret(k.i64(0))


def _unpack_groups(k: Kernel, source: Val, width: Val, groups: Val, target: Val, lanes: int) -> None:
    """Unpack groups of eight values, `lanes` of them from one word."""
    mask = (k.i64(1) << width) - 1
    starts = [(width * first).ushr(3) for first in range(0, 8, lanes)]
    skips = [(width * first) & 7 for first in range(0, 8, lanes)]
    shifts = [width * lane for lane in range(lanes)]
    with k.range(groups) as group:
        base = source + group * width
        out = target + group * 32
        for part, (start, skip) in enumerate(zip(starts, skips, strict=True)):
            bits = k.load("i64", base + start).ushr(skip)
            for lane, shift in enumerate(shifts):
                k.store(out, (bits.ushr(shift) & mask).to("i32"), part * lanes + lane)


@routine("parquet_unpack", ("ptr", "i64", "i64", "ptr"), None)
def unpack(k: Kernel, source: Val, width: Val, groups: Val, target: Val) -> None:
    """Unpack bit-packed values of at most 32 bits, in groups of eight, to i32. As many values as possible are taken
    from each load."""
    with k.when(width <= 8):
        _unpack_groups(k, source, width, groups, target, 8)
        k.ret()
    with k.when(width <= 16):
        _unpack_groups(k, source, width, groups, target, 4)
        k.ret()
    with k.when(width <= 29):
        _unpack_groups(k, source, width, groups, target, 2)
        k.ret()
    _unpack_groups(k, source, width, groups, target, 1)


@routine("parquet_fill", ("ptr", "i32", "i64"), None)
def fill(k: Kernel, target: Val, value: Val, count: Val) -> None:
    with k.range(count) as i:
        k.store(target, value, i)


@routine("parquet_greatest", ("ptr", "i64"), "i32")
def greatest(k: Kernel, values: Val, count: Val) -> None:
    """The greatest of the values as unsigned numbers; 0 if there are none."""
    best = k.var(k.i32(0))
    with k.range(count) as i:
        value = k.load("i32", values, i)
        best.set(k.select(value.ugt(best.value), value, best.value))
    k.ret(best.value)


@routine("parquet_indices", ("ptr", "ptr", "i64", "i64"), "i64")
def read_indices(k: Kernel, stream: Val, target: Val, count: Val, limit: Val) -> None:
    """The next `count` values of a stream as i32, all below `limit`: the status.

    Whole groups are unpacked: eight values before `target` and eight behind the last may be overwritten.
    """
    width, done = word(k, stream, WIDTH), k.var(k.i64(0))
    with k.forever() as loop:
        loop.stop_if(done.value >= count)
        with k.when(word(k, stream, LEFT) <= 0):
            status = next_run(k, stream)
            with k.when(status != 0):
                k.ret(status)
        left, packed, value = word(k, stream, LEFT), pointer(k, stream, PACKED), word(k, stream, VALUE)
        taken = k.min(count - done.value, left)
        out = k.element("i32", target, done.value)
        with k.when(packed == k.null):
            fill(k, out, value.to("i32"), taken)
        with k.otherwise():
            # A run is resumed in the middle only at the start of a block, so the skipped values fall before `target`.
            skipped = value & 7
            groups = (skipped + taken + 7).ushr(3)
            unpack(k, packed + value.ushr(3) * width, width, groups, out + (-skipped) * 4)
            put(k, stream, VALUE, value + taken)
        put(k, stream, LEFT, left - taken)
        done.set(done.value + taken)
    with k.when(greatest(k, target, count).uto("i64") >= limit):
        k.ret(k.i64(WRONG_INDEX))
    k.ret(k.i64(0))


@routine("parquet_bits", ("ptr", "i64", "ptr", "i64"), "i64")
def read_bits(k: Kernel, stream: Val, count: Val, bitmap: Val, start: Val) -> None:
    """Set the next `count` values of a stream of width 1 in a zeroed bitmap from bit `start` on: the number of ones, or
    the negated status."""
    done, ones = k.var(k.i64(0)), k.var(k.i64(0))
    with k.forever() as loop:
        loop.stop_if(done.value >= count)
        with k.when(word(k, stream, LEFT) <= 0):
            status = next_run(k, stream)
            with k.when(status != 0):
                k.ret(-status)
        left, packed, value = word(k, stream, LEFT), pointer(k, stream, PACKED), word(k, stream, VALUE)
        taken = k.min(k.min(count - done.value, left), k.i64(32))
        bits = k.var(-value)
        with k.when(packed != k.null):
            bits.set(k.load("i64", packed + value.ushr(3)).ushr(value & 7))
            put(k, stream, VALUE, value + taken)
        with k.otherwise():
            with k.when(value.ugt(1)):
                k.ret(k.i64(-WRONG_LEVEL))
        found = bits.value & ((k.i64(1) << taken) - 1)
        ones.set(ones.value + k.unary("popcount", found))
        at = start + done.value
        place = bitmap + at.ushr(3)
        k.store(place, k.load("i64", place) | (found << (at & 7)))
        put(k, stream, LEFT, left - taken)
        done.set(done.value + taken)
    k.ret(ones.value)
