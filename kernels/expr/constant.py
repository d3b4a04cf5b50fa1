"""Evaluates constant expressions at plan time with the KIR interpreter: the same meaning as at run time."""

from __future__ import annotations

import ctypes
from typing import Any

from tsql.kernels.codegen.interp import Interpreter, TooLong, load
from tsql.kernels.codegen.kir import Module
from tsql.kernels.emit.context import DETAIL, FULL_AT, MEMORY, SCRATCH, SLOT_BYTES, SLOTS, STATUS, PipelineKernel
from tsql.kernels.emit.expressions import emit
from tsql.kernels.emit.rows import ValueRow
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Expr, Literal, Parameter, rewrite

RESULT_BYTES = 64
MOST_TURNS = 100_000
"""The most loop rounds while a constant is computed; that takes some tenths of a second."""

LONGEST_TEXT = 1 << 20
_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]


def evaluate(expr: Expr) -> Literal | None:
    """The value of an expression over literals only. None if it fails (it then fails at run time, with its position),
    or if it takes long or gives a long text, which the plan should not carry."""
    module = Module()
    k = PipelineKernel(module)
    d = emit(k, expr, ValueRow({})).wide()
    out = k.morsels
    k.store(out, k.true if d.valid is None else d.valid)
    for index, part in enumerate(d.parts):
        k.store(k.offset(out, 16 + 16 * index), part)
    k.store(k.offset(k.ctx, STATUS), k.status.value)
    k.ret()
    k.finish()
    if any(s.kind not in ("literal", "static") for s in k.slots):
        return None
    context = (ctypes.c_uint8 * (SLOTS + SLOT_BYTES * len(k.slots)))()
    memory = ctypes.c_int64(0)
    ctypes.c_uint64.from_address(ctypes.addressof(context) + MEMORY).value = ctypes.addressof(memory)
    ctypes.c_int64.from_address(ctypes.addressof(context) + FULL_AT).value = 2**63 - 1
    result = (ctypes.c_uint8 * RESULT_BYTES)()
    keep = [_fill(context, index, slot) for index, slot in enumerate(k.slots)]
    try:
        Interpreter(module, MOST_TURNS)("main", ctypes.addressof(context), ctypes.addressof(result), 0)
        return None if load("i64", ctypes.addressof(context) + STATUS) else _read(expr, ctypes.addressof(result))
    except TooLong:
        return None
    finally:
        del keep
        for offset in (SCRATCH, DETAIL):
            _libc.free(load("ptr", ctypes.addressof(context) + offset))


def evaluate_with(expr: Expr, parameters: dict[str, Any]) -> Any:
    """The stored value of an expression over literals and parameters; raises ExecutionError if it fails."""
    bound = rewrite(expr, lambda e: Literal(parameters[e.name], e.type) if isinstance(e, Parameter) else e)
    value = bound if isinstance(bound, Literal) else evaluate(bound)
    if value is None:
        raise ExecutionError(f"{expr} cannot be computed", position=getattr(expr, "position", None))
    return value.value


def _fill(context: Any, index: int, slot: Any) -> Any:
    """Write a slot; returns what must stay alive."""
    address = ctypes.addressof(context) + SLOTS + SLOT_BYTES * index
    if slot.kind == "static" or slot.type.is_string:
        value = slot.payload if slot.kind == "static" else slot.payload.value
        data = value.encode() if isinstance(value, str) else bytes(value)
        buffer = ctypes.create_string_buffer(data, len(data) + 1)
        ctypes.c_uint64.from_address(address).value = ctypes.addressof(buffer)
        ctypes.c_int64.from_address(address + 8).value = len(data)
        return buffer
    value = slot.payload.value
    if slot.type.name == "INTERVAL":
        ctypes.c_int32.from_address(address).value, ctypes.c_int32.from_address(address + 4).value = value[0], value[1]
        ctypes.c_int64.from_address(address + 8).value = value[2]
    elif slot.type.is_float:
        ctypes.c_double.from_address(address).value = value
    else:
        ctypes.memmove(address, int(value).to_bytes(16, "little", signed=True), 16)
    return None


def _read(expr: Expr, address: int) -> Literal | None:
    t = expr.type
    position = getattr(expr, "position", None)
    if not load("i8", address):
        return Literal(None, t, position)
    parts = [load(p if p != "i1" else "i8", address + 16 + 16 * i) for i, p in enumerate(t.parts)]
    if t.is_string:
        if parts[1] > LONGEST_TEXT:
            return None
        data = ctypes.string_at(parts[0], parts[1]) if parts[1] else b""
        return Literal(data.decode() if t.name == "VARCHAR" else data, t, position)
    if t.name == "INTERVAL":
        return Literal(tuple(parts), t, position)
    if t.name == "BOOLEAN":
        return Literal(bool(parts[0]), t, position)
    value = parts[0]
    if t.is_unsigned and value < 0:
        value += 1 << t.bits
    return Literal(value, t, position)
