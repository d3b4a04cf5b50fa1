"""The greatest of many numbers in each of their blocks, and in blocks of blocks: finds the next number that is large
enough without looking at all.

A table of intervals sorted by their starts has their ends like this (`runtime/sorted_table.py`). An interval [a, b)
overlaps those of the first places, up to the one with a start not before b, whose end is after a. The next of them is
found in O(log rows) steps, wherever it is, and at once if it is the next place.

The record is i64 words: the number of levels, then the address of the numbers of each level. Level 0 has the numbers
themselves, and each number of another level is the greatest of `BLOCK` of the level below it."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine

BITS = 3
BLOCK = 1 << BITS


@routine("next_reaching", ("ptr", "i64", "i64", "i64", "i64"), "i64")
def next_reaching(k: Kernel, record: Val, start: Val, end: Val, value: Val, after: Val) -> None:
    """The first place from `start` on whose number is not less than a value; with `after`, that is greater. `end` if
    there is none before it. A block that has none is passed at once; at its end the search goes on a level higher."""
    levels = k.load("i64", record)
    place, level = k.var(start), k.var(k.i64(0))
    with k.forever() as loop:
        loop.stop_if((place.value << (level.value * BITS)) >= end)
        number = k.load("i64", k.load("ptr", record, level.value + 1), place.value)
        reaches = (number > value) | ((after == 0) & (number == value))
        with k.when(reaches):
            with k.when(level.value == 0):
                k.ret(place.value)
            level.set(level.value - 1)
            place.set(place.value << BITS)
        with k.otherwise():
            place.set(place.value + 1)
            rises = ((place.value & (BLOCK - 1)) == 0) & (level.value + 1 < levels)
            place.set(k.select(rises, place.value >> BITS, place.value))
            level.set(level.value + rises.uto("i64"))
    k.ret(end)
