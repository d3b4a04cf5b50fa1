"""Fixed-width values in Parquet pages, in the kernel language: dictionary look-up, plain values, and gaps for NULLs.

A `Form` says how a value is stored and delivered. Values are decoded without gaps; `spread` moves them to the rows that
are not NULL."""

from __future__ import annotations

from typing import NamedTuple

from tsql.kernels.codegen.lang import Kernel, Val, routine


class Form(NamedTuple):
    """stored: the machine type in the file, or "big": big-endian numbers of up to 8 bytes, "codes": the indices of a
    dictionary, delivered as they are, "bits", "bytes": text. delivered: the machine type of a value, or "bits", or
    "offsets"."""

    stored: str
    delivered: str


FORMS = (
    Form("i32", "i32"),
    Form("i64", "i64"),
    Form("big", "i64"),
    Form("codes", "i32"),
    Form("bits", "bits"),
    Form("bytes", "offsets"),
)
"""The number of a form is its index here. Floats are i32 and i64: only their bits matter. The host converts columns
that are stored narrower or wider than wanted: few files have them, and every process must load the code of each
form."""

WORDS, LONG_WORDS, BIG, CODES, BITS, TEXT = range(len(FORMS))


def gather(k: Kernel, machine: str, dictionary: Val, indices: Val, count: Val, target: Val) -> None:
    """target[i] = dictionary[indices[i]]; the indices were checked before."""

    @routine(f"parquet_gather_{machine}", ("ptr", "ptr", "i64", "ptr"), None)
    def body(k: Kernel, dictionary: Val, indices: Val, count: Val, target: Val) -> None:
        with k.range(count) as i:
            k.store(target, k.load(machine, dictionary, k.load("i32", indices, i).uto("i64")), i)

    body(k, dictionary, indices, count, target)


def spread(k: Kernel, machine: str, values: Val, bitmap: Val, start: Val, count: Val, target: Val) -> None:
    """Move values to the rows whose bit is set, from bit `start` on. The others become 0. One value after the last is
    read."""

    @routine(f"parquet_spread_{machine}", ("ptr", "ptr", "i64", "i64", "ptr"), None)
    def body(k: Kernel, values: Val, bitmap: Val, start: Val, count: Val, target: Val) -> None:
        taken = k.var(k.i64(0))
        with k.range(count) as i:
            valid = k.load_bit(bitmap, start + i)
            value = k.load(machine, values, taken.value)
            k.store(target, k.select(valid, value, k.const(machine, 0)), i)
            taken.set(taken.value + valid.to("i64"))

    body(k, values, bitmap, start, count, target)


@routine("parquet_big", ("i64", "ptr", "i64", "ptr"), None)
def big_numbers(k: Kernel, width: Val, source: Val, count: Val, target: Val) -> None:
    """Big-endian numbers of `width` bytes as i64; up to 7 bytes after the last are read."""
    unused = 64 - (width << 3)
    with k.range(count) as i:
        k.store(target, k.unary("bswap", k.load("i64", source + i * width)) >> unused, i)


@routine("parquet_spread_bits", ("ptr", "ptr", "i64", "i64", "ptr"), None)
def spread_bits(k: Kernel, bits: Val, bitmap: Val, start: Val, count: Val, target: Val) -> None:
    """Move booleans to their rows, as `spread` does; `target` is a zeroed bitmap with the same start."""
    taken = k.var(k.i64(0))
    with k.range(count) as i:
        at = start + i
        valid = k.load_bit(bitmap, at)
        with k.when(valid & k.load_bit(bits, taken.value)):
            place = target + at.ushr(3)
            k.store(place, k.load("i8", place) | (k.i8(1) << (at & 7).to("i8")))
        taken.set(taken.value + valid.to("i64"))
