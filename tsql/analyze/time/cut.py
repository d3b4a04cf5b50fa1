"""Cuts and merges lifetimes with relational operators: coalescing, the parts of rows that other rows cover, the parts
that they leave, and levels (running sums over starts and ends). The temporal parts of the analyzer call it.

`taken` are names that new columns must not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tsql.analyze.scope import INFINITY, Life, Names
from tsql.analyze.time.lifetimes import (
    MINUS_INFINITY,
    bound,
    bounds,
    columns_of,
    equal,
    every,
    kept,
    less,
    new_life,
    overlap,
)
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal, SortKey
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DECIMAL, HUGEINT, TIMESTAMP, Type
from tsql.kernels.windows.call import WHOLE_PARTITION, Bound, Frame, WindowCall
from tsql.planner.logical import nodes as logical

ONE_ROW = logical.Values(((),), Schema(()))
BEFORE = Frame("rows", Bound("unbounded"), Bound("preceding", Literal(1, BIGINT)))
UP_TO_ROW = Frame("rows", Bound("unbounded"), Bound("current"))


def coalesced(
    plan: logical.Node, keys: Sequence[str], life: Life, taken: Iterable[str] = (), carried: Sequence[str] = ()
) -> logical.Node:
    """Merges rows with equal `keys` whose lifetimes overlap or touch. The columns are `keys`, those that are `carried`
    because they are equal where the keys are, and those of `life`.

    In the order of starts, a row begins an island if all rows before it have ended earlier. An island lasts until the
    latest end before the next one begins."""
    names = Names((*taken, *plan.schema.names))
    before, last, until = (names.unique(name) for name in ("end_before", "last_end", "next_end"))
    start, end = bounds(life)
    over = tuple(columns_of(plan, keys))
    order = (SortKey(start),)
    calls = (
        (before, WindowCall("max", (end,), TIMESTAMP, BEFORE)),
        (last, WindowCall("max", (end,), TIMESTAMP, WHOLE_PARTITION)),
    )
    shown = (*keys, *carried)
    plan = logical.Window(logical.Project(plan, (*kept(plan, shown), *kept(plan, life.columns))), over, order, calls)
    before_it = Column(before, TIMESTAMP)
    first = Call("coalesce", (less(before_it, start), Literal(True, BOOLEAN)), BOOLEAN)
    plan = logical.Window(
        logical.Filter(plan, first), over, order, ((until, WindowCall("lead", (before_it,), TIMESTAMP)),)
    )
    end_of_island = Call("coalesce", (Column(until, TIMESTAMP), Column(last, TIMESTAMP)), TIMESTAMP)
    return logical.Project(plan, (*kept(plan, shown), (life.start, start), (life.end, end_of_island)))


def merged(
    plan: logical.Node, keys: Sequence[str], values: Sequence[str], life: Life, taken: Iterable[str] = ()
) -> logical.Node:
    """Merges rows with equal `keys` and `values` whose lifetimes touch. The lifetimes of equal `keys` must not overlap.
    The columns are `keys`, `values` and those of `life`."""
    names = Names((*taken, *plan.schema.names))
    start, end = bounds(life)
    shown = (*keys, *values)
    over, order = tuple(columns_of(plan, keys)), (SortKey(start),)
    before, last, until = (names.unique(name) for name in ("end_before", "last_end", "next_end"))
    calls = [
        (before, WindowCall("lag", (end,), TIMESTAMP)),
        (last, WindowCall("max", (end,), TIMESTAMP, WHOLE_PARTITION)),
    ]
    changes = [Call("is_distinct_from", (Column(before, TIMESTAMP), start), BOOLEAN)]
    for value in columns_of(plan, values):
        name = names.unique(f"{value.name}_before")
        calls.append((name, WindowCall("lag", (value,), value.type)))
        changes.append(Call("is_distinct_from", (Column(name, value.type), value), BOOLEAN))
    plan = logical.Window(
        logical.Project(plan, (*kept(plan, shown), *kept(plan, life.columns))), over, order, tuple(calls)
    )
    first = changes[0] if len(changes) == 1 else Call("or", tuple(changes), BOOLEAN)
    ends = ((until, WindowCall("lead", (Column(before, TIMESTAMP),), TIMESTAMP)),)
    plan = logical.Window(logical.Filter(plan, first), over, order, ends)
    end_of_run = Call("coalesce", (Column(until, TIMESTAMP), Column(last, TIMESTAMP)), TIMESTAMP)
    return logical.Project(plan, (*kept(plan, shown), (life.start, start), (life.end, end_of_run)))


def covered(
    plan: logical.Node, matches: logical.Node, keys: Sequence[str], life: Life, shared: Life, taken: Iterable[str]
) -> tuple[logical.Node, Life]:
    """The maximal parts of each row in which it has a match. `matches` has the values of `keys` and the lifetime
    `shared` of what matches them."""
    islands, over, span = _apart(coalesced(matches, keys, shared, taken), keys, shared, (*taken, *plan.schema.names))
    return _intersected(plan, islands, keys, over, life, span, taken)


def uncovered(
    plan: logical.Node,
    domain: logical.Node,
    matches: logical.Node,
    keys: Sequence[str],
    life: Life,
    shared: Life,
    taken: Iterable[str],
) -> tuple[logical.Node, Life]:
    """The maximal parts of each row in which it has no match. `domain` has each value of `keys` that a row has.

    A row at the end of time is added for each of these values, so that the time after the last match is included.
    """
    ends = logical.Project(domain, (*kept(domain, keys), (shared.start, INFINITY), (shared.end, INFINITY)))
    spans = logical.Project(matches, (*kept(matches, keys), *kept(matches, shared.columns)))
    both = logical.SetOperation("union", True, spans, ends)
    start, end = bounds(shared)
    names = Names((*taken, *both.schema.names))
    since = names.unique("end_before")
    calls = ((since, WindowCall("max", (end,), TIMESTAMP, BEFORE)),)
    plan_of_gaps = logical.Window(both, tuple(columns_of(both, keys)), (SortKey(start),), calls)
    left_since = Call("coalesce", (Column(since, TIMESTAMP), MINUS_INFINITY), TIMESTAMP)
    gaps = logical.Project(plan_of_gaps, (*kept(plan_of_gaps, keys), (shared.start, left_since), (shared.end, start)))
    living = logical.Filter(gaps, less(Column(shared.start, TIMESTAMP), Column(shared.end, TIMESTAMP)))
    gaps, over, span = _apart(living, keys, shared, (*taken, *plan.schema.names))
    return _intersected(plan, gaps, keys, over, life, span, taken)


def _apart(
    plan: logical.Node, keys: Sequence[str], life: Life, taken: Iterable[str]
) -> tuple[logical.Node, list[str], Life]:
    """The plan with new names for keys and lifetime."""
    names = Names(taken)
    over = [names.unique(f"{key}_of") for key in keys]
    span = Life(names.unique("piece_from"), names.unique("piece_to"))
    columns = [(new, column) for new, column in zip(over, columns_of(plan, keys), strict=True)]
    return logical.Project(plan, (*columns, (span.start, bound(life.start)), (span.end, bound(life.end)))), over, span


def _intersected(
    plan: logical.Node,
    pieces: logical.Node,
    keys: Sequence[str],
    over: Sequence[str],
    life: Life,
    span: Life,
    taken: Iterable[str],
) -> tuple[logical.Node, Life]:
    same = equal(columns_of(plan, keys), columns_of(pieces, over))
    if set(life.columns) <= set(keys):
        # Pieces of one lifetime: what lies outside of it is known before the join.
        own = Life(*(over[keys.index(name)] for name in life.columns))
        pieces, condition = logical.Filter(pieces, every(overlap(own, span))), every(same)
    else:
        condition = every([*same, *overlap(life, span)])
    joined = logical.Join("inner", plan, pieces, condition)
    result = new_life((*taken, *joined.schema.names))
    return logical.Project(joined, (*kept(plan), *intersection(result, life, span))), result


def intersection(result: Life, left: Life, right: Life) -> tuple[tuple[str, Expr], tuple[str, Expr]]:
    """The columns of the time when both are alive, for a projection."""
    (a_start, a_end), (b_start, b_end) = bounds(left), bounds(right)
    return (result.start, Call("greatest", (a_start, b_start), TIMESTAMP)), (
        result.end,
        Call("least", (a_end, b_end), TIMESTAMP),
    )


def domain_of(plan: logical.Node, keys: Sequence[str]) -> logical.Node:
    """Each value of some columns of a plan once."""
    return logical.Distinct(logical.Project(plan, tuple(kept(plan, keys)))) if keys else ONE_ROW


def levels(
    plan: logical.Node, keys: Sequence[str], life: Life, values: Sequence[tuple[str, Expr]], taken: Iterable[str]
) -> tuple[logical.Node, Life]:
    """The sums of `values` over the live rows, for each value of `keys` and each span between two neighbouring ends of
    lifetimes: added at starts, subtracted at ends. The columns are `keys`, `values` and the lifetime; spans without
    rows are included."""
    names = Names((*taken, *plan.schema.names, *(name for name, _ in values)))
    time, until = names.unique("at"), names.unique("until")
    life_of = Life(time, until)
    added = [(name, expr) for name, expr in values]
    removed = [(name, Call("neg", (expr,), expr.type)) for name, expr in values]
    starts = logical.Project(plan, (*kept(plan, keys), (time, bound(life.start)), *added))
    ends = logical.Project(plan, (*kept(plan, keys), (time, bound(life.end)), *removed))
    changes = logical.SetOperation("union", True, starts, ends)
    sums = [names.unique(f"{name}_now") for name, _ in values]
    calls: list[tuple[str, WindowCall]] = [(until, WindowCall("lead", (bound(time),), TIMESTAMP))]
    for total, (name, expr) in zip(sums, values, strict=True):
        calls.append((total, WindowCall("sum", (Column(name, expr.type),), sum_type(expr.type), UP_TO_ROW)))
    window = logical.Window(changes, tuple(columns_of(changes, keys)), (SortKey(bound(time)),), tuple(calls))
    alive = logical.Filter(window, less(bound(time), Column(until, TIMESTAMP)))
    columns = [(name, Column(total, sum_type(expr.type))) for total, (name, expr) in zip(sums, values, strict=True)]
    return logical.Project(alive, (*kept(alive, keys), *columns, *kept(alive, life_of.columns))), life_of


def sum_type(dtype: Type) -> Type:
    """The type of a sum of integers or decimals."""
    return DECIMAL(38, dtype.scale) if dtype.is_decimal else HUGEINT


def union(plans: Sequence[logical.Node]) -> logical.Node:
    """All rows of plans with the same columns, in a flat tree: left sides first."""
    while len(plans) > 1:
        pairs = [plans[i : i + 2] for i in range(0, len(plans), 2)]
        plans = [logical.SetOperation("union", True, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return plans[0]
