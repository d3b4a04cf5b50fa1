"""Expressions to KIR: walks a typed `Expr` and emits it over a row. Every operator that evaluates an expression calls
it.

NULLs are kept apart from values: the validity of a Datum is combined from those of its arguments, and columns that
cannot be NULL cost nothing. Literals in comparisons become parameter slots, so the same query with another date is the
same kernel. Literals in arithmetic are baked in, because their bounds choose the arithmetic."""

from __future__ import annotations

from typing import Any

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel, Slot
from tsql.kernels.emit.datum import Datum, Row, all_valid, both, literal_parts, null, smallest_int
from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, InList, Literal, Parameter
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.functions.registry import SCALARS, Function
from tsql.kernels.process import stopping


def emit(k: PipelineKernel, expr: Expr, row: Row) -> Datum:
    """The value of `expr` for `row`."""
    stopping.check()
    match expr:
        case Column():
            return row.column(k, expr.name)
        case Literal():
            return emit_literal(k, expr)
        case Parameter():
            valid, *_ = k.slot(Slot("parameter_valid", None, expr.name), ("i64",))
            return Datum(expr.type, _slot_parts(k, Slot("parameter", expr.type, expr.name), expr), valid != 0)
        case Cast():
            return _emit_cast(k, expr, row)
        case Case():
            return _emit_case(k, expr, row)
        case InList() | Call():
            from tsql.kernels.emit.dictionary import emit_on_codes

            on_codes = emit_on_codes(k, expr, row)
            if on_codes is not None:
                return on_codes
            return _emit_in_list(k, expr, row) if isinstance(expr, InList) else _emit_call(k, expr, row)
    raise TypeError(f"cannot emit {expr!r}")


def emit_predicate(k: PipelineKernel, expr: Expr, row: Row) -> Val:
    """i1: whether the predicate is true (not false and not NULL)."""
    d = emit(k, expr, row)
    return d.value if d.valid is None else d.value & d.valid


def emit_literal(k: PipelineKernel, expr: Literal, as_slot: bool = False) -> Datum:
    """A constant: baked into the code, or read from a slot (always a slot for strings)."""
    if expr.value is None:
        return null(k, expr.type)
    if as_slot or expr.type.is_string:
        return Datum(expr.type, _slot_parts(k, Slot("literal", expr.type, expr), expr))
    value = expr.value
    if not isinstance(value, int) or isinstance(value, bool):
        return Datum(expr.type, literal_parts(k, expr.type, value))
    # What has bounds is a signed number: 200 of a UTINYINT is not one in eight bits.
    parts = (
        (k.const(smallest_int(value, value), value),) if expr.type.is_unsigned else literal_parts(k, expr.type, value)
    )
    return Datum(expr.type, parts, None, (value, value))


def _slot_parts(k: PipelineKernel, slot: Slot, expr: Expr) -> tuple[Val, ...]:
    types = expr.type.parts
    if types == ("i1",):
        return (k.slot(slot, ("i64",))[0] != 0,)
    if types[0] in ("i8", "i16", "i32") and len(types) == 1:
        return (k.slot(slot, ("i64",))[0].to(types[0]),)
    if types == ("f32",):
        return (k.slot(slot, ("f64",))[0].to("f32"),)
    return k.slot(slot, types)


SHORT_LIST = 8
"""Up to this many options of IN are compared one by one."""

COMPARISONS = {"=", "<>", "<", "<=", ">", ">=", "is_distinct_from", "is_not_distinct_from", "like", "ilike"}


def _emit_call(k: PipelineKernel, expr: Call, row: Row) -> Datum:
    function = SCALARS.find(expr.name, tuple(a.type for a in expr.args))
    if function.emit is None:
        raise TypeError(f"{expr.name} is a host function and must be computed before the kernel")
    if function.nulls == "expression":
        return function.emit(k, expr, row)
    args = tuple(
        emit_literal(k, a, as_slot=expr.name in COMPARISONS) if isinstance(a, Literal) else emit(k, a, row)
        for a in expr.args
    )
    return apply(k, function, args, expr)


def apply(k: PipelineKernel, function: Function, args: tuple[Datum, ...], expr: Expr) -> Datum:
    """Apply a function to values. The result of a strict function is valid if its arguments and its own result are."""
    if function.nulls == "custom":
        with k.guarded(k.frame.guard, getattr(expr, "position", None)):
            return as_datum(
                k, _body(k, function, args if function.ranged else tuple(a.wide() for a in args), expr), expr
            )
    if not function.ranged:
        args = tuple(a.wide() for a in args)
    valid = all_valid(args)
    if function.lazy and valid is not None:
        return _lazily(k, function, args, valid, expr)
    with k.guarded(both(k.frame.guard, valid), getattr(expr, "position", None)):
        result = as_datum(k, _body(k, function, args, expr), expr)
    return result.with_valid(both(valid, result.valid))


def _lazily(k: PipelineKernel, function: Function, args: tuple[Datum, ...], valid: Val, expr: Expr) -> Datum:
    slots = [k.var(k.const(t, 0)) for t in expr.type.parts]
    ok = k.var(k.false)
    with k.when(valid), k.guarded(None, getattr(expr, "position", None)):
        result = as_datum(k, _body(k, function, tuple(a.with_valid(None) for a in args), expr), expr).wide()
        for slot, part in zip(slots, result.parts, strict=True):
            slot.set(part)
        ok.set(k.true if result.valid is None else result.valid)
    return Datum(expr.type, tuple(s.value for s in slots), ok.value)


def _body(k: PipelineKernel, function: Function, args: tuple[Datum, ...], expr: Expr) -> Any:
    if function.emit is None:
        raise TypeError(f"{function.name} is evaluated by the host")
    return function.emit(k, expr.type, *args) if function.typed else function.emit(k, *args)


def as_datum(k: PipelineKernel, result: Any, expr: Expr) -> Datum:
    """The result of an emit function as a Datum of the call's type."""
    if isinstance(result, Datum):
        return result
    return Datum(expr.type, result if isinstance(result, tuple) else (result,))


def _emit_cast(k: PipelineKernel, expr: Cast, row: Row) -> Datum:
    from tsql.kernels.functions.casts.cast import emit_cast

    arg = emit(k, expr.arg, row)
    with k.guarded(both(k.frame.guard, arg.valid), expr.position):
        result = emit_cast(k, arg, expr.type, expr.safe)
    return result


def _emit_case(k: PipelineKernel, expr: Case, row: Row) -> Datum:
    """Branches run only where taken; plain columns and constants become selects."""
    if (
        all(isinstance(e, Column | Literal | Parameter) for e in (*(v for _, v in expr.whens), expr.otherwise))
        and len(expr.whens) == 1
        and not expr.type.is_string
    ):
        condition, value = expr.whens[0]
        taken = emit_predicate(k, condition, row)
        a, b = emit(k, value, row).wide(), emit(k, expr.otherwise, row).wide()
        valid = None
        if a.valid is not None or b.valid is not None:
            valid = k.select(taken, k.true if a.valid is None else a.valid, k.true if b.valid is None else b.valid)
        ranged = (min(a.bounds[0], b.bounds[0]), max(a.bounds[1], b.bounds[1])) if a.range and b.range else None
        return Datum(
            expr.type, tuple(k.select(taken, x, y) for x, y in zip(a.parts, b.parts, strict=True)), valid, ranged
        )
    slots = [k.var(k.const(t, 0)) for t in expr.type.parts]
    ok = k.var(k.false)

    def assign(value: Expr) -> None:
        d = emit(k, value, row).wide()
        for slot, part in zip(slots, d.parts, strict=True):
            slot.set(part)
        ok.set(k.true if d.valid is None else d.valid)

    done = k.var(k.false)
    for condition, value in expr.whens:
        with k.when(~done.value):
            taken = emit_predicate(k, condition, row)
            with k.when(taken):
                assign(value)
                done.set(k.true)
    with k.when(~done.value):
        assign(expr.otherwise)
    return Datum(expr.type, tuple(s.value for s in slots), ok.value)


def _emit_in_list(k: PipelineKernel, expr: InList, row: Row) -> Datum:
    """x IN (constants): NULL if x is NULL, or if nothing matches and an option is NULL."""
    from tsql.kernels.emit.in_list import emit_long_list

    arg = emit(k, expr.arg, row)
    equal = SCALARS.find("=", (expr.arg.type, expr.arg.type))
    options = [o for o in expr.options if not (isinstance(o, Literal) and o.value is None)]
    found = k.false
    unknown = k.false if len(options) == len(expr.options) else k.true
    constants = [o for o in options if isinstance(o, Literal)]
    if len(options) > SHORT_LIST and len(constants) == len(options):
        known = emit_long_list(k, arg.with_valid(None), constants)
        if known is not None:
            return Datum(BOOLEAN, (known,), both(arg.valid, known | ~unknown))
    for option in options:
        value = emit_literal(k, option, as_slot=True) if isinstance(option, Literal) else emit(k, option, row)
        hit = apply(k, equal, (arg.with_valid(None), value), Call("=", (expr.arg, option), BOOLEAN))
        if hit.valid is not None:
            unknown = unknown | ~hit.valid
            found = found | (hit.value & hit.valid)
        else:
            found = found | hit.value
    valid = both(arg.valid, found | ~unknown)
    return Datum(BOOLEAN, (found,), valid)
