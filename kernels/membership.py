"""Membership in a long list of constants: a sorted table that the host keeps, and a binary search in the kernel.

The table is a parameter, so that the same query with other constants is the same kernel.
"""

from __future__ import annotations

import struct

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.context import PipelineKernel, Slot
from tsql.kernels.datum import Datum
from tsql.kernels.expr import Expr, Literal
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.runtime.strings import str_cmp
from tsql.kernels.types import Type

SHORTEST = 17
"""Shorter lists are compared one by one."""


def has_table(t: Type, options: list[Expr]) -> bool:
    """Whether a list is long enough, constant, and of a type that a table can hold."""
    if len(options) < SHORTEST or not all(isinstance(o, Literal) for o in options):
        return False
    return t.is_string or ((t.is_integer or t.is_decimal or t.is_temporal) and all(-(2**63) <= o.value < 2**63 for o in options))


def emit_membership(k: PipelineKernel, arg: Datum, options: list[Literal]) -> Val:
    """i1: whether the value is one of the constants (none of them NULL)."""
    if arg.type.is_string:
        table, count = k.slot(Slot("static", None, _string_table([o.value for o in options])), ("ptr", "i64"))
        return find_string(k, table, arg.ptr, arg.len)
    values = sorted({o.value for o in options})
    table, bytes = k.slot(Slot("static", None, struct.pack(f"<{len(values)}q", *values)), ("ptr", "i64"))
    value = number(arg).value
    if value.type == "i64":
        return find_number(k, table, bytes.ushr(3), value)
    narrow = value.to("i64")
    return find_number(k, table, bytes.ushr(3), narrow) & (narrow.to("i128") == value)


def _string_table(values: list[str | bytes]) -> bytes:
    """The number of strings, their offsets (one more than strings) from the start of the table, and their bytes, sorted."""
    texts = sorted({v.encode() if isinstance(v, str) else v for v in values})
    at = 8 * (len(texts) + 2)
    offsets = [at]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    return struct.pack(f"<{len(texts) + 2}q", len(texts), *offsets) + b"".join(texts)


@routine("find_number", ("ptr", "i64", "i64"), "i1")
def find_number(k: Kernel, table: Val, count: Val, value: Val) -> None:
    """Whether a sorted array of i64 holds a value."""
    low, high = k.var(k.i64(0)), k.var(count)
    with k.forever() as loop:
        loop.stop_if(low.value >= high.value)
        middle = (low.value + high.value).ushr(1)
        with k.when(k.load("i64", table, middle) < value):
            low.set(middle + 1)
        with k.otherwise():
            high.set(middle)
    found = k.var(k.false)
    with k.when(low.value < count):
        found.set(k.load("i64", table, low.value) == value)
    k.ret(found.value)


@routine("find_string", ("ptr", "ptr", "i64"), "i1")
def find_string(k: Kernel, table: Val, text: Val, length: Val) -> None:
    """Whether a table of sorted strings holds a string."""
    count = k.load("i64", table)
    low, high, found = k.var(k.i64(0)), k.var(count), k.var(k.false)
    with k.forever() as loop:
        loop.stop_if(low.value >= high.value)
        middle = (low.value + high.value).ushr(1)
        start, end = k.load("i64", table, middle + 1), k.load("i64", table, middle + 2)
        order = str_cmp(k, table + start, end - start, text, length)
        with k.when(order < 0):
            low.set(middle + 1)
        with k.otherwise():
            high.set(middle)
            found.set(found.value | (order == 0))
    k.ret(found.value)
