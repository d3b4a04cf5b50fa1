"""Casts between text and every other type: VARCHAR from values, values from VARCHAR."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BLOB, BOOLEAN, FLOAT, HUGEINT, VARCHAR, Type
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.functions.casts.time import time_from_text
from tsql.kernels.runtime.text.format import (
    FLOAT_BYTES,
    INTERVAL_BYTES,
    NUMBER_BYTES,
    TIME_BYTES,
    put_blob,
    put_clock,
    put_date,
    put_decimal,
    put_decimal_huge,
    put_huge,
    put_integer,
    put_interval,
    put_timestamp,
    put_unsigned,
    text_between,
)
from tsql.kernels.runtime.text.format_floats import put_float
from tsql.kernels.runtime.text.parse import negative_not_zero, parse_blob, parse_boolean, parse_integer, parse_number
from tsql.kernels.runtime.text.parse_floats import parse_float

MACHINE_NAMES = {"BOOLEAN": "BOOL", "FLOAT": "FLOAT", "DOUBLE": "DOUBLE"}


def machine_name(t: Type) -> str:
    """How messages about conversions name a type: INT32, UINT8, DOUBLE."""
    return MACHINE_NAMES.get(t.name) or f"{'U' if t.is_unsigned else ''}INT{t.bits}"


def cast_to_text(k: PipelineKernel, d: Datum) -> Datum:
    """A value that is not NULL as VARCHAR."""
    return Datum(VARCHAR, value_text(k, d))


def value_text(k: PipelineKernel, d: Datum) -> tuple[Val, Val]:
    """The text of a value that is not NULL."""
    t = d.type
    if t == BOOLEAN:
        return _boolean_text(k, d.value)
    if t.is_numeric:
        return number_text(k, d)
    if t == BLOB:
        buffer = k.scratch(d.len * 4 + 1)
        return text_between(k, buffer, put_blob(k, buffer, d.ptr, d.len))
    if t.name == "INTERVAL":
        buffer = k.scratch(INTERVAL_BYTES)
        return text_between(k, buffer, put_interval(k, buffer, *(part.to("i64") for part in d.parts)))
    buffer = k.scratch(TIME_BYTES)
    value = d.value.to("i64")
    if t.name == "DATE":
        return text_between(k, buffer, put_date(k, buffer, value))
    if t.name == "TIME":
        return text_between(k, buffer, put_clock(k, buffer, value))
    return text_between(k, buffer, put_timestamp(k, buffer, value, k.bool(t.name == "TIMESTAMPTZ")))


def _boolean_text(k: PipelineKernel, value: Val) -> tuple[Val, Val]:
    buffer = k.scratch(8)
    k.store(
        buffer, k.select(value, k.i64(int.from_bytes(b"true", "little")), k.i64(int.from_bytes(b"false", "little")))
    )
    return buffer, k.select(value, k.i64(4), k.i64(5))


def number_text(k: PipelineKernel, d: Datum) -> tuple[Val, Val]:
    """The text of a number."""
    t = d.type
    if t.is_float:
        buffer = k.scratch(FLOAT_BYTES)
        return text_between(k, buffer, put_float(k, buffer, d.value.to("f64"), k.bool(t == FLOAT)))
    buffer = k.scratch(NUMBER_BYTES)
    if t.name == "UBIGINT" and d.range is None:
        return text_between(k, buffer, put_unsigned(k, buffer, d.value))
    value = number(d).value
    narrow = value.type == "i64"
    if t.scale == 0:
        return text_between(k, buffer, (put_integer if narrow else put_huge)(k, buffer, value))
    lead = k.bool(t.width > t.scale)
    # A power of ten beyond i64 is wider than any value in i64: such a value has nothing before its point.
    if narrow and t.scale > 18:
        value, narrow = value.to("i128"), False
    power = k.const(value.type, 10**t.scale)
    return text_between(
        k, buffer, (put_decimal if narrow else put_decimal_huge)(k, buffer, value, power, t.scale, lead)
    )


def cast_from_text(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    """A VARCHAR that is not NULL as a value of `target`."""
    if target == BLOB:
        return _blob(k, d, safe)
    if target == BOOLEAN:
        out = k.scratch(16)
        good = parse_boolean(k, d.ptr, d.len, out)
        return Datum(target, (k.load("i128", out).to("i64") != 0,), _checked(k, d, good, safe, "BOOL"))
    if target.is_float:
        out = k.scratch(16)
        k.store(out, k.f64(0.0))
        good = parse_float(k, d.ptr, d.len, k.scratch(d.len + 8), k.bool(target == FLOAT), out)
        return Datum(target, (k.load("f64", out).to(target.parts[0]),), _checked(k, d, good, safe, target.name))
    if target.is_numeric:
        return _exact(k, d, target, safe)
    return time_from_text(k, d, target, safe)


def _checked(k: PipelineKernel, d: Datum, good: Val, safe: bool, name: str) -> Val | None:
    """The validity of a value that was parsed; a failure that shows the text unless safe."""
    if safe:
        return good
    if name.startswith("DECIMAL"):
        k.fail(~good, f'Could not convert string "{{detail}}" to {name}', d.text)
    else:
        k.fail(~good, f"Could not convert string '{{detail}}' to {name}", d.text)
    return None


def _exact(k: PipelineKernel, d: Datum, target: Type, safe: bool) -> Datum:
    out = k.scratch(16)
    k.store(out, k.i128(0))
    low, high = target.bounds
    if target.is_decimal:
        limit = 10 ** (target.width - target.scale) - 1
        good = parse_number(k, d.ptr, d.len, target.scale, k.i128(limit), k.false, out)
        name = str(target)
    else:
        # DuckDB reads the digits into 64 bits (or 128) whatever the type, so this limit holds before an exponent is
        # applied.
        store = HUGEINT.bounds[1] + 1 if target == HUGEINT else 2**64 - 1 if target.name == "UBIGINT" else 2**63
        parse = parse_number if target == HUGEINT else parse_integer
        good = parse(k, d.ptr, d.len, k.i64(0), k.const("i128", store), k.true, out)
        name = machine_name(target)
    value = k.load("i128", out)
    if target != HUGEINT:
        good = good & (value >= low) & (value <= high)
    if target.is_unsigned:
        good = good & ~negative_not_zero(k, d.ptr, d.len)
    machine = "i64" if target.bits <= 64 else "i128"
    ranged = None if target.name == "UBIGINT" else (low, high)
    return Datum(target, (value.to(machine),), _checked(k, d, good, safe, name), ranged)


def _blob(k: PipelineKernel, d: Datum, safe: bool) -> Datum:
    buffer = k.scratch(d.len + 1)
    size = parse_blob(k, d.ptr, d.len, buffer)
    length = k.select(size < 0, k.i64(0), size)
    if safe:
        return Datum(BLOB, (buffer, length), size >= 0)
    escape = (
        'Invalid hex escape code encountered in string -> blob conversion of string "{detail}": unterminated '
        "escape code at end of blob"
    )
    k.fail(size == -1, escape, d.text)
    foreign = (
        'Invalid byte encountered in STRING -> BLOB conversion of string "{detail}". All non-ascii '
        "characters must be escaped with hex codes (e.g. \\xAA)"
    )
    k.fail(size == -2, foreign, d.text)
    return Datum(BLOB, (buffer, length))
