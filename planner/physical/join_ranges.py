"""Comparisons in joins that bound numbers of the built side by expressions of the other: `range=` and `overlap=` of a
`hash_join`. Steps ask for their bounds, and `choose/bands.py` for what can be one."""

from __future__ import annotations

from collections.abc import Sequence

from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import TIMESTAMP, TIMESTAMPTZ, Type
from tsql.kernels.process.quick_dataclass import dataclass

MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
DAY_US = 86_400_000_000
LONGEST_SHIFT = 1 << 61
"""No length of time in a bound is longer, so that a bound and a length together fit 64 bits."""


@dataclass(frozen=True)
class Bound:
    """A number n of the built side satisfies `n + shift op other`, `shift` being microseconds."""

    op: str
    other: Expr
    shift: int = 0

    def __str__(self) -> str:
        return f"{self.op} {self.other}{f' less {self.shift} us' if self.shift else ''}"


def is_number(t: Type) -> bool:
    """Whether values of a type are sorted as 64-bit integers."""
    return (
        (t.is_integer and t.bits <= 64 and t.name != "UBIGINT")
        or (t.is_decimal and t.bits <= 64)
        or t.name in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ")
    )


def bound(part: Expr, built: Schema) -> tuple[Expr, Bound] | None:
    """The number of the built side that a comparison bounds by an expression of the other, and its bound."""
    if not (isinstance(part, Call) and part.name in MIRROR):
        return None
    a, b = part.args
    if not (a.columns() and b.columns()):
        return None
    mine = [all(c in built for c in side.columns()) for side in (a, b)]
    strange = [any(c in built for c in side.columns()) for side in (a, b)]
    if mine[0] and not strange[1]:
        return a, Bound(part.name, b)
    if mine[1] and not strange[0]:
        return b, Bound(MIRROR[part.name], a)
    return None


def moved(number: Expr) -> tuple[Expr, int]:
    """A time as another one and a constant number of microseconds after it; 0 if it is not of that form."""
    match number:
        case Call("+" | "-" as sign, (Column() as time, Literal((0, days, us)))) if (
            number.type == time.type and time.type in (TIMESTAMP, TIMESTAMPTZ)
        ):
            length = (days * DAY_US + us) * (1 if sign == "+" else -1)
            if abs(length) <= LONGEST_SHIFT:
                return time, length
    return number, 0


def bounds(parts: Sequence[Expr], built: Schema) -> tuple[Expr, tuple[Bound, ...]] | None:
    """The one number of the built side that all comparisons bound, and its bounds. Times that differ by a constant are
    one number: the first of `b_from < a_to` and `a_from < b_from + INTERVAL '1 hour'`."""
    found = [bound(part, built) for part in parts]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    if len({number for number, _ in known}) == 1:
        return known[0][0], tuple(one for _, one in known)
    bases = [(*moved(number), one) for number, one in known]
    if len({base for base, _, _ in bases}) > 1:
        return None
    return bases[0][0], tuple(Bound(one.op, one.other, shift) for _, shift, one in bases)


def is_range(parts: Sequence[Expr], built: Schema) -> bool:
    """Whether comparisons bound one number of the built side by expressions of the other."""
    found = bounds(parts, built)
    return found is not None and is_number(found[0].type) and all(is_number(one.other.type) for one in found[1])


def is_overlap(part: Expr, parts: Sequence[Expr], built: Schema) -> bool:
    """Whether a comparison bounds a second number of the built side from below, beside a range."""
    found = bound(part, built)
    return found is not None and found[1].op[0] == ">" and is_number(found[0].type) and is_range(parts, built)
