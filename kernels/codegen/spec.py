"""Which op is legal with which types: `verify` raises on the first op that breaks a rule. Tests run it after every emission."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.kir import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    CONVERSIONS,
    EXTERNS,
    FLOATS,
    INTEGERS,
    OVERFLOWS,
    UNARY_FLOAT,
    UNARY_INT,
    Function,
    Module,
    Op,
)  # fmt: skip


class IllegalKernel(Exception):
    """A kernel that breaks the rules of KIR: a defect of the emitter, never of a query."""


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
        case "itof" | "utof":
            return _is_int(source) and target in FLOATS
        case "ftoi":
            return source in FLOATS and _is_int(target)
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
    return op.name in ("eq", "ne") or (a[0] in FLOATS and op.name in ("lt", "le", "gt", "ge")) or _is_int(a[0]) or (a[0] == "ptr" and op.name[0] == "u")


RULES: dict[str, Callable[[Op, Types], bool]] = {
    "const": lambda op, a: not a and (op.type in FLOATS or _is_int(op.type) or (op.type == "ptr" and op.attr == 0)),
    "select": lambda op, a: len(a) == 3 and a[0] == "i1" and a[1] == a[2] == op.type,
    "load": lambda op, a: a == ["ptr"] and op.type is not None,
    "store": lambda op, a: len(a) == 2 and a[0] == "ptr" and op.dst is None,
    "offset": lambda op, a: a == ["ptr", "i64"] and op.type == "ptr",
    "atomic_add": lambda op, a: a == ["ptr", "i64"] and op.type == "i64",
    "cas": lambda op, a: a == ["ptr", "i64", "i64"] and op.type == "i64",
    "var": lambda op, a: a == [op.type],
    "get": lambda op, a: a == [op.type],
    "set": lambda op, a: len(a) == 2 and a[0] == a[1] and op.dst is None,
    "loop": lambda op, a: not a and len(op.blocks) == 1,
    "break_if": lambda op, a: a == ["i1"],
    "when": lambda op, a: a == ["i1"] and len(op.blocks) == 2,
}
RULES |= dict.fromkeys(ARITHMETIC, _arithmetic)
RULES |= dict.fromkeys(BITWISE, lambda op, a: len(a) == 2 and a[0] == a[1] == op.type and _is_int(a[0]))
RULES |= dict.fromkeys(COMPARISONS, _comparison)
RULES |= dict.fromkeys(OVERFLOWS, lambda op, a: len(a) == 2 and a[0] == a[1] and a[0] in INTEGERS and a[0] != "i1" and op.type == "i1")
RULES |= dict.fromkeys(CONVERSIONS, lambda op, a: len(a) == 1 and _conversion(op.name, a[0], op.type))
RULES |= dict.fromkeys(UNARY_FLOAT, lambda op, a: len(a) == 1 and a[0] == op.type and a[0] in FLOATS)
RULES |= dict.fromkeys(UNARY_INT, lambda op, a: len(a) == 1 and a[0] == op.type and a[0] in INTEGERS and a[0] != "i1")


def verify(module: Module) -> None:
    """Raise IllegalKernel unless every op is legal, every value is defined before use, and breaks stand in loops."""
    for function in module.functions.values():
        _verify_block(module, function, function.body, set(range(len(function.params))), set(), 0)


def _verify_block(module: Module, f: Function, block: list[Op], known: set[int], slots: set[int], loops: int) -> None:
    known, slots = set(known), set(slots)
    for op in block:
        where = f"@{f.name}: {op.name} {op.args} -> {op.type}"
        for position, a in enumerate(op.args):
            is_slot = op.name in ("get", "set") and position == 0
            if a not in (slots if is_slot else known):
                raise IllegalKernel(f"{where}: %{a} is not {'a variable' if is_slot else 'a value'} here")
        types = [f.types[a] for a in op.args]
        if op.name == "call":
            _verify_call(module, op, types, where)
        elif op.name == "ret":
            if types != ([f.returns] if f.returns else []):
                raise IllegalKernel(f"{where}: returns {types} from a function of {f.returns}")
        elif not RULES[op.name](op, types):
            raise IllegalKernel(f"{where}: illegal with {types}")
        if op.name == "break_if" and not loops:
            raise IllegalKernel(f"{where}: outside of a loop")
        for nested in op.blocks:
            _verify_block(module, f, nested, known, slots, loops + (op.name == "loop"))
        if op.dst is not None:
            if op.dst in known or op.dst in slots:
                raise IllegalKernel(f"{where}: %{op.dst} is assigned twice")
            (slots if op.name == "var" else known).add(op.dst)


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
