"""A table whose entries are sorted by a number within groups of equal keys, for range and nearest-match joins.

While rows are collected, an entry holds its number, the hash of its keys and possibly its position in the input.
`number_module` reads these and finds the groups. Then the host (`backends/local/sort/sorted_tables.py`) has the entries
of each group put together, sorts what is not in order, and leaves the numbers in order, the rows beside them, and a
directory of groups. The row of an entry is what follows its header, or its address if entries are marked or have
nothing else. A table of intervals has a second number of each entry, in the same order (`runtime/overlaps.py`).

A group is a hash, not a key: keys of equal hashes share one, and a search compares keys unless the hash is known to be
unique. The directory has slots of 32 bytes: hash, first place, place after the last, and where the last search ended. A
slot with hash 0 is free and has an empty range; the slot after the last is that of the hash 0. A single number with
close values uses a dense directory instead: the first place of the rows of each possible key, and one more."""

from __future__ import annotations

from functools import cache

from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.join_table import ALONE, first_place, hash_key

SLOT_WORDS = 4
CURSOR = 3
"""The word of a slot in which searches remember where the last one ended."""

AT_ONCE = 4
PLAN_WORDS = 16
GROUPS_AT, MOST_AT, MODE_AT, LEAST_AT, SECOND_AT, SECONDS = 10, 11, 12, 13, 14, 15
"""Words of the plan of `number_module`: the number of groups, the number at which it gives up, BY_HASH .., the least
number; the offset of an entry's second number (-1: none) and the array of these."""

GREATEST = 8
"""The word in the record of a table with the levels of its second numbers."""

AHEAD = 16
"""Words of groups are prefetched this many entries ahead while entries are counted and placed: groups come in any
order, and their words do not stay in a core's cache. Twice this many readable slots follow those of the last
entries."""

BY_HASH, BY_NUMBER, DENSE = 0, 1, 2
"""How an entry's keys give its group: a hash; a number to be hashed; a number that is its own place."""


@routine("group_slot", ("ptr", "i64", "i64"), "i64")
def group_slot(k: Kernel, directory: Val, mask: Val, word: Val) -> None:
    """The slot of a group, or a free one."""
    with k.when(word == 0):
        k.ret(mask + 1)
    slot = k.var(word & mask)
    with k.forever() as loop:
        found = k.load("i64", directory, slot.value * SLOT_WORDS)
        loop.stop_if((found == word) | (found == 0))
        slot.set((slot.value + 1) & mask)
    k.ret(slot.value)


@routine("place_near", ("ptr", "i64", "i64", "i64", "i64", "i64"), "i64")
def place_near(k: Kernel, keys: Val, low: Val, high: Val, hint: Val, value: Val, after: Val) -> None:
    """As `first_place` among the keys from `low` to `high`, for a value expected slightly after the place `hint`. The
    first few keys are compared without a branch, since the number to skip is unpredictable. Then come doubling steps
    and a search between the last two. A value before the hint is searched from `low`."""

    def is_before(at: Val) -> Val:
        key = k.load("i64", keys, at)
        return (key < value) | ((after != 0) & (key == value))

    start = k.var(k.max(low, k.min(hint, high)))
    with k.when(start.value > low):
        with k.when(~is_before(start.value - 1)):
            before = start.value - 1 - low
            k.ret(low + first_place(k, k.element("i64", keys, low), before, value, after))
    passed, first = k.i64(0), start.value
    for step in range(AT_ONCE):
        at = first + step
        inside = at < high
        passed = passed + (inside & is_before(k.select(inside, at, low))).uto("i64")
    with k.when(passed < AT_ONCE):
        k.ret(first + passed)
    start.set(first + AT_ONCE)
    end, width = k.var(start.value), k.var(k.i64(1))
    with k.forever() as loop:
        at = end.value
        loop.stop_if(at >= high)
        loop.stop_if(~is_before(at))
        start.set(at + 1)
        end.set(at + width.value)
        width.set(width.value + width.value)
    last = k.min(end.value, high)
    k.ret(
        start.value
        + first_place(k, k.element("i64", keys, start.value), k.max(last - start.value, k.i64(0)), value, after)
    )


@routine("group_number", ("ptr", "ptr", "i64", "i64"), "i64")
def group_number(k: Kernel, plan: Val, words: Val, mask: Val, word: Val) -> None:
    """The slot of a group among words that other threads fill too; a new slot if it is the first of its group."""
    with k.when(word == 0):
        k.ret(mask + 1)
    slot = k.var(word & mask)
    with k.forever() as loop:
        at = k.element("i64", words, slot.value)
        found = k.var(k.load("i64", at))
        with k.when(found.value == 0):
            found.set(k.cas(at, k.i64(0), word))
            with k.when(found.value == 0):
                k.atomic_add(k.element("i64", plan, GROUPS_AT), 1)
                found.set(word)
        loop.stop_if(found.value == word)
        slot.set((slot.value + 1) & mask)
    k.ret(slot.value)


@cache
def number_module() -> Module:
    """`main(plan, chunk, rows)` writes down what the entries of a chunk are sorted by. The chunk is two words: address
    and number of its first entry. The plan is i64 words: the words of the groups, mask, bytes per entry; the offsets in
    an entry of the hash and of the position in the input (-1: none); whether entries are marked; arrays of numbers,
    slots (i32), addresses and places; the number of groups, and the number at which to give up; BY_HASH ..; the least
    number; the offset of the second number in an entry (-1: none) and the array of second numbers."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    plan, chunk, rows = k.params
    words, mask, entry_bytes = k.load("ptr", plan), k.load("i64", plan, 1), k.load("i64", plan, 2)
    hash_at, place_at, marked = (k.load("i64", plan, word) for word in range(3, 6))
    orders, slots, addresses, places = (k.load("ptr", plan, word) for word in range(6, 10))
    entries, first, most = k.load("ptr", chunk), k.load("i64", chunk, 1), k.load("i64", plan, MOST_AT)
    mode, least = k.load("i64", plan, MODE_AT), k.load("i64", plan, LEAST_AT)
    second_at, seconds = k.load("i64", plan, SECOND_AT), k.load("ptr", plan, SECONDS)
    row = k.var(k.i64(0))
    with k.forever() as loop:
        loop.stop_if(row.value >= rows)
        loop.stop_if(k.load("i64", plan, GROUPS_AT) > most)
        entry, number = k.offset(entries, row.value * entry_bytes), first + row.value
        k.store(orders, k.load("i64", entry), number)
        k.store(addresses, entry.bits_as("i64"), number)
        with k.when(place_at >= 0):
            k.store(places, k.load("i64", k.offset(entry, place_at)), number)
        with k.when(second_at >= 0):
            k.store(seconds, k.load("i64", k.offset(entry, second_at)), number)
        slot = k.var(k.i64(0))
        alone = k.var(k.false)
        with k.when(marked != 0):
            alone.set(k.load("i64", entry, 1) == ALONE)
        with k.when((hash_at >= 0) & ~alone.value):
            word = k.load("i64", k.offset(entry, hash_at))
            with k.when(mode == DENSE):
                slot.set(word - least)
            with k.otherwise():
                slot.set(group_number(k, plan, words, mask, k.select(mode == BY_NUMBER, hash_key(k, word), word)))
        slot.set(k.select(alone.value, k.i64(-1), slot.value))
        k.store(slots, slot.value.to("i32"), number)
        row.set(row.value + 1)
    k.ret()
    k.finish()
    return module


@cache
def count_module() -> Module:
    """`main(counts, slots, rows)` counts the entries of each slot (i32)."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    counts, slots, rows = k.params
    with k.range(rows) as row:
        k.prefetch(k.element("i64", counts, k.load("i32", slots, row + AHEAD).to("i64")))
        at = k.element("i64", counts, k.load("i32", slots, row).to("i64"))
        k.store(at, k.load("i64", at) + 1)
    k.ret()
    k.finish()
    return module


@cache
def place_module() -> Module:
    """`main(plan, first, rows)` puts entries into the places of their groups, in the order in which they come. The plan
    is i64 words: numbers, addresses and slots (i32) of the entries; numbers and rows in their places; the next place of
    each slot; the number of words of a row, and where they begin in an entry; second numbers of the entries and in
    their places (0: none). No words: the row is the address of the entry."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "i64", "i64"), None)
    plan, first, rows = k.params
    orders, addresses, slots, placed_orders, placed_rows, places = (k.load("ptr", plan, word) for word in range(6))
    words, header = k.load("i64", plan, 6), k.load("i64", plan, 7)
    seconds, placed_seconds = k.load("ptr", plan, 8), k.load("ptr", plan, 9)
    with k.range(rows) as row:
        number = first + row
        k.prefetch(k.element("i64", places, k.load("i32", slots, number + 2 * AHEAD).to("i64")))
        # The place may still change slightly until then.
        soon = k.load(
            "i64", k.element("i64", places, k.load("i32", slots, k.min(number + AHEAD, first + rows - 1)).to("i64"))
        )
        k.prefetch(k.element("i64", placed_orders, soon))
        k.prefetch(k.element("i64", placed_rows, soon * k.max(words, k.i64(1))))
        at = k.element("i64", places, k.load("i32", slots, number).to("i64"))
        place = k.load("i64", at)
        k.store(at, place + 1)
        k.store(placed_orders, k.load("i64", orders, number), place)
        with k.when(seconds != k.null):
            k.store(placed_seconds, k.load("i64", seconds, number), place)
        with k.when(words == 0):
            k.store(placed_rows, k.load("i64", addresses, number), place)
        with k.otherwise():
            source = k.offset(k.load("ptr", addresses, number), header)
            target = k.element("i64", placed_rows, place * words)
            with k.range(words) as word:
                k.store(target, k.load("i64", source, word), word)
    k.ret()
    k.finish()
    return module
