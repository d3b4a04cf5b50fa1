"""Counts of distinct values, in the kernel language: an open-addressing table in one malloc'ed block.

A block is (entries used i64, mask i64), then the entries; null is an empty table. An entry is its hash (never 0, which
marks a free one), the count, and the caller's data. The table is at most half full."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import take_bytes
from tsql.kernels.runtime.lists import HEADER

ENTRY_HEADER = 16


@routine("counts_room", ("ptr", "ptr", "i64"), "ptr")
def counts_room(k: Kernel, ctx: Val, block: Val, entry_bytes: Val) -> None:
    """The table with room for one more entry. A half-full table is doubled and all entries are rehashed."""
    used, size = k.var(k.i64(0)), k.var(k.i64(0))
    with k.when(block != k.null):
        used.set(k.load("i64", block))
        size.set(k.load("i64", block, 1) + 1)
    with k.when(used.value * 2 < size.value):
        k.ret(block)
    grown = k.max(size.value * 2, k.i64(8))
    fresh = k.call("calloc", grown * entry_bytes + HEADER, 1)
    take_bytes(k, ctx, (grown - size.value) * entry_bytes)
    mask = grown - 1
    k.store(fresh, used.value)
    k.store(fresh, mask, 1)
    with k.range(size.value) as i:
        entry = k.offset(block, i * entry_bytes + HEADER)
        hash = k.load("i64", entry)
        with k.when(hash != 0):
            slot = k.var(hash & mask)
            with k.forever() as loop:
                loop.stop_if(k.load("i64", k.offset(fresh, slot.value * entry_bytes + HEADER)) == 0)
                slot.set((slot.value + 1) & mask)
            k.call("memcpy", k.offset(fresh, slot.value * entry_bytes + HEADER), entry, entry_bytes)
    k.call("free", block)
    k.ret(fresh)


def count_value(
    k: Kernel,
    block: Val,
    hash: Val,
    entry_bytes: int,
    equal: Callable[[Val], Val],
    fill: Callable[[Val], None],
    again: Callable[[Val], None],
) -> None:
    """Count one value: `fill(entry)` writes a new entry after its header, `again(entry)` sees an existing one."""
    hash = k.select(hash == 0, k.i64(1), hash)
    mask = k.load("i64", block, 1)
    slot = k.var(hash & mask)
    done = k.var(k.false)
    with k.forever() as loop:
        entry = k.offset(block, slot.value * entry_bytes + HEADER)
        found = k.load("i64", entry)
        with k.when(found == 0):
            k.store(entry, hash)
            k.store(entry, k.i64(1), 1)
            k.store(block, k.load("i64", block) + 1)
            fill(entry)
            done.set(k.true)
        with k.otherwise():
            with k.when(found == hash):
                with k.when(equal(entry)):
                    k.store(entry, k.load("i64", entry, 1) + 1, 1)
                    again(entry)
                    done.set(k.true)
        loop.stop_if(done.value)
        slot.set((slot.value + 1) & mask)


def each_entry(k: Kernel, block: Val, entry_bytes: int, body: Callable[[Val, Val], None]) -> None:
    """Run `body(entry, count)` for all entries."""
    with k.range(k.load("i64", block, 1) + 1) as i:
        entry = k.offset(block, i * entry_bytes + HEADER)
        with k.when(k.load("i64", entry) != 0):
            body(entry, k.load("i64", entry, 1))
