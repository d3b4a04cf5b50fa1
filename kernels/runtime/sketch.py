"""A sketch of distinct 64-bit hashes, in the kernel language: exact while small, then HyperLogLog.

A block is (kind i64, mask i64), then the content. Kind >= 0: that many hashes in an open-addressing set of mask + 1
words (0 is free), at most half full. Kind -1: 2^14 registers of a byte. Error of the latter: about 0.8 percent (Ertl,
"New cardinality estimation algorithms for HyperLogLog sketches", 2017, whose estimator needs no tables of bias)."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import take_bytes
from tsql.kernels.runtime.lists import HEADER

PRECISION = 14
REGISTERS = 1 << PRECISION
LEVELS = 64 - PRECISION
LARGEST_SET = 2048
"""Words of the largest set; twice as many would be larger than the registers."""


@routine("sketch_put", ("ptr", "i64"), None)
def sketch_put(k: Kernel, block: Val, hash: Val) -> None:
    """Add a hash to a sketch that has room."""
    with k.when(k.load("i64", block) < 0):
        register = k.offset(block, hash.ushr(LEVELS) + HEADER)
        level = (k.unary("leading_zeros", (hash << PRECISION) | (1 << (PRECISION - 1))) + 1).to("i8")
        with k.when(level > k.load("i8", register)):
            k.store(register, level)
    with k.otherwise():
        word = k.select(hash == 0, k.i64(1), hash)
        mask = k.load("i64", block, 1)
        slot = k.var(word & mask)
        with k.forever() as loop:
            found = k.load("i64", block + HEADER, slot.value)
            with k.when(found == 0):
                k.store(block + HEADER, word, slot.value)
                k.store(block, k.load("i64", block) + 1)
            loop.stop_if((found == 0) | (found == word))
            slot.set((slot.value + 1) & mask)


@routine("sketch_room", ("ptr", "ptr"), "ptr")
def sketch_room(k: Kernel, ctx: Val, block: Val) -> None:
    """The sketch with room for one more hash."""
    words = k.var(k.i64(0))
    with k.when(block != k.null):
        with k.when(k.load("i64", block) < 0):
            k.ret(block)
        words.set(k.load("i64", block, 1) + 1)
        with k.when(k.load("i64", block) * 2 < words.value):
            k.ret(block)
    size = words.value
    grown = k.max(size * 2, k.i64(8))
    dense = grown > LARGEST_SET
    bytes = k.select(dense, k.i64(REGISTERS), grown * 8)
    fresh = k.call("calloc", bytes + HEADER, 1)
    take_bytes(k, ctx, bytes - size * 8)
    k.store(fresh, k.select(dense, k.i64(-1), k.i64(0)))
    k.store(fresh, k.select(dense, k.i64(0), grown - 1), 1)
    with k.range(size) as i:
        word = k.load("i64", block + HEADER, i)
        with k.when(word != 0):
            sketch_put(k, fresh, word)
    k.call("free", block)
    k.ret(fresh)


def sketch_add(k: Kernel, ctx: Val, block: Val, hash: Val) -> Val:
    """The sketch (null: an empty one) with a hash added."""
    ready = sketch_room(k, ctx, block)
    sketch_put(k, ready, hash)
    return ready


@routine("sketch_bytes", ("ptr",), "i64")
def sketch_bytes(k: Kernel, block: Val) -> None:
    """The size of a sketch."""
    with k.when(block == k.null):
        k.ret(k.i64(0))
    k.ret(k.select(k.load("i64", block) < 0, k.i64(REGISTERS), (k.load("i64", block, 1) + 1) * 8) + HEADER)


@routine("sketch_merge", ("ptr", "ptr", "ptr"), "ptr")
def sketch_merge(k: Kernel, ctx: Val, block: Val, other: Val) -> None:
    """The sketch with another one merged in."""
    mine = k.var(block)
    with k.when(k.load("i64", other) < 0):
        fresh = k.call("calloc", REGISTERS + HEADER, 1)
        take_bytes(k, ctx, k.i64(REGISTERS))
        k.call("memcpy", fresh, other, REGISTERS + HEADER)
        with k.when(block != k.null):
            with k.when(k.load("i64", block) < 0):
                with k.range(k.i64(REGISTERS + HEADER), HEADER) as i:
                    k.store(fresh, k.max(k.load("i8", fresh, i), k.load("i8", block, i)), i)
            with k.otherwise():
                with k.range(k.load("i64", block, 1) + 1) as i:
                    word = k.load("i64", block + HEADER, i)
                    with k.when(word != 0):
                        sketch_put(k, fresh, word)
        k.call("free", block)
        mine.set(fresh)
    with k.otherwise():
        with k.range(k.load("i64", other, 1) + 1) as i:
            word = k.load("i64", other + HEADER, i)
            with k.when(word != 0):
                mine.set(sketch_add(k, ctx, mine.value, word))
    k.ret(mine.value)


@routine("sketch_estimate", ("ptr",), "i64")
def sketch_estimate(k: Kernel, block: Val) -> None:
    """The estimated number of distinct hashes."""
    with k.when(block == k.null):
        k.ret(k.i64(0))
    with k.when(k.load("i64", block) >= 0):
        k.ret(k.load("i64", block))
    levels = k.call("calloc", LEVELS + 2, 8)
    with k.range(k.i64(REGISTERS)) as i:
        level = k.element("i64", levels, k.load("i8", block + HEADER, i).uto("i64"))
        k.store(level, k.load("i64", level) + 1)
    total = k.var(k.f64(0.0))
    with k.range(k.i64(LEVELS + 1)) as i:
        total.set(0.5 * (total.value + k.load("i64", levels, LEVELS + 1 - i).to("f64")))
    share = k.var(k.load("i64", levels).to("f64") / float(REGISTERS))
    empty, weight = k.var(share.value), k.var(k.f64(1.0))
    with k.forever() as loop:
        share.set(share.value * share.value)
        before = empty.value
        empty.set(before + share.value * weight.value)
        weight.set(weight.value * 2.0)
        loop.stop_if(empty.value == before)
    k.call("free", levels)
    scale = REGISTERS * REGISTERS / (2.0 * 0.6931471805599453)
    k.ret(k.unary("rint", scale / (total.value + float(REGISTERS) * empty.value)).to("i64"))
