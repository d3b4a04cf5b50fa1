"""Between which bounds an expression lies if its columns lie between theirs, as expressions again.

    a / b with a in [a0, a1], b in [b0, b1]   →   [least(a0/b0, a0/b1, ..), greatest(..)], NULL where b may be 0

From what the units that were not read can add to each measure, they prove bounds of a value: certain, not likely."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, Literal
from tsql.kernels.expr.types import BOOLEAN, DOUBLE
from tsql.planner.progressive.measures import binary, number

Ends = tuple[Expr, Expr]
NULL = Literal(None, DOUBLE)


def interval(node: Expr, ends: dict[str, Ends]) -> Ends | None:
    """The bounds of an expression; None if it has something else than arithmetic over columns with bounds."""
    match node:
        case Column(name) if name in ends:
            return ends[name]
        case Literal(value, type) if type.is_numeric and value is not None:
            exact = number(float(value) / 10**type.scale if type.is_decimal else float(value))
            return exact, exact
        case Cast(arg, type) if type.is_float and arg.type.is_numeric:
            return interval(arg, ends)
        case Cast(arg, type) if type.is_numeric and arg.type.is_numeric and _widens(arg, node):
            return interval(arg, ends)
        case Call("neg", (arg,)):
            found = interval(arg, ends)
            return None if found is None else (_neg(found[1]), _neg(found[0]))
        case Call("+" | "-" | "*" | "/" as op, (left, right)) if left.type.is_numeric and right.type.is_numeric:
            a, b = interval(left, ends), interval(right, ends)
            return None if a is None or b is None else _of_two(op, a, b)
    return None


def _widens(arg: Expr, cast: Expr) -> bool:
    """Whether a cast of numbers keeps their values."""
    source, target = arg.type, cast.type
    if source == target:
        return True
    return source.is_integer and (target.is_integer or target.is_decimal)


def _of_two(op: str, a: Ends, b: Ends) -> Ends:
    if op == "+":
        return binary("+", a[0], b[0]), binary("+", a[1], b[1])
    if op == "-":
        return binary("-", a[0], b[1]), binary("-", a[1], b[0])
    if b[0] is b[1]:
        pairs = [binary(op, a[0], b[0]), binary(op, a[1], b[0])]
    elif a[0] is a[1]:
        pairs = [binary(op, a[0], b[0]), binary(op, a[0], b[1])]
    else:
        pairs = [binary(op, x, y) for x in a for y in b]
    low, high = call("least", *pairs), call("greatest", *pairs)
    if op == "*":
        return low, high
    away = Call("or", (compare(">", b[0], number(0.0)), compare("<", b[1], number(0.0))), BOOLEAN)
    return Case(((away, low),), NULL), Case(((away, high),), NULL)


def average(total: Ends, count: Ends, value: Ends, now: tuple[Expr, Expr]) -> Ends:
    """The bounds of an average. total, count: the bounds of both sums; value: of each value that is still to come;
    now: both sums so far. At worst all rows to come have the least value; if some of them may not come, a row more
    pulls the average down only if its value is below it."""
    so_far = binary("/", now[0], now[1])
    left = binary("-", count[1], now[1])
    ends = []
    for name, end, edge in (("least", value[0], total[0]), ("greatest", value[1], total[1])):
        pulled = binary("/", binary("+", now[0], binary("*", left, end)), count[1])
        sure = compare("=", count[0], count[1])
        some = compare(">", left, number(0.0))
        open_ = Case(((some, call(name, so_far, pulled)),), so_far)
        ends.append(Case(((Call("and", (sure, compare(">", count[1], number(0.0))), BOOLEAN),
                           binary("/", edge, count[1])),), open_))  # fmt: skip
    return ends[0], ends[1]


def call(name: str, *args: Expr) -> Expr:
    return args[0] if len(args) == 1 else Call(name, args, DOUBLE)


def compare(op: str, left: Expr, right: Expr) -> Expr:
    return Call(op, (left, right), BOOLEAN)


def _neg(e: Expr) -> Expr:
    return Call("neg", (e,), DOUBLE)
