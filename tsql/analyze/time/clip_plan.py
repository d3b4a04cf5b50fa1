"""CLIP JOIN as a plan: each left row ends at the first right row that matches it and starts strictly after it.

If rows match by equalities, the starts of both sides are sorted together and one pass finds the next right start. Other
conditions are those of an ASOF join, which looks at the later right rows of a key one by one until one satisfies them.
Conditions on one side alone are no part of either: right rows that fail them are left out, and left rows keep their
end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tsql.analyze.scope import INFINITY, Names
from tsql.analyze.time.cut import UP_TO_ROW
from tsql.analyze.time.lifetime_joins import TemporalSide
from tsql.analyze.time.lifetimes import bound, bounds, columns_of, earliest, equal, every, kept, less, new_life
from tsql.kernels.expr.nodes import Call, Case, Column, Expr, Literal, SortKey
from tsql.kernels.expr.types import BOOLEAN, TIMESTAMP
from tsql.kernels.windows.call import WindowCall
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.predicates import conjunction, conjuncts

Pairs = list[tuple[Expr, Expr]]


def clip(left: TemporalSide, right: TemporalSide, condition: Expr, taken: Iterable[str]) -> TemporalSide:
    """The left rows with their ends clipped."""
    names = Names((*taken, *left.plan.schema.names, *right.plan.schema.names))
    first = names.unique("first_start")
    ours, theirs = set(left.plan.schema.names), set(right.plan.schema.names)
    parts = conjuncts(condition)
    of_left = [part for part in parts if set(part.columns()) <= ours]
    of_right = [part for part in parts if part.columns() and set(part.columns()) <= theirs]
    between = [part for part in parts if part not in of_left and part not in of_right]
    if of_right:
        right = TemporalSide(logical.Filter(right.plan, every(of_right)), right.life)
    start, end = bounds(left.life)
    may_end = conjunction(of_left)
    asked: Expr = start if may_end is None else Case(((may_end, start),), INFINITY)
    pairs = _equalities(between, ours, theirs)
    if pairs is None:
        joined = _nearest(left, right, asked, every(between), first)
    else:
        joined = _by_order(left, right, pairs, asked, first, names)
    life = new_life((*taken, *joined.schema.names))
    clipped = earliest(end, Call("coalesce", (Column(first, TIMESTAMP), end), TIMESTAMP))
    return TemporalSide(logical.Project(joined, (*kept(left.plan), (life.start, start), (life.end, clipped))), life)


def _equalities(parts: Sequence[Expr], ours: set[str], theirs: set[str]) -> Pairs | None:
    """The two sides of each equality, left first; None if there is another condition."""
    pairs: Pairs = []
    for part in parts:
        if not isinstance(part, Call) or part.name != "=":
            return None
        a, b = part.args
        if set(a.columns()) <= theirs and set(b.columns()) <= ours:
            a, b = b, a
        if not (a.columns() and b.columns() and set(a.columns()) <= ours and set(b.columns()) <= theirs):
            return None
        pairs.append((a, b))
    return pairs


def _nearest(left: TemporalSide, right: TemporalSide, asked: Expr, condition: Expr | None, first: str) -> logical.Node:
    """The left rows with the first start of the right rows that match and start later."""
    starts = logical.Project(right.plan, (*kept(right.plan), (first, bound(right.life.start))))
    return AsofJoin("left", left.plan, starts, less(asked, Column(first, TIMESTAMP, False)), condition)


def _by_order(
    left: TemporalSide, right: TemporalSide, pairs: Pairs, asked_at: Expr, first: str, names: Names
) -> logical.Node:
    """The left rows with the next right start of their key after `asked_at`. The pass runs backwards in time, so that
    is the last right start seen. At equal times left rows come first, because a right row must start later."""
    keys = [names.unique("key") for _ in pairs]
    over = [names.unique("key_of") for _ in pairs]
    time, starts = names.unique("at"), names.unique("starts")
    at = names.unique("asked_at")
    given = zip(keys, (a for a, _ in pairs), strict=True)
    rows = logical.Project(left.plan, (*kept(left.plan), *given, (at, asked_at)))
    asked_time = bound(at)
    asked = _events(rows, over, columns_of(rows, keys), time, asked_time, starts, Literal(None, TIMESTAMP))
    known = [Call("is_not_null", (b,), BOOLEAN) for _, b in pairs]
    begun = _events(
        logical.Filter(right.plan, every(known)) if known else right.plan,
        over,
        [b for _, b in pairs],
        time,
        bound(right.life.start),
        starts,
        bound(right.life.start),
    )
    both = logical.SetOperation("union", True, logical.Distinct(asked), begun)
    order = SortKey(bound(time), descending=True), SortKey(Column(starts, TIMESTAMP), nulls_first=True)
    seen = ((first, WindowCall("min", (Column(starts, TIMESTAMP),), TIMESTAMP, UP_TO_ROW)),)
    answered = logical.Filter(
        logical.Window(both, tuple(columns_of(both, over)), order, seen),
        Call("is_null", (Column(starts, TIMESTAMP),), BOOLEAN),
    )
    answers = logical.Project(answered, (*kept(answered, over), *kept(answered, (time, first))))
    same_time = Call("=", (asked_time, bound(time)), BOOLEAN)
    return logical.Join(
        "inner", rows, answers, every([*equal(columns_of(rows, keys), columns_of(answers, over)), same_time])
    )


def _events(
    plan: logical.Node, names: Sequence[str], keys: Sequence[Expr], time: str, at: Expr, starts: str, start: Expr
) -> logical.Node:
    return logical.Project(plan, (*zip(names, keys, strict=True), (time, at), (starts, start)))
