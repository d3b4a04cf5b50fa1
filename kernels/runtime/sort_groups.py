"""Sorts rows within groups: rows that are already grouped, each group by a 64-bit number.

`main(plan, _, rows)`. The plan is words, addresses of: the words of the groups, in order; the row numbers (32 bits
each), in that order; the sort values by row number (signed); memory for as many of these, twice; and memory for as many
row numbers. Row numbers are sorted in place, and the order is stable. Cost: groups are sorted in short runs by
insertion, and runs that are not yet in order are merged. So rows in order, or in a few sorted runs, cost hardly more
than a look at each."""

from __future__ import annotations

from functools import cache

from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel, Val, routine

RUN = 16
"""Runs of this many rows are sorted by insertion."""


@routine("sort_run", ("ptr", "ptr", "i64", "i64"), None)
def sort_run(k: Kernel, values: Val, numbers: Val, start: Val, end: Val) -> None:
    """Sort some rows by insertion."""
    with k.range(k.max(end - start - 1, k.i64(0))) as step:
        row = start + step + 1
        value, number, at = k.load("i64", values, row), k.load("i32", numbers, row), k.var(row)
        with k.forever() as loop:
            loop.stop_if(at.value <= start)
            before = k.load("i64", values, at.value - 1)
            loop.stop_if(before <= value)
            k.store(values, before, at.value)
            k.store(numbers, k.load("i32", numbers, at.value - 1), at.value)
            at.set(at.value - 1)
        k.store(values, value, at.value)
        k.store(numbers, number, at.value)


@routine("merge_neighbours", ("ptr", "ptr", "ptr", "ptr", "i64", "i64", "i64"), None)
def merge_neighbours(
    k: Kernel, values: Val, numbers: Val, spare_values: Val, spare_numbers: Val, start: Val, middle: Val, end: Val
) -> None:
    """Merge two adjacent sorted runs."""
    a, b = k.var(start), k.var(middle)
    with k.range(end - start) as at:
        takes_first = k.var(b.value >= end)
        with k.when((a.value < middle) & (b.value < end)):
            takes_first.set(k.load("i64", values, a.value) <= k.load("i64", values, b.value))
        chosen = k.select(takes_first.value, a.value, b.value)
        k.store(spare_values, k.load("i64", values, chosen), at)
        k.store(spare_numbers, k.load("i32", numbers, chosen), at)
        one = takes_first.value.uto("i64")
        a.set(a.value + one)
        b.set(b.value + 1 - one)
    k.call("memcpy", k.element("i64", values, start), spare_values, (end - start) * 8)
    k.call("memcpy", k.element("i32", numbers, start), spare_numbers, (end - start) * 4)


@routine("sort_group", ("ptr", "ptr", "ptr", "ptr", "i64", "i64"), None)
def sort_group(
    k: Kernel, values: Val, numbers: Val, spare_values: Val, spare_numbers: Val, start: Val, end: Val
) -> None:
    """Sort the rows of a group."""
    with k.range((end - start + (RUN - 1)).udiv(RUN)) as run:
        first = start + run * RUN
        sort_run(k, values, numbers, first, k.min(first + RUN, end))
    width = k.var(k.i64(RUN))
    with k.forever() as widths:
        widths.stop_if(width.value >= end - start)
        low = k.var(start)
        with k.forever() as pairs:
            middle = low.value + width.value
            pairs.stop_if(middle >= end)
            high = k.min(middle + width.value, end)
            with k.when(k.load("i64", values, middle - 1) > k.load("i64", values, middle)):
                merge_neighbours(k, values, numbers, spare_values, spare_numbers, low.value, middle, high)
            low.set(high)
        width.set(width.value * 2)


@cache
def sort_groups_module() -> Module:
    """The kernel, the same for all rows."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    plan, _, rows = k.params
    words, numbers, by_row, values, spare_values, spare_numbers = (k.load("ptr", plan, word) for word in range(6))
    with k.range(rows) as row:
        k.store(values, k.load("i64", by_row, k.load("i32", numbers, row).to("i64")), row)
    start = k.var(k.i64(0))
    with k.forever() as groups:
        first = start.value
        groups.stop_if(first >= rows)
        word, end = k.load("i64", words, first), k.var(first + 1)
        with k.forever() as members:
            members.stop_if(end.value >= rows)
            members.stop_if(k.load("i64", words, end.value) != word)
            end.set(end.value + 1)
        with k.when(end.value - first > 1):
            sort_group(k, values, numbers, spare_values, spare_numbers, first, end.value)
        start.set(end.value)
    k.ret()
    k.finish()
    return module
