"""format_bytes and its relatives: numbers of bytes as people read them."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.strings.basics import Text, built
from tsql.kernels.runtime.text.format import put_bytes, put_sign, put_unsigned
from tsql.kernels.runtime.text.utf8 import new_record

LARGEST_UNIT = 5


@routine("size_text", ("ptr", "i64", "i64"), "ptr")
def size_text(k: Kernel, ctx: Val, value: Val, multiplier: Val) -> None:
    """The number in the largest unit that it reaches, with one digit after the point, truncated and not rounded."""
    record, start = new_record(k, ctx, k.i64(48))
    at, magnitude = put_sign(k, start, value)
    unit, power = k.var(k.i64(0)), k.var(k.i64(1))
    with k.forever() as loop:
        loop.stop_if((unit.value >= LARGEST_UNIT) | magnitude.udiv(power.value).ult(multiplier))
        power.set(power.value * multiplier)
        unit.set(unit.value + 1)
    end = k.var(put_unsigned(k, at, magnitude.udiv(power.value)))
    with k.when(unit.value == 0):
        with k.when(magnitude == 1):
            end.set(put_bytes(k, end.value, b" byte"))
        with k.otherwise():
            end.set(put_bytes(k, end.value, b" bytes"))
    with k.otherwise():
        tenth = (magnitude.urem(power.value) * 10).udiv(power.value)
        end.set(put_unsigned(k, put_bytes(k, end.value, b"."), tenth))
        end.set(put_bytes(k, end.value, b" "))
        is_binary = multiplier == 1024
        for number, letter in enumerate("KMGTP", 1):
            with k.when(unit.value == number):
                small = ord("k") if number == 1 else ord(letter)
                k.store(end.value, k.select(is_binary, k.i8(ord(letter)), k.i8(small)))
        end.set(end.value + 1)
        with k.when(is_binary):
            end.set(put_bytes(k, end.value, b"i"))
        end.set(put_bytes(k, end.value, b"B"))
    k.store(record, end.value.bits_as("i64") - start.bits_as("i64"))
    k.ret(record)


@function(
    "format_bytes",
    "formatreadablesize",
    args=(BIGINT,),
    returns=VARCHAR,
    lazy=True,
    examples=(("format_bytes(16000)", "15.6 KiB"), ("format_bytes(1)", "1 byte"), ("format_bytes(-5000)", "-4.8 KiB")),
)
def format_bytes(k: PipelineKernel, size: Datum) -> Text:
    """A number of bytes in units of 1024."""
    return built(k, size_text, size.value, k.i64(1024))


@function(
    "formatreadabledecimalsize",
    args=(BIGINT,),
    returns=VARCHAR,
    lazy=True,
    examples=(("formatReadableDecimalSize(16000)", "16.0 kB"),),
)
def format_decimal_bytes(k: PipelineKernel, size: Datum) -> Text:
    """A number of bytes in units of 1000."""
    return built(k, size_text, size.value, k.i64(1000))
