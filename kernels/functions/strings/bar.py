"""bar: a number as a bar of block characters."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import DOUBLE, VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.strings.basics import Text, built
from tsql.kernels.runtime.text.utf8 import new_record, utf8_encode

FULL_BLOCK = 0x2588
EMPTY_BLOCK = 0x2590
"""The block of n eighths, 1 to 7, is this many code points before."""
MAX_WIDTH = 1000


@routine("bar_text", ("ptr", "i64", "i64"), "ptr")
def bar_text(k: Kernel, ctx: Val, eighths: Val, width: Val) -> None:
    """Full blocks, at most one partial block, and spaces up to `width` characters."""
    record, text = new_record(k, ctx, width * 3 + 8)
    out = k.var(k.i64(0))
    full, rest = eighths.ushr(3), eighths & 7
    with k.range(full):
        out.set(out.value + utf8_encode(k, text + out.value, k.i64(FULL_BLOCK)))
    with k.when(rest > 0):
        out.set(out.value + utf8_encode(k, text + out.value, k.i64(EMPTY_BLOCK) - rest))
    with k.range(width, full + (rest > 0).to("i64")):
        k.store(text, k.i8(ord(" ")), out.value)
        out.set(out.value + 1)
    k.store(record, out.value)
    k.ret(record)


@function(
    "bar",
    args=(DOUBLE, DOUBLE, DOUBLE, DOUBLE),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("bar(5, 0, 20, 10)", "██▌       "), ("bar(30, 0, 20, 4)", "████")),
)
def bar(k: PipelineKernel, x: Datum, low: Datum, high: Datum, width: Datum) -> Text:
    """A bar of `width` characters that is full where x reaches `high` and empty at `low`."""
    size = width.value
    finite = (size - size) == 0.0
    k.fail(~finite, "Max bar width must not be NaN or infinity")
    k.fail(finite & (size < 1.0), "Max bar width must be >= 1")
    k.fail(finite & (size > float(MAX_WIDTH)), f"Max bar width must be <= {MAX_WIDTH}")
    size = k.select((size >= 1.0) & (size <= float(MAX_WIDTH)), size, k.f64(1.0))
    part = k.select(x.value >= high.value, size, size * (x.value - low.value) / (high.value - low.value))
    # Comparisons with NaN are false, so that NaN and everything up to the lowest draw nothing.
    drawn = (x.value > low.value) & (high.value == high.value)
    bad = drawn & ((part - part) != 0.0)
    k.fail(bad, "Bar width must not be NaN or infinity")
    drawn = drawn & ~bad
    return built(k, bar_text, (k.select(drawn, part, k.f64(0.0)) * 8.0).to("i64"), size.to("i64"))


@function(
    "bar",
    args=(DOUBLE, DOUBLE, DOUBLE),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("length(bar(5, 0, 20))", 80),),
)
def bar_of_80(k: PipelineKernel, x: Datum, low: Datum, high: Datum) -> Text:
    """A bar of 80 characters."""
    return bar(k, x, low, high, Datum(DOUBLE, (k.f64(80.0),)))
