"""url_encode and url_decode: percent encoding of everything but letters, digits and `-._~`."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.strings.basics import Text, built, check_size
from tsql.kernels.functions.strings.encoding import hex_digit, utf8_is_valid
from tsql.kernels.runtime.digest import hex_encode
from tsql.kernels.runtime.text.utf8 import new_record


def _is_plain(byte: Val) -> Val:
    letter = (byte | 0x20) - ord("a")
    plain = letter.ult(26) | (byte - ord("0")).ult(10)
    for kept in "-._~":
        plain = plain | (byte == ord(kept))
    return plain


@routine("url_encoded", ("ptr", "ptr", "i64"), "ptr")
def url_encoded(k: Kernel, ctx: Val, p: Val, n: Val) -> None:
    record, text = new_record(k, ctx, n * 3)
    out = k.var(k.i64(0))
    with k.range(n) as i:
        byte = k.load("i8", p, i)
        with k.when(_is_plain(byte)):
            k.store(text, byte, out.value)
            out.set(out.value + 1)
        with k.otherwise():
            k.store(text, k.i8(ord("%")), out.value)
            hex_encode(k, text + (out.value + 1), p + i, k.i64(1), k.i8(ord("A")))
            out.set(out.value + 3)
    k.store(record, out.value)
    k.ret(record)


@routine("url_decoded", ("ptr", "ptr", "i64"), "ptr")
def url_decoded(k: Kernel, ctx: Val, p: Val, n: Val) -> None:
    """A % that two hexadecimal digits do not follow stands for itself."""
    record, text = new_record(k, ctx, n)
    at, out = k.var(k.i64(0)), k.var(k.i64(0))
    with k.forever() as loop:
        loop.stop_if(at.value >= n)
        byte, step = k.var(k.load("i8", p, at.value)), k.var(k.i64(1))
        with k.when((byte.value == ord("%")) & (at.value + 2 < n)):
            high, low = hex_digit(k, k.load("i8", p, at.value + 1)), hex_digit(k, k.load("i8", p, at.value + 2))
            with k.when((high >= 0) & (low >= 0)):
                byte.set((high << 4 | low).to("i8"))
                step.set(3)
        k.store(text, byte.value, out.value)
        out.set(out.value + 1)
        at.set(at.value + step.value)
    k.store(record, out.value)
    k.ret(record)


@function(
    "url_encode",
    args=(VARCHAR,),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("url_encode('a b/ü')", "a%20b%2F%C3%BC"),),
)
def url_encode(k: PipelineKernel, s: Datum) -> Text:
    """The text as a part of an address of the web."""
    check_size(k, s.len * 3)
    return built(k, url_encoded, s.ptr, s.len)


@function(
    "url_decode",
    args=(VARCHAR,),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("url_decode('a%20b%2F+')", "a b/+"), ("url_decode('%zz')", "%zz")),
)
def url_decode(k: PipelineKernel, s: Datum) -> Text:
    """The text that a part of an address stands for."""
    text, size = built(k, url_decoded, s.ptr, s.len)
    bad = ~utf8_is_valid(k, text, size)
    k.fail(bad, 'Failed to decode string "{detail}" using URL decoding - decoded value is invalid UTF8', s.text)
    return text, k.select(bad, k.i64(0), size)
