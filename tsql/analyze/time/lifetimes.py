"""Lifetimes as expressions over plan columns: bounds, overlap, empty lifetimes, rows that are always alive.

In plans a lifetime is two TIMESTAMP columns without NULLs (`Life`). An open end is infinity: an overlap is then two
comparisons, an intersection is `greatest` and `least`, and open ends need no special case. Users see NULL for it
(`analyze_scope.lived`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tsql.analyze.scope import INFINITY, LIFETIME_NAMES, AnalyzedRelation, Life, Names
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.types import BOOLEAN, INTERVAL, TIMESTAMP
from tsql.planner.logical import nodes as logical

MINUS_INFINITY = Literal(-(2**63 - 1), TIMESTAMP)
ONE_MICROSECOND = Literal((0, 0, 1), INTERVAL)
START, END = "alive_from", "alive_to"
"""The names of lifetime columns in plans."""


def bound(name: str) -> Column:
    """A column of a lifetime."""
    return Column(name, TIMESTAMP, False)


def bounds(life: Life) -> tuple[Column, Column]:
    """The two columns of a lifetime."""
    return bound(life.start), bound(life.end)


def new_life(taken: Iterable[str]) -> Life:
    """Columns for another lifetime, called like none of `taken`."""
    names = Names(taken)
    return Life(names.unique(START), names.unique(END))


def less(left: Expr, right: Expr) -> Expr:
    return Call("<", (left, right), BOOLEAN)


def plus(time: Expr, interval: Expr) -> Expr:
    """A time some interval later; infinity stays infinity."""
    return Call("+", (time, interval), TIMESTAMP, getattr(interval, "position", None))


def earliest(*times: Expr) -> Expr:
    return Call("least", times, TIMESTAMP)


def latest(*times: Expr) -> Expr:
    return Call("greatest", times, TIMESTAMP)


def every(conditions: Sequence[Expr]) -> Expr | None:
    """All of the conditions; None if there are none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return Call("and", tuple(conditions), BOOLEAN)


def overlap(left: Life, right: Life) -> list[Expr]:
    """That two rows are alive at the same time."""
    return [less(bound(left.start), bound(right.end)), less(bound(right.start), bound(left.end))]


def equal(left: Iterable[Column], right: Iterable[Column]) -> list[Expr]:
    """That columns are the same; NULL is the same as NULL."""
    return [Call("is_not_distinct_from", pair, BOOLEAN) for pair in zip(left, right, strict=True)]


def columns_of(plan: logical.Node, names: Iterable[str] | None = None) -> list[Column]:
    """Columns of a plan; all of them if no names are given."""
    schema = plan.schema
    return [Column(f.name, f.type, f.nullable) for f in (schema if names is None else (schema[name] for name in names))]


def kept(plan: logical.Node, names: Iterable[str] | None = None) -> list[tuple[str, Expr]]:
    """Columns of a plan, for a projection that keeps them."""
    return [(column.name, column) for column in columns_of(plan, names)]


def always(plan: logical.Node, taken: Iterable[str]) -> tuple[logical.Node, Life]:
    """A plain relation as a temporal one: its rows are alive at every instant."""
    life = new_life((*taken, *plan.schema.names))
    return logical.Project(plan, (*kept(plan), (life.start, MINUS_INFINITY), (life.end, INFINITY))), life


def relived(
    plan: logical.Node, start: Expr, end: Expr, taken: Iterable[str], counted: bool = False
) -> tuple[logical.Node, Life]:
    """A plan whose rows live from `start` to `end`; rows with an empty lifetime are dropped. counted: rows with a NULL
    start are counted."""
    life = new_life((*taken, *plan.schema.names))
    plan = logical.Project(plan, (*kept(plan), (life.start, start), (life.end, end)))
    begins = Column(life.start, TIMESTAMP)
    if counted:
        plan = logical.Filter(plan, Call("has_start", (begins,), BOOLEAN))
    if _has_length(start, end):
        # Such a lifetime cannot be empty for another reason, and the selectivity of a comparison with constants is
        # known.
        alive = Call("and", (Call(">", (begins, MINUS_INFINITY), BOOLEAN), less(begins, INFINITY)), BOOLEAN)
    else:
        alive = less(begins, Column(life.end, TIMESTAMP))
    return logical.Filter(plan, alive), life


def _has_length(start: Expr, end: Expr) -> bool:
    """Whether an end is some constant time after its start."""
    match end:
        case Call("+", (time, Literal((0, days, us)))):
            return time == start and days >= 0 and us >= 0 and (days > 0 or us > 0)
    return False


def without_lifetime(relation: AnalyzedRelation) -> AnalyzedRelation:
    """The relation without valid_from and valid_to among its columns, where the select list named them: they are its
    lifetime."""
    if relation.life is None:
        return relation
    fields = (
        replace(f, also=None) if f.also in LIFETIME_NAMES else f
        for f in relation.fields
        if f.name.lower() not in LIFETIME_NAMES
    )
    return replace(relation, fields=tuple(fields))
