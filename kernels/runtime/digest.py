"""Message digests in the kernel language: MD5, SHA-1 and SHA-256, as lower-case hexadecimal text."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import scratch_alloc
from tsql.kernels.runtime.text.utf8 import new_record

TAIL = 64  # where in the working memory the padded last block or two start; the state is at 0
SCHEDULE = TAIL + 128  # 80 words of SHA's message schedule
WORKING = SCHEDULE + 320

MD5_START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
SHA1_START = (*MD5_START, 0xC3D2E1F0)
MD5_SHIFTS = ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))


def _primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % p for p in found):
            found.append(number)
        number += 1
    return found


def _root_fraction(number: int, degree: int) -> int:
    """The first 32 bits after the point of a square or cube root."""
    scaled = number << (32 * degree)
    root = math.isqrt(scaled) if degree == 2 else round(number ** (1 / 3) * 2**32)
    while degree == 3 and root**3 > scaled:
        root -= 1
    while degree == 3 and (root + 1) ** 3 <= scaled:
        root += 1
    return root & 0xFFFFFFFF


SHA256_START = tuple(_root_fraction(p, 2) for p in _primes(8))
SHA256_TABLE = struct.pack("<64I", *(_root_fraction(p, 3) for p in _primes(64)))


def rotate(value: Val, bits: int) -> Val:
    """Rotate an i32 to the left."""
    return (value << bits) | value.ushr(32 - bits)


@routine("md5_block", ("ptr", "ptr", "ptr"), None)
def md5_block(k: Kernel, state: Val, table: Val, block: Val) -> None:
    start = [k.load("i32", state, i) for i in range(4)]
    a, b, c, d = start
    for i in range(64):
        phase = i // 16
        mixed = (d ^ (b & (c ^ d)), c ^ (d & (b ^ c)), b ^ c ^ d, c ^ (b | ~d))[phase]
        word = k.load("i32", block, (i, 5 * i + 1, 3 * i + 5, 7 * i)[phase] % 16)
        total = a + mixed + word + int(abs(math.sin(i + 1)) * 2**32)
        a, b, c, d = d, b + rotate(total, MD5_SHIFTS[phase][i % 4]), b, c
    for i, value in enumerate((a, b, c, d)):
        k.store(state, start[i] + value, i)


def _schedule(k: Kernel, state: Val, block: Val) -> Val:
    """The big-endian words of the block at the start of the schedule."""
    words = k.offset(state, SCHEDULE)
    for i in range(16):
        k.store(words, k.unary("bswap", k.load("i32", block, i)), i)
    return words


@routine("sha1_block", ("ptr", "ptr", "ptr"), None)
def sha1_block(k: Kernel, state: Val, table: Val, block: Val) -> None:
    words = _schedule(k, state, block)
    with k.range(k.i64(80), 16) as i:
        mixed = (
            k.load("i32", words, i - 3)
            ^ k.load("i32", words, i - 8)
            ^ k.load("i32", words, i - 14)
            ^ k.load("i32", words, i - 16)
        )
        k.store(words, rotate(mixed, 1), i)
    start = [k.load("i32", state, i) for i in range(5)]
    a, b, c, d, e = (k.var(v) for v in start)
    for phase, constant in enumerate((0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6)):
        with k.range(k.i64(20 * phase + 20), 20 * phase) as i:
            x, y, z = b.value, c.value, d.value
            mixed = (z ^ (x & (y ^ z)), x ^ y ^ z, (x & y) | (z & (x | y)), x ^ y ^ z)[phase]
            total = rotate(a.value, 5) + mixed + e.value + constant + k.load("i32", words, i)
            e.set(z)
            d.set(y)
            c.set(rotate(x, 30))
            b.set(a.value)
            a.set(total)
    for at, slot in enumerate((a, b, c, d, e)):
        k.store(state, start[at] + slot.value, at)


@routine("sha256_block", ("ptr", "ptr", "ptr"), None)
def sha256_block(k: Kernel, state: Val, table: Val, block: Val) -> None:
    words = _schedule(k, state, block)
    with k.range(k.i64(64), 16) as i:
        x, y = k.load("i32", words, i - 15), k.load("i32", words, i - 2)
        first = rotate(x, 25) ^ rotate(x, 14) ^ x.ushr(3)
        second = rotate(y, 15) ^ rotate(y, 13) ^ y.ushr(10)
        k.store(words, k.load("i32", words, i - 16) + first + k.load("i32", words, i - 7) + second, i)
    start = [k.load("i32", state, i) for i in range(8)]
    slots = [k.var(v) for v in start]
    with k.range(k.i64(64)) as i:
        a, b, c, d, e, f, g, h = (slot.value for slot in slots)
        total = (
            h
            + (rotate(e, 26) ^ rotate(e, 21) ^ rotate(e, 7))
            + (g ^ (e & (f ^ g)))
            + k.load("i32", table, i)
            + k.load("i32", words, i)
        )
        other = (rotate(a, 30) ^ rotate(a, 19) ^ rotate(a, 10)) + ((a & b) | (c & (a | b)))
        for slot, value in zip(slots, (total + other, a, b, c, d + total, e, f, g), strict=True):
            slot.set(value)
    for at, slot in enumerate(slots):
        k.store(state, start[at] + slot.value, at)


@routine("hex_encode", ("ptr", "ptr", "i64", "i8"), None)
def hex_encode(k: Kernel, out: Val, p: Val, n: Val, ten: Val) -> None:
    """Two digits a byte; `ten` is the letter for ten, "a" or "A"."""
    with k.range(n) as i:
        byte = k.load("i8", p, i)
        for place, digit in enumerate((byte.ushr(4), byte & 15)):
            k.store(out, k.select(digit < 10, digit + ord("0"), digit - 10 + ten), i * 2 + place)


def _digest(name: str, block: Callable[..., Any], start: tuple[int, ...], big_endian: bool) -> Callable[..., Val]:
    """A routine (ctx, table, pointer, length) -> record of the digest in hexadecimal."""

    @routine(name, ("ptr", "ptr", "ptr", "i64"), "ptr")
    def digest(k: Kernel, ctx: Val, table: Val, p: Val, n: Val) -> None:
        state = scratch_alloc(k, ctx, k.i64(WORKING))
        for i, word in enumerate(start):
            k.store(state, k.i32(word), i)
        whole, rest = n & -64, n & 63
        with k.range(whole, step=64) as at:
            block(k, state, table, p + at)
        tail = k.offset(state, TAIL)
        k.call("memset", tail, 0, 128)
        k.call("memcpy", tail, p + whole, rest)
        k.store(tail, k.i8(0x80), rest)
        padded = k.select(rest < 56, k.i64(64), k.i64(128))
        bits = n * 8
        k.store(tail + (padded - 8), k.unary("bswap", bits) if big_endian else bits)
        with k.range(padded, step=64) as at:
            block(k, state, table, tail + at)
        if big_endian:
            for i in range(len(start)):
                k.store(state, k.unary("bswap", k.load("i32", state, i)), i)
        record, text = new_record(k, ctx, k.i64(8 * len(start)))
        hex_encode(k, text, state, k.i64(4 * len(start)), k.i8(ord("a")))
        k.store(record, k.i64(8 * len(start)))
        k.ret(record)

    return digest


md5_text = _digest("md5_text", md5_block, MD5_START, big_endian=False)
sha1_text = _digest("sha1_text", sha1_block, SHA1_START, big_endian=True)
sha256_text = _digest("sha256_text", sha256_block, SHA256_START, big_endian=True)
