"""KIR to LLVM text: a plain walk. Vars become allocas (mem2reg makes SSA), loops and whens become labels.

`llvm.py` compiles the text. A module is either rendered whole, with private routines; or its routines get names by
which other modules' code finds them (`shared_names`), and those that exist already are only declared."""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

from tsql.kernels.codegen.kir import EXTERNS, FLOATS, KirFunction, Module, Op

NO_NAMES: Mapping[str, str] = MappingProxyType({})

INLINE_OPS = 40
"""Routines with more ops than this are called, never inlined."""

_TYPE = {"f32": "float", "f64": "double"}
_INT_BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "sdiv",
    "rem": "srem",
    "udiv": "udiv",
    "urem": "urem",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "shl": "shl",
    "shr": "ashr",
    "ushr": "lshr",
}
_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT_COMPARE = {
    "eq": "eq",
    "ne": "ne",
    "lt": "slt",
    "le": "sle",
    "gt": "sgt",
    "ge": "sge",
    "ult": "ult",
    "ule": "ule",
    "ugt": "ugt",
    "uge": "uge",
}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_CONVERT = {
    "sext": "sext",
    "zext": "zext",
    "trunc": "trunc",
    "itof": "sitofp",
    "utof": "uitofp",
    "ftoi": "fptosi",
    "fext": "fpext",
    "fnarrow": "fptrunc",
    "bitcast": "bitcast",
    "address": "ptrtoint",
    "pointer": "inttoptr",
}
_FLOAT_INTRINSIC = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "truncate": "trunc",
    "rint": "rint",
    "fabs": "fabs",
}
_INT_INTRINSIC = {"popcount": "ctpop", "leading_zeros": "ctlz", "trailing_zeros": "cttz", "bswap": "bswap"}
_OVERFLOW = {"add_overflows": "sadd", "sub_overflows": "ssub", "mul_overflows": "smul"}


def _type(t: str | None) -> str:
    return "void" if t is None else _TYPE.get(t, t)


def _constant(t: str, value: Any) -> str:
    if t == "ptr":
        return "null"
    if t in FLOATS:
        if t == "f32":
            value = ctypes.c_float(value).value
        return "0x" + struct.pack(">d", value).hex().upper()
    return str(value)


class _Renderer:
    """Renders one function."""

    def __init__(self, module: Module, f: KirFunction, declared: set[str], shared: Mapping[str, str] = NO_NAMES):
        self.module, self.f, self.declared, self.shared = module, f, declared, shared
        self.names = [f"%v{i}" for i in range(len(f.types))]
        self.types = [_TYPE.get(t, t) for t in f.types]
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.labels = 0
        self.exits: list[str] = []
        self.closed = False

    def render(self, internal: bool) -> str:
        f = self.f
        params = ", ".join(f"{_type(t)} %v{i}" for i, t in enumerate(f.params))
        self.block(f.body)
        if not self.closed:
            self.lines.append("  unreachable" if f.returns else "  ret void")
        linkage = "internal " if internal else ""
        # Inlining long routines into every caller costs compile time and gains nothing.
        attributes = "nounwind noinline" if internal and sum(1 for _ in f.walk()) > INLINE_OPS else "nounwind"
        return (
            f"define {linkage}{_type(f.returns)} @{self.shared.get(f.name, f.name)}({params}) {attributes} {{\nentry:\n"
            + "\n".join(self.allocas + self.lines)
            + "\n}\n"
        )

    def label(self, hint: str) -> str:
        self.labels += 1
        return f"{hint}{self.labels}"

    def put(self, line: str) -> None:
        if self.closed:
            self.lines.append(f"{self.label('dead')}:")
            self.closed = False
        self.lines.append("  " + line)

    def open(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.closed = False

    def jump(self, label: str) -> None:
        if not self.closed:
            self.lines.append(f"  br label %{label}")
            self.closed = True

    def intrinsic(self, name: str, returns: str, params: str) -> str:
        self.declared.add(f"declare {returns} @{name}({params})")
        return f"@{name}"

    def block(self, ops: list[Op]) -> None:
        names, types = self.names, self.types
        for op in ops:
            name, dst, args = op.name, op.dst, op.args
            if dst is None:
                self.op(op)
            # Most operations are one line over two values; `put` handles what may follow the end of a block.
            elif name in _INT_BINARY and not self.closed:
                t = types[args[0]]
                table = _INT_BINARY if t[0] == "i" else _FLOAT_BINARY
                self.lines.append(f"  {names[dst]} = {table[name]} {t} {names[args[0]]}, {names[args[1]]}")
            elif name == "load" and not self.closed:
                self.lines.append(f"  {names[dst]} = load {types[dst]}, ptr {names[args[0]]}, align 1")
            elif name == "offset" and not self.closed:
                self.lines.append(f"  {names[dst]} = getelementptr i8, ptr {names[args[0]]}, i64 {names[args[1]]}")
            elif name == "const":
                names[dst] = _constant(self.f.types[dst], op.attr)
            elif name == "symbol":
                self.declared.add(f"@{op.attr} = external global i8")
                names[dst] = f"@{op.attr}"
            else:
                self.op(op)

    def op(self, op: Op) -> None:
        names, f = self.names, self.f
        args = [names[a] for a in op.args]
        types = [f.types[a] for a in op.args]
        t = _type(types[0]) if types else ""
        out = f"%v{op.dst}"
        match op.name:
            case "get":
                self.put(f"{out} = load {_type(op.type)}, ptr {args[0]}")
            case "set":
                self.put(f"store {_type(types[1])} {args[1]}, ptr {args[0]}")
            case "store":
                self.put(f"store {_type(types[1])} {args[1]}, ptr {args[0]}, align 1")
            case "when":
                self.when(op, args[0])
            case "select":
                self.put(f"{out} = select i1 {args[0]}, {_type(types[1])} {args[1]}, {_type(types[2])} {args[2]}")
            case "var":
                self.allocas.append(f"  {out} = alloca {_type(op.type)}")
                self.put(f"store {t} {args[0]}, ptr {out}")
            case "load":
                self.put(f"{out} = load {_type(op.type)}, ptr {args[0]}, align 1")
            case "offset":
                self.put(f"{out} = getelementptr i8, ptr {args[0]}, i64 {args[1]}")
            case "prefetch":
                # Arguments: read, keep in the caches, data.
                self.put(
                    f"call void {self.intrinsic('llvm.prefetch.p0', 'void', 'ptr, i32, i32, i32')}(ptr "
                    f"{args[0]}, i32 0, i32 3, i32 1)"
                )
            case "atomic_add":
                self.put(f"{out} = atomicrmw add ptr {args[0]}, i64 {args[1]} seq_cst")
            case "cas":
                self.put(f"{out}p = cmpxchg ptr {args[0]}, i64 {args[1]}, i64 {args[2]} seq_cst seq_cst")
                self.put(f"{out} = extractvalue {{i64, i1}} {out}p, 0")
            case "loop":
                self.loop(op)
            case "break_if":
                go = self.label("next")
                self.put(f"br i1 {args[0]}, label %{self.exits[-1]}, label %{go}")
                self.open(go)
            case "ret":
                self.put(f"ret {t} {args[0]}" if args else "ret void")
                self.closed = True
            case "call":
                self.call(op, args, types, out)
            case _:
                self.plain(op, args, types, out)

    def plain(self, op: Op, args: list[str], types: list[str], out: str) -> None:
        """Arithmetic, comparisons, conversions and the intrinsics."""
        name, t, is_float = op.name, _type(types[0]), types[0] in FLOATS
        if name in _OVERFLOW:
            f = self.intrinsic(f"llvm.{_OVERFLOW[name]}.with.overflow.{t}", f"{{{t}, i1}}", f"{t}, {t}")
            self.put(f"{out}p = call {{{t}, i1}} {f}({t} {args[0]}, {t} {args[1]})")
            self.put(f"{out} = extractvalue {{{t}, i1}} {out}p, 1")
        elif name in _CONVERT:
            self.put(f"{out} = {_CONVERT[name]} {t} {args[0]} to {_type(op.type)}")
        elif name == "fneg":
            self.put(f"{out} = fneg {t} {args[0]}")
        elif name in _FLOAT_INTRINSIC:
            f = self.intrinsic(f"llvm.{_FLOAT_INTRINSIC[name]}.{types[0]}", t, t)
            self.put(f"{out} = call {t} {f}({t} {args[0]})")
        elif name in _INT_INTRINSIC:
            extra = name in ("leading_zeros", "trailing_zeros")
            f = self.intrinsic(f"llvm.{_INT_INTRINSIC[name]}.{t}", t, f"{t}, i1" if extra else t)
            self.put(f"{out} = call {t} {f}({t} {args[0]}{', i1 false' if extra else ''})")
        elif name in _INT_COMPARE:
            kind, table = ("fcmp", _FLOAT_COMPARE) if is_float else ("icmp", _INT_COMPARE)
            self.put(f"{out} = {kind} {table[name]} {t} {args[0]}, {args[1]}")
        else:
            table = _FLOAT_BINARY if is_float else _INT_BINARY
            self.put(f"{out} = {table[name]} {t} {args[0]}, {args[1]}")

    def loop(self, op: Op) -> None:
        head, end = self.label("loop"), self.label("end")
        self.jump(head)
        self.open(head)
        self.exits.append(end)
        self.block(op.blocks[0])
        self.exits.pop()
        self.jump(head)
        self.open(end)

    def when(self, op: Op, cond: str) -> None:
        then, end = self.label("then"), self.label("end")
        otherwise = self.label("else") if op.blocks[1] else end
        self.put(f"br i1 {cond}, label %{then}, label %{otherwise}")
        self.open(then)
        self.block(op.blocks[0])
        self.jump(end)
        if op.blocks[1]:
            self.open(otherwise)
            self.block(op.blocks[1])
            self.jump(end)
        self.open(end)

    def call(self, op: Op, args: list[str], types: list[str], out: str) -> None:
        given = ", ".join(f"{_type(t)} {a}" for t, a in zip(types, args, strict=True))
        returns = _type(op.type)
        if op.attr not in self.module.functions:
            params = EXTERNS[op.attr][1]
            fixed = ", ".join(_type(t) for t in (params[:3] if op.attr == "snprintf" else params))
            self.declared.add(
                f"declare {returns} @{op.attr}({fixed}{', ...' if op.attr == 'snprintf' else ''}) nounwind"
            )
            if op.attr == "snprintf":
                returns = f"{returns} ({fixed}, ...)"
        self.put(
            f"{out + ' = ' if op.dst is not None else ''}call {returns} @{self.shared.get(op.attr, op.attr)}({given})"
        )


_routines: dict[tuple[str, str], tuple[str, frozenset[str]]] = {}
"""LLVM text and declarations by the name and KIR text of a routine: most modules share routines with others."""

_callees: dict[str, tuple[str, ...]] = {}
"""What a function calls, by its KIR text."""


def _render_routine(module: Module, f: KirFunction, names: Mapping[str, str], declared: set[str]) -> str:
    key = (names.get(f.name, ""), f.text())
    found = _routines.get(key)
    if found is None:
        needs: set[str] = set()
        found = _routines[key] = (_Renderer(module, f, needs, names).render(f.name not in names), frozenset(needs))
    declared.update(found[1])
    return found[0]


def render(module: Module, names: Mapping[str, str] = NO_NAMES, elsewhere: Container[str] = ()) -> str:
    """The module as LLVM text. Only `main`, the exports and routines in `names` are visible from outside. Names that
    are `elsewhere` are only declared."""
    declared: set[str] = set()
    visible = (module.main, *module.exports)
    bodies = []
    for name, f in module.functions.items():
        if name in visible:
            bodies.append(_Renderer(module, f, declared, names).render(False))
        elif names.get(name) in elsewhere:
            declared.add(f"declare {_type(f.returns)} @{names[name]}({', '.join(_type(t) for t in f.params)}) nounwind")
        else:
            bodies.append(_render_routine(module, f, names, declared))
    return "\n".join([*sorted(declared), "", *bodies])


def shared_names(module: Module) -> dict[str, str]:
    """Names for the routines of a module by what they do: two routines have the same name only if they and their
    callees are equal."""
    names: dict[str, str] = {}
    for name in module.functions:
        if name not in (module.main, *module.exports):
            _shared_name(module, name, names)
    return names


def _shared_name(module: Module, routine: str, names: dict[str, str]) -> str:
    if routine not in names:
        text = module.functions[routine].text()
        if text not in _callees:
            calls = dict.fromkeys(op.attr for op in module.functions[routine].walk() if op.name == "call")
            _callees[text] = tuple(callee for callee in calls if callee != routine)
        inner = [_shared_name(module, callee, names) for callee in _callees[text] if callee in module.functions]
        names[routine] = f"{routine}_{hashlib.sha256(chr(0).join([text, *inner]).encode()).hexdigest()[:20]}"
    return names[routine]
