"""Snappy in the kernel language: decompresses one block into a buffer whose size the page header gives.

Every length and distance is checked against the remaining input, the remaining output, and the bytes written. Short
pieces are copied sixteen bytes at a time; both buffers have `PADDING` bytes after their end for that.
"""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.parquet.bits import WRONG_CODE, WRONG_SIZE, bytes_until


def _copy_few(k: Kernel, target: Val, distance: Val, size: Val) -> None:
    """Repeat four to eight bytes from at least as many bytes before; writes eight. Numbers that end in zeros are such
    copies of the previous number. The bytes are read from a single earlier store, because a load that needs two stores
    waits until both have reached the cache."""
    source = k.offset(target, -distance)
    low, high = k.load("i32", source).uto("i64"), k.load("i32", k.offset(source, size - 4)).uto("i64")
    k.store(target, low | (high << ((size - 4) << 3)))


def copy_back(k: Kernel, target: Val, distance: Val, size: Val) -> None:
    """Repeat `size` bytes from `distance` bytes before `target`, overlapping or not; may write 16 bytes too many."""
    with k.when((distance >= 16) & (size <= 16)):
        k.store(target, k.load("i128", k.offset(target, -distance)))
    with k.otherwise():
        _copy_long(k, target, distance, size)


@routine("snappy_copy_long", ("ptr", "i64", "i64"), None)
def _copy_long(k: Kernel, target: Val, distance: Val, size: Val) -> None:
    source = k.offset(target, -distance)
    with k.when(distance >= 16):
        with k.range(size, step=16) as i:
            k.store(target + i, k.load("i128", source + i))
        k.ret()
    with k.when(distance >= 8):
        with k.range(size, step=8) as i:
            k.store(target + i, k.load("i64", source + i))
        k.ret()
    with k.range(size) as i:
        k.store(target, k.load("i8", source, i), i)


def copy_forth(k: Kernel, target: Val, source: Val, size: Val) -> None:
    """Copy new bytes; may write, and read, 16 bytes too many."""
    with k.when(size <= 16):
        k.store(target, k.load("i128", source))
    with k.otherwise():
        k.call("memcpy", target, source, size)


def _copy_tag(k: Kernel, tag: Val) -> tuple[Val, Val, Val]:
    """(bytes, distance, bytes of the tag) of a tag that copies."""
    kind = tag & 3
    near = kind == 1
    size = k.select(near, (tag.ushr(2) & 7) + 4, (tag.ushr(2) & 63) + 1)
    wide = k.select(kind == 2, tag.ushr(8) & 0xFFFF, tag.ushr(8) & 0xFFFFFFFF)
    distance = k.select(near, (tag & 0xE0) << 3 | (tag.ushr(8) & 0xFF), wide)
    return size, distance, k.select(kind == 3, k.i64(5), kind + 1)


@routine("snappy_decompress", ("ptr", "i64", "ptr", "i64"), "i64")
def decompress(k: Kernel, source: Val, source_bytes: Val, target: Val, target_bytes: Val) -> None:
    """The status; `target` holds exactly `target_bytes` if it is 0."""
    end, target_end = source + source_bytes, target + target_bytes
    at, out = k.var(source), k.var(target)
    length, shift, more = k.var(k.i64(0)), k.var(k.i64(0)), k.var(k.true)
    with k.forever() as loop:
        loop.stop_if(~more.value)
        with k.when((bytes_until(at.value, end) <= 0) | (shift.value > 28)):
            k.ret(k.i64(WRONG_CODE))
        byte = k.load("i8", at.value).uto("i64")
        length.set(length.value | ((byte & 127) << shift.value))
        shift.set(shift.value + 7)
        at.set(at.value + 1)
        more.set(byte >= 128)
    with k.when(length.value != target_bytes):
        k.ret(k.i64(WRONG_SIZE))
    last_pair, last_place = end.bits_as("i64") - 8, target_end.bits_as("i64") - 72
    with k.forever() as loop:
        here, place = at.value, out.value
        loop.stop_if(here.bits_as("i64") >= end.bits_as("i64"))
        # The tag and the bytes after it. The buffer is padded, and bytes past the end are checked before they are used.
        tags = k.load("i64", here)
        # Usually up to four new bytes are followed by a copy, and both tags are in this word. The distance to the next
        # pair is the critical path, so it is computed in as few steps as possible.
        behind = tags.ushr(((tags & 0x0C) << 1) + 16)
        kind = behind & 3
        roomy = (here.bits_as("i64") <= last_pair) & (place.bits_as("i64") <= last_place)
        with k.when(((tags & 0xF3) == 0) & (kind != 0) & (kind != 3) & roomy):
            literal = (tags & 0x0C).ushr(2) + 1
            near = kind == 1
            size = k.select(near, (behind.ushr(2) & 7) + 4, (behind.ushr(2) & 63) + 1)
            distance = k.select(near, (behind & 0xE0) << 3 | (behind.ushr(8) & 0xFF), behind.ushr(8) & 0xFFFF)
            k.store(place, tags.ushr(8))
            copied = place + literal
            with k.when((distance - 1).uge(bytes_until(target, copied))):
                k.ret(k.i64(WRONG_CODE))
            with k.when((size - 4).ule(4) & (distance >= size)):
                _copy_few(k, copied, distance, size)
            with k.otherwise():
                copy_back(k, copied, distance, size)
            at.set(here + (literal + 2) + kind)
            out.set(copied + size)
        with k.otherwise():
            left, room, literal = bytes_until(here, end), bytes_until(place, target_end), (tags.ushr(2) & 63) + 1
            with k.when((tags & 3) == 0):
                extra = k.max(literal - 60, k.i64(0))
                given = tags.ushr(8) & ((k.i64(1) << (extra << 3)) - 1)
                size = k.select(extra > 0, given + 1, literal)
                with k.when((size > left - 1 - extra) | (size > room)):
                    k.ret(k.i64(WRONG_CODE))
                copy_forth(k, place, here + (extra + 1), size)
                at.set(here + (size + extra + 1))
                out.set(place + size)
            with k.otherwise():
                size, distance, used = _copy_tag(k, tags)
                with k.when((used > left) | (size > room) | (distance - 1).uge(bytes_until(target, place))):
                    k.ret(k.i64(WRONG_CODE))
                copy_back(k, place, distance, size)
                at.set(here + used)
                out.set(place + size)
    k.ret(k.select(out.value == target_end, k.i64(0), k.i64(WRONG_CODE)))
