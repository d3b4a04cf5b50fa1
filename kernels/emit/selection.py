"""Which predicates are decided for many rows at once, before the rest of the pipeline sees any of them.

A filter that few rows pass costs a mispredicted branch, or a wait for memory, for each of them. Where a cheap condition
rejects most of the other rows, `ColumnarScan.select` computes it for a few thousand rows in a vectorised loop, gathers
the numbers of the rows that pass, and runs the pipeline over these only.
"""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.dictionary import emit_on_codes
from tsql.kernels.emit.expressions import Row, emit_literal, emit_predicate
from tsql.kernels.emit.rows import CodeDatum
from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, InList, Literal, Parameter
from tsql.kernels.functions.registry import SCALARS


def is_plain(expr: Expr) -> bool:
    """Arithmetic, comparisons and logic over fixed-width values, without branches or calls."""
    for node in expr.walk():
        match node:
            case Column() | Literal() | Parameter():
                if node.type.is_string or node.type.name == "INTERVAL":
                    return False
            case Call():
                f = SCALARS.find(node.name, tuple(a.type for a in node.args))
                if f.lazy or f.emit is None:
                    return False
            case Cast():
                if node.type.is_string or node.arg.type.is_string or node.safe:
                    return False
            case Case():
                return False
            case InList():
                if len(node.options) > 8:
                    return False
    return True


def is_safe(expr: Expr) -> bool:
    """Plain, and cannot fail: it may be computed for rows that an earlier filter would reject."""
    return is_plain(expr) and not any(
        isinstance(e, Cast) or (isinstance(e, Call) and _can_fail(e)) for e in expr.walk()
    )


def _can_fail(call: Call) -> bool:
    return SCALARS.find(call.name, tuple(a.type for a in call.args)).can_fail


def is_selectable(expr: Expr) -> bool:
    """Whether there is a cheap condition that holds for all rows that pass the predicate, and for few others."""
    return (
        is_safe(expr)
        or string_equality(expr) is not None
        or (isinstance(expr, Call) and expr.name == "and" and any(map(is_selectable, expr.args)))
    )


def string_equality(expr: Expr) -> tuple[Column, Literal] | None:
    """The column and the constant of `column = 'constant'`."""
    match expr:
        case Call("=", (Column() as column, Literal() as literal)) | Call(
            "=", (Literal() as literal, Column() as column)
        ):
            return (column, literal) if column.type.is_string and literal.value is not None else None
    return None


def decides(k: PipelineKernel, expr: Expr, row: Row) -> bool:
    """Whether the cheap condition of a predicate over this row is the predicate itself."""
    equality = string_equality(expr)
    if equality is not None:
        return isinstance(row.column(k, equality[0].name), CodeDatum)
    return is_safe(expr) or (
        isinstance(expr, Call) and expr.name == "and" and all(decides(k, part, row) for part in expr.args)
    )


def emit_condition(k: PipelineKernel, expr: Expr, row: Row) -> Val:
    """i1: the cheap condition; it holds wherever the predicate does."""
    equality = string_equality(expr)
    if equality is not None:
        on_codes = emit_on_codes(k, expr, row)
        if on_codes is not None:
            return on_codes.value if on_codes.valid is None else on_codes.value & on_codes.valid
        column, literal = equality
        return row.column(k, column.name).len == emit_literal(k, literal).len
    if is_safe(expr):
        return emit_predicate(k, expr, row)
    if isinstance(expr, Call) and expr.name == "and":
        hit = k.true
        for part in expr.args:
            hit = hit & emit_condition(k, part, row)
        return hit
    return k.true
