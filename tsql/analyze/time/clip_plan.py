"""CLIP JOIN as a plan: each left row ends at the first right row that matches it and starts strictly after it.

If the condition consists of equalities between the sides, the starts of both sides are sorted together and one pass
finds the next right start. Other conditions are tested against all later right rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tsql.analyze.scope import Names
from tsql.analyze.time.cut import UP_TO_ROW
from tsql.analyze.time.lifetime_joins import TemporalSide, matched
from tsql.analyze.time.lifetimes import bound, bounds, columns_of, earliest, equal, every, kept, less, new_life
from tsql.kernels.expr.nodes import Aggregate, Call, Column, Expr, Literal, SortKey
from tsql.kernels.expr.types import BOOLEAN, TIMESTAMP
from tsql.kernels.windows.call import WindowCall
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.predicates import conjuncts

Pairs = list[tuple[Expr, Expr]]


def clip(left: TemporalSide, right: TemporalSide, condition: Expr, taken: Iterable[str]) -> TemporalSide:
    """The left rows with their ends clipped."""
    names = Names((*taken, *left.plan.schema.names, *right.plan.schema.names))
    first = names.unique("first_start")
    pairs = _equalities(condition, left, right)
    if pairs is None:
        joined = _by_trying(left, right, condition, first, names)
    else:
        joined = _by_order(left, right, pairs, first, names)
    start, end = bounds(left.life)
    life = new_life((*taken, *joined.schema.names))
    clipped = earliest(end, Call("coalesce", (Column(first, TIMESTAMP), end), TIMESTAMP))
    return TemporalSide(logical.Project(joined, (*kept(left.plan), (life.start, start), (life.end, clipped))), life)


def _equalities(condition: Expr, left: TemporalSide, right: TemporalSide) -> Pairs | None:
    """The two sides of each equality, left first; None if something else is in the condition."""
    ours, theirs = set(left.plan.schema.names), set(right.plan.schema.names)
    pairs: Pairs = []
    for part in conjuncts(condition):
        if not isinstance(part, Call) or part.name != "=":
            return None
        a, b = part.args
        if set(a.columns()) <= theirs and set(b.columns()) <= ours:
            a, b = b, a
        if not (a.columns() and b.columns() and set(a.columns()) <= ours and set(b.columns()) <= theirs):
            return None
        pairs.append((a, b))
    return pairs


def _by_trying(left: TemporalSide, right: TemporalSide, condition: Expr, first: str, names: Names) -> logical.Node:
    """The left rows with the first start of all right rows that match and start later."""
    later = less(bound(left.life.start), bound(right.life.start))
    found = matched(left, right, every([condition, later]))
    over = [names.unique(f"{key}_of") for key in found.keys]
    calls = ((first, Aggregate("min", (bound(right.life.start),), TIMESTAMP)),)
    firsts = logical.Aggregate(found.plan, tuple(zip(over, columns_of(found.plan, found.keys), strict=True)), calls)
    return logical.Join(
        "left", left.plan, firsts, every(equal(columns_of(left.plan, found.keys), columns_of(firsts, over)))
    )


def _by_order(left: TemporalSide, right: TemporalSide, pairs: Pairs, first: str, names: Names) -> logical.Node:
    """The left rows with the next right start of their key. The pass runs backwards in time, so that is the last right
    start seen. At equal times left rows come first, because a right row must start later."""
    keys = [names.unique("key") for _ in pairs]
    over = [names.unique("key_of") for _ in pairs]
    time, starts = names.unique("at"), names.unique("starts")
    rows = logical.Project(left.plan, (*kept(left.plan), *zip(keys, (a for a, _ in pairs), strict=True)))
    asked = _events(rows, over, columns_of(rows, keys), time, bound(left.life.start), starts, Literal(None, TIMESTAMP))
    known = [Call("is_not_null", (b,), BOOLEAN) for _, b in pairs]
    begun = _events(
        logical.Filter(right.plan, every(known)),
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
    same_time = Call("=", (bound(left.life.start), bound(time)), BOOLEAN)
    return logical.Join(
        "inner", rows, answers, every([*equal(columns_of(rows, keys), columns_of(answers, over)), same_time])
    )


def _events(
    plan: logical.Node, names: Sequence[str], keys: Sequence[Expr], time: str, at: Expr, starts: str, start: Expr
) -> logical.Node:
    return logical.Project(plan, (*zip(names, keys, strict=True), (time, at), (starts, start)))
