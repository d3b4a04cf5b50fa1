"""Hypothesis strategy for random legal KIR programs, and the bench that runs one program on every engine.

A program reads the input buffer (parameter 1), computes, branches, loops, calls, and writes its values into the scratch
buffer (parameter 0). What LLVM leaves undefined is guarded here by selects, so that nearly every program can be
compared; the bits of a NaN are left open by LLVM too, so NaNs are replaced before their bits are seen."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tsql.kernels.codegen import kir
from tsql.kernels.codegen.interp import Interpreter
from tsql.kernels.codegen.kir import FLOATS, INTEGERS, Module, Op
from tsql.kernels.codegen.lang import Kernel, Val
from tsql.kernels.codegen.llvm import compiler
from tsql.kernels.codegen.spec import RULES

TYPES = tuple(kir.BYTES)
NUMBERS = ("i8", "i16", "i32", "i64", "i128", "f32", "f64")
SLOT = 16
INPUT_SLOTS, SCRATCH_SLOTS = 16, 128
SPECIAL_FLOATS = (0.0, -0.0, 0.5, -1.5, 2.5, 1e10, -3e38, 1e300, float("inf"), float("-inf"), float("nan"))
VALUE_OPS = tuple(n for n in kir.OPS if n not in ("const", "call", "symbol", *kir.MEMORY, *kir.VARIABLES, *kir.CONTROL))


def signatures(name: str) -> list[tuple[tuple[str, ...], str]]:
    """Every legal (argument types, result type) of an op that computes a value from values."""
    found = []
    for count in (1, 2, 3):
        for arguments in _tuples(count):
            for result in TYPES:
                if RULES[name](Op(name, result, 0, tuple(range(count))), list(arguments)):
                    found.append((arguments, result))
    return found


def _tuples(count: int) -> list[tuple[str, ...]]:
    """Argument types worth asking about: all alike, or a condition before two alike."""
    if count == 3:
        return [("i1", t, t) for t in TYPES]
    return [(t,) * count for t in TYPES]


SIGNATURES = {name: signatures(name) for name in VALUE_OPS}


def constant(type: str) -> st.SearchStrategy[Any]:
    """Values of a type: small ones, the extremes, anything."""
    if type in FLOATS:
        return st.one_of(st.sampled_from(SPECIAL_FLOATS), st.floats(width=FLOATS[type]))
    if type == "ptr":
        return st.just(0)
    bits = INTEGERS[type]
    low, high = (0, 1) if bits == 1 else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return st.one_of(st.sampled_from((low, high, 0, 1, max(low, -1))), st.integers(low, high))


def defined(k: Kernel, name: str, args: list[Val]) -> list[Val]:
    """The arguments, changed where the op would be undefined for some values of them."""
    if name in ("shl", "shr", "ushr"):
        return [args[0], args[1] & (INTEGERS[args[1].type] - 1)]
    if name in ("div", "rem", "udiv", "urem") and args[1].type in INTEGERS:
        bad = (args[1] == 0) | (args[1] == -1)
        return [args[0], k.select(bad, k.const(args[1].type, 3), args[1])]
    if name == "bitcast" and args[0].type in FLOATS:
        return [without_nan(k, args[0])]
    return args


def in_range(k: Kernel, value: Val, type: str) -> Val:
    """A float that fits an integer type: itself, or 0."""
    edge = float(1 << (INTEGERS[type] - 1))
    return k.select((value >= -edge) & (value < edge), value, k.const(value.type, 0.0))


def without_nan(k: Kernel, value: Val) -> Val:
    return k.select(value == value, value, k.const(value.type, 12345.0)) if value.type in FLOATS else value


def apply(k: Kernel, name: str, result: str, args: list[Val]) -> Val:
    args = [in_range(k, args[0], result)] if name == "ftoi" else defined(k, name, args)
    return k.emit(name, result, *args)


class Writer:
    """Writes one function: `pool` holds the values that may be used in the open blocks."""

    def __init__(
        self,
        draw: Callable[[Any], Any],
        k: Kernel,
        inputs: Val,
        scratch: Val,
        routines: list[tuple[str, tuple[str, ...], str]],
    ):
        self.draw, self.k, self.inputs, self.scratch, self.routines = draw, k, inputs, scratch, routines
        self.pool: list[Val] = list(k.params[2:])
        self.vars: list[Any] = []
        self.stores = 0
        self.loops = 0

    def value(self, type: str) -> Val:
        """A value of a type: one of the pool, a constant, or one read from memory."""
        k, draw = self.k, self.draw
        known = [v for v in self.pool if v.type == type]
        if known and draw(st.integers(0, 3)):
            return draw(st.sampled_from(known))
        if type == "ptr":
            return self.slot()
        if draw(st.booleans()):
            return k.const(type, draw(constant(type)))
        return k.load(type, self.inputs + SLOT * draw(st.integers(0, INPUT_SLOTS - 1)))

    def slot(self) -> Val:
        return self.k.offset(self.scratch, SLOT * self.draw(st.integers(0, SCRATCH_SLOTS - 1)))

    def keep(self, value: Val) -> None:
        """Make a value visible. Addresses differ from run to run: what is kept of one is its distance from the scratch
        buffer."""
        if value.type == "ptr":
            distance = value.bits_as("i64") - self.scratch.bits_as("i64")
            value = self.k.select(value == self.k.null, self.k.i64(-1), distance)
        self.k.store(self.scratch + SLOT * (self.stores % SCRATCH_SLOTS), without_nan(self.k, value))
        self.stores += 1

    def block(self, depth: int) -> None:
        outer, outer_vars = len(self.pool), len(self.vars)
        for _ in range(self.draw(st.integers(1, 8 if depth == 2 else 4))):
            self.statement(depth)
        for value in self.pool[outer:]:
            self.keep(value)
        del self.pool[outer:], self.vars[outer_vars:]

    def statement(self, depth: int) -> None:
        choices = (
            ["compute"] * 8
            + ["var", "set", "memory", "call"]
            + (["when", "loop"] if depth else [])
            + (["break"] if self.loops else [])
        )
        getattr(self, "_" + self.draw(st.sampled_from(choices)))(depth)

    def _compute(self, depth: int) -> None:
        name = self.draw(st.sampled_from([n for n in VALUE_OPS if n not in ("address", "pointer")]))
        arguments, result = self.draw(st.sampled_from(SIGNATURES[name]))
        self.pool.append(apply(self.k, name, result, [self.value(t) for t in arguments]))

    def _var(self, depth: int) -> None:
        self.vars.append(self.k.var(self.value(self.draw(st.sampled_from(NUMBERS)))))

    def _set(self, depth: int) -> None:
        if self.vars:
            var = self.draw(st.sampled_from(self.vars))
            var.set(self.value(var.type))
            self.pool.append(var.value)

    def _memory(self, depth: int) -> None:
        match self.draw(st.sampled_from(("load", "store", "prefetch", "atomic_add", "cas"))):
            case "load":
                self.pool.append(self.k.load(self.draw(st.sampled_from(NUMBERS)), self.slot()))
            case "store":
                self.k.store(self.slot(), without_nan(self.k, self.value(self.draw(st.sampled_from(NUMBERS)))))
            case "prefetch":
                self.k.prefetch(self.slot())
            case "atomic_add":
                self.pool.append(self.k.atomic_add(self.slot(), self.value("i64")))
            case "cas":
                self.pool.append(self.k.cas(self.slot(), self.value("i64"), self.value("i64")))

    def _call(self, depth: int) -> None:
        if self.routines:
            # A routine gets the same buffers: any other pointer could lead it out of them.
            name, params, returns = self.draw(st.sampled_from(self.routines))
            values = [self.scratch, self.inputs, *(self.value(t) for t in params)]
            self.pool.append(self.k.emit("call", returns, *values, attr=name))
        else:
            self.pool.append(self.k.call("atan2", self.value("f64"), self.value("f64")))

    def _when(self, depth: int) -> None:
        with self.k.when(self.value("i1")):
            self.block(depth - 1)
            if not self.routines and not self.draw(st.integers(0, 5)):
                self.k.ret(*([self.value(self.k.function.returns)] if self.k.function.returns else []))
        if self.draw(st.booleans()):
            with self.k.otherwise():
                self.block(depth - 1)

    def _loop(self, depth: int) -> None:
        self.loops += 1
        with self.k.range(self.k.i64(self.draw(st.integers(0, 4)))) as i:
            self.pool.append(i)
            self.block(depth - 1)
            self.pool.pop()
        self.loops -= 1

    def _break(self, depth: int) -> None:
        self.k.emit("break_if", None, self.value("i1"))


@st.composite
def programs(draw: Callable[[Any], Any]) -> str:
    """The text of a module: a main function and at most two routines."""
    module = Module()
    main = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    routines: list[tuple[str, tuple[str, ...], str]] = []
    for number in range(draw(st.integers(0, 2))):
        returns = draw(st.sampled_from(NUMBERS))
        params = tuple(draw(st.lists(st.sampled_from(NUMBERS), max_size=2)))
        k = Kernel(module, f"routine{number}", ("ptr", "ptr", *params), returns)
        writer = Writer(draw, k, k.params[1], k.params[0], [])
        writer.block(1)
        k.ret(writer.value(returns))
        k.finish()
        routines.append((k.function.name, params, returns))
    writer = Writer(draw, main, main.params[1], main.params[0], routines)
    writer.block(2)
    main.ret()
    main.finish()
    return module.text()


def interpreted(module: Module, data: bytes = b"") -> bytes:
    """The scratch buffer after the interpreter ran main."""
    return _with_buffers(data, lambda scratch, inputs: Interpreter(module)("main", scratch, inputs, 7))


def compiled(module: Module, level: int, data: bytes = b"") -> bytes:
    """The scratch buffer after machine code of a level ran main."""
    return _with_buffers(data, lambda scratch, inputs: compiler().compile(module, level).function(scratch, inputs, 7))


def _with_buffers(data: bytes, run: Callable[[int, int], None]) -> bytes:
    inputs = ctypes.create_string_buffer(data, INPUT_SLOTS * SLOT)
    size = SCRATCH_SLOTS * SLOT
    memory = ctypes.create_string_buffer(size + SLOT)
    scratch = (ctypes.addressof(memory) + SLOT - 1) // SLOT * SLOT
    run(scratch, ctypes.addressof(inputs))
    return ctypes.string_at(scratch, size)
