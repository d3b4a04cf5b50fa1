"""Running results of window functions: numbers of rows, and aggregates over all rows before.

A batch of rows is computed by itself, and what came before it is added. State: for each partition, the results of its
last row. Cost: a join of the batch with the partitions, and of the partitions with the batch."""

from __future__ import annotations

from dataclasses import replace

from tsql.backends.live.fragments import Engine, Fragment, Rows, given
from tsql.backends.live.operator import HeldRows, compare, restricted, same_columns
from tsql.kernels.expr.nodes import Call, Case, Column, Expr, Literal
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.kernels.windows.call import WHOLE_PARTITION, Bound, Frame, WindowCall
from tsql.planner.logical.predicates import JoinKey
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import Step

FINAL, AT, LAST, KNOWN = "live final", "live at", "live last", "live known"
SO_FAR = Frame("rows", Bound("unbounded"), Bound("current"))
JOINS = {"min": "least", "max": "greatest", "bool_and": "least", "bool_or": "greatest"}
"""How two values are joined; all others are added."""


class Running:
    """The calls `names` of a window step, over rows that come in order. `schema`: their columns; those of the results
    are added."""

    def __init__(self, engine: Engine, step: Window, schema: Schema, names: tuple[str, ...]):
        self.engine, self.step = engine, step
        self.calls = {name: call for name, call in step.calls if name in names}
        keys = [Field(f"live key {number}", key.type) for number, key in enumerate(step.by)]
        sums = [Field(_sum(name), _so_far(call).type) for name, call in self.calls.items()]
        self.held = HeldRows(Schema((*keys, *sums)))
        self.adding = Fragment(engine, self._added(given("new", schema)))
        self.schema = self.adding.top.schema
        self.going_on = Fragment(engine, self._gone_on(given("new", self.schema)))

    def results(self, rows: Rows) -> Rows:
        """The rows with their results."""
        return self.adding.rows({"new": rows, "running": self.held.rows}) if rows else []

    def go_on(self, rows: Rows) -> None:
        """Remember the results of rows that are final."""
        if rows:
            self.held.rows = self.going_on.rows({"new": rows, "running": self.held.rows})

    def _keys(self) -> tuple[JoinKey, ...]:
        """Partitions that are the same."""
        return tuple(
            JoinKey(key, Column(f"live key {number}", key.type), True) for number, key in enumerate(self.step.by)
        )

    def _added(self, rows: Step) -> Step:
        calls = []
        for name, call in self.calls.items():
            calls += [(name, call), (_new(name), _so_far(call))]
        windows = Window((rows,), by=self.step.by, order=self.step.order, calls=tuple(calls))
        known = Project(
            (given("running", self.held.schema),),
            columns=(*same_columns(self.held.schema), (KNOWN, Literal(True, BOOLEAN))),
        )
        joined = HashJoin((windows, known), kind="left", keys=self._keys())
        results: list[tuple[str, Expr]] = []
        for name, call in self.calls.items():
            before = Column(_sum(name), _so_far(call).type)
            results.append((name, _joined(call, before, Column(name, call.type))))
            results.append((_new(name), _joined(_so_far(call), before, Column(_new(name), _so_far(call).type))))
        return Project((joined,), columns=(*same_columns(rows.schema), *results))

    def _gone_on(self, rows: Step) -> Step:
        """The results of the last final row of each partition, and of the partitions without a new row."""
        step = self.step
        calls = (
            (AT, WindowCall("row_number", (), BIGINT)),
            (LAST, WindowCall("count_star", (), BIGINT, WHOLE_PARTITION)),
        )
        final = Filter((rows,), predicate=Column(FINAL, BOOLEAN))
        placed = Window((final,), by=step.by, order=step.order, calls=calls)
        last = Filter((placed,), predicate=compare(Column(AT, BIGINT), "=", Column(LAST, BIGINT)))
        keys = tuple((f"live key {number}", key) for number, key in enumerate(step.by))
        sums = tuple((_sum(n), Column(_new(n), _so_far(c).type)) for n, c in self.calls.items())
        new, old = Project((last,), columns=(*keys, *sums)), given("running", self.held.schema)
        fresh = Project((new,), columns=tuple((f"new {n}", c) for n, c in same_columns(new.schema)))
        same = tuple(
            JoinKey(Column(f"live key {number}", key.type), Column(f"new live key {number}", key.type), True)
            for number, key in enumerate(step.by)
        )
        unchanged = HashJoin((old, fresh), kind="anti", keys=same)
        return Union((new, restricted(unchanged, old)))


def _sum(name: str) -> str:
    return f"live sum {name}"


def _new(name: str) -> str:
    return f"live new {name}"


def _so_far(call: WindowCall) -> WindowCall:
    """The result that is remembered: of all rows up to this one."""
    if call.name == "rank":
        return WindowCall("row_number", (), BIGINT)
    if call.name in ("row_number", "dense_rank"):
        return call
    return replace(call, frame=SO_FAR)


def _joined(call: WindowCall, before: Expr, now: Expr) -> Expr:
    """The result over rows before and rows now."""
    if call.name == "first_value":
        return Case(((Column(KNOWN, BOOLEAN), before),), now)
    both = Call(JOINS.get(call.name, "+"), (before, now), call.type)
    return both if call.name in JOINS else Call("coalesce", (both, before, now), call.type)
