"""How much a value changes with each total that it is computed from: the derivatives of an expression.

    sum(x) / count(*)   →   1 / count(*) for the sum, -sum(x) / count(*)^2 for the count

With them, the error of a value follows from the errors of the totals (the delta method). What has no derivative here
(CASE, texts, most functions) has no bounds."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, Literal
from tsql.kernels.expr.types import DOUBLE
from tsql.planner.progressive.measures import binary, number

ROUNDED = ("round", "floor", "ceil", "ceiling", "trunc")
"""They move a value by less than the last digit that is shown."""


def slopes(value: Expr) -> dict[str, Expr] | None:
    """The derivative of a value by each column in it; None if it has none."""
    found = _derived(value)
    return None if found is None else found[1]


def in_doubles(value: Expr) -> Expr | None:
    """The value in the arithmetic of doubles; None if there is something else than arithmetic in it."""
    found = _derived(value)
    return None if found is None else found[0]


def _derived(node: Expr) -> tuple[Expr, dict[str, Expr]] | None:
    match node:
        case Column(name, type) if type.is_numeric:
            plain = node if type == DOUBLE else Cast(node, DOUBLE)
            return plain, {name: number(1.0)}
        case Literal(value, type) if type.is_numeric and value is not None:
            return number(float(value) / 10**type.scale if type.is_decimal else float(value)), {}
        case Cast(arg, type) if type.is_numeric and arg.type.is_numeric:
            return _derived(arg)
        case Call(name, (arg, *_)) if name in ROUNDED:
            return _derived(arg)
        case Call("neg", (arg,)):
            found = _derived(arg)
            return None if found is None else (_neg(found[0]), {n: _neg(e) for n, e in found[1].items()})
        case Call("sqrt", (arg,)):
            found = _derived(arg)
            if found is None:
                return None
            root = Call("sqrt", (found[0],), DOUBLE)
            return root, {n: binary("/", e, binary("*", number(2.0), root)) for n, e in found[1].items()}
        case Call("greatest" | "coalesce", (arg, Literal() | Cast(Literal()))):
            return _derived(arg)
        case Call("+" | "-" | "*" | "/" as op, (left, right)) if left.type.is_numeric and right.type.is_numeric:
            return _of_two(op, _derived(left), _derived(right))
    return None


Derived = tuple[Expr, dict[str, Expr]] | None


def _of_two(op: str, left: Derived, right: Derived) -> Derived:
    if left is None or right is None:
        return None
    (a, da), (b, db) = left, right
    names = dict.fromkeys((*da, *db))
    if op in "+-":
        by = {n: _sum(da.get(n), db.get(n) if op == "+" else _neg(db[n]) if n in db else None) for n in names}
    elif op == "*":
        by = {n: _sum(_times(da.get(n), b), _times(db.get(n), a)) for n in names}
    else:
        falls = _neg(binary("/", a, binary("*", b, b)))
        by = {n: _sum(_over(da.get(n), b), _times(db.get(n), falls)) for n in names}
    return binary(op, a, b), {n: e for n, e in by.items() if e is not None}


def _neg(e: Expr) -> Expr:
    return Call("neg", (e,), DOUBLE)


def _sum(a: Expr | None, b: Expr | None) -> Expr | None:
    return b if a is None else a if b is None else binary("+", a, b)


def _times(a: Expr | None, b: Expr) -> Expr | None:
    return None if a is None else b if a == number(1.0) else binary("*", a, b)


def _over(a: Expr | None, b: Expr) -> Expr | None:
    return None if a is None else binary("/", a, b)
