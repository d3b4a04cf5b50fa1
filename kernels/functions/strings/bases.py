"""Numbers and bytes in other bases: bin, unbin, to_base, and the bytes that DuckDB makes of a DOUBLE in hex and bin."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, BLOB, DOUBLE, HUGEINT, INTEGER, UBIGINT, VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.strings.basics import Text, built
from tsql.kernels.functions.strings.encoding import from_digits, hex_text
from tsql.kernels.runtime.text.utf8 import counted, new_record

BIGNUM_HEADER = 3
LARGEST_DOUBLE_BYTES = 128


@routine("binary_text", ("ptr", "ptr", "i64"), "ptr")
def binary_text(k: Kernel, ctx: Val, p: Val, n: Val) -> None:
    """Eight digits for each byte."""
    record, text = new_record(k, ctx, n * 8)
    with k.range(n * 8) as i:
        bit = k.load("i8", p, i.ushr(3)).uto("i64").ushr(7 - (i & 7)) & 1
        k.store(text, (bit + ord("0")).to("i8"), i)
    k.store(record, n * 8)
    k.ret(record)


@routine("number_in_base", ("ptr", "i128", "i128", "i64"), "ptr")
def number_in_base(k: Kernel, ctx: Val, value: Val, radix: Val, least: Val) -> None:
    """The digits of an unsigned number, padded with zeros to `least` of them, at least one."""
    record, text = new_record(k, ctx, k.i64(128))
    left, count = k.var(value), k.var(k.i64(0))
    with k.forever() as loop:
        count.set(count.value + 1)
        left.set(left.value.udiv(radix))
        loop.stop_if(left.value == 0)
    size = k.max(count.value, least)
    left.set(value)
    with k.range(size) as i:
        digit = left.value.urem(radix).to("i8")
        k.store(text, k.select(digit < 10, digit + ord("0"), digit + (ord("A") - 10)), size - 1 - i)
        left.set(left.value.udiv(radix))
    k.store(record, size)
    k.ret(record)


@function(
    "bin", "to_binary", args=(VARCHAR,), returns=VARCHAR, lazy=True, examples=(("bin('Aa')", "0100000101100001"),)
)
def bin_string(k: PipelineKernel, s: Datum) -> Text:
    """The bytes in binary."""
    return built(k, binary_text, s.ptr, s.len)


for _type, _examples in (
    (BIGINT, (("bin(42)", "101010"), ("bin(0)", "0"))),
    (UBIGINT, (("bin(5::UBIGINT)", "101"),)),
    (HUGEINT, (("bin(2::HUGEINT)", "10"),)),
):

    @function("bin", "to_binary", args=(_type,), returns=VARCHAR, lazy=True, examples=_examples)
    def bin_integer(k: PipelineKernel, number: Datum) -> Text:
        """The two's complement of the number in binary, without leading zeros."""
        return built(k, number_in_base, number.value.uto("i128"), k.i128(2), k.i64(0))


@routine("unbin_bytes", ("ptr", "ptr", "i64"), "ptr")
def unbin_bytes(k: Kernel, ctx: Val, p: Val, n: Val) -> None:
    """The bytes of binary text (the first may have fewer digits); where a digit is bad, the length is -1 - its
    place."""
    size = (n + 7).ushr(3)
    record, out = new_record(k, ctx, size)
    k.store(record, size)
    k.call("memset", out, 0, size)
    missing = size * 8 - n
    with k.range(n) as i:
        digit = k.load("i8", p, i) - ord("0")
        with k.when(~digit.ult(2)):
            k.store(record, i * -1 - 1)
            k.ret(record)
        place = (i + missing).ushr(3)
        k.store(out, k.load("i8", out, place) << 1 | digit, place)
    k.ret(record)


@function(
    "unbin",
    "from_binary",
    args=(VARCHAR,),
    returns=BLOB,
    lazy=True,
    can_fail=True,
    examples=(("unbin('1100001')", b"a"), ("unbin('')", b"")),
)
def unbin(k: PipelineKernel, s: Datum) -> Text:
    """The bytes that binary text stands for."""
    return from_digits(k, s, unbin_bytes, "binary")


@function(
    "to_base",
    args=(BIGINT, INTEGER, INTEGER),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("to_base(10, 2, 8)", "00001010"),),
)
def to_base(k: PipelineKernel, number: Datum, radix: Datum, least: Datum) -> Text:
    """The digits of a number in a base from 2 to 36, padded with zeros."""
    k.fail(number.value < 0, "'to_base' number must be greater than or equal to 0")
    bad_radix = (radix.value < 2) | (radix.value > 36)
    k.fail(bad_radix, "'to_base' radix must be between 2 and 36")
    bad_length = (least.value < 0) | (least.value > 64)
    k.fail(bad_length, "'to_base' min_length must be between 0 and 64")
    base = k.select(bad_radix, k.i32(2), radix.value).to("i128")
    return built(
        k,
        number_in_base,
        k.max(number.value, k.i64(0)).to("i128"),
        base,
        k.select(bad_length, k.i32(0), least.value).to("i64"),
    )


@function(
    "to_base",
    args=(BIGINT, INTEGER),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("to_base(255, 16)", "FF"), ("to_base(35, 36)", "Z")),
)
def to_base_unpadded(k: PipelineKernel, number: Datum, radix: Datum) -> Text:
    return to_base(k, number, radix, Datum(INTEGER, (k.i32(0),)))


@routine("bignum_bytes", ("ptr", "f64"), "ptr")
def bignum_bytes(k: Kernel, ctx: Val, value: Val) -> None:
    """The whole part of a finite number as DuckDB's BIGNUM: two bytes and a third with the size, then the magnitude
    with the highest byte first; all bits are flipped for a negative number."""
    record, out = new_record(k, ctx, k.i64(BIGNUM_HEADER + LARGEST_DOUBLE_BYTES))
    bits = k.unary("fabs", k.unary("truncate", value)).bits_as("i64")
    exponent = bits.ushr(52) - 1075
    small = k.select(exponent >= 0, k.f64(0.0), k.unary("fabs", value)).to("i64")
    mantissa = k.select(exponent >= 0, (bits & (2**52 - 1)) | 2**52, small)
    shift = k.max(exponent, k.i64(0))
    used = k.max((64 - k.unary("leading_zeros", mantissa) + shift + 7).ushr(3), k.i64(1))
    flip = k.select(value < 0.0, k.i8(-1), k.i8(0))
    k.store(out, k.i8(-128) ^ flip)
    k.store(out, used.ushr(8).to("i8") ^ flip, 1)
    k.store(out, used.to("i8") ^ flip, 2)
    with k.range(used) as i:
        # Byte i from below holds bits 8i - shift and up of the mantissa.
        low = i * 8 - shift
        above = k.select(
            low >= 0,
            mantissa.ushr(k.min(k.max(low, k.i64(0)), k.i64(63))),
            mantissa << k.min(k.max(-low, k.i64(0)), k.i64(63)),
        )
        k.store(out, k.select(low <= -8, k.i8(0), above.to("i8")) ^ flip, used - i + (BIGNUM_HEADER - 1))
    k.store(record, used + BIGNUM_HEADER)
    k.ret(record)


def _bignum(k: PipelineKernel, x: Datum) -> Text:
    finite = (x.value - x.value) == 0.0
    k.fail(~finite, "Type DOUBLE with a value that is not finite can't be cast to the destination type BIGNUM")
    k.uses_scratch = True
    return counted(k, bignum_bytes(k, k.ctx, k.select(finite, x.value, k.f64(0.0))))


@function(
    "hex",
    "to_hex",
    args=(DOUBLE,),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("hex(2.5::DOUBLE)", "80000102"), ("hex(-2.5::DOUBLE)", "7FFFFEFD")),
)
def hex_double(k: PipelineKernel, x: Datum) -> Text:
    """The whole part as DuckDB's BIGNUM, in hexadecimal."""
    return built(k, hex_text, *_bignum(k, x))


@function(
    "bin",
    "to_binary",
    args=(DOUBLE,),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("bin(2.5::DOUBLE)", "10000000000000000000000100000010"),),
)
def bin_double(k: PipelineKernel, x: Datum) -> Text:
    """The whole part as DuckDB's BIGNUM, in binary."""
    return built(k, binary_text, *_bignum(k, x))
