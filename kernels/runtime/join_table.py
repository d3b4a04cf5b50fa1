"""The table of a join: entries in the chunks of a `group_table`, and a directory that chains them, filled by many
threads.

An entry's first word is its key or hash while rows are collected, and the address of the next entry in its chain once
it is linked. A directory word is a 48-bit address below a tag of 16 hash bits; 0 is free. The chain of a hash is in the
first word from its place on (wrapping around) that is free or has its tag. So the keys of a chain are nearly always
equal, and the directory alone tells which rows have no partner. Entries are far apart in memory, directory words side
by side: if all hashes of a place shared a chain, every other row would wait for an entry that is not its own. A dense
directory has a word for each possible key and no tags.

Record (64 bytes, owned by the host): 0 directory, 8 mask of the directory (or the number of keys of a dense one), 16
the least key, 24 rows in the table, 32 rows dropped because a key is NULL, 40 a bitmap of the keys that occur (or
null), 48 the number of keys that it covers, 56 the number of directory words that keys lead to. The chain of the rows
with a NULL key follows them, if these are kept apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.group_table import ADDRESS_MASK
from tsql.kernels.runtime.text.strings import mix64

RECORD_BYTES = 72
BY_HASH, BY_KEY, DENSE, SORTED = 0, 1, 2, 3
"""The first word of an entry: a hash; a key to be hashed; a key that is its own place; or a number by which the host
sorts the entries. For the last the record has the sorted numbers, their count, and the addresses of their entries."""

FREE, MATCHED, ALONE = 0, 1, 2
"""The second word of an entry that is marked when it finds a partner. ALONE never finds one: one of its keys is
NULL."""

UNMARKED, MARKED, APART = 0, 1, 2
"""Whether entries have that word, and where ALONE entries go: into no chain, or into one of their own."""


AHEAD = 16
"""While an entry is filed, the place of the entry this many further on is prefetched: nothing runs ahead of a `cas`."""

NEAR = 3
"""How many directory words `near_word` looks at."""


def tag_of(hash: Val) -> Val:
    """The tag of a hash, at its place in a directory word. Its bits choose no place in tables of less than 2^48
    words."""
    return hash & ~ADDRESS_MASK


@routine("chain_word", ("ptr", "i64", "i64"), "i64")
def chain_word(k: Kernel, directory: Val, mask: Val, hash: Val) -> None:
    """The directory word of the chain of a hash; 0 if there is none."""
    tag, place = tag_of(hash), k.var(hash & mask)
    with k.forever() as loop:
        word = k.load("i64", directory, place.value)
        with k.when((word == 0) | (tag_of(word) == tag)):
            k.ret(word)
        place.set((place.value + 1) & mask)
        loop.stop_if(k.false)
    k.ret(k.i64(0))


def near_word(k: Kernel, directory: Val, mask: Val, hash: Val) -> tuple[Val, Val]:
    """What the first few places tell of a chain, without a branch (which would wait for memory): its word, or 0 if it
    is not there; and whether there may be one anyway."""
    tag, found, is_open = tag_of(hash), k.i64(0), k.true
    for step in reversed(range(NEAR)):
        word = k.load("i64", directory, (hash + step) & mask)
        same, free = tag_of(word) == tag, word == 0
        found = k.select(same, word, k.select(free, k.i64(0), found))
        is_open = (is_open & ~free) & ~same
    return found, is_open


def hash_key(k: Kernel, key: Val) -> Val:
    """The hash of a single 64-bit key."""
    return mix64(k, key)


@routine("first_place", ("ptr", "i64", "i64", "i64"), "i64")
def first_place(k: Kernel, keys: Val, count: Val, value: Val, after: Val) -> None:
    """The place of the first of `count` sorted keys that is not less than a value; with `after`, that is greater."""
    low, high = k.var(k.i64(0)), k.var(count)
    with k.forever() as loop:
        loop.stop_if(low.value >= high.value)
        middle = (low.value + high.value).ushr(1)
        key = k.load("i64", keys, middle)
        before = (key < value) | ((after != 0) & (key == value))
        low.set(k.select(before, middle + 1, low.value))
        high.set(k.select(before, high.value, middle))
    k.ret(low.value)


@routine("next_place", ("ptr", "i64", "i64", "i64"), "i64")
def next_place(k: Kernel, keys: Val, count: Val, start: Val, value: Val) -> None:
    """As `first_place`, for a value expected slightly after `start`: doubling steps, then a search between the last
    two. A value before `start` is searched from the beginning."""
    before = (start > 0) & (k.load("i64", keys, k.max(start - 1, k.i64(0))) >= value)
    low, width = k.var(k.select(before, k.i64(0), start)), k.var(k.i64(1))
    high = k.var(low.value)
    with k.forever() as loop:
        at = high.value
        loop.stop_if(at >= count)
        loop.stop_if(k.load("i64", keys, at) >= value)
        low.set(at + 1)
        high.set(at + width.value)
        width.set(width.value + width.value)
    end = k.min(high.value, count)
    k.ret(
        low.value + first_place(k, k.element("i64", keys, low.value), k.max(end - low.value, k.i64(0)), value, k.i64(0))
    )


@routine("run_end", ("ptr", "i64", "i64", "i64"), "i64")
def run_end(k: Kernel, keys: Val, count: Val, start: Val, value: Val) -> None:
    """The place after the last of the keys from `start` on that equal a value."""
    place = k.var(start)
    with k.forever() as loop:
        at = place.value
        loop.stop_if(at >= count)
        loop.stop_if(k.load("i64", keys, at) != value)
        place.set(at + 1)
    k.ret(place.value)


def update(k: Kernel, at: Val, change: Callable[[Val], Val]) -> None:
    """Replace a word in memory that other threads may replace too."""
    seen = k.var(k.load("i64", at))
    with k.forever() as loop:
        old = seen.value
        found = k.cas(at, old, change(old))
        loop.stop_if(found == old)
        seen.set(found)


def _file_by_hash(k: Kernel, directory: Val, mask: Val, entry: Val, hash: Val) -> None:
    """Put an entry at the head of the chain of its hash. A used word keeps its tag, so all threads stop at the same
    one."""
    tag, place, is_filed = tag_of(hash), k.var(hash & mask), k.var(k.false)
    with k.forever() as loop:
        at = k.element("i64", directory, place.value)
        old = k.load("i64", at)
        with k.when((old == 0) | (tag_of(old) == tag)):
            k.store(entry, old & ADDRESS_MASK)
            is_filed.set(k.cas(at, old, tag | entry.bits_as("i64")) == old)
        with k.otherwise():
            place.set((place.value + 1) & mask)
        loop.stop_if(is_filed.value)


@cache
def link_module() -> Module:
    """`main(plan, entries, rows)` files entries in the directory. The plan is i64 words: directory, mask, least key,
    bytes per entry, mode (BY_HASH ..), whether entries are marked (UNMARKED ..), the bitmap of keys (or null), and the
    place of the chain of entries kept apart."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    plan, entries, rows = k.params
    directory = k.load("ptr", plan)
    mask, least, entry_bytes, mode, marked = (k.load("i64", plan, word) for word in range(1, 6))
    bitmap, last = k.load("ptr", plan, 6), k.load("i64", plan, 7)
    with k.range(rows) as row:
        soon = k.load("i64", k.offset(entries, k.min(row + AHEAD, rows - 1) * entry_bytes))
        k.prefetch(
            k.element(
                "i64",
                directory,
                k.select(mode == DENSE, soon - least, k.select(mode == BY_KEY, hash_key(k, soon), soon) & mask),
            )
        )
        entry = k.offset(entries, row * entry_bytes)
        first = k.load("i64", entry)
        alone = k.var(k.false)
        with k.when(marked != UNMARKED):
            alone.set(k.load("i64", entry, 1) == ALONE)
        with k.when(~alone.value & (bitmap != k.null)):
            bit = first - least
            update(k, k.element("i64", bitmap, bit.ushr(6)), lambda old: old | (k.i64(1) << (bit & 63)))
        with k.when((mode == DENSE) | alone.value):
            with k.when(~alone.value | (marked == APART)):

                def chained(old: Val) -> Val:
                    k.store(entry, old)
                    return entry.bits_as("i64")

                update(k, k.element("i64", directory, k.select(alone.value, last, first - least)), chained)
        with k.otherwise():
            _file_by_hash(k, directory, mask, entry, k.select(mode == BY_KEY, hash_key(k, first), first))
    k.ret()
    k.finish()
    return module
