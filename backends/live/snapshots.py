"""Live snapshot aggregates: results are output up to the time that starts have passed; rows alive at that time are
kept.

A result that holds just before that time is *open*: it may continue. Its start is remembered by group. For the next
walk, held rows start just before that time, so the first result of a group is the open one, and gets its start back.
State: the rows alive, the starts of open results, the time."""

from __future__ import annotations

from dataclasses import replace

from tsql.backends.live.fragments import Engine, Fragment, Rows, given
from tsql.backends.live.operator import HeldRows, LiveOperator, all_of, compare, held_bounds, parameter
from tsql.kernels.expr.nodes import Call, Column, Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import TIMESTAMP
from tsql.planner.logical.predicates import JoinKey
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.snapshot import Snapshot
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import Step

BEGINNING = -(2**63) + 1
"""The TIMESTAMP '-infinity'."""


class Snapshots(LiveOperator):
    """A snapshot step."""

    why = "holds the rows that are alive"

    def __init__(self, step: Snapshot, engine: Engine):
        super().__init__(step, engine)
        schema = step.schema
        self.opened = HeldRows(
            Schema((*(Field(f"open_{n}", schema[n].type) for n in step.by), Field("opened", TIMESTAMP)))
        )
        self.marks = {"time": BEGINNING}
        start, end = (Column(n, TIMESTAMP, False) for n in step.lifetime)
        since, time = parameter("since", TIMESTAMP), parameter("time", TIMESTAMP)
        columns: tuple[tuple[str, Expr], ...] = tuple(
            (f.name, Column(f.name, f.type, f.nullable)) for f in self.below[0].schema
        )
        clipped = Project(
            (self.leaf(0),),
            columns=tuple(
                (n, Call("greatest", (start, since), TIMESTAMP) if n == step.lifetime[0] else e) for n, e in columns
            ),
        )
        # Lifetimes with a cut start no longer end in the order of their starts.
        walked = self.over(clipped, step=replace(step, ends="any") if step.ends == "in_order" else step).top
        self.spans = Fragment(engine, walked)
        whole = self._reopened(given("spans", schema))
        span_start, span_end = (Column(n, TIMESTAMP, False) for n in step.span)
        self.all = Fragment(engine, whole)
        self.closed = Fragment(engine, Filter((whole,), predicate=compare(span_end, "<", time)))
        still = Filter((whole,), predicate=all_of([compare(span_start, "<", time), compare(span_end, ">=", time)]))
        self.open = Fragment(
            engine,
            Project(
                (still,), columns=(*((f"open_{n}", Column(n, schema[n].type)) for n in step.by), ("opened", span_start))
            ),
        )
        self.alive = self.filtered(0, compare(end, ">=", time))

    def _reopened(self, spans: Step) -> Step:
        """Results of a walk. A result that begins where the walk begins gets the start at which it was opened."""
        step, opened = self.step, given("opened", self.opened.schema)
        keys = tuple(
            JoinKey(Column(n, spans.schema[n].type), Column(f"open_{n}", spans.schema[n].type), True) for n in step.by
        )
        start = Column(step.span[0], TIMESTAMP, False)
        joined = HashJoin(
            (spans, opened), kind="left", keys=keys, condition=compare(start, "=", parameter("since", TIMESTAMP))
        )
        restored = Call("coalesce", (Column("opened", TIMESTAMP), start), TIMESTAMP)
        return Project(
            (joined,),
            columns=tuple(
                (f.name, restored if f.name == step.span[0] else Column(f.name, f.type, f.nullable))
                for f in step.schema
            ),
        )

    def tables(self) -> dict[str, HeldRows]:
        return super().tables() | {"opened": self.opened}

    def advance(self) -> Rows:
        before = self.marks["time"]
        since = before - 1 if before > BEGINNING else BEGINNING
        time = self.progress[0].lower(Column(self.step.lifetime[0], TIMESTAMP))
        if not self.ended and (time is None or time <= before):
            return []
        rows = self.held[0].rows
        spans = self.spans.rows({"side_0": rows}, since=since)
        pieces = {"spans": spans, "opened": self.opened.rows}
        if self.ended:
            self.held[0].take()
            self.opened.take()
            return self.all.rows(pieces, since=since) if spans else []
        self.marks["time"] = time
        found = self.closed.rows(pieces, since=since, time=time) if spans else []
        self.opened.rows = self.open.rows(pieces, since=since, time=time) if spans else []
        self.held[0].rows = self.alive.rows({"side_0": rows}, time=time)
        return found

    def endless(self) -> str | None:
        if self.ended or self.progress[0].lower(Column(self.step.lifetime[0], TIMESTAMP)) is not None:
            return None
        return "lifetimes start at no time that advances, so no result is ever final"

    def promise(self) -> Progress:
        time = self.marks["time"]
        if time <= BEGINNING or self.ended:
            return Progress(ended=self.ended)
        start, end = self.step.span
        opened = held_bounds(Progress({"opened": time}), self.opened.rows, self.opened.schema)
        return Progress({start: opened["opened"], end: time})
