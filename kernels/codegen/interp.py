"""The definition of KIR: executes a module in Python on real memory. Slow, obvious, and always right.

Values are Python ints (signed, in the range of their type; pointers are unsigned addresses) and floats. Each op becomes
a closure over the frame, a list indexed by value number. What LLVM calls undefined (division by zero, shifts past the
width, float to int out of range) raises here, so that tests find kernels that rely on it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import struct
from collections.abc import Callable
from typing import Any

from tsql.kernels.codegen import memory
from tsql.kernels.codegen.host_symbols import HOST_CALLS, HOST_SYMBOLS
from tsql.kernels.codegen.kir import EXTERNS, FLOATS, INTEGERS, KirFunction, Module, Op
from tsql.kernels.process import forks

Frame = list[Any]
Step = Callable[[Frame], Any]

BREAK = object()
"""Returned by a block when a `break_if` fired; a tuple means `ret`."""

_C: dict[str, type[ctypes._SimpleCData[Any]]] = {
    "i1": ctypes.c_uint8,
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
    "ptr": ctypes.c_uint64,
}
_LIBC = ctypes.CDLL(None)
_LIBM = ctypes.CDLL(ctypes.util.find_library("m") or None)
_ATOMIC = forks.lock()


class UndefinedBehaviour(Exception):
    """The kernel did something that compiled code must never do."""


def wrap(value: int, bits: int) -> int:
    """The signed number that the low `bits` bits of `value` represent."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def unsigned(value: int, bits: int) -> int:
    return value & ((1 << bits) - 1)


def load(type: str, address: int) -> Any:
    if address < 4096:
        raise UndefinedBehaviour(f"load of {type} at address {address}")
    if type == "i128":
        low = ctypes.c_uint64.from_address(address).value
        return (ctypes.c_int64.from_address(address + 8).value << 64) | low
    return _C[type].from_address(address).value


def store(type: str, address: int, value: Any) -> None:
    if address < 4096:
        raise UndefinedBehaviour(f"store of {type} at address {address}")
    if type == "i128":
        ctypes.c_uint64.from_address(address).value = value & (2**64 - 1)
        ctypes.c_int64.from_address(address + 8).value = value >> 64
    else:
        _C[type].from_address(address).value = value


def round_f32(value: float) -> float:
    return ctypes.c_float(value).value


def _divide(a: int, b: int, bits: int) -> int:
    if b == 0 or (b == -1 and a == -(1 << (bits - 1))):
        raise UndefinedBehaviour("integer division by zero or overflow")
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _float_divide(a: float, b: float) -> float:
    if b == 0.0:
        if a == 0.0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _binary(name: str, type: str) -> Callable[[Any, Any], Any]:
    """The meaning of an arithmetic or bitwise op on one type."""
    if type in FLOATS:
        narrow = round_f32 if type == "f32" else lambda v: v
        table = {
            "add": lambda a, b: narrow(a + b),
            "sub": lambda a, b: narrow(a - b),
            "mul": lambda a, b: narrow(a * b),
            "div": lambda a, b: narrow(_float_divide(a, b)),
        }
        return table[name]
    bits = INTEGERS[type]

    def shift(move: Callable[[int, int], int]) -> Callable[[int, int], int]:
        def checked(a: int, b: int) -> int:
            if not 0 <= b < bits:
                raise UndefinedBehaviour(f"shift of {type} by {b}")
            return wrap(move(a, b), bits)

        return checked

    def udivide(a: int, b: int) -> tuple[int, int]:
        if b == 0:
            raise UndefinedBehaviour("integer division by zero")
        return divmod(unsigned(a, bits), unsigned(b, bits))

    return {
        "add": lambda a, b: wrap(a + b, bits),
        "sub": lambda a, b: wrap(a - b, bits),
        "mul": lambda a, b: wrap(a * b, bits),
        "div": lambda a, b: _divide(a, b, bits),
        "rem": lambda a, b: a - b * _divide(a, b, bits),
        "udiv": lambda a, b: wrap(udivide(a, b)[0], bits),
        "urem": lambda a, b: wrap(udivide(a, b)[1], bits),
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "shl": shift(lambda a, b: a << b),
        "shr": shift(lambda a, b: a >> b),
        "ushr": shift(lambda a, b: unsigned(a, bits) >> b),
    }[name]


def _compare(name: str, type: str) -> Callable[[Any, Any], int]:
    if name[0] == "u" and type != "ptr":
        bits = INTEGERS[type]
        plain = _compare(name[1:], type)
        return lambda a, b: plain(unsigned(a, bits), unsigned(b, bits))
    name = name.removeprefix("u")
    # `ne` of floats is the negation of `eq` (true for NaN); the others are false for NaN, as in Python
    return {
        "eq": lambda a, b: int(a == b),
        "ne": lambda a, b: int(a != b),
        "lt": lambda a, b: int(a < b),
        "le": lambda a, b: int(a <= b),
        "gt": lambda a, b: int(a > b),
        "ge": lambda a, b: int(a >= b),
    }[name]


def _overflows(name: str, type: str) -> Callable[[int, int], int]:
    bits = INTEGERS[type]
    exact = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}[
        name.removesuffix("_overflows")
    ]
    return lambda a, b: int(exact(a, b) != wrap(exact(a, b), bits))


def _float_to_int(value: float, bits: int) -> int:
    if math.isnan(value) or math.isinf(value) or wrap(int(value), bits) != int(value):
        raise UndefinedBehaviour(f"{value} to an integer of {bits} bits")
    return int(value)


def _int_to_float(value: int, type: str) -> float:
    if type == "f64":
        return float(value)
    # Round once only: 26 bits, the last of them set if any bit below was, are exact in a double and round as all bits
    # would.
    size = abs(value)
    shift = max(0, size.bit_length() - 26)
    top = size >> shift
    if top << shift != size:
        top |= 1
    return math.copysign(round_f32(math.ldexp(top, shift)), value)


def _convert(name: str, source: str, target: str) -> Callable[[Any], Any]:
    match name:
        case "sext":
            return (lambda v: -v) if source == "i1" else (lambda v: v)
        case "zext":
            return lambda v: wrap(unsigned(v, INTEGERS[source]), INTEGERS[target])
        case "trunc":
            return lambda v: wrap(v, INTEGERS[target])
        case "itof":
            return lambda v: _int_to_float(v, target)
        case "utof":
            return lambda v: _int_to_float(unsigned(v, INTEGERS[source]), target)
        case "ftoi":
            return lambda v: _float_to_int(v, INTEGERS[target])
        case "fnarrow":
            return round_f32
        case "bitcast":
            codes = {"i64": "<q", "f64": "<d", "i32": "<i", "f32": "<f"}
            return lambda v: struct.unpack(codes[target], struct.pack(codes[source], v))[0]
        case "address":
            return lambda v: wrap(v, 64)
        case "pointer":
            return lambda v: unsigned(v, 64)
    return lambda v: v


def _unary(name: str, type: str) -> Callable[[Any], Any]:
    if type in FLOATS:

        def whole(f: Callable[[float], int]) -> Callable[[float], float]:
            return lambda v: v if math.isnan(v) or math.isinf(v) else math.copysign(float(f(v)), v)

        table = {
            "sqrt": lambda v: math.nan if v < 0 else math.sqrt(v), "floor": whole(math.floor), "ceil": whole(math.ceil),
            "truncate": whole(math.trunc), "rint": whole(round), "fabs": abs, "fneg": lambda v: -v,
        }  # fmt: skip
        if type == "f32":
            return lambda v: round_f32(table[name](v))
        return table[name]
    bits = INTEGERS[type]
    return {
        "popcount": lambda v: unsigned(v, bits).bit_count(),
        "leading_zeros": lambda v: bits - unsigned(v, bits).bit_length(),
        "trailing_zeros": lambda v: bits if v == 0 else (v & -v).bit_length() - 1,
        "bswap": lambda v: wrap(int.from_bytes(unsigned(v, bits).to_bytes(bits // 8, "little"), "big"), bits),
    }[name]


def _extern(name: str) -> Callable[..., Any]:
    if name in HOST_CALLS:
        return HOST_CALLS[name][0]
    if name in ("free", "realloc"):
        # The host may have taken the block from the pool.
        return memory.free if name == "free" else memory.reallocate
    returns, params = EXTERNS[name]
    library = _LIBC if hasattr(_LIBC, name) else _LIBM
    f = library[name]
    # %.*g is variadic: only the fixed parameters are declared, the rest are passed with their C types
    f.argtypes = [_C[t] for t in (params[:3] if name == "snprintf" else params)]
    f.restype = None if returns is None else _C[returns]
    if name == "snprintf":
        return lambda buffer, size, form, digits, value: f(
            buffer, size, form, ctypes.c_int(digits), ctypes.c_double(value)
        )
    return f


class TooLong(Exception):
    """The loops of a function have run more rounds than allowed."""


class Interpreter:
    """Runs the functions of one module: `Interpreter(module)("main", ctx, morsels, count)`."""

    def __init__(self, module: Module, turns: int | None = None):
        """With `turns`, TooLong is raised after this many rounds of all loops together."""
        self.module = module
        self.turns = turns
        self._compiled: dict[str, tuple[int, list[Step]]] = {}
        self._externs: dict[str, Callable[..., Any]] = {}

    def __call__(self, name: str, *args: Any) -> Any:
        function = self.module.functions[name]
        if name not in self._compiled:
            self._compiled[name] = (len(function.types), self._block(function, function.body))
        size, body = self._compiled[name]
        frame: Frame = [None] * size
        frame[: len(args)] = [unsigned(a, 64) if t == "ptr" else a for a, t in zip(args, function.params, strict=True)]
        signal = _run(body, frame)
        return signal[0] if isinstance(signal, tuple) else None

    def _block(self, f: KirFunction, ops: list[Op]) -> list[Step]:
        return [self._step(f, op) for op in ops]

    def _step(self, f: KirFunction, op: Op) -> Step:
        if op.name == "call":
            return self._call(op)
        return self._effect(f, op) if op.dst is None else self._value(f, op, op.dst)

    def _effect(self, f: KirFunction, op: Op) -> Step:
        """An op that gives no value."""
        args = op.args
        match op.name:
            case "set":
                return lambda r: r.__setitem__(args[0], r[args[1]])
            case "store":
                stored = f.types[args[1]]
                return lambda r: store(stored, r[args[0]], r[args[1]])
            case "prefetch":
                return lambda r: None
            case "loop":
                body = self._block(f, op.blocks[0])
                return (lambda r: _loop(body, r)) if self.turns is None else (lambda r: self._counted_loop(body, r))
            case "break_if":
                return lambda r: BREAK if r[args[0]] else None
            case "when":
                then, otherwise = (self._block(f, b) for b in op.blocks)
                return lambda r: _run(then if r[args[0]] else otherwise, r)
            case "ret":
                return lambda r: (r[args[0]] if args else None,)
        raise ValueError(f"{op.name} gives a value, and has no number for it")

    def _value(self, f: KirFunction, op: Op, dst: int) -> Step:
        """An op that sets the value `dst`."""
        args = op.args
        made, types = f.types[dst], [f.types[a] for a in args]
        match op.name:
            case "const":
                value = round_f32(op.attr) if made == "f32" else op.attr
                return lambda r: r.__setitem__(dst, value)
            case "symbol":
                return lambda r: r.__setitem__(dst, HOST_SYMBOLS[op.attr])
            case "var" | "get":
                return lambda r: r.__setitem__(dst, r[args[0]])
            case "select":
                return lambda r: r.__setitem__(dst, r[args[1]] if r[args[0]] else r[args[2]])
            case "load":
                return lambda r: r.__setitem__(dst, load(made, r[args[0]]))
            case "offset":
                return lambda r: r.__setitem__(dst, unsigned(r[args[0]] + r[args[1]], 64))
            case "atomic_add" | "cas":
                return self._atomic(op, dst)
        if len(args) == 2:
            make = (
                _compare
                if made == "i1" and not op.name.endswith("overflows") and op.name not in ("and", "or", "xor")
                else _overflows
                if op.name.endswith("overflows")
                else _binary
            )
            f2 = make(op.name, types[0])
            a, b = args
            return lambda r: r.__setitem__(dst, f2(r[a], r[b]))
        f1 = _unary(op.name, made) if types[0] == made else _convert(op.name, types[0], made)
        a = args[0]
        return lambda r: r.__setitem__(dst, f1(r[a]))

    def _counted_loop(self, body: list[Step], frame: Frame) -> Any:
        while self.turns is not None:
            self.turns -= 1
            if self.turns < 0:
                raise TooLong
            signal = _run(body, frame)
            if signal is not None:
                return None if signal is BREAK else signal

    def _atomic(self, op: Op, dst: int) -> Step:
        args = op.args

        def atomic_add(r: Frame) -> None:
            with _ATOMIC:
                old = load("i64", r[args[0]])
                store("i64", r[args[0]], wrap(old + r[args[1]], 64))
            r[dst] = old

        def cas(r: Frame) -> None:
            with _ATOMIC:
                old = load("i64", r[args[0]])
                if old == r[args[1]]:
                    store("i64", r[args[0]], r[args[2]])
            r[dst] = old

        return atomic_add if op.name == "atomic_add" else cas

    def _call(self, op: Op) -> Step:
        dst, args, name = op.dst, op.args, op.attr
        if name in self.module.functions:

            def target(*values: Any) -> Any:
                return self(name, *values)
        else:
            target = self._externs.setdefault(name, _extern(name))
        if dst is None:

            def call(r: Frame) -> None:
                target(*[r[a] for a in args])
        else:
            pointer = op.type == "ptr"

            def call(r: Frame) -> None:
                value = target(*[r[a] for a in args])
                r[dst] = value or 0 if pointer else value

        return call


def _run(steps: list[Step], frame: Frame) -> Any:
    for step in steps:
        signal = step(frame)
        if signal is not None:
            return signal
    return None


def _loop(body: list[Step], frame: Frame) -> Any:
    while True:
        signal = _run(body, frame)
        if signal is not None:
            return None if signal is BREAK else signal
