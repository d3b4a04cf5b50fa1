"""Live pieces of lifetimes: the parts of each row in which something matches it (EXISTS), or in which nothing does (NOT
EXISTS, and what outer joins and EXCEPT leave).

Rows that match start no earlier than the bound of their side. So up to that time it is known when a row has a match: a
piece that ends before it is final. A row that goes on is held with the time up to which it was looked at, and the start
of the piece that is open then. Rows that match are dropped when they have ended before both bounds.

State: the rows of both sides that are alive at the bound or start later. Cost: when the bound of the matching side
moves, the steps of the plan over these rows."""

from __future__ import annotations

from tsql.backends.live.fragments import Engine, Fragment, Rows, given, graft
from tsql.backends.live.lifetimes.forms import Form, Users
from tsql.backends.live.lifetimes.piece_forms import PieceForm, pieces_of
from tsql.backends.live.operator import (
    HeldRows,
    LiveOperator,
    all_of,
    any_of,
    compare,
    held_bounds,
    origin,
    parameter,
    restricted,
    same_columns,
)
from tsql.kernels.expr.nodes import Call, Case, Column, Expr, Literal
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BOOLEAN, TIMESTAMP
from tsql.planner.logical.predicates import JoinKey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import Step

SINCE, OPENED = "live since", "live opened"
BEGINNING = -(2**63) + 1


def find_pieces(step: Step, users: Users) -> Form | None:
    """The steps that cut rows, and end here."""
    found = pieces_of(step, users)
    if found is None:
        return None
    below = (found.rows, *(other.rows for other in found.spans.others))
    return Form(below, lambda engine: Pieces(found, engine), _below_domain(found.spans.domain))


def _below_domain(domain: Step | None) -> tuple[Step, ...]:
    """The rows that the domain is made of. It is made of the rows held instead."""
    if domain is None:
        return ()
    below = origin(domain.inputs[0])
    return (origin(below.inputs[0]),) if isinstance(below, Aggregate) and below.exports else (below,)


class Pieces(LiveOperator):
    """Cuts rows (side 0) where others match (the other sides)."""

    why = "holds the rows of both sides that are alive"

    def __init__(self, form: PieceForm, engine: Engine):
        self.step, self.engine, self.form = form.top, engine, form
        self.below = (form.rows, *(other.rows for other in form.spans.others))
        self.progress = tuple(Progress() for _ in self.below)
        self.held = tuple(HeldRows(step.schema) for step in self.below)
        self.marks = {}
        self.cut = HeldRows(Schema((*form.rows.schema.fields, Field(SINCE, TIMESTAMP), Field(OPENED, TIMESTAMP))))
        self.bounds: dict[str, int] = {}
        self.time = parameter("time", TIMESTAMP)
        start = Column(form.start, TIMESTAMP)
        fresh = (*same_columns(form.rows.schema), (SINCE, start), (OPENED, Literal(None, TIMESTAMP)))
        self.fresh = Fragment(engine, Project((self.leaf(0),), columns=fresh))
        self.spans = Fragment(engine, self._spans())
        spans, rows = given("spans", form.spans_step.schema), given("cut", self.cut.schema)
        self.final = Fragment(engine, restricted(self._pieces(rows, spans), form.top))
        self.open = Fragment(engine, self._open(rows, spans))
        self.alive = [
            self.filtered(side, compare(other.end, ">=", self.time)) for side, other in enumerate(form.spans.others, 1)
        ]

    def tables(self) -> dict[str, HeldRows]:
        return super().tables() | {"cut": self.cut}

    def _spans(self) -> Step:
        """The times with a match, or without one, for the keys of the rows held."""
        form = self.form
        cuts = {id(step): self.leaf(side) for side, step in enumerate(self.below) if side}
        if form.spans.domain is not None:
            rows = given("cut", self.cut.schema)
            chosen = rows if form.chosen is None else Filter((rows,), predicate=form.chosen)
            cuts[id(form.spans.domain)] = Aggregate((chosen,), by=tuple(form.domain.items()))
        return graft(form.spans_step, cuts, self.engine.shards)

    @property
    def _times(self) -> tuple[Expr, Expr, Expr, Expr]:
        """(start of a row's piece, its end, the span's start, whether the piece was open before)."""
        form = self.form
        first, last = Column(form.first, TIMESTAMP), Column(form.last, TIMESTAMP)
        since, opened = Column(SINCE, TIMESTAMP), Column(OPENED, TIMESTAMP)
        goes_on = all_of(
            [
                Call("is_not_null", (opened,), BOOLEAN),
                compare(first, "<=", since),
                compare(last, ">=", since),
            ]
        )
        begin = Case(((goes_on, opened),), Call("greatest", (first, since), TIMESTAMP))
        return begin, Call("least", (form.end, last), TIMESTAMP), last, goes_on

    def _pieces(self, rows: Step, spans: Step) -> Step:
        """The pieces that later rows do not change."""
        form = self.form
        keys = tuple(JoinKey(mine, _column(spans, other), True) for mine, other in form.keys)
        joined = HashJoin((rows, spans), kind="inner", keys=keys, condition=self._overlap())
        begin, end, last, goes_on = self._times
        is_real = any_of([goes_on, compare(begin, "<", end)])
        over = compare(form.end, "<=", self.time)
        is_final = any_of([over, compare(last, "<" if form.spans.covered else "<=", self.time)])
        final = Filter((joined,), predicate=all_of([is_real, any_of([is_final, parameter("ended", BOOLEAN)])]))
        return Project(
            (final,), columns=tuple((n, begin if n == form.first else e) for n, e in same_columns(final.schema))
        )

    def _overlap(self) -> Expr:
        """A span that ends where an open piece was cut belongs to it."""
        form = self.form
        return all_of(
            [
                compare(Column(SINCE, TIMESTAMP), "<=", Column(form.last, TIMESTAMP)),
                compare(Column(form.first, TIMESTAMP), "<", form.end),
            ]
        )

    def _open(self, rows: Step, spans: Step) -> Step:
        """The rows that go on behind the bound, cut there."""
        form, time = self.form, self.time
        first, last = Column(form.first, TIMESTAMP), Column(form.last, TIMESTAMP)
        there = all_of([compare(first, "<", time), compare(last, ">=" if form.spans.covered else ">", time)])
        now = Filter((spans,), predicate=there)
        keys = tuple(JoinKey(mine, _column(spans, other), True) for mine, other in form.keys)
        alive = Filter((rows,), predicate=compare(form.end, ">", time))
        joined = HashJoin((alive, now), kind="left", keys=keys)
        begin, _, _, _ = self._times
        has_begun = compare(Column(form.start, TIMESTAMP), "<", time)
        begins = Case(
            ((all_of([has_begun, Call("is_not_null", (first,), BOOLEAN), compare(begin, "<", time)]), begin),),
            Literal(None, TIMESTAMP),
        )
        since = Case(((has_begun, time),), Column(SINCE, TIMESTAMP))
        return Project((joined,), columns=(*same_columns(form.rows.schema), (SINCE, since), (OPENED, begins)))

    def consume(self, side: int, rows: Rows) -> Rows:
        if side:
            return super().consume(side, rows)
        self.cut.add(self.fresh.rows({"side_0": rows}))
        return []

    @property
    def decides_at_once(self) -> bool:
        return all(p.ended for p in self.progress[1:])

    def _bound(self) -> int | None:
        """The time before which no row to come starts that may match; None if that is not known."""
        found = [
            p.bounds.get(other.start)
            for p, other in zip(self.progress[1:], self.form.spans.others, strict=True)
            if not p.ended
        ]
        known = [bound for bound in found if bound is not None]
        return min(known) if known and len(known) == len(found) else None

    def advance(self) -> Rows:
        ended = all(p.ended for p in self.progress[1:])
        time, comes = self._bound(), self.progress[0].bounds.get(self.form.start)
        found: Rows = []
        if self.cut.rows and (ended or time is not None):
            found = self._cut(time, ended)
        self._forget(time, comes)
        known = held_bounds(self.progress[0], self.cut.rows, self.cut.schema)
        self.bounds = {n: b for n, b in known.items() if n in self.form.rows.schema}
        if self.form.start in self.bounds:
            self.bounds[self.form.first] = self.bounds[self.form.start]
        return found

    def _cut(self, time: int | None, ended: bool) -> Rows:
        """The final pieces of the rows held."""
        rows = {"cut": self.cut.rows}
        others = {f"side_{side}": held.rows for side, held in enumerate(self.held) if side}
        spans = {"spans": self.spans.rows(rows | others)}
        values = {"time": BEGINNING if time is None else time, "ended": ended}
        found = self.final.rows(rows | spans, **values) if spans["spans"] else []
        self.cut.rows = [] if ended else self.open.rows(rows | spans, **values)
        return found

    def _forget(self, time: int | None, comes: int | None) -> None:
        """Drop rows that match only what has been looked at."""
        bounds = ([] if self.progress[0].ended else [comes]) + ([time] if self.cut.rows else [])
        if None in bounds:
            return
        for side, alive in enumerate(self.alive, 1):
            held = self.held[side]
            if not bounds:
                held.take()
            elif held.rows:
                held.rows = alive.rows({f"side_{side}": held.rows}, time=min(b for b in bounds if b is not None))

    def promise(self) -> Progress:
        ended = self.progress[0].ended and not self.cut.rows
        names = self.step.schema.names
        return Progress({} if ended else {n: b for n, b in self.bounds.items() if n in names}, ended)

    def endless(self) -> str | None:
        if not all(p.ended for p in self.progress[1:]) and self._bound() is None:
            return "the rows that may match start at no time that advances, so no piece of a row is ever final"
        if not self.progress[0].ended and self.progress[0].bounds.get(self.form.start) is None:
            return "the rows start at no time that advances, so those that may match them are held for ever"
        return None


def _column(step: Step, name: str) -> Column:
    return Column(name, step.schema[name].type)
