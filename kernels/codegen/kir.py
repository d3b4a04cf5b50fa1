"""KIR, the kernel language: a small typed, structured IR that prints, parses and hashes.

A `Module` is a set of functions; a function is a list of `Op`s; `loop` and `when` hold nested blocks. Values are
numbered, typed and assigned once; a `var` is a mutable slot. `interp.py` defines what each op means, `spec.py` which
types it takes, `render.py` how it is rendered, `lang.py` how operators write it.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from tsql.kernels.process.quick_dataclass import dataclass

INTEGERS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128}
FLOATS = {"f32": 32, "f64": 64}
BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "i128": 16, "f32": 4, "f64": 8, "ptr": 8}

ARITHMETIC = ("add", "sub", "mul", "div", "rem", "udiv", "urem")
BITWISE = ("and", "or", "xor", "shl", "shr", "ushr")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "ult", "ule", "ugt", "uge")
OVERFLOWS = ("add_overflows", "sub_overflows", "mul_overflows")
CONVERSIONS = ("sext", "zext", "trunc", "itof", "utof", "ftoi", "fext", "fnarrow", "bitcast", "address", "pointer")
UNARY_FLOAT = ("sqrt", "floor", "ceil", "truncate", "rint", "fabs", "fneg")
UNARY_INT = ("popcount", "leading_zeros", "trailing_zeros", "bswap")
MEMORY = ("load", "store", "offset", "prefetch", "atomic_add", "cas")
VARIABLES = ("var", "get", "set")
CONTROL = ("loop", "break_if", "when", "ret")
OPS = (
    "const",
    "select",
    "call",
    "symbol",
    *ARITHMETIC,
    *BITWISE,
    *COMPARISONS,
    *OVERFLOWS,
    *CONVERSIONS,
    *UNARY_FLOAT,
    *UNARY_INT,
    *MEMORY,
    *VARIABLES,
    *CONTROL,
)

EXTERNS: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "make_room": (None, ("ptr",)),
    "malloc": ("ptr", ("i64",)), "calloc": ("ptr", ("i64", "i64")), "realloc": ("ptr", ("ptr", "i64")),
    "free": (None, ("ptr",)),
    "malloc_usable_size": ("i64", ("ptr",)), "madvise": ("i32", ("ptr", "i64", "i32")), "sched_yield": ("i32", ()),
    "memcpy": ("ptr", ("ptr", "ptr", "i64")), "memmove": ("ptr", ("ptr", "ptr", "i64")),
    "memset": ("ptr", ("ptr", "i32", "i64")),
    "memcmp": ("i32", ("ptr", "ptr", "i64")), "memchr": ("ptr", ("ptr", "i32", "i64")),
    "memmem": ("ptr", ("ptr", "i64", "ptr", "i64")),
    "strtod": ("f64", ("ptr", "ptr")), "strtof": ("f32", ("ptr", "ptr")),
    "snprintf": ("i32", ("ptr", "i64", "ptr", "i32", "f64")),
    **{name: ("f64", ("f64",)) for name in ("exp", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan",
                                            "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "cbrt", "tgamma",
                                            "lgamma", "round", "exp2", "expm1", "log1p")},
    **{name: ("f64", ("f64", "f64")) for name in ("pow", "fmod", "atan2", "nextafter")},
}  # fmt: skip
"""C functions that a kernel may call, and `make_room` of the host (host_symbols.py). `snprintf` is variadic in C;
kernels use it as (buffer, size, "%.*g", digits, value)."""


@dataclass(slots=True)
class Op:
    """One operation. `dst`: the number of the value it defines. `attr`: a constant or a callee. `blocks`: nested
    code."""

    name: str
    type: str | None
    dst: int | None
    args: tuple[int, ...] = ()
    attr: Any = None
    blocks: tuple[list[Op], ...] = ()


@dataclass(slots=True)
class KirFunction:
    """A function: parameters are the values 0 .. len(params)-1."""

    name: str
    params: tuple[str, ...]
    returns: str | None
    body: list[Op] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    printed: str | None = field(default=None, compare=False, repr=False)

    def freeze(self) -> None:
        """Keep the text. Nothing may be appended afterwards."""
        self.printed = print_function(self)

    def text(self) -> str:
        return print_function(self) if self.printed is None else self.printed

    def walk(self) -> Iterator[Op]:
        """Every op, outer before inner, in order."""
        stack = [iter(self.body)]
        while stack:
            op = next(stack[-1], None)
            if op is None:
                stack.pop()
                continue
            yield op
            stack.extend(iter(block) for block in reversed(op.blocks))


@dataclass(slots=True)
class Module:
    """Functions by name; `main` names the entry, `exports` others that can be called from outside."""

    functions: dict[str, KirFunction] = field(default_factory=dict)
    main: str = "main"
    exports: tuple[str, ...] = ()

    def text(self) -> str:
        return "\n".join(f.text() for f in self.functions.values())

    def fingerprint(self) -> str:
        return hashlib.sha256(self.text().encode()).hexdigest()[:32]


def print_const(type: str | None, value: Any) -> str:
    if type in FLOATS:
        return (
            "nan"
            if math.isnan(value)
            else float(value).hex()
            if math.isfinite(value)
            else ("inf" if value > 0 else "-inf")
        )
    return str(int(value))


def parse_const(type: str, text: str) -> Any:
    if type in FLOATS:
        return float(text) if text in ("nan", "inf", "-inf") else float.fromhex(text)
    return int(text)


def print_function(f: KirFunction) -> str:
    """The text of a function; `parse` reads it back."""
    params = ", ".join(f"%{i}: {t}" for i, t in enumerate(f.params))
    lines = [f"func @{f.name}({params}) -> {f.returns or 'void'} {{"]
    _print_block(f.body, lines, "  ")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _print_block(block: list[Op], lines: list[str], pad: str) -> None:
    for op in block:
        args = op.args
        # Most operations are one line over one or two values.
        if op.attr is None and op.dst is not None and args:
            if len(args) == 2:
                lines.append(f"{pad}%{op.dst}: {op.type} = {op.name} %{args[0]} %{args[1]}")
                continue
            if len(args) == 1:
                lines.append(f"{pad}%{op.dst}: {op.type} = {op.name} %{args[0]}")
                continue
        if op.name == "const":
            lines.append(f"{pad}%{op.dst}: {op.type} = const {print_const(op.type, op.attr)}")
            continue
        text = op.name if op.attr is None else f"{op.name} @{op.attr}"
        if args:
            text = f"{text} %{' %'.join(map(str, args))}"
        if op.dst is not None:
            lines.append(f"{pad}%{op.dst}: {op.type} = {text}")
        elif not op.blocks:
            lines.append(pad + text)
        else:
            lines.append(f"{pad}{text} {{")
            _print_block(op.blocks[0], lines, pad + "  ")
            if op.name == "when" and op.blocks[1]:
                lines.append(f"{pad}}} else {{")
                _print_block(op.blocks[1], lines, pad + "  ")
            lines.append(f"{pad}}}")


_HEADER = re.compile(r"func @([\w.]+)\((.*)\) -> (\w+) \{$")
_LINE = re.compile(r"(?:%(\d+): (\w+) = )?(\w+)((?: [@%]?[-+.\w]+)*)( \{)?$")


def parse(text: str) -> Module:
    """Read a printed module back; the first function is main. Raises ValueError with the line that does not parse."""
    module = Module()
    function: KirFunction | None = None
    blocks: list[list[Op]] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line:
            continue
        if header := _HEADER.match(line):
            name, params, returns = header.groups()
            types = tuple(p.split(": ")[1] for p in params.split(", ")) if params else ()
            function = KirFunction(name, types, None if returns == "void" else returns, [], list(types))
            if not module.functions:
                module.main = name
            module.functions[name] = function
            blocks = [function.body]
            continue
        bad = ValueError(f"KIR line {number} does not parse: {line}")
        if function is None or not blocks:
            raise bad
        if line == "}":
            blocks.pop()
            continue
        if line == "} else {":
            if len(blocks) < 2 or blocks[-2][-1].name != "when" or blocks[-1] is not blocks[-2][-1].blocks[0]:
                raise bad
            blocks.pop()
            blocks.append(blocks[-1][-1].blocks[1])
            continue
        op = _parse_op(line)
        if op is None:
            raise bad
        if op.dst is not None and op.type is not None:
            function.types.extend([""] * (op.dst + 1 - len(function.types)))
            function.types[op.dst] = op.type
        blocks[-1].append(op)
        if op.blocks:
            blocks.append(op.blocks[0])
    if function is None or blocks:
        raise ValueError("KIR text ends in the middle of a function" if function else "KIR text has no function")
    return module


def _parse_op(line: str) -> Op | None:
    """One line as an op, or None if it is not one."""
    match = _LINE.match(line)
    if match is None:
        return None
    dst, type, name, rest, opens = match.groups()
    words = rest.split()
    nested: tuple[list[Op], ...] = ([], []) if name == "when" else ([],) if name == "loop" else ()
    if name not in OPS or bool(opens) != bool(nested):
        return None
    attr: Any = None
    try:
        if name == "const":
            (text,) = words
            attr, words = parse_const(type, text), []
        elif name in ("call", "symbol"):
            attr, words = words[0].removeprefix("@"), words[1:]
        return Op(
            name, type, None if dst is None else int(dst), tuple(int(w.removeprefix("%")) for w in words), attr, nested
        )
    except (ValueError, IndexError):
        return None
