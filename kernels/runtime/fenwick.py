"""A Fenwick tree in the kernel language: how often each of the codes 0 .. n-1 occurs, and which is the i-th in order.

The tree is an array of n + 1 words, initially zero. Both operations take O(log n).
"""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine


@routine("fenwick_add", ("ptr", "i64", "i64", "i64"), None)
def fenwick_add(k: Kernel, tree: Val, size: Val, code: Val, change: Val) -> None:
    """Change the count of a code."""
    at = k.var(code + 1)
    with k.forever() as loop:
        place = at.value
        loop.stop_if(place > size)
        k.store(tree, k.load("i64", tree, place) + change, place)
        at.set(place + (place & -place))


@routine("fenwick_nth", ("ptr", "i64", "i64"), "i64")
def fenwick_nth(k: Kernel, tree: Val, size: Val, index: Val) -> None:
    """The code of the index-th element (from 0) in order; it must exist."""
    step = k.var(k.i64(1) << (63 - k.unary("leading_zeros", size)))
    place, left = k.var(k.i64(0)), k.var(index + 1)
    with k.forever() as loop:
        width = step.value
        loop.stop_if(width == 0)
        tried = place.value + width
        with k.when(tried <= size):
            count = k.load("i64", tree, tried)
            with k.when(count < left.value):
                place.set(tried)
                left.set(left.value - count)
        step.set(width.ushr(1))
    k.ret(place.value)
