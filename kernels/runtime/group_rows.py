"""Sorts rows of many keys by (key, time), from the chunks that hold them into columns: one call for all rows of a
shard.

Keys are integers. Their upper bits (without the lowest `shift`) are the *codes*, which differ within a shard and have
few values, so rows are sorted by counting. Then the rows of each key are sorted by their 64-bit number (sort_groups.py)
and all columns are gathered. The order is stable.

A row is named by 32 bits, its chunk's number and its number in it, so nothing has to be copied first. The rows of a
shard are read at random and should fit a core's cache. `bounds_module` finds the least and the greatest code before the
counts are allocated.

The plan of both is words: bytes of a key (4 or 8), shift, words of a chunk's record. For `group_rows_module` follow the
least code, the number of codes, the addresses of the counts (one per code), of the numbers (8 bytes each), of the row
names (4 bytes each) and of spare memory for both, the number of columns, and for each column its target and its bytes
per value. The record of a chunk: rows, the address of the keys, of the numbers, and of each column."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tsql.kernels.codegen.kir import BYTES, Module
from tsql.kernels.codegen.lang import Kernel, Val
from tsql.kernels.runtime.gather import VALUES
from tsql.kernels.runtime.radix import starts
from tsql.kernels.runtime.sort_groups import sort_group

CHUNK_BITS = 16
"""A chunk has at most 2 to this power rows."""

KEYS = ("i32", "i64")
PLAN_WORDS, RECORD_WORDS = 11, 3
"""Words before those of the columns."""


def _each_code(k: Kernel, plan: Val, chunks: Val, count: Val, visit: Callable[[Val, Val, Val, Val], None]) -> None:
    """Call `visit(code, chunk, row, record)` in a loop over all rows, for either width of the keys."""
    width, shift, words = (k.load("i64", plan, word) for word in range(3))
    with k.range(count) as chunk:
        record = k.element("i64", chunks, chunk * words)
        rows, keys = k.load("i64", record), k.load("ptr", record, 1)
        for machine in KEYS:
            with k.when(width == BYTES[machine]), k.range(rows) as row:
                visit(k.load(machine, keys, row).to("i64") >> shift, chunk, row, record)


@cache
def bounds_module() -> Module:
    """`main(plan, chunks, count)` puts the least and the greatest code of all rows into words 3 and 4 of the plan,
    which must initially hold the greatest and the least number."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    plan, chunks, count = k.params
    least, greatest = k.var(k.load("i64", plan, 3)), k.var(k.load("i64", plan, 4))

    def visit(code: Val, chunk: Val, row: Val, record: Val) -> None:
        least.set(k.min(least.value, code))
        greatest.set(k.max(greatest.value, code))

    _each_code(k, plan, chunks, count, visit)
    k.store(plan, least.value, 3)
    k.store(plan, greatest.value, 4)
    k.ret()
    k.finish()
    return module


@cache
def group_rows_module() -> Module:
    """`main(plan, chunks, count)`."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    plan, chunks, count = k.params
    words, least, codes, columns = (k.load("i64", plan, word) for word in (2, 3, 4, 10))
    counts, numbers, names, spare_numbers, spare_names = (k.load("ptr", plan, word) for word in range(5, 10))
    k.call("memset", counts, 0, codes * 8)

    def add(code: Val, chunk: Val, row: Val, record: Val) -> None:
        cell = k.element("i64", counts, code - least)
        k.store(cell, k.load("i64", cell) + 1)

    def place(code: Val, chunk: Val, row: Val, record: Val) -> None:
        cell = k.element("i64", counts, code - least)
        at = k.load("i64", cell)
        k.store(cell, at + 1)
        k.store(numbers, k.load("i64", k.load("ptr", record, 2), row), at)
        k.store(names, ((chunk << CHUNK_BITS) | row).to("i32"), at)

    _each_code(k, plan, chunks, count, add)
    starts(k, counts, codes)
    _each_code(k, plan, chunks, count, place)
    # The count of a code is now the place after its last row.
    begin = k.var(k.i64(0))
    with k.range(codes) as code:
        end = k.load("i64", counts, code)
        with k.when(end - begin.value > 1):
            sort_group(k, numbers, names, spare_numbers, spare_names, begin.value, end)
        begin.set(end)
    _gather(k, plan, chunks, words, names, begin.value, columns)
    k.ret()
    k.finish()
    return module


def _gather(k: Kernel, plan: Val, chunks: Val, words: Val, names: Val, rows: Val, columns: Val) -> None:
    """Write the columns in the order of the names."""
    with k.range(columns) as column:
        about = k.element("i64", plan, column * 2 + PLAN_WORDS)
        target, width = k.load("ptr", about), k.load("i64", about, 1)
        for machine in VALUES:
            with k.when(width == BYTES[machine]), k.range(rows) as at:
                name = k.load("i32", names, at).uto("i64")
                source = k.load("ptr", chunks, name.ushr(CHUNK_BITS) * words + (column + RECORD_WORDS))
                k.store(target, k.load(machine, source, name & ((1 << CHUNK_BITS) - 1)), at)
