"""Growing lists of records and of text, in the kernel language: each is one malloc'ed block, so a state owns it by one
pointer.

A block is (used i64, capacity i64), then the content; null is an empty list. Routines that may grow a block return its
new address. Aggregates that keep all values of a group use these."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import take_bytes

HEADER = 16


@routine("list_room", ("ptr", "ptr", "i64"), "ptr")
def list_room(k: Kernel, ctx: Val, block: Val, record_bytes: Val) -> None:
    """The block, with room for one more record; `used` and `capacity` count records."""
    used, capacity = k.var(k.i64(0)), k.var(k.i64(0))
    with k.when(block != k.null):
        used.set(k.load("i64", block))
        capacity.set(k.load("i64", block, 1))
    with k.when((block != k.null) & (used.value < capacity.value)):
        k.ret(block)
    grown = k.max(capacity.value * 2, k.i64(8))
    take_bytes(k, ctx, (grown - capacity.value) * record_bytes)
    fresh = k.call("realloc", block, grown * record_bytes + HEADER)
    k.store(fresh, used.value)
    k.store(fresh, grown, 1)
    k.ret(fresh)


@routine("text_append", ("ptr", "ptr", "ptr", "i64"), "ptr")
def text_append(k: Kernel, ctx: Val, block: Val, text: Val, length: Val) -> None:
    """The block with a string appended; `used` and `capacity` count bytes."""
    used, capacity = k.var(k.i64(0)), k.var(k.i64(0))
    current = k.var(block)
    with k.when(block != k.null):
        used.set(k.load("i64", block))
        capacity.set(k.load("i64", block, 1))
    with k.when((block == k.null) | (used.value + length > capacity.value)):
        grown = k.max(capacity.value * 2, (used.value + length + 31) & -16)
        take_bytes(k, ctx, grown - capacity.value)
        current.set(k.call("realloc", block, grown + HEADER))
        k.store(current.value, grown, 1)
    with k.when(length > 0):
        k.call("memcpy", k.offset(current.value, used.value + HEADER), text, length)
    k.store(current.value, used.value + length)
    k.ret(current.value)


def used_of(k: Kernel, block: Val) -> Val:
    """The used size of a block; 0 for null."""
    used = k.var(k.i64(0))
    with k.when(block != k.null):
        used.set(k.load("i64", block))
    return used.value
