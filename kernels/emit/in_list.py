"""Long IN lists of constants: a binary search in a sorted table outside the kernel, so the code does not grow with the
list.

`emit` calls `emit_long_list` for lists of more than a few constants. Where this module has no table for the type, it
compares with the constants one by one."""

from __future__ import annotations

import struct

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel, Slot
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.nodes import Literal
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.runtime.text.strings import str_cmp


def emit_long_list(k: PipelineKernel, arg: Datum, options: list[Literal]) -> Val | None:
    """i1: whether the value (not NULL) is one of the options (none of them NULL); None if there is no table for the
    type."""
    t = arg.type
    if t.is_string:
        texts = sorted({o.value.encode() if isinstance(o.value, str) else bytes(o.value) for o in options})
        table, count = _table(k, _text_table(texts), len(texts))
        return text_in(k, table, count, arg.ptr, arg.len) != 0
    if not (t.is_integer or t.is_decimal or t.is_temporal) or not all(isinstance(o.value, int) for o in options):
        return None
    low, high = -(2**63), 2**63 - 1
    values = sorted({o.value for o in options if low <= o.value <= high})
    if len(values) < len({o.value for o in options}):
        return None
    table, count = _table(k, struct.pack(f"<{len(values)}q", *values), len(values))
    wide = number(arg).value
    if wide.type == "i64":
        return number_in(k, table, count, wide) != 0
    narrow = wide.to("i64")
    return (narrow.to(wide.type) == wide) & (number_in(k, table, count, narrow) != 0)


def _table(k: PipelineKernel, data: bytes, count: int) -> tuple[Val, Val]:
    """The address of a table and the number of its entries, which is stored before it."""
    start = k.slot(Slot("static", None, struct.pack("<q", count) + data), ("ptr",))[0]
    return k.offset(start, 8), k.load("i64", start)


def _text_table(texts: list[bytes]) -> bytes:
    """The table of texts: (offset from the table's start, length) of each, then the bytes."""
    at = 16 * len(texts)
    places = []
    for text in texts:
        places.append(struct.pack("<qq", at, len(text)))
        at += len(text)
    return b"".join((*places, *texts))


@routine("number_in", ("ptr", "i64", "i64"), "i64")
def number_in(k: Kernel, table: Val, count: Val, value: Val) -> None:
    """1 if the value is in a sorted, non-empty table of numbers."""
    low, left = k.var(k.i64(0)), k.var(count)
    with k.forever() as loop:
        loop.stop_if(left.value <= 1)
        half = left.value.ushr(1)
        low.set(k.select(k.load("i64", table, low.value + half) <= value, low.value + half, low.value))
        left.set(left.value - half)
    k.ret((k.load("i64", table, low.value) == value).uto("i64"))


@routine("text_in", ("ptr", "i64", "ptr", "i64"), "i64")
def text_in(k: Kernel, table: Val, count: Val, text: Val, length: Val) -> None:
    """1 if the text is in a sorted, non-empty table of texts."""
    low, high = k.var(k.i64(0)), k.var(count)
    with k.forever() as loop:
        loop.stop_if(low.value >= high.value)
        middle = (low.value + high.value).ushr(1)
        place = k.offset(table, middle * 16)
        order = str_cmp(k, text, length, k.offset(table, k.load("i64", place)), k.load("i64", place, 1))
        with k.when(order == 0):
            k.ret(k.i64(1))
        with k.when(order < 0):
            high.set(middle)
        with k.otherwise():
            low.set(middle + 1)
    k.ret(k.i64(0))
