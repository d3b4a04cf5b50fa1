"""The hash table of groups, in the kernel language: a directory of tagged pointers over entries that never move.

State record (104 bytes), zeroed at first:
  0 directory, 8 mask, 16 groups, 24 groups at which the directory grows,
  32 chunks of entries (data, count, capacity; each record: address, entries), 56 next free entry, 64 entries left,
  72 next free byte for strings, 80 bytes left, 88 chain of string chunks (by their first word), 96 bytes taken in all.
An entry starts with its 64-bit hash. A directory word is the upper 16 bits of the hash above a 48-bit address; 0 is
free. The host frees chunks, string chunks and the directory. Cost: about one cache miss for the directory and one for
the entry."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import take_bytes
from tsql.kernels.operators.collect import append_record

TABLE_BYTES = 104
BYTES_TAKEN = 96
CHUNKS = 32
STRING_CHAIN = 88
ADDRESS_MASK = (1 << 48) - 1


def take_memory(k: Kernel, ctx: Val, table: Val, bytes: Val) -> None:
    """Account for memory of the query and of the table that returns it."""
    take_bytes(k, ctx, bytes)
    at = k.offset(table, BYTES_TAKEN)
    k.store(at, k.load("i64", at) + bytes)


@routine("table_grow", ("ptr", "ptr", "i64"), None)
def table_grow(k: Kernel, ctx: Val, table: Val, entry_bytes: Val) -> None:
    """Double the directory (or make the first) and refile all entries by their stored hashes."""
    old_mask = k.load("i64", table, 1)
    size = k.max((old_mask + 1) * 2, k.i64(2048))
    k.call("free", k.load("ptr", table))
    directory = k.call("calloc", size, 8)
    take_memory(k, ctx, table, (size - old_mask - 1) * 8)
    mask = size - 1
    k.store(table, directory)
    k.store(table, mask, 1)
    k.store(table, size.ushr(1), 3)
    chunks = k.load("ptr", k.offset(table, CHUNKS))
    count = k.load("i64", k.offset(table, CHUNKS), 1)
    with k.range(count) as c:
        record = k.offset(chunks, c * 16)
        first, entries = k.load("ptr", record), k.load("i64", record, 1)
        with k.range(entries) as e:
            entry = k.offset(first, e * entry_bytes)
            hash = k.load("i64", entry)
            slot = k.var(hash & mask)
            with k.forever() as loop:
                at = k.element("i64", directory, slot.value)
                loop.stop_if(k.load("i64", at) == 0)
                slot.set((slot.value + 1) & mask)
            k.store(directory, tagged(k, hash, entry), slot.value)


def tagged(k: Kernel, hash: Val, entry: Val) -> Val:
    return (hash & ~ADDRESS_MASK) | entry.bits_as("i64")


@routine("table_entry", ("ptr", "ptr", "i64"), "ptr")
def table_entry(k: Kernel, ctx: Val, table: Val, entry_bytes: Val) -> None:
    """Room for a new entry. A new chunk is opened when the last is full (few entries at first, then 16 Ki)."""
    chunks = k.offset(table, CHUNKS)
    with k.when(k.load("i64", table, 8) == 0):
        entries = k.max(k.min(k.load("i64", table, 2), k.i64(16384)), k.i64(128))
        memory = k.call("malloc", entries * entry_bytes)
        take_memory(k, ctx, table, entries * entry_bytes)
        record = append_record(k, chunks, k.i64(16))
        k.store(record, memory)
        k.store(record, k.i64(0), 1)
        k.store(table, memory, 7)
        k.store(table, entries, 8)
    entry = k.load("ptr", table, 7)
    k.store(table, k.offset(entry, entry_bytes), 7)
    k.store(table, k.load("i64", table, 8) - 1, 8)
    last = k.offset(k.load("ptr", chunks), (k.load("i64", chunks, 1) - 1) * 16)
    k.store(last, k.load("i64", last, 1) + 1, 1)
    k.store(table, k.load("i64", table, 2) + 1, 2)
    k.ret(entry)


@routine("table_string", ("ptr", "ptr", "ptr", "i64"), "ptr")
def table_string(k: Kernel, ctx: Val, table: Val, text: Val, length: Val) -> None:
    """A copy of a string that lives as long as the table."""
    with k.when(length > k.load("i64", table, 10)):
        size = k.max(length * 2 + 8, k.i64(1 << 16))
        memory = k.call("malloc", size)
        take_memory(k, ctx, table, size)
        k.store(memory, k.load("ptr", k.offset(table, STRING_CHAIN)))
        k.store(table, memory, 11)
        k.store(table, memory + 8, 9)
        k.store(table, size - 8, 10)
    copy = k.load("ptr", table, 9)
    k.call("memcpy", copy, text, length)
    k.store(table, copy + length, 9)
    k.store(table, k.load("i64", table, 10) - length, 10)
    k.ret(copy)


def find_or_insert(
    k: Kernel,
    ctx: Val,
    table: Val,
    hash: Val,
    entry_bytes: int,
    equal: Callable[[Val], Val],
    fill: Callable[[Val], None],
) -> Val:
    """The entry with this hash for which `equal(entry)` holds, or a new one, filled by `fill(entry)`."""
    with k.when(k.load("i64", table, 2) >= k.load("i64", table, 3)):
        table_grow(k, ctx, table, k.i64(entry_bytes))
    directory, mask = k.load("ptr", table), k.load("i64", table, 1)
    found = k.var(k.null)
    slot = k.var(hash & mask)
    tag = hash & ~ADDRESS_MASK
    with k.forever() as loop:
        at = k.element("i64", directory, slot.value)
        word = k.load("i64", at)
        with k.when(word == 0):
            entry = table_entry(k, ctx, table, k.i64(entry_bytes))
            k.store(entry, hash)
            fill(entry)
            k.store(at, tag | entry.bits_as("i64"))
            found.set(entry)
        with k.otherwise():
            with k.when((word & ~ADDRESS_MASK) == tag):
                entry = (word & ADDRESS_MASK).bits_as("ptr")
                with k.when(k.load("i64", entry) == hash):
                    with k.when(equal(entry)):
                        found.set(entry)
        loop.stop_if(found.value != k.null)
        slot.set((slot.value + 1) & mask)
    return found.value
