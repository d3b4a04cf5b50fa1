"""String routines in the kernel language: equality, order, hashing. Lengths are in bytes, order is that of the
bytes."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine


@routine("str_eq", ("ptr", "i64", "ptr", "i64"), "i1")
def str_eq(k: Kernel, a: Val, a_len: Val, b: Val, b_len: Val) -> None:
    """Equal bytes: length first, then memcmp."""
    with k.when(a_len != b_len):
        k.ret(k.false)
    with k.when(a_len == 0):
        k.ret(k.true)
    k.ret(k.call("memcmp", a, b, a_len) == 0)


@routine("str_cmp", ("ptr", "i64", "ptr", "i64"), "i64")
def str_cmp(k: Kernel, a: Val, a_len: Val, b: Val, b_len: Val) -> None:
    """Negative, zero or positive, by the order of the bytes."""
    shared = k.min(a_len, b_len)
    first = k.var(k.i64(0))
    with k.when(shared > 0):
        first.set(k.call("memcmp", a, b, shared).to("i64"))
    order = first.value
    k.ret(k.select(order != 0, order, a_len - b_len))


@routine("mix64", ("i64",), "i64")
def mix64(k: Kernel, x: Val) -> None:
    """A bijective mix of 64 bits (the finaliser of MurmurHash3)."""
    x = (x ^ x.ushr(32)) * -0x2917014799A6026D
    x = (x ^ x.ushr(29)) * -0x1D14AE55D6E2B5BD
    k.ret(x ^ x.ushr(32))


@routine("str_hash", ("ptr", "i64"), "i64")
def str_hash(k: Kernel, p: Val, n: Val) -> None:
    """A hash of bytes: eight at a time, the tail read as one overlapping word (or byte by byte below eight)."""
    h = k.var(n * -0x61C8864680B583EB)
    with k.when(n >= 8):
        i = k.var(k.i64(0))
        last = n - 8
        with k.forever() as loop:
            at = i.value
            loop.stop_if(at >= last)
            h.set((h.value ^ k.load("i64", p + at)) * -0x2917014799A6026D)
            h.set(h.value ^ h.value.ushr(29))
            i.set(at + 8)
        h.set((h.value ^ k.load("i64", p + last)) * -0x2917014799A6026D)
    with k.otherwise():
        with k.when(n >= 4):
            low = k.load("i32", p).uto("i64")
            high = k.load("i32", p + (n - 4)).uto("i64")
            h.set((h.value ^ (low | (high << 32))) * -0x2917014799A6026D)
        with k.otherwise():
            with k.when(n > 0):
                first = k.load("i8", p).uto("i64")
                middle = k.load("i8", p + n.ushr(1)).uto("i64")
                last_byte = k.load("i8", p + (n - 1)).uto("i64")
                h.set((h.value ^ (first | (middle << 8) | (last_byte << 16))) * -0x2917014799A6026D)
    k.ret(mix64(k, h.value))
