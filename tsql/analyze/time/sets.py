"""Plans of UNION, INTERSECT and EXCEPT over temporal relations: at each instant they apply to the rows alive then.

Without ALL the result is coalesced. With ALL only the number of equal rows is defined at each instant: the n-th copy of
a row exists while there are at least n, in maximal pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tsql.analyze.scope import AnalyzedRelation, Life, Names
from tsql.analyze.time.cut import coalesced, covered, domain_of, levels, uncovered, union
from tsql.analyze.time.lifetimes import always, bounds, columns_of, kept, new_life
from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, Literal, SortKey
from tsql.kernels.expr.types import BIGINT, BOOLEAN, HUGEINT, TIMESTAMP, Type
from tsql.kernels.windows.call import WHOLE_PARTITION, WindowCall
from tsql.planner.bind.types import coerce
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.generating import Series


def combined(
    kind: str,
    keep_all: bool,
    sides: Sequence[AnalyzedRelation],
    columns: Sequence[str],
    types: Sequence[Type],
    taken: Iterable[str],
) -> tuple[logical.Node, Life]:
    """A set operation of relations, with these columns of these types; a plain one among them is alive always."""
    life = new_life((*taken, *columns))
    plans = [_recast(side, columns, types, life, taken) for side in sides]
    if kind == "union":
        plan = union(plans)
        return (plan, life) if keep_all else (coalesced(plan, columns, life, taken), life)
    left, right = plans
    if keep_all:
        return _copies(kind, left, right, columns, life, taken), life
    distinct = coalesced(left, columns, life, taken)
    if kind == "intersect":
        plan, result = covered(distinct, right, columns, life, life, taken)
    else:
        plan, result = uncovered(distinct, domain_of(left, columns), right, columns, life, life, taken)
    return logical.Project(plan, (*kept(plan, columns), *kept(plan, result.columns))), result


def _recast(
    side: AnalyzedRelation, columns: Sequence[str], types: Sequence[Type], life: Life, taken: Iterable[str]
) -> logical.Node:
    plan, own = (side.plan, side.life) if side.life is not None else always(side.plan, taken)
    start, end = bounds(own)
    shown = [(name, coerce(f.to_column(), dtype)) for name, f, dtype in zip(columns, side.fields, types, strict=True)]
    return logical.Project(plan, (*shown, (life.start, start), (life.end, end)))


def _copies(
    kind: str, left: logical.Node, right: logical.Node, columns: Sequence[str], life: Life, taken: Iterable[str]
) -> logical.Node:
    """INTERSECT ALL and EXCEPT ALL, by counting the copies of each row on both sides."""
    names = Names((*taken, *columns, *life.columns))
    counts = ours, theirs = names.unique("left_rows"), names.unique("right_rows")
    sides = []
    for side, ones in ((left, (1, 0)), (right, (0, 1))):
        sides.append(
            logical.Project(
                side, (*kept(side), *((name, Literal(one, BIGINT)) for name, one in zip(counts, ones, strict=True)))
            )
        )
    sums = [names.unique("left_alive"), names.unique("right_alive")]
    values: list[tuple[str, Expr]] = [
        (total, Column(name, BIGINT)) for total, name in zip(sums, (ours, theirs), strict=True)
    ]
    plan, span = levels(union(sides), columns, life, values, taken)
    a, b = (Column(name, HUGEINT) for name in sums)
    number = (
        Call("least", (a, b), HUGEINT)
        if kind == "intersect"
        else Call("greatest", (Call("-", (a, b), HUGEINT), Literal(0, HUGEINT)), HUGEINT)
    )
    return _numbered(plan, columns, span, Cast(number, BIGINT), life, names)


def _numbered(
    plan: logical.Node, columns: Sequence[str], span: Life, number: Expr, life: Life, names: Names
) -> logical.Node:
    """The n-th copy of a row for as long as `number` is at least n. It begins where the number rises above n - 1 and
    ends where it falls below n. The work depends on how much the number changes, not on how large it is."""
    rows, before, last, copy, until = (
        names.unique(name) for name in ("copies", "copies_before", "last_end", "copy", "copy_end")
    )
    start, end = bounds(span)
    plan = logical.Project(plan, (*kept(plan, columns), (rows, number), *kept(plan, span.columns)))
    now, then = Column(rows, BIGINT), Call("coalesce", (Column(before, BIGINT), Literal(0, BIGINT)), BIGINT)
    seen = (before, WindowCall("lag", (now,), BIGINT)), (last, WindowCall("max", (end,), TIMESTAMP, WHOLE_PARTITION))
    plan = logical.Window(plan, tuple(columns_of(plan, columns)), (SortKey(start),), seen)
    changed = logical.Filter(plan, Call("<>", (now, then), BOOLEAN))
    low = Call("+", (Call("least", (now, then), BIGINT), Literal(1, BIGINT)), BIGINT)
    plan = Series(changed, copy, low, Call("greatest", (now, then), BIGINT), Literal(1, BIGINT), inclusive=True)
    plan = logical.Window(
        plan,
        tuple(columns_of(plan, (*columns, copy))),
        (SortKey(start),),
        ((until, WindowCall("lead", (start,), TIMESTAMP)),),
    )
    risen = logical.Filter(plan, Call(">", (now, then), BOOLEAN))
    ends = Call("coalesce", (Column(until, TIMESTAMP), Column(last, TIMESTAMP)), TIMESTAMP)
    return logical.Project(risen, (*kept(risen, columns), (life.start, start), (life.end, ends)))
