"""Which types each op takes: `verify` raises on the first illegal op. Tests run it after every emission."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.kir import (
    ARITHMETIC,
    BITWISE,
    BYTES,
    COMPARISONS,
    CONVERSIONS,
    EXTERNS,
    FLOATS,
    INTEGERS,
    OVERFLOWS,
    UNARY_FLOAT,
    UNARY_INT,
    KirFunction,
    Module,
    Op,
)  # fmt: skip


class IllegalKernel(Exception):
    """A kernel that breaks the rules of KIR: a bug in the emitter, never an error of the query."""


Types = list[str]


def _is_int(t: str) -> bool:
    return t in INTEGERS


def _conversion(name: str, source: str, target: str) -> bool:
    bits = INTEGERS | FLOATS
    match name:
        case "sext" | "zext":
            return _is_int(source) and _is_int(target) and bits[source] < bits[target]
        case "trunc":
            return _is_int(source) and _is_int(target) and bits[source] > bits[target]
        case "itof":
            # The sign of an i1 is its value: machine code would make -1 of true.
            return _is_int(source) and source != "i1" and target in FLOATS
        case "utof":
            return _is_int(source) and target in FLOATS
        case "ftoi":
            return source in FLOATS and _is_int(target) and target != "i1"
        case "fext":
            return (source, target) == ("f32", "f64")
        case "fnarrow":
            return (source, target) == ("f64", "f32")
        case "bitcast":
            return {source, target} in ({"i64", "f64"}, {"i32", "f32"})
        case "address":
            return (source, target) == ("ptr", "i64")
        case "pointer":
            return (source, target) == ("i64", "ptr")
    return False


def _arithmetic(op: Op, a: Types) -> bool:
    if len(a) != 2 or a[0] != a[1] or op.type != a[0]:
        return False
    return (a[0] in INTEGERS and a[0] != "i1") or (a[0] in FLOATS and op.name in ("add", "sub", "mul", "div"))


def _comparison(op: Op, a: Types) -> bool:
    if len(a) != 2 or a[0] != a[1] or op.type != "i1":
        return False
    if op.name in ("eq", "ne"):
        return True
    is_unsigned = op.name[0] == "u"
    return is_unsigned if a[0] in ("ptr", "i1") else not is_unsigned if a[0] in FLOATS else True


def _bitwise(op: Op, a: Types) -> bool:
    if len(a) != 2 or not a[0] == a[1] == op.type or not _is_int(a[0]):
        return False
    return a[0] != "i1" or op.name in ("and", "or", "xor")


def _constant(op: Op, a: Types) -> bool:
    if a or op.type is None:
        return False
    if op.type in FLOATS:
        return isinstance(op.attr, float)
    if op.type == "ptr":
        return op.attr == 0
    if op.type == "i1":
        return op.attr in (0, 1)
    return _is_int(op.type) and -(1 << (INTEGERS[op.type] - 1)) <= op.attr < 1 << (INTEGERS[op.type] - 1)


def _in_memory(t: str | None) -> bool:
    """Memory holds bytes: an i1 is stored as an i8, because its other bits would be undefined."""
    return t in BYTES and t != "i1"


RULES: dict[str, Callable[[Op, Types], bool]] = {
    "const": _constant,
    "symbol": lambda op, a: not a and op.type == "ptr" and isinstance(op.attr, str),
    "select": lambda op, a: len(a) == 3 and a[0] == "i1" and a[1] == a[2] == op.type,
    "load": lambda op, a: a == ["ptr"] and _in_memory(op.type),
    "store": lambda op, a: len(a) == 2 and a[0] == "ptr" and _in_memory(a[1]),
    "offset": lambda op, a: a == ["ptr", "i64"] and op.type == "ptr",
    "prefetch": lambda op, a: a == ["ptr"],
    "atomic_add": lambda op, a: a == ["ptr", "i64"] and op.type == "i64",
    "cas": lambda op, a: a == ["ptr", "i64", "i64"] and op.type == "i64",
    "var": lambda op, a: a == [op.type],
    "get": lambda op, a: a == [op.type],
    "set": lambda op, a: len(a) == 2 and a[0] == a[1],
    "loop": lambda op, a: not a and len(op.blocks) == 1 and (_breaks(op.blocks[0]) or _has_return(op.blocks[0])),
    "break_if": lambda op, a: a == ["i1"],
    "when": lambda op, a: a == ["i1"] and len(op.blocks) == 2,
}
RULES |= dict.fromkeys(ARITHMETIC, _arithmetic)
RULES |= dict.fromkeys(BITWISE, _bitwise)
RULES |= dict.fromkeys(COMPARISONS, _comparison)
RULES |= dict.fromkeys(
    OVERFLOWS, lambda op, a: len(a) == 2 and a[0] == a[1] and a[0] in INTEGERS and a[0] != "i1" and op.type == "i1"
)
RULES |= dict.fromkeys(
    CONVERSIONS, lambda op, a: len(a) == 1 and op.type is not None and _conversion(op.name, a[0], op.type)
)
RULES |= dict.fromkeys(UNARY_FLOAT, lambda op, a: len(a) == 1 and a[0] == op.type and a[0] in FLOATS)
RULES |= dict.fromkeys(
    UNARY_INT,
    lambda op, a: (
        len(a) == 1 and a[0] == op.type and a[0] in INTEGERS and INTEGERS[a[0]] >= (16 if op.name == "bswap" else 8)
    ),
)

WITHOUT_VALUE = ("store", "prefetch", "set", "loop", "break_if", "when", "ret")


def verify(module: Module) -> None:
    """Raise IllegalKernel unless every op is legal, every value is defined once and before use, breaks stand in loops,
    and functions return what they say on every path."""
    for function in module.functions.values():
        _verify_block(
            module,
            function,
            function.body,
            set(range(len(function.params))),
            set(),
            set(range(len(function.params))),
            0,
        )
        if function.returns and not _returns(function.body):
            raise IllegalKernel(f"@{function.name}: a path ends without returning {function.returns}")


def _verify_block(
    module: Module, f: KirFunction, block: list[Op], known: set[int], slots: set[int], assigned: set[int], loops: int
) -> None:
    """`known` and `slots` are the values and variables of the open blocks, `assigned` all of the function so far."""
    known, slots = set(known), set(slots)
    for op in block:
        where = f"@{f.name}: {op.name} {op.args} -> {op.type}"
        for position, a in enumerate(op.args):
            is_slot = op.name in ("get", "set") and position == 0
            if a not in (slots if is_slot else known):
                raise IllegalKernel(f"{where}: %{a} is not {'a variable' if is_slot else 'a value'} here")
        types = [f.types[a] for a in op.args]
        if (op.dst is None) != (op.type is None) or (
            op.name != "call" and (op.dst is None) != (op.name in WITHOUT_VALUE)
        ):
            raise IllegalKernel(f"{where}: a value and its type belong together")
        if op.name == "call":
            _verify_call(module, op, types, where)
        elif op.name == "ret":
            if types != ([f.returns] if f.returns else []):
                raise IllegalKernel(f"{where}: returns {types} from a function of {f.returns}")
            if op is not block[-1]:
                raise IllegalKernel(f"{where}: code after it is never reached")
        elif op.name not in RULES or not RULES[op.name](op, types):
            raise IllegalKernel(f"{where}: illegal with {types}")
        if op.name == "break_if" and not loops:
            raise IllegalKernel(f"{where}: outside of a loop")
        for nested in op.blocks:
            _verify_block(module, f, nested, known, slots, assigned, loops + (op.name == "loop"))
        if op.dst is not None:
            if op.dst in assigned:
                raise IllegalKernel(f"{where}: %{op.dst} is assigned twice")
            if f.types[op.dst] != op.type:
                raise IllegalKernel(f"{where}: %{op.dst} is of type {f.types[op.dst]}")
            assigned.add(op.dst)
            (slots if op.name == "var" else known).add(op.dst)


def _breaks(block: list[Op]) -> bool:
    """Whether a block can leave the loop whose body it is."""
    return any(op.name == "break_if" or (op.name == "when" and any(map(_breaks, op.blocks))) for op in block)


def _has_return(block: list[Op]) -> bool:
    return any(op.name == "ret" or any(map(_has_return, op.blocks)) for op in block)


def _returns(block: list[Op]) -> bool:
    """Whether no path reaches the end of a block."""
    for op in block:
        if (
            op.name == "ret"
            or (op.name == "when" and all(map(_returns, op.blocks)))
            or (op.name == "loop" and not _breaks(op.blocks[0]))
        ):
            return True
    return False


def _verify_call(module: Module, op: Op, types: Types, where: str) -> None:
    if op.attr in module.functions:
        callee = module.functions[op.attr]
        returns, params = callee.returns, list(callee.params)
    elif op.attr in EXTERNS:
        returns, params = EXTERNS[op.attr][0], list(EXTERNS[op.attr][1])
    else:
        raise IllegalKernel(f"{where}: unknown function @{op.attr}")
    if params != types or returns != op.type:
        raise IllegalKernel(f"{where}: @{op.attr} takes {params} and returns {returns}, given {types}")
