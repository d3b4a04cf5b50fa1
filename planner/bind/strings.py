"""Binds string syntax: GLOB, subscripts, slices and COLLATE.

A collation belongs to the comparison, not to the value: `a COLLATE NOCASE = b` compares lower(a) with lower(b). So
COLLATE is allowed as an operand of a comparison, IN, BETWEEN, LIKE and CASE, and in ORDER BY. Elsewhere (a select list,
GROUP BY, an argument) it is refused rather than ignored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.kernels.expr.nodes import Call, Expr, Literal
from tsql.kernels.expr.types import BIGINT, BLOB, BOOLEAN, NULL, VARCHAR, implicit_cast_cost
from tsql.planner.bind.types import castable, coerce, is_bare_string, settle

if TYPE_CHECKING:
    from tsql.planner.bind.binder import Binder

COLLATIONS = {"nocase": "lower", "noaccent": "strip_accents", "nfc": "nfc_normalize"}
"""The function applied to a string before it is compared; `NOCASE.NOACCENT` applies both."""


def collation_names(node: exp.Collate) -> list[str]:
    """The collations of `x COLLATE a.b`, as written."""
    named = node.expression
    return [part.name for part in named.parts] if isinstance(named, exp.Column) else named.name.split(".")


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def operands(binder: Binder, nodes: Sequence[exp.Expr]) -> list[Expr]:
    """Operands of one comparison: if any of them has a collation, it holds for all."""
    found: tuple[str, ...] | None = None
    bound = []
    for node in nodes:
        inner = _unwrapped(node)
        if not isinstance(inner, exp.Collate):
            bound.append(binder.operand(node))
            continue
        functions = _functions(binder, inner)
        if found is not None and found != functions:
            raise binder.error("Cannot combine types with different collation", inner)
        found = functions
        bound.append(_collated_text(binder, inner))
    return bound if found is None else [_apply(found, value) for value in bound]


def collated(binder: Binder, node: exp.Expr) -> Expr:
    """The value of one expression as it is ordered: under its collation, if it has one."""
    return operands(binder, [node])[0] if isinstance(_unwrapped(node), exp.Collate) else binder.bind(node)


def _functions(binder: Binder, node: exp.Collate) -> tuple[str, ...]:
    names = [name.lower() for name in collation_names(node)]
    for name in names:
        if name not in COLLATIONS:
            raise binder.error(
                f"Collation with name {name} does not exist",
                node,
                hint=f"there is {', '.join(c.upper() for c in COLLATIONS)}",
            )
    return tuple(function for name, function in COLLATIONS.items() if name in names)


def _collated_text(binder: Binder, node: exp.Collate) -> Expr:
    value = binder.operand(node.this)
    if value.type != VARCHAR:
        raise binder.error("collations are only supported for type varchar", node)
    return coerce(value, VARCHAR)


def _apply(functions: tuple[str, ...], value: Expr) -> Expr:
    if value.type not in (VARCHAR, NULL):
        return value
    result = coerce(value, VARCHAR)
    for function in functions:
        result = Call(function, (result,), VARCHAR, getattr(value, "position", None))
    return result


def _bind_collate(binder: Binder, node: exp.Collate) -> Expr:
    raise binder.error(
        "COLLATE is supported in comparisons and in ORDER BY only",
        node,
        hint="lower(x), strip_accents(x) and nfc_normalize(x) do the same to a value",
    )


def _bind_glob(binder: Binder, node: exp.Glob) -> Expr:
    position = binder.operator_position(node)
    args = []
    for side in operands(binder, (node.this, node.expression)):
        if side.type not in (VARCHAR, NULL):
            raise binder.error(
                f"GLOB takes VARCHAR, not {side.type}", node, hint="an explicit cast may be needed: CAST(x AS VARCHAR)"
            )
        args.append(coerce(side, VARCHAR))
    return Call("glob", tuple(args), BOOLEAN, position)


def _bind_bracket(binder: Binder, node: exp.Bracket) -> Expr:
    """`s[i]` is a character, counted from 1 or from the end; `s[a:b]` the characters from a to b."""
    position = binder.position(node)
    if len(node.expressions) != 1:
        raise binder.error("[..] takes one index, or a slice [from:to]", node)
    index = node.expressions[0]
    value = binder.operand(node.this)
    if isinstance(index, exp.Slice):
        if index.args.get("step") is not None:
            raise binder.error("a slice of a string takes no step", node)
        ends = [index.args.get(end) for end in ("this", "expression")]
        return slice_text(binder, value, [None if end is None else binder.operand(end) for end in ends], node)
    if value.type not in (VARCHAR, NULL):
        raise binder.error(f"there is no subscript [..] of {value.type}", node)
    at = binder.operand(index)
    if not (
        at.type == NULL
        or is_bare_string(at)
        or (at.type.is_integer and implicit_cast_cost(at.type, BIGINT) is not None)
    ):
        raise binder.error(
            f"an index is BIGINT, not {at.type}", index, hint="an explicit cast may be needed: CAST(x AS BIGINT)"
        )
    return Call("array_extract", (coerce(value, VARCHAR), coerce(at, BIGINT)), VARCHAR, position)


def slice_text(binder: Binder, value: Expr, ends: list[Expr | None], node: exp.Expr) -> Expr:
    """The characters (of a BLOB: the bytes) of `value` between two places; an end that is left out is that of the
    string."""
    if value.type not in (VARCHAR, BLOB, NULL):
        raise binder.error(f"there is no slice [..:..] of {value.type}", node)
    if value.type == NULL:
        return value
    bounds = []
    for end, default in zip(ends, (1, -1), strict=True):
        if end is not None and not castable(end.type, BIGINT):
            raise binder.error(f"the ends of a slice are numbers, not {end.type}", node)
        bounds.append(Literal(default, BIGINT) if end is None else coerce(end, BIGINT))
    return Call("array_slice", (settle(value), *bounds), value.type, binder.position(node))


HANDLERS: dict[type[exp.Expr], Callable[[Binder, Any], Expr]] = {
    exp.Glob: _bind_glob,
    exp.Collate: _bind_collate,
    exp.Bracket: _bind_bracket,
}
