"""A radix sort in the kernel language: the stable order of rows by a 64-bit key, from the least significant digit.

`main(plan, counts, rows)`. The plan is words: the address of the keys, of equal spare memory, of the row numbers (32
bits each, initially in any order), of equal spare memory, and the number of significant key bits. Keys and row numbers
are sorted in place; `counts` is memory for 2,048 words. A digit in which all keys agree costs one look at each key.

`places_module`: for keys with few values, the place of each row, by counting. When columns are written there
(`scatter_module` in gather.py), they are read in order and written in as many streams as there are values. A gather in
the sorted order would read each value from another line of memory."""

from __future__ import annotations

from functools import cache

from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel, Val

DIGIT_BITS = 11
BUCKETS = 1 << DIGIT_BITS


@cache
def radix_module() -> Module:
    """The kernel, the same for all keys."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    module.main = "main"
    plan, counts, rows = k.params
    keys, spare_keys, numbers, spare_numbers = (k.var(k.load("ptr", plan, word)) for word in range(4))
    first_keys, first_numbers = keys.value, numbers.value
    bits = k.load("i64", plan, 4)
    shift = k.var(k.i64(0))
    with k.forever() as digits:
        at = shift.value
        digits.stop_if(at >= bits)
        _count(k, keys.value, counts, rows, at)
        # All in one bucket: the order does not change.
        with k.when(k.load("i64", counts, (k.load("i64", keys.value).ushr(at)) & (BUCKETS - 1)) < rows):
            _scatter(k, keys.value, numbers.value, spare_keys.value, spare_numbers.value, counts, rows, at)
            for a, b in ((keys, spare_keys), (numbers, spare_numbers)):
                old = a.value
                a.set(b.value)
                b.set(old)
        shift.set(at + DIGIT_BITS)
    with k.when(keys.value != first_keys):
        k.call("memcpy", first_keys, keys.value, rows * 8)
        k.call("memcpy", first_numbers, numbers.value, rows * 4)
    k.ret()
    k.finish()
    return module


@cache
def places_module() -> Module:
    """`main(plan, counts, rows)`. The plan is the address of the keys, of the places (32 bits each) and the number of
    key values; `counts` is memory for as many words. The place of a row is the number of rows before it in the stable
    order of keys."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    plan, counts, rows = k.params
    keys, places, values = k.load("ptr", plan), k.load("ptr", plan, 1), k.load("i64", plan, 2)
    k.call("memset", counts, 0, values * 8)
    with k.range(rows) as i:
        cell = k.element("i64", counts, k.load("i64", keys, i))
        k.store(cell, k.load("i64", cell) + 1)
    starts(k, counts, values)
    with k.range(rows) as i:
        cell = k.element("i64", counts, k.load("i64", keys, i))
        place = k.load("i64", cell)
        k.store(cell, place + 1)
        k.store(places, place.to("i32"), i)
    k.ret()
    k.finish()
    return module


def starts(k: Kernel, counts: Val, values: Val) -> None:
    """Turn the number of rows per value into the place of each value's first row."""
    total = k.var(k.i64(0))
    with k.range(values) as value:
        count = k.load("i64", counts, value)
        k.store(counts, total.value, value)
        total.set(total.value + count)


def _count(k: Kernel, keys: Val, counts: Val, rows: Val, shift: Val) -> None:
    """Count the keys with each digit."""
    k.call("memset", counts, 0, BUCKETS * 8)
    with k.range(rows) as i:
        cell = k.element("i64", counts, k.load("i64", keys, i).ushr(shift) & (BUCKETS - 1))
        k.store(cell, k.load("i64", cell) + 1)


def _scatter(
    k: Kernel, keys: Val, numbers: Val, to_keys: Val, to_numbers: Val, counts: Val, rows: Val, shift: Val
) -> None:
    """Move each row to the place of its digit, in the order in which they come."""
    starts(k, counts, k.i64(BUCKETS))
    with k.range(rows) as i:
        key = k.load("i64", keys, i)
        cell = k.element("i64", counts, key.ushr(shift) & (BUCKETS - 1))
        place = k.load("i64", cell)
        k.store(cell, place + 1)
        k.store(to_keys, key, place)
        k.store(to_numbers, k.load("i32", numbers, i), place)
