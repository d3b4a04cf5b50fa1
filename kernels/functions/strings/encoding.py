"""Bytes as text and back: hex, unhex, base64, from_base64, encode, decode."""

from __future__ import annotations

import base64 as base64_codec
from collections.abc import Callable

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, BLOB, HUGEINT, UBIGINT, VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.strings.basics import Text, built
from tsql.kernels.runtime.digest import hex_encode
from tsql.kernels.runtime.text.utf8 import new_record

ALPHABET = base64_codec.b64encode(
    bytes.fromhex("00108310518720928b30d38f41149351559761969b71d79f8218a39259a7a29aabb2dbafc31cb3d35db7e39ebbf3dfbf")
)
"""The 64 digits in order."""
NOT_A_DIGIT = 0xFF


@routine("hex_text", ("ptr", "ptr", "i64"), "ptr")
def hex_text(k: Kernel, ctx: Val, p: Val, n: Val) -> None:
    record, text = new_record(k, ctx, n * 2)
    hex_encode(k, text, p, n, k.i8(ord("A")))
    k.store(record, n * 2)
    k.ret(record)


@routine("hex_number", ("ptr", "i128"), "ptr")
def hex_number(k: Kernel, ctx: Val, value: Val) -> None:
    """The digits of an unsigned number, at least one."""
    record, text = new_record(k, ctx, k.i64(32))
    left, count = k.var(value), k.var(k.i64(0))
    with k.forever() as loop:
        count.set(count.value + 1)
        left.set(left.value.ushr(4))
        loop.stop_if(left.value == 0)
    left.set(value)
    with k.range(count.value) as i:
        digit = (left.value & 15).to("i8")
        k.store(text, k.select(digit < 10, digit + ord("0"), digit + (ord("A") - 10)), count.value - 1 - i)
        left.set(left.value.ushr(4))
    k.store(record, count.value)
    k.ret(record)


@function(
    "hex", "to_hex", args=(VARCHAR,), returns=VARCHAR, lazy=True, examples=(("hex('Hello é')", "48656C6C6F20C3A9"),)
)
def hex_string(k: PipelineKernel, s: Datum) -> Text:
    """The bytes in hexadecimal."""
    return built(k, hex_text, s.ptr, s.len)


@function("hex", "to_hex", args=(BLOB,), returns=VARCHAR, lazy=True, examples=((r"hex('\xAA\x01'::BLOB)", "AA01"),))
def hex_blob(k: PipelineKernel, s: Datum) -> Text:
    return built(k, hex_text, s.ptr, s.len)


for _type, _examples in (
    (BIGINT, (("hex(42)", "2A"), ("hex(-1)", "FFFFFFFFFFFFFFFF"))),
    (UBIGINT, (("hex(255::UBIGINT)", "FF"),)),
    (HUGEINT, (("hex(0::HUGEINT)", "0"),)),
):

    @function("hex", "to_hex", args=(_type,), returns=VARCHAR, lazy=True, examples=_examples)
    def hex_integer(k: PipelineKernel, number: Datum) -> Text:
        """The two's complement of the number in hexadecimal, without leading zeros."""
        return built(k, hex_number, number.value.uto("i128"))


@routine("hex_digit", ("i8",), "i64")
def hex_digit(k: Kernel, c: Val) -> None:
    """The value of a hexadecimal digit, or -1."""
    letter = (c | 0x20) - ord("a")
    k.ret(
        k.select(
            (c - ord("0")).ult(10), (c - ord("0")).to("i64"), k.select(letter.ult(6), letter.to("i64") + 10, k.i64(-1))
        )
    )


@routine("unhex_bytes", ("ptr", "ptr", "i64"), "ptr")
def unhex_bytes(k: Kernel, ctx: Val, p: Val, n: Val) -> None:
    """The bytes of hexadecimal text (an odd first digit stands alone); where a digit is bad, the length is -1 - its
    place."""
    record, out = new_record(k, ctx, (n + 1).ushr(1))
    k.store(record, (n + 1).ushr(1))
    odd = n & 1
    with k.range(n) as i:
        digit = hex_digit(k, k.load("i8", p, i))
        with k.when(digit < 0):
            k.store(record, i * -1 - 1)
            k.ret(record)
        place = (i + odd).ushr(1)
        is_first = ((i + odd) & 1 == 0) | (i == 0)
        with k.when(is_first):
            k.store(out, k.i8(0), place)
        k.store(out, k.load("i8", out, place) << 4 | digit.to("i8"), place)
    k.ret(record)


@function(
    "unhex",
    "from_hex",
    args=(VARCHAR,),
    returns=BLOB,
    lazy=True,
    can_fail=True,
    examples=(("unhex('FfaA')", b"\xff\xaa"), ("unhex('616')", b"\x06\x16")),
)
def unhex(k: PipelineKernel, s: Datum) -> Text:
    """The bytes that hexadecimal text stands for."""
    return from_digits(k, s, unhex_bytes, "hex")


def from_digits(k: PipelineKernel, s: Datum, convert: Callable[..., Val], kind: str) -> Text:
    """What a routine makes of digits; a length below 0 tells of a bad one, at -1 - its place."""
    bytes, size = built(k, convert, s.ptr, s.len)
    place = k.select(size < 0, -size - 1, k.i64(0))
    k.fail(size < 0, f"Invalid input for {kind} digit: {{detail}}", (s.ptr + place, k.i64(1)))
    return bytes, k.max(size, k.i64(0))


@routine("base64_text", ("ptr", "ptr", "ptr", "i64"), "ptr")
def base64_text(k: Kernel, ctx: Val, digits: Val, p: Val, n: Val) -> None:
    """Four digits for three bytes, padded with =."""
    record, text = new_record(k, ctx, (n + 2) // 3 * 4)
    k.store(record, (n + 2) // 3 * 4)
    out = k.var(k.i64(0))
    with k.range(n, step=3) as i:
        have = n - i
        word = k.var(k.load("i8", p, i).uto("i64") << 16)
        with k.when(have > 1):
            word.set(word.value | (k.load("i8", p, i + 1).uto("i64") << 8))
        with k.when(have > 2):
            word.set(word.value | k.load("i8", p, i + 2).uto("i64"))
        for place in range(4):
            digit = k.load("i8", digits, word.value.ushr(18 - 6 * place) & 63)
            k.store(text, digit if place < 2 else k.select(have >= place, digit, k.i8(ord("="))), out.value + place)
        out.set(out.value + 4)
    k.ret(record)


@function(
    "base64",
    "to_base64",
    args=(BLOB,),
    returns=VARCHAR,
    lazy=True,
    examples=(("to_base64('A'::BLOB)", "QQ=="), ("base64('abc'::BLOB)", "YWJj")),
)
def base64(k: PipelineKernel, s: Datum) -> Text:
    """The bytes in base 64."""
    return built(k, base64_text, k.static(ALPHABET), s.ptr, s.len)


def decoding_table() -> bytes:
    """The value of each byte as a base-64 digit."""
    table = bytearray([NOT_A_DIGIT] * 256)
    for value, digit in enumerate(ALPHABET):
        table[digit] = value
    return bytes(table)


@routine("base64_bytes", ("ptr", "ptr", "ptr", "i64"), "ptr")
def base64_bytes(k: Kernel, ctx: Val, table: Val, p: Val, n: Val) -> None:
    """The bytes of base-64 text whose length is a multiple of four; where a digit is bad, the length is -1 - its
    place."""
    padding = k.var(k.i64(0))
    with k.when(n > 0):
        last = (k.load("i8", p, n - 1) == ord("=")).to("i64")
        padding.set(last + last * (k.load("i8", p, n - 2) == ord("=")).to("i64"))
    record, out = new_record(k, ctx, n.ushr(2) * 3 + 4)
    k.store(record, n.ushr(2) * 3 - padding.value)
    with k.range(n, step=4) as i:
        word = k.var(k.i64(0))
        with k.range(i + 4, i) as at:
            digit = k.load("i8", table, k.load("i8", p, at).uto("i64")).uto("i64")
            is_padding = at >= n - padding.value
            with k.when((digit == NOT_A_DIGIT) & ~is_padding):
                k.store(record, at * -1 - 1)
                k.ret(record)
            word.set((word.value << 6) | k.select(is_padding, k.i64(0), digit))
        for place in range(3):
            k.store(
                out,
                word.value.ushr(16 - 8 * place).to("i8") if place < 2 else word.value.to("i8"),
                i.ushr(2) * 3 + place,
            )
    k.ret(record)


@function(
    "from_base64", args=(VARCHAR,), returns=BLOB, lazy=True, can_fail=True, examples=(("from_base64('QQ==')", b"A"),)
)
def from_base64(k: PipelineKernel, s: Datum) -> Text:
    """The bytes that base-64 text stands for."""
    odd = (s.len & 3) != 0
    k.fail(odd, 'Could not decode string "{detail}" as base64: length must be a multiple of 4', s.text)
    bytes, size = built(k, base64_bytes, k.static(decoding_table()), s.ptr, k.select(odd, k.i64(0), s.len))
    k.fail(size < 0, 'Could not decode string "{detail}" as base64: invalid byte value', s.text)
    return bytes, k.max(size, k.i64(0))


@function("encode", args=(VARCHAR,), returns=BLOB, examples=(("encode('é')", b"\xc3\xa9"),))
def encode(k: PipelineKernel, s: Datum) -> Text:
    """The bytes of the UTF-8 text."""
    return s.text


@routine("utf8_is_valid", ("ptr", "i64"), "i1")
def utf8_is_valid(k: Kernel, p: Val, n: Val) -> None:
    """Whether bytes are UTF-8: no stray or missing continuation, no overlong form, no surrogate, nothing past
    U+10FFFF."""
    at = k.var(k.i64(0))
    with k.forever() as loop:
        loop.stop_if(at.value >= n)
        first = k.load("i8", p, at.value).uto("i64")
        with k.when(first < 0x80):
            at.set(at.value + 1)
        with k.otherwise():
            width = (first >= 0xE0).to("i64") + (first >= 0xF0).to("i64") + 2
            with k.when((first < 0xC2) | (first > 0xF4) | (at.value + width > n)):
                k.ret(k.false)
            second = k.load("i8", p, at.value + 1).uto("i64")
            low = k.select(first == 0xE0, k.i64(0xA0), k.select(first == 0xF0, k.i64(0x90), k.i64(0x80)))
            high = k.select(first == 0xED, k.i64(0x9F), k.select(first == 0xF4, k.i64(0x8F), k.i64(0xBF)))
            with k.when((second < low) | (second > high)):
                k.ret(k.false)
            with k.range(at.value + width, at.value + 2) as i:
                with k.when((k.load("i8", p, i).uto("i64") & 0xC0) != 0x80):
                    k.ret(k.false)
            at.set(at.value + width)
    k.ret(k.true)


@function(
    "decode", args=(BLOB,), returns=VARCHAR, lazy=True, can_fail=True, examples=((r"decode('\xC3\xA9'::BLOB)", "é"),)
)
def decode(k: PipelineKernel, s: Datum) -> Text:
    """The text of UTF-8 bytes; fails for other bytes."""
    bad = ~utf8_is_valid(k, s.ptr, s.len)
    k.fail(bad, "Failure in decode: could not convert blob to UTF8 string, the blob contained invalid UTF8 characters.")
    return s.ptr, k.select(bad, k.i64(0), s.len)
