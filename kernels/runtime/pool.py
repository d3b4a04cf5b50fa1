"""The memory pool of the process, in the kernel language: `malloc`, `calloc`, `realloc` and `free` as kernels and host
call them.

Blocks above `SMALLEST` belong to the pool, smaller ones to the C library. The pool owns one range of addresses,
reserved at once and made of huge pages, with a region for each size class (four per doubling), so an address tells its
class. Freed blocks keep their pages for the next block of their class: fresh pages cost more than most kernels' work on
them, and pages that the C library keeps may be released by others in the process (DuckDB trims its heap several times a
second). The kept memory is bounded: pages of idle blocks are returned to the system if used and idle blocks together
would exceed `BOUND`.

Blocks start at different places of a page. Low address bits choose the cache set, so a kernel that fills many aligned
blocks at the same pace, as partitioning does, would write to the same few cache lines. So each block starts one line
later than the previous one, in an extra page (`SHIFTS` lines, then from the first again). An address within a block
still tells its block.

The state is a record of words (named below), then a record of `CLASS_WORDS` per class. A class has two stacks of block
numbers, for idle blocks with pages (warm) and without (cold, which read as zeros), and the number of blocks ever handed
out."""

from __future__ import annotations

from functools import cache

from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel, Val, routine

STATE = "pool_state"
"""The symbol by which code finds the state."""

LOCK, BASE, RANGE, REGION, BOUND, USED, IDLE, RECYCLED, FRESH, GIVEN_UP, CALLS = range(11)
"""Words of the state. Bytes: in use; idle with pages; and in total handed out from warm blocks, from others, and
returned to the system."""
CLASSES_AT = 16 * 8
WARM, COLD, NEXT, WARM_AT, COLD_AT, SIZE, BLOCKS, STAMP = range(8)
"""Words of a class: the number of blocks that are warm, cold and ever handed out; the addresses of the stacks; bytes of
a block; the maximum number of blocks; and the number of the last call that used it."""
CLASS_WORDS = 8
SMALLEST_BITS, LARGEST_BITS = 17, 33
SMALLEST, LARGEST = 1 << SMALLEST_BITS, 1 << LARGEST_BITS
"""Blocks above the first and up to the second size belong to the pool."""
LINE, SHIFTS = 64, 64
SHIFT_BYTES = LINE * SHIFTS
CLASSES = 4 * (LARGEST_BITS - SMALLEST_BITS)
MADV_DONTNEED = 4
EXPORTS = ("pool_malloc", "pool_calloc", "pool_realloc", "pool_free", "pool_trim", "pool_hold", "pool_let_go")


def class_size(number: int) -> int:
    """Bytes from one block of a class to the next: its capacity, 1.25, 1.5, 1.75 or 2 times a power of two, and room
    for its shift."""
    return ((5 + number % 4) << (SMALLEST_BITS + number // 4 - 2)) + SHIFT_BYTES


def _class(k: Kernel, number: Val) -> Val:
    return k.offset(k.symbol(STATE), number * (8 * CLASS_WORDS) + CLASSES_AT)


def _class_of(k: Kernel, bytes: Val) -> Val:
    """The number of the smallest class whose blocks have this many bytes."""
    last = bytes - 1
    power = k.i64(63) - k.unary("leading_zeros", last)
    return (power - SMALLEST_BITS) * 4 + (last.ushr(power - 2) & 3)


def _add(k: Kernel, record: Val, word: int, change: Val | int) -> Val:
    value = k.load("i64", record, word) + change
    k.store(record, value, word)
    return value


def _lock(k: Kernel, state: Val) -> None:
    with k.forever() as loop:
        loop.stop_if(k.cas(state, k.i64(0), k.i64(1)) == 0)
        k.call("sched_yield")


def _unlock(k: Kernel, state: Val) -> None:
    k.cas(state, k.i64(1), k.i64(0))


def _is_ours(k: Kernel, block: Val) -> Val:
    state = k.symbol(STATE)
    return (block.bits_as("i64") - k.load("i64", state, BASE)).ult(k.load("i64", state, RANGE))


def _address(k: Kernel, state: Val, number: Val, block: Val, size: Val) -> Val:
    return (k.load("i64", state, BASE) + number * k.load("i64", state, REGION) + block * size).bits_as("ptr")


@routine("pool_give_up", ("i64",), None)
def pool_give_up(k: Kernel, most: Val) -> None:
    """Return pages of idle blocks to the system until at most `most` bytes are idle, the least recently used classes
    first. The lock is held."""
    state = k.symbol(STATE)
    with k.forever() as classes:
        classes.stop_if(k.load("i64", state, IDLE) <= most)
        number, oldest = k.var(k.i64(0)), k.var(k.i64(2**63 - 1))
        with k.range(k.i64(CLASSES)) as one:
            candidate = _class(k, one)
            older = (k.load("i64", candidate, WARM) > 0) & (k.load("i64", candidate, STAMP) < oldest.value)
            number.set(k.select(older, one, number.value))
            oldest.set(k.select(older, k.load("i64", candidate, STAMP), oldest.value))
        record = _class(k, number.value)
        size = k.load("i64", record, SIZE)
        with k.forever() as blocks:
            blocks.stop_if((k.load("i64", record, WARM) == 0) | (k.load("i64", state, IDLE) <= most))
            warm, cold = _add(k, record, WARM, -1), k.load("i64", record, COLD)
            block = k.load("i32", k.load("ptr", record, WARM_AT), warm)
            k.call("madvise", _address(k, state, number.value, block.to("i64"), size), size, k.i32(MADV_DONTNEED))
            k.store(k.load("ptr", record, COLD_AT), block, cold)
            k.store(record, cold + 1, COLD)
            _add(k, state, IDLE, k.i64(0) - size)
            _add(k, state, GIVEN_UP, size)


@routine("pool_take", ("i64",), "i64")
def pool_take(k: Kernel, bytes: Val) -> None:
    """The address of a block, with its lowest bit set if all of it is zero; 0 if the class has none left. A warm block
    of up to twice the size is preferred to fresh pages."""
    state, smallest = k.symbol(STATE), _class_of(k, bytes)
    block, is_zero, fitting = k.var(k.i64(-1)), k.var(k.i64(1)), k.var(smallest)
    _lock(k, state)
    with k.forever() as loop:
        loop.stop_if(k.load("i64", _class(k, fitting.value), WARM) > 0)
        fitting.set(fitting.value + 1)
        beyond = fitting.value >= k.min(smallest + 5, k.i64(CLASSES))
        fitting.set(k.select(beyond, smallest, fitting.value))
        loop.stop_if(beyond)
    number = fitting.value
    record = _class(k, number)
    size = k.load("i64", record, SIZE)
    k.store(record, _add(k, state, CALLS, 1), STAMP)
    with k.when(k.load("i64", record, WARM) > 0):
        block.set(k.load("i32", k.load("ptr", record, WARM_AT), _add(k, record, WARM, -1)).to("i64"))
        is_zero.set(k.i64(0))
        _add(k, state, IDLE, k.i64(0) - size)
        _add(k, state, RECYCLED, size)
    with k.otherwise():
        room = k.load("i64", state, BOUND) - k.load("i64", state, USED) - size
        with k.when(k.load("i64", state, IDLE) > k.max(room, k.i64(0))):
            pool_give_up(k, k.max(room, k.i64(0)))
        with k.when(k.load("i64", record, COLD) > 0):
            block.set(k.load("i32", k.load("ptr", record, COLD_AT), _add(k, record, COLD, -1)).to("i64"))
        with k.otherwise(), k.when(k.load("i64", record, NEXT) < k.load("i64", record, BLOCKS)):
            block.set(_add(k, record, NEXT, 1) - 1)
        with k.when(block.value >= 0):
            _add(k, state, FRESH, size)
    with k.when(block.value >= 0):
        _add(k, state, USED, size)
    _unlock(k, state)
    with k.when(block.value < 0):
        k.ret(k.i64(0))
    shift = (block.value & (SHIFTS - 1)) * LINE
    k.ret((_address(k, state, number, block.value, size).bits_as("i64") + shift) | is_zero.value)


def _pooled(k: Kernel, bytes: Val) -> Val:
    return (bytes > SMALLEST) & (bytes <= LARGEST) & (k.load("i64", k.symbol(STATE), RANGE) != 0)


@routine("pool_malloc", ("i64",), "ptr")
def pool_malloc(k: Kernel, bytes: Val) -> None:
    """As malloc."""
    with k.when(_pooled(k, bytes)):
        found = pool_take(k, bytes)
        with k.when(found != 0):
            k.ret((found & -2).bits_as("ptr"))
    k.ret(k.call("malloc", bytes))


@routine("pool_calloc", ("i64", "i64"), "ptr")
def pool_calloc(k: Kernel, count: Val, each: Val) -> None:
    """As calloc. Only blocks that were written before are zeroed."""
    bytes = count * each
    with k.when(_pooled(k, bytes) & ~k.overflows("mul", count, each)):
        found = pool_take(k, bytes)
        with k.when(found != 0):
            block = (found & -2).bits_as("ptr")
            with k.when((found & 1) == 0):
                k.call("memset", block, 0, bytes)
            k.ret(block)
    k.ret(k.call("calloc", count, each))


@routine("pool_free", ("ptr",), None)
def pool_free(k: Kernel, block: Val) -> None:
    """As free, for blocks of the pool and of the C library."""
    with k.when(~_is_ours(k, block)):
        k.call("free", block)
    with k.otherwise():
        state = k.symbol(STATE)
        at, region = block.bits_as("i64") - k.load("i64", state, BASE), k.load("i64", state, REGION)
        record = _class(k, at.udiv(region))
        size = k.load("i64", record, SIZE)
        number = at.urem(region).udiv(size).to("i32")
        _lock(k, state)
        k.store(record, _add(k, state, CALLS, 1), STAMP)
        used, idle = _add(k, state, USED, k.i64(0) - size), k.load("i64", state, IDLE)
        warm = _add(k, record, WARM, 1)
        k.store(k.load("ptr", record, WARM_AT), number, warm - 1)
        k.store(state, idle + size, IDLE)
        room = k.max(k.load("i64", state, BOUND) - used, k.i64(0))
        with k.when(idle + size > room):
            pool_give_up(k, room)
        _unlock(k, state)


@routine("pool_realloc", ("ptr", "i64"), "ptr")
def pool_realloc(k: Kernel, block: Val, bytes: Val) -> None:
    """As realloc; a block moves between the C library and the pool as it grows."""
    ours = _is_ours(k, block)
    with k.when(~ours & ((block == k.null) | ~_pooled(k, bytes))):
        with k.when((block == k.null) & _pooled(k, bytes)):
            k.ret(pool_malloc(k, bytes))
        with k.otherwise():
            k.ret(k.call("realloc", block, bytes))
    old = k.var(k.i64(0))
    with k.when(ours):
        state = k.symbol(STATE)
        at = block.bits_as("i64") - k.load("i64", state, BASE)
        old.set(k.load("i64", _class(k, at.udiv(k.load("i64", state, REGION))), SIZE) - SHIFT_BYTES)
        with k.when((bytes <= old.value) & (bytes * 2 > old.value)):
            k.ret(block)
    with k.otherwise():
        old.set(k.call("malloc_usable_size", block))
    fresh = pool_malloc(k, bytes)
    with k.when(fresh != k.null):
        k.call("memcpy", fresh, block, k.min(old.value, bytes))
        pool_free(k, block)
    k.ret(fresh)


@routine("pool_trim", ("i64",), None)
def pool_trim(k: Kernel, most: Val) -> None:
    """Keep at most this many idle bytes."""
    state = k.symbol(STATE)
    _lock(k, state)
    pool_give_up(k, most)
    _unlock(k, state)


@routine("pool_hold", ("i64",), None)
def pool_hold(k: Kernel, unused: Val) -> None:
    """Lock the pool, so that a fork finds it consistent."""
    _lock(k, k.symbol(STATE))


@routine("pool_let_go", ("i64",), None)
def pool_let_go(k: Kernel, unused: Val) -> None:
    """Unlock the pool."""
    _unlock(k, k.symbol(STATE))


@cache
def pool_module() -> Module:
    """All functions of the pool; `EXPORTS` can be called from outside."""
    module = Module(exports=EXPORTS)
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    # A module contains what its main function calls.
    pool_free(k, pool_realloc(k, pool_calloc(k, k.params[2], k.i64(1)), k.params[2]))
    pool_trim(k, k.i64(0))
    pool_hold(k, k.i64(0))
    pool_let_go(k, k.i64(0))
    k.ret()
    k.finish()
    return module
