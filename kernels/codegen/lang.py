"""The language that operators and functions are written in: typed values with Python operators that emit KIR.

`Kernel` (always called `k`) appends ops to the current block of one function. `Val` is a value, `Var` a mutable slot.
A Python `for` unrolls, `with k.when(c):` branches, `with k.range(n) as i:` loops. `Val.__bool__` raises, so that a
Python `if` on a kernel value fails at once. `@routine` makes a function that is emitted once per module and called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from tsql.kernels.codegen.kir import BYTES, EXTERNS, FLOATS, INTEGERS, KirFunction, Module, Op
from tsql.kernels.codegen.passes import PURE, prune

ADDITIVE = frozenset(("add", "sub", "or", "xor", "shl", "shr", "ushr"))
"""Integer ops that do nothing if the right side is zero."""
FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
}
"""Ops that are folded if both sides are constants; `const` wraps the result as the op would."""


class Val:
    """A value of one KIR type."""

    __slots__ = ("id", "k", "type")

    def __init__(self, k: Kernel, id: int, type: str):
        self.k, self.id, self.type = k, id, type

    def __bool__(self) -> bool:
        raise TypeError("a kernel value has no truth at emission time: use k.when, k.select, & and |")

    __hash__ = object.__hash__

    def _other(self, other: Any) -> Val:
        return other if isinstance(other, Val) else self.k.const(self.type, other)

    def _binary(self, name: str, other: Any, swap: bool = False) -> Val:
        other = self._other(other)
        a, b = (other, self) if swap else (self, other)
        return self.k.emit(name, a.type, a, b)

    def _compare(self, name: str, other: Any) -> Val:
        return self.k.emit(name, "i1", self, self._other(other))

    def __add__(self, other: Any) -> Val:
        if self.type == "ptr":
            return self.k.offset(self, other)
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Val:
        return self._binary("add", other, swap=True)

    def __sub__(self, other: Any) -> Val:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Val:
        return self._binary("sub", other, swap=True)

    def __mul__(self, other: Any) -> Val:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Val:
        return self._binary("mul", other, swap=True)

    def __truediv__(self, other: Any) -> Val:
        if self.type not in FLOATS:
            raise TypeError("/ is for floats; integers divide with //, truncating towards zero")
        return self._binary("div", other)

    def __rtruediv__(self, other: Any) -> Val:
        return self._binary("div", other, swap=True)

    def __floordiv__(self, other: Any) -> Val:
        """Signed division truncating towards zero (as machines do, unlike Python)."""
        return self._binary("div", other)

    def __mod__(self, other: Any) -> Val:
        """Signed remainder with the sign of the dividend."""
        return self._binary("rem", other)

    def __and__(self, other: Any) -> Val:
        return self._binary("and", other)

    def __or__(self, other: Any) -> Val:
        return self._binary("or", other)

    def __xor__(self, other: Any) -> Val:
        return self._binary("xor", other)

    def __lshift__(self, other: Any) -> Val:
        return self._binary("shl", other)

    def __rshift__(self, other: Any) -> Val:
        """Arithmetic shift right; `ushr` is the logical one."""
        return self._binary("shr", other)

    def __invert__(self) -> Val:
        return self._binary("xor", 1 if self.type == "i1" else -1)

    def __neg__(self) -> Val:
        return self.k.emit("fneg", self.type, self) if self.type in FLOATS else self._binary("sub", 0, swap=True)

    def __eq__(self, other: Any) -> Val:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self, other: Any) -> Val:  # type: ignore[override]
        return self._compare("ne", other)

    def __lt__(self, other: Any) -> Val:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> Val:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> Val:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> Val:
        return self._compare("ge", other)

    def ult(self, other: Any) -> Val:
        return self._compare("ult", other)

    def ule(self, other: Any) -> Val:
        return self._compare("ule", other)

    def ugt(self, other: Any) -> Val:
        return self._compare("ugt", other)

    def uge(self, other: Any) -> Val:
        return self._compare("uge", other)

    def ushr(self, other: Any) -> Val:
        return self._binary("ushr", other)

    def udiv(self, other: Any) -> Val:
        return self._binary("udiv", other)

    def urem(self, other: Any) -> Val:
        return self._binary("urem", other)

    def to(self, type: str) -> Val:
        """The same number in another type: integers widen with their sign or are cut, integers become floats, floats
        become integers (truncating; out of range is undefined: check first), floats widen or narrow. i1 becomes 0 or
        1."""
        if type == self.type:
            return self
        if self.type in INTEGERS and type in INTEGERS:
            if type == "i1":
                return self != 0
            wider = INTEGERS[type] > INTEGERS[self.type]
            return self.k.emit(("zext" if self.type == "i1" else "sext") if wider else "trunc", type, self)
        if self.type in INTEGERS:
            return self.k.emit("utof" if self.type == "i1" else "itof", type, self)
        if type in INTEGERS:
            return self.k.emit("ftoi", type, self)
        return self.k.emit("fext" if type == "f64" else "fnarrow", type, self)

    def uto(self, type: str) -> Val:
        """Like `to`, reading this integer as unsigned."""
        if type == self.type:
            return self
        if type in FLOATS:
            return self.k.emit("utof", type, self)
        return self.k.emit("zext" if INTEGERS[type] > INTEGERS[self.type] else "trunc", type, self)

    def bits_as(self, type: str) -> Val:
        """The same bits as another type of the same width (f64/i64, f32/i32, ptr/i64)."""
        if type == self.type:
            return self
        name = "address" if self.type == "ptr" else "pointer" if type == "ptr" else "bitcast"
        return self.k.emit(name, type, self)


class Var:
    """A mutable slot: read `.value`, assign `.value = v` or call `.set(v)`."""

    __slots__ = ("k", "slot", "type")

    def __init__(self, slot: Val):
        self.k, self.slot, self.type = slot.k, slot, slot.type

    @property
    def value(self) -> Val:
        return self.k.emit("get", self.type, self.slot)

    @value.setter
    def value(self, v: Any) -> None:
        self.set(v)

    def set(self, v: Any) -> None:
        v = v if isinstance(v, Val) else self.k.const(self.type, v)
        self.k.emit("set", None, self.slot, v)


class OpenBlock:
    """A block entered by `with`: ops go to it until it is left. `when` is the op that `otherwise` may follow then."""

    __slots__ = ("block", "k", "when")

    def __init__(self, k: Kernel, block: list[Op], when: Op | None = None):
        self.k, self.block, self.when = k, block, when

    def __enter__(self) -> Any:
        self.k._blocks.append(self.block)
        self.k._scopes.append(object())
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        k = self.k
        k._blocks.pop()
        k._scopes.pop()
        if self.when is not None:
            k._last_when = self.when


class Loop(OpenBlock):
    """The block of `k.forever()`."""

    __slots__ = ()

    def stop_if(self, cond: Val) -> None:
        self.k.emit("break_if", None, cond)


class Range(OpenBlock):
    """The block of `k.range()`, which gives the number of the round."""

    __slots__ = ("at", "index", "step", "stop")

    def __init__(self, k: Kernel, block: list[Op], index: Var, stop: Val, step: int):
        super().__init__(k, block)
        self.index, self.stop, self.step = index, stop, step

    def __enter__(self) -> Val:
        super().__enter__()
        self.at = self.index.value
        self.k.emit("break_if", None, self.at >= self.stop)
        return self.at

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.index.set(self.at + self.step)
        super().__exit__(kind)


class Kernel:
    """Emits one function of a module."""

    def __init__(self, module: Module, name: str, params: tuple[str, ...], returns: str | None):
        self.module = module
        self.function = KirFunction(name, params, returns, [], list(params))
        module.functions[name] = self.function
        self.params = tuple(Val(self, i, t) for i, t in enumerate(params))
        self._head: list[Op] = []
        self._consts: dict[tuple[str, int | str], Val] = {}
        self._blocks: list[list[Op]] = [self.function.body]
        self._scopes: list[object] = [object()]
        self._last_when: Op | None = None
        self._constants: dict[int, Any] = {}
        self._pure: dict[tuple[Any, ...], tuple[Val, object]] = {}
        """Values that depend only on their arguments, by operation, each with the block that it was made in."""

    @overload
    def emit(self, name: str, type: str, *args: Val, attr: Any = None, blocks: tuple[list[Op], ...] = ()) -> Val: ...

    @overload
    def emit(self, name: str, type: None, *args: Val, attr: Any = None, blocks: tuple[list[Op], ...] = ()) -> None: ...

    @overload
    def emit(
        self, name: str, type: str | None, *args: Val, attr: Any = None, blocks: tuple[list[Op], ...] = ()
    ) -> Any: ...

    def emit(self, name: str, type: str | None, *args: Val, attr: Any = None, blocks: tuple[list[Op], ...] = ()) -> Any:
        """Append an op; returns its value if it has a type. A pure op that was already computed in a block that is
        still open is reused: operators ask for the same addresses and conditions many times, and each op costs time in
        every later stage."""
        ids = tuple([a.id for a in args if a.k is self])
        if len(ids) != len(args):
            raise ValueError(f"{name}: a value of another function")
        if type is None:
            self._blocks[-1].append(Op(name, type, None, ids, attr, blocks))
            return None
        key = None
        if name in PURE:
            if len(ids) == 2 and type in INTEGERS and (same := self._neutral(name, args)) is not None:
                return same
            key = (name, type, ids, attr)
            known = self._pure.get(key)
            if known is not None and known[1] in self._scopes:
                return known[0]
        types = self.function.types
        made = Val(self, len(types), type)
        self._blocks[-1].append(Op(name, type, made.id, ids, attr, blocks))
        types.append(type)
        if key is not None:
            self._pure[key] = (made, self._scopes[-1])
        return made

    def _neutral(self, name: str, args: tuple[Val, ...]) -> Val | None:
        """The value of an integer op that changes nothing or whose arguments are constants; None for others."""
        by = self._constants.get(args[1].id)
        if by is None:
            first = self._constants.get(args[0].id)
            return args[1] if (first == 0 and name == "add") or (first == 1 and name == "mul") else None
        if (by == 0 and name in ADDITIVE) or (by == 1 and (name == "mul" or (name == "and" and args[0].type == "i1"))):
            return args[0]
        if args[0].id in self._constants and name in FOLDED:
            return self.const(args[0].type, FOLDED[name](self._constants[args[0].id], by))
        return None

    @property
    def scope(self) -> object:
        """The innermost open block, as a token: a value made in it may be used while `is_open(token)`."""
        return self._scopes[-1]

    def is_open(self, scope: object) -> bool:
        return scope in self._scopes

    def const(self, type: str, value: Any) -> Val:
        """A constant; each is emitted once, at the head of the function."""
        # 0.0 and -0.0 compare equal, but are two constants.
        key = (type, value if value.__class__ is int else repr(value))
        found = self._consts.get(key)
        if found is None:
            if type in INTEGERS:
                value = int(value)
                bits = INTEGERS[type]
                value &= (1 << bits) - 1
                if bits > 1 and value >> (bits - 1):
                    value -= 1 << bits
            elif type in FLOATS:
                value = float(value)
            dst = len(self.function.types)
            self.function.types.append(type)
            self._head.append(Op("const", type, dst, (), value))
            found = self._consts[key] = Val(self, dst, type)
            if type in INTEGERS:
                self._constants[dst] = value
        return found

    def i64(self, value: int) -> Val:
        return self.const("i64", value)

    def i32(self, value: int) -> Val:
        return self.const("i32", value)

    def i8(self, value: int) -> Val:
        return self.const("i8", value)

    def i128(self, value: int) -> Val:
        return self.const("i128", value)

    def f64(self, value: float) -> Val:
        return self.const("f64", value)

    def bool(self, value: bool) -> Val:
        return self.const("i1", int(value))

    @property
    def true(self) -> Val:
        return self.bool(True)

    @property
    def false(self) -> Val:
        return self.bool(False)

    @property
    def null(self) -> Val:
        return self.const("ptr", 0)

    def var(self, init: Val) -> Var:
        """A mutable slot with a first value."""
        return Var(self.emit("var", init.type, init))

    def select(self, cond: Val, a: Val, b: Val) -> Val:
        return self.emit("select", a.type, cond, a, b)

    def min(self, a: Val, b: Val) -> Val:
        return self.select(a < b, a, b)

    def max(self, a: Val, b: Val) -> Val:
        return self.select(a > b, a, b)

    def unary(self, name: str, a: Val) -> Val:
        """sqrt floor ceil truncate rint fabs (floats); popcount leading_zeros trailing_zeros bswap (integers)."""
        return self.emit(name, a.type, a)

    def overflows(self, name: str, a: Val, b: Val) -> Val:
        """Whether signed `add`, `sub` or `mul` of a and b leaves the type."""
        return self.emit(f"{name}_overflows", "i1", a, b)

    def offset(self, pointer: Val, bytes: Val | int) -> Val:
        if isinstance(bytes, int):
            if bytes == 0:
                return pointer
            bytes = self.i64(bytes)
        return self.emit("offset", "ptr", pointer, bytes)

    def element(self, type: str, pointer: Val, index: Val | int) -> Val:
        """The address of the index-th `type` after `pointer`."""
        if isinstance(index, int):
            return self.offset(pointer, index * BYTES[type])
        return self.offset(pointer, index.to("i64") * BYTES[type] if BYTES[type] > 1 else index.to("i64"))

    def load(self, type: str, pointer: Val, index: Val | int = 0) -> Val:
        if type == "i1":
            return self.load("i8", pointer, index) != 0
        return self.emit("load", type, self.element(type, pointer, index))

    def store(self, pointer: Val, value: Val, index: Val | int = 0) -> None:
        if value.type == "i1":
            value = value.uto("i8")
        self.emit("store", None, self.element(value.type, pointer, index), value)

    def prefetch(self, pointer: Val) -> None:
        """Prefetch the memory at an address, which may be invalid. Nothing is read."""
        self.emit("prefetch", None, pointer)

    def load_bit(self, bitmap: Val, index: Val) -> Val:
        """Bit `index` of an Arrow bitmap."""
        byte = self.load("i8", bitmap, index.ushr(3))
        return (byte.ushr((index & 7).to("i8")) & 1).to("i1")

    def atomic_add(self, pointer: Val, value: Val | int) -> Val:
        """Adds to an i64 in memory; returns what was there before."""
        return self.emit("atomic_add", "i64", pointer, value if isinstance(value, Val) else self.i64(value))

    def cas(self, pointer: Val, expected: Val, desired: Val) -> Val:
        """Stores `desired` if the i64 there equals `expected`; returns what was there."""
        return self.emit("cas", "i64", pointer, expected, desired)

    def call(self, name: str, *args: Val | float) -> Any:
        """Call a C function of `EXTERNS`."""
        returns, params = EXTERNS[name]
        return self.emit(
            "call",
            returns,
            *(a if isinstance(a, Val) else self.const(t, a) for a, t in zip(args, params, strict=True)),
            attr=name,
        )

    def symbol(self, name: str) -> Val:
        """The address of a record of the host (`HOST_SYMBOLS` in host_symbols.py)."""
        return self.emit("symbol", "ptr", attr=name)

    def ret(self, value: Val | None = None) -> None:
        """Return; only as the last op of a block."""
        self.emit("ret", None, *(() if value is None else (value,)))

    def when(self, cond: Val) -> OpenBlock:
        blocks: tuple[list[Op], list[Op]] = ([], [])
        self.emit("when", None, cond, blocks=blocks)
        return OpenBlock(self, blocks[0], self._blocks[-1][-1])

    def otherwise(self) -> OpenBlock:
        """The else branch of the `when` that was closed just before."""
        op = self._last_when
        if op is None or self._blocks[-1][-1] is not op:
            raise ValueError("otherwise must follow a when directly")
        return OpenBlock(self, op.blocks[1])

    def forever(self) -> Loop:
        """A loop that ends by `loop.stop_if(cond)`."""
        body: list[Op] = []
        self.emit("loop", None, blocks=(body,))
        return Loop(self, body)

    def range(self, stop: Val, start: Val | int = 0, step: int = 1) -> Range:
        """i from start up to stop; the loop variable is an i64 value."""
        index = self.var(start if isinstance(start, Val) else self.i64(start))
        body: list[Op] = []
        self.emit("loop", None, blocks=(body,))
        return Range(self, body, index, stop, step)

    def choose(
        self,
        cond: Val,
        then: Callable[[], tuple[Val, ...]],
        otherwise: Callable[[], tuple[Val, ...]],
        types: tuple[str, ...],
    ) -> tuple[Val, ...]:
        """The values of one of two branches. Only the taken one runs."""
        slots = [self.var(self.const(t, 0)) for t in types]
        with self.when(cond):
            for slot, v in zip(slots, then(), strict=True):
                slot.set(v)
        with self.otherwise():
            for slot, v in zip(slots, otherwise(), strict=True):
                slot.set(v)
        return tuple(slot.value for slot in slots)

    def finish(self) -> KirFunction:
        """Put the constants at the head and drop unused ops. Call once, when the function is complete."""
        self.function.body[:0] = self._head
        self._head = []
        prune(self.function)
        self.forget()
        return self.function

    def forget(self) -> None:
        """Release what only emission needs. Values and their kernel reference each other, so otherwise the garbage
        collector would have to visit thousands of objects for each kernel."""
        for known in (self._consts, self._constants, self._pure):
            known.clear()
        self.params = ()


def routine(
    name: str, params: tuple[str, ...], returns: str | None
) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """A function written once in the kernel language, emitted once per module, and called as `name(k, a, b)`.

    The body receives its own `k` and its parameters, and returns by `k.ret(value)`. It runs once per process: the
    function that it emits and those that it calls are shared by all modules. So two routines must not call each
    other."""

    def decorate(body: Callable[..., None]) -> Callable[..., Any]:
        made: list[KirFunction] = []

        def make() -> None:
            inner = Kernel(Module(), name, params, returns)
            body(inner, *inner.params)
            if returns is None:
                inner.ret()
            inner.finish().freeze()
            made[:] = inner.module.functions.values()

        def call(k: Kernel, *args: Val | int) -> Any:
            if name not in k.module.functions:
                if not made:
                    make()
                for function in made:
                    k.module.functions.setdefault(function.name, function)
            return k.emit(
                "call",
                returns,
                *(a if isinstance(a, Val) else k.const(t, a) for a, t in zip(args, params, strict=True)),
                attr=name,
            )

        call.__name__ = name
        call.__doc__ = body.__doc__
        return call

    return decorate
