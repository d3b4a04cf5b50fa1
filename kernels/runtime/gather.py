"""Reorders fixed-width values, in the kernel language: `main(plan, unused, rows)` writes `target[i] =
source[index[i]]`, or `target[index[i]] = source[i]`.

The plan is words: the addresses of source, target and indices, bytes per value (1, 2, 4, 8 or 16) and per index (4 or
8). Indices are not checked."""

from __future__ import annotations

from functools import cache

from tsql.kernels.codegen.kir import BYTES, Module
from tsql.kernels.codegen.lang import Kernel

VALUES = ("i8", "i16", "i32", "i64", "i128")
INDICES = ("i32", "i64")
WIDTHS = tuple(BYTES[machine] for machine in VALUES)


def gather_module() -> Module:
    """Read values at the indices."""
    return _module(scatters=False)


def scatter_module() -> Module:
    """Write values at the indices."""
    return _module(scatters=True)


@cache
def _module(scatters: bool) -> Module:
    """The kernel, with a loop for each pair of widths."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    plan, _, rows = k.params
    source, target, indices = (k.load("ptr", plan, word) for word in range(3))
    value_bytes, index_bytes = k.load("i64", plan, 3), k.load("i64", plan, 4)
    for index in INDICES:
        for value in VALUES:
            with k.when((value_bytes == BYTES[value]) & (index_bytes == BYTES[index])), k.range(rows) as i:
                at = k.load(index, indices, i).to("i64")
                k.store(target, k.load(value, source, i if scatters else at), at if scatters else i)
    k.ret()
    k.finish()
    return module
