"""Selection and sorting in the kernel language: the n-th of an array of integers, and a merge sort of pointers by any
order."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.text.strings import mix64

FLOAT_BITS = (1 << 63) - 1


def sortable(k: Kernel, x: Val) -> Val:
    """An f64 as an i64 of the same order: all NaNs are one value, the greatest; -0.0 is just below 0.0. `unsortable` is
    its inverse."""
    bits = k.select(x != x, k.f64(float("nan")), x).bits_as("i64")
    return bits ^ ((bits >> 63) & FLOAT_BITS)


def unsortable(k: Kernel, word: Val) -> Val:
    """The f64 that `sortable` turned into `word`."""
    return (word ^ ((word >> 63) & FLOAT_BITS)).bits_as("f64")


def _swap(k: Kernel, machine: str, data: Val, a: Val, b: Val) -> None:
    x, y = k.load(machine, data, a), k.load(machine, data, b)
    k.store(data, y, a)
    k.store(data, x, b)


def _quickselect(k: Kernel, machine: str, data: Val, count: Val, n: Val, less: Callable[[Val, Val], Val]) -> None:
    """Three-way partitions around pseudo-random pivots: no input order and no ties are bad. Ends by returning."""
    low, high = k.var(k.i64(0)), k.var(count - 1)
    with k.forever() as loop:
        first, last = low.value, high.value
        loop.stop_if(first >= last)
        pivot = k.load(machine, data, first + mix64(k, first ^ (last << 20)).urem(last - first + 1))
        smaller, greater, at = k.var(first), k.var(last), k.var(first)
        with k.forever() as scan:
            i = at.value
            scan.stop_if(i > greater.value)
            x = k.load(machine, data, i)
            with k.when(less(x, pivot)):
                _swap(k, machine, data, smaller.value, i)
                smaller.set(smaller.value + 1)
                at.set(i + 1)
            with k.otherwise():
                with k.when(less(pivot, x)):
                    _swap(k, machine, data, greater.value, i)
                    greater.set(greater.value - 1)
                with k.otherwise():
                    at.set(i + 1)
        with k.when(n < smaller.value):
            high.set(smaller.value - 1)
        with k.otherwise():
            low.set(k.select(n > greater.value, greater.value + 1, n))
            high.set(k.select(n > greater.value, last, n))
    k.ret(k.load(machine, data, n))


def select_nth(k: Kernel, data: Val, count: Val, n: Val, machine: str) -> Val:
    """The n-th smallest of an array of i64 or i128. Reorders it: no element before the n-th is greater, none after it
    less."""

    @routine(f"select_{machine}", ("ptr", "i64", "i64"), machine)
    def select(k: Kernel, data: Val, count: Val, n: Val) -> None:
        _quickselect(k, machine, data, count, n, lambda a, b: a < b)

    return select(k, data, count, n)


def select_pointer(
    k: Kernel,
    name: str,
    pointers: Val,
    count: Val,
    n: Val,
    context: Val,
    before: Callable[[Kernel, Val, Val, Val], Val],
) -> Val:
    """The n-th of an array of pointers by `before(k, a, b, context)`. Reorders it. `name` names the order."""

    @routine(f"select_{name}", ("ptr", "i64", "i64", "ptr"), "ptr")
    def select(k: Kernel, pointers: Val, count: Val, n: Val, context: Val) -> None:
        _quickselect(k, "ptr", pointers, count, n, lambda a, b: before(k, a, b, context))

    return select(k, pointers, count, n, context)


def least(k: Kernel, data: Val, start: Val, count: Val, machine: str) -> Val:
    """The smallest of data[start..count), which is not empty."""

    @routine(f"least_{machine}", ("ptr", "i64", "i64"), machine)
    def least_of(k: Kernel, data: Val, start: Val, count: Val) -> None:
        best = k.var(k.load(machine, data, start))
        with k.range(count, start + 1) as i:
            best.set(k.min(best.value, k.load(machine, data, i)))
        k.ret(best.value)

    return least_of(k, data, start, count)


def sort_pointers(
    k: Kernel, name: str, pointers: Val, count: Val, context: Val, before: Callable[[Kernel, Val, Val, Val], Val]
) -> None:
    """Sort an array of pointers by `before(k, a, b, context)`, a total order. Equal spare room must follow the array.

    `name` names the order: the routine is emitted once per module under it.
    """

    @routine(f"sort_{name}", ("ptr", "i64", "ptr"), None)
    def sort(k: Kernel, pointers: Val, count: Val, context: Val) -> None:
        """Bottom-up merge sort; sorted input costs one comparison per element."""
        ordered = k.var(k.true)
        at = k.var(k.i64(1))
        with k.forever() as loop:
            i = at.value
            loop.stop_if((i >= count) | ~ordered.value)
            ordered.set(~before(k, k.load("ptr", pointers, i), k.load("ptr", pointers, i - 1), context))
            at.set(i + 1)
        spare = k.element("ptr", pointers, count)
        width = k.var(k.select(ordered.value, count, k.i64(1)))
        source, target = k.var(pointers), k.var(spare)
        with k.forever() as passes:
            run = width.value
            passes.stop_if(run >= count)
            chunk = k.var(k.i64(0))
            with k.forever() as chunks:
                start = chunk.value
                chunks.stop_if(start >= count)
                _merge(
                    k,
                    source.value,
                    target.value,
                    start,
                    k.min(start + run, count),
                    k.min(start + run * 2, count),
                    context,
                    before,
                )
                chunk.set(start + run * 2)
            old = source.value
            source.set(target.value)
            target.set(old)
            width.set(run * 2)
        with k.when(source.value != pointers):
            k.call("memcpy", pointers, source.value, count * 8)

    sort(k, pointers, count, context)


def _merge(
    k: Kernel,
    source: Val,
    target: Val,
    start: Val,
    middle: Val,
    end: Val,
    context: Val,
    before: Callable[[Kernel, Val, Val, Val], Val],
) -> None:
    """Merge source[start..middle) and source[middle..end) into target[start..end)."""
    left, right = k.var(start), k.var(middle)
    with k.range(end, start) as out:
        a, b = left.value, right.value
        from_right = k.var(a >= middle)
        with k.when((a < middle) & (b < end)):
            from_right.set(before(k, k.load("ptr", source, b), k.load("ptr", source, a), context))
        take = from_right.value
        k.store(target, k.load("ptr", source, k.select(take, b, a)), out)
        left.set(k.select(take, a, a + 1))
        right.set(k.select(take, b + 1, b))
