"""Comparisons and three-valued logic: = <> < <= > >=, IS [NOT] DISTINCT FROM, IS NULL, AND, OR, NOT, COALESCE."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, Row
from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, InList, Literal, Parameter
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.functions.arithmetic import number, same_width
from tsql.kernels.functions.registry import SCALARS, function
from tsql.kernels.runtime.text.strings import str_cmp, str_eq

KIR_NAME = {"=": "eq", "<>": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def compare(k: Kernel, name: str, a: Datum, b: Datum) -> Val:
    """i1: a `name` b, for two values of one type that are not NULL."""
    t = a.type
    if t.is_string:
        if name in ("=", "<>"):
            same = str_eq(k, a.ptr, a.len, b.ptr, b.len)
            return same if name == "=" else ~same
        return k.emit(KIR_NAME[name], "i1", str_cmp(k, a.ptr, a.len, b.ptr, b.len), k.i64(0))
    if t.is_float:
        return _compare_floats(k, name, a.value, b.value)
    if t.name == "INTERVAL":
        return k.emit(KIR_NAME[name], "i1", interval_order(k, a), interval_order(k, b))
    if t == BOOLEAN:
        return k.emit(KIR_NAME[name], "i1", a.value.uto("i8"), b.value.uto("i8"))
    x, y = same_width(number(a), number(b))
    return k.emit(KIR_NAME[name], "i1", x, y)


def interval_order(k: Kernel, d: Datum) -> Val:
    """An interval as microseconds with months of 30 days, which is how intervals compare."""
    months, days, micros = d.parts
    return (months.to("i128") * 30 + days.to("i128")) * 86_400_000_000 + micros.to("i128")


def _compare_floats(k: Kernel, name: str, a: Val, b: Val) -> Val:
    """NaN equals itself and is greater than every other number."""
    a_nan, b_nan = a != a, b != b
    match name:
        case "=":
            return (a == b) | (a_nan & b_nan)
        case "<>":
            return ~((a == b) | (a_nan & b_nan))
        case "<":
            return (a < b) | (~a_nan & b_nan)
        case "<=":
            return (a <= b) | b_nan
        case ">":
            return (a > b) | (a_nan & ~b_nan)
    return (a >= b) | a_nan


def _register(name: str) -> None:
    @function(name, args=("any:T", "any:T"), returns=BOOLEAN, ranged=True)
    def comparison(k: PipelineKernel, a: Datum, b: Datum) -> Val:
        return compare(k, name, a, b)


for _name in KIR_NAME:
    _register(_name)


def not_distinct(k: PipelineKernel, a: Datum, b: Datum) -> Val:
    """i1: equal, where NULL equals NULL."""
    same = compare(k, "=", a, b)
    if a.valid is None and b.valid is None:
        return same
    a_valid = k.true if a.valid is None else a.valid
    b_valid = k.true if b.valid is None else b.valid
    return (a_valid & b_valid & same) | (~a_valid & ~b_valid)


@function("is_not_distinct_from", args=("any:T", "any:T"), returns=BOOLEAN, nulls="custom", ranged=True)
def is_not_distinct_from(k: PipelineKernel, a: Datum, b: Datum) -> Val:
    return not_distinct(k, a, b)


@function("is_distinct_from", args=("any:T", "any:T"), returns=BOOLEAN, nulls="custom", ranged=True)
def is_distinct_from(k: PipelineKernel, a: Datum, b: Datum) -> Val:
    return ~not_distinct(k, a, b)


@function("is_null", args=("any",), returns=BOOLEAN, nulls="custom", ranged=True)
def is_null(k: PipelineKernel, a: Datum) -> Val:
    return k.false if a.valid is None else ~a.valid


@function("is_not_null", args=("any",), returns=BOOLEAN, nulls="custom", ranged=True)
def is_not_null(k: PipelineKernel, a: Datum) -> Val:
    return k.true if a.valid is None else a.valid


@function("not", args=(BOOLEAN,), returns=BOOLEAN)
def negate(k: PipelineKernel, a: Datum) -> Val:
    return ~a.value


def is_cheap(expr: Expr) -> bool:
    """Whether an expression is a few instructions that cannot fail, so that evaluating it needlessly beats a branch."""
    for count, node in enumerate(expr.walk()):
        if count > 24 or isinstance(node, Case):
            return False
        if isinstance(node, Call):
            f = SCALARS.find(node.name, tuple(a.type for a in node.args))
            if f.lazy or f.can_fail or f.emit is None or any(a.type.is_string for a in node.args):
                return False
        elif isinstance(node, InList) and (node.arg.type.is_string or len(node.options) > 8):
            return False
        elif isinstance(node, Cast) and not (node.type.is_numeric and node.arg.type.is_integer):
            return False
        elif not isinstance(node, Column | Literal | Parameter | InList | Cast):
            return False
    return True


def _connective(k: PipelineKernel, call: Call, row: Row, decisive: bool) -> Datum:
    """AND (decided by false) or OR (decided by true). An argument that is not cheap runs only while nothing is decided.

    `decided`: some argument had the deciding value; `unknown`: some argument was NULL.
    """
    from tsql.kernels.emit.expressions import emit

    decided, unknown = k.var(k.false), k.var(k.false)
    may_be_null = False

    def add(arg: Expr) -> None:
        nonlocal may_be_null
        d = emit(k, arg, row)
        hit = d.value if decisive else ~d.value
        if d.valid is not None:
            may_be_null = True
            unknown.set(unknown.value | ~d.valid)
            hit = hit & d.valid
        decided.set(decided.value | hit)

    for position, arg in enumerate(call.args):
        if position == 0 or is_cheap(arg):
            add(arg)
        else:
            with k.when(~decided.value):
                add(arg)
    value = decided.value if decisive else ~decided.value
    return Datum(BOOLEAN, (value,), decided.value | ~unknown.value if may_be_null else None)


@function("and", args=(BOOLEAN, BOOLEAN), variadic=True, returns=BOOLEAN, nulls="expression")
def conjunction(k: PipelineKernel, call: Call, row: Row) -> Datum:
    return _connective(k, call, row, decisive=False)


@function("or", args=(BOOLEAN, BOOLEAN), variadic=True, returns=BOOLEAN, nulls="expression")
def disjunction(k: PipelineKernel, call: Call, row: Row) -> Datum:
    return _connective(k, call, row, decisive=True)


@function("coalesce", args=("any:T",), variadic=True, returns=lambda first, *rest: first, nulls="expression")
def coalesce(k: PipelineKernel, call: Call, row: Row) -> Datum:
    """The first argument that is not NULL; later ones run only while none was found."""
    from tsql.kernels.emit.expressions import emit

    first = emit(k, call.args[0], row).wide()
    if first.valid is None or len(call.args) == 1:
        return first
    slots = [k.var(part) for part in first.parts]
    found = k.var(first.valid)
    for arg in call.args[1:]:
        with k.when(~found.value):
            d = emit(k, arg, row).wide()
            for slot, part in zip(slots, d.parts, strict=True):
                slot.set(part)
            found.set(k.true if d.valid is None else d.valid)
    return Datum(call.type, tuple(s.value for s in slots), found.value)
