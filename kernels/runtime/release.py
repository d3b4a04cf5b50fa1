"""A kernel that frees the memory of aggregate states: for every entry, the pointers at given offsets.

`main(plan, entries, rows)`. The plan is i64 words: bytes per entry, whether only occupied entries count (first word not
zero), the number of offsets, the offsets.
"""

from __future__ import annotations

from functools import cache

from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel


@cache
def release_module() -> Module:
    """The kernel, the same for all aggregates."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    plan, entries, rows = k.params
    entry_bytes, occupied_only, offsets = (k.load("i64", plan, word) for word in range(3))
    with k.range(rows) as row:
        entry = k.offset(entries, row * entry_bytes)
        with k.when((occupied_only == 0) | (k.load("i64", entry) != 0)):
            with k.range(offsets) as number:
                at = k.load("i64", plan, number + 3)
                k.call("free", k.load("ptr", k.offset(entry, at)))
    k.ret()
    k.finish()
    return module
