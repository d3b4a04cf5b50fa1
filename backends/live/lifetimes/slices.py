"""Live snapshots that are computed in slices of time: aggregates that cannot follow rows (a median, DISTINCT), QUALIFY
and LIMIT per snapshot, INTERSECT ALL and EXCEPT ALL.

What holds at an instant depends on the rows alive then. So the steps of the plan are run over the rows that are alive
between the last bound and this one, cut to that slice. Pieces that were cut by a bound are put together again: of
spans by the steps that follow (`Merges`), of copies of rows here.

State: the rows that are alive at the bound or start later; of copies, those that are open. Cost: when the bound moves,
the steps of the plan over the rows of the slice."""

from __future__ import annotations

from functools import partial

from tsql.backends.live.fragments import Engine, Fragment, Rows, given, graft
from tsql.backends.live.lifetimes.forms import Form, Users
from tsql.backends.live.lifetimes.slice_forms import CopyForm, SpanForm, copies_of, spans_of
from tsql.backends.live.operator import (
    HeldRows,
    LiveOperator,
    compare,
    held_bounds,
    parameter,
    same_columns,
)
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Column, Expr, SortKey
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN, TIMESTAMP
from tsql.kernels.windows.call import Bound, Frame, WindowCall
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.progress import INFINITE, Progress
from tsql.planner.physical.step import Step

BEGINNING = -(2**63) + 1
SO_FAR = Frame("rows", Bound("unbounded"), Bound("current"))


def find_slices(step: Step, users: Users) -> Form | None:
    """The steps that are computed in slices and end here."""
    spans = spans_of(step, users)
    if spans is not None:
        return Form((spans.rows,), partial(Spans, spans))
    copies = copies_of(step)
    return None if copies is None else Form((copies.rows,), partial(Copies, copies))


class Slices(LiveOperator):
    """Rows with a lifetime, looked at in slices of time."""

    why = "holds the rows that are alive"

    def __init__(self, form: SpanForm | CopyForm, engine: Engine):
        self.step, self.engine = form.top, engine
        self.below, self.progress = (form.rows,), (Progress(),)
        self.held = (HeldRows(form.rows.schema),)
        self.marks = {"time": BEGINNING}
        self.start, self.end = form.start, form.end
        start, end = Column(form.start, TIMESTAMP), Column(form.end, TIMESTAMP)
        since, until = parameter("since", TIMESTAMP), parameter("time", TIMESTAMP)
        cut: dict[str, Expr] = {
            form.start: Call("greatest", (start, since), TIMESTAMP),
            form.end: Call("least", (end, until), TIMESTAMP),
        }
        alive = Filter((self.leaf(0),), predicate=compare(start, "<", until))
        self.slice = Project((alive,), columns=tuple((n, cut.get(n, e)) for n, e in same_columns(form.rows.schema)))
        self.pieces = Fragment(engine, graft(form.last, {id(form.rows): self.slice}, engine.shards))
        self.alive = self.filtered(0, compare(end, ">", until))

    def advance(self) -> Rows:
        time = INFINITE if self.ended else self.progress[0].bounds.get(self.start)
        if time is None or (time <= self.marks["time"] and not self.ended):
            return []
        held = self.held[0]
        rows, values = {"side_0": held.rows}, {"since": self.marks["time"], "time": time}
        pieces = self.pieces.rows(rows, **values) if held.rows else []
        held.rows = [] if self.ended or not held.rows else self.alive.rows(rows, **values)
        self.marks["time"] = time
        return self.given(pieces, time)

    def given(self, pieces: Rows, time: int) -> Rows:
        """What leaves, of the pieces of a slice."""
        raise NotImplementedError

    def endless(self) -> str | None:
        if self.ended or self.progress[0].bounds.get(self.start) is not None:
            return None
        return "lifetimes start at no time that advances, so no result is ever final"


class Spans(Slices):
    """What is computed of each span between two starts or ends. Steps that follow merge what a bound has cut."""

    def __init__(self, form: SpanForm, engine: Engine):
        super().__init__(form, engine)
        self.times = form.times

    def given(self, pieces: Rows, time: int) -> Rows:
        return pieces

    def promise(self) -> Progress:
        known = self.marks["time"] > BEGINNING and not self.ended
        return Progress(dict.fromkeys(self.times, self.marks["time"]) if known else {}, self.ended)


class Copies(Slices):
    """The n-th copy of a row for as long as there is one."""

    why = "holds the rows that are alive, and since when each copy of a row is"

    def __init__(self, form: CopyForm, engine: Engine):
        super().__init__(form, engine)
        self.form = form
        schema = form.last.schema
        keys = tuple(Column(n, schema[n].type) for n in form.keys)
        names = [f"live key {number}" for number in range(len(keys))]
        self.opened = HeldRows(
            Schema(
                (
                    *(Field(n, k.type) for n, k in zip(names, keys, strict=True)),
                    *(Field(n, TIMESTAMP) for n in ("live from", "live to")),
                )
            )
        )
        self.bounds: dict[str, int] = {}
        new = Project(
            (given("pieces", schema),),
            columns=(
                *zip(names, keys, strict=True),
                ("live from", Column(form.piece_start, TIMESTAMP)),
                ("live to", form.piece_end),
            ),
        )
        both = Union((given("opened", self.opened.schema), new))
        merged = self._merged(both, tuple(names))
        self.merged = Fragment(engine, merged)
        leaf, until = given("merged", self.opened.schema), Column("live to", TIMESTAMP)
        time = parameter("time", TIMESTAMP)
        shown: list[tuple[str, Expr]] = []
        for name, expr in form.shown:
            at = form.keys.index(expr.name) if isinstance(expr, Column) and expr.name in form.keys else None
            of_key = Column(names[at], keys[at].type) if at is not None else None
            is_start = isinstance(expr, Column) and expr.name == form.piece_start
            shown.append((name, of_key or (Column("live from", TIMESTAMP) if is_start else until)))
        self.all = Fragment(engine, Project((leaf,), columns=tuple(shown)))
        final = Filter((leaf,), predicate=compare(until, "<", time))
        self.final = Fragment(engine, Project((final,), columns=tuple(shown)))
        self.open = Fragment(engine, Filter((leaf,), predicate=compare(until, ">=", time)))

    def _merged(self, rows: Step, names: tuple[str, ...]) -> Step:
        """Pieces of a copy that touch, as one. They do not overlap."""
        by = tuple(Column(n, rows.schema[n].type) for n in names)
        start, end = Column("live from", TIMESTAMP), Column("live to", TIMESTAMP)
        order = (SortKey(start),)
        before = Window((rows,), by=by, order=order, calls=(("live before", WindowCall("lag", (end,), TIMESTAMP)),))
        begins = Call("is_distinct_from", (Column("live before", TIMESTAMP), start), BOOLEAN)
        number = WindowCall("count_star", (), BIGINT, SO_FAR, filter=begins)
        runs = Window((before,), by=by, order=order, calls=(("live run", number),))
        calls = tuple(
            (name, AggregateCall(call, (Column(name, TIMESTAMP),), TIMESTAMP))
            for name, call in (("live from", "min"), ("live to", "max"))
        )
        keys: tuple[tuple[str, Expr], ...] = (*zip(names, by, strict=True), ("live run", Column("live run", BIGINT)))
        whole = Aggregate((runs,), by=keys, calls=calls)
        return Project((whole,), columns=tuple((n, e) for n, e in same_columns(whole.schema) if n != "live run"))

    def tables(self) -> dict[str, HeldRows]:
        return super().tables() | {"opened": self.opened}

    def given(self, pieces: Rows, time: int) -> Rows:
        merged = {"merged": self.merged.rows({"pieces": pieces, "opened": self.opened.take()})}
        if self.ended:
            return self.all.rows(merged)
        found = self.final.rows(merged, time=time)
        self.opened.rows = self.open.rows(merged, time=time)
        self.bounds = held_bounds(Progress({"live from": time, "live to": time}), self.opened.rows, self.opened.schema)
        return found

    def promise(self) -> Progress:
        if self.ended or not self.bounds:
            return Progress(ended=self.ended)
        bounds = {}
        for name, expr in self.form.shown:
            if isinstance(expr, Column) and expr.name == self.form.piece_start:
                bounds[name] = self.bounds["live from"]
            elif expr == self.form.piece_end:
                bounds[name] = self.bounds["live to"]
        return Progress(bounds)
