"""Live merging of lifetimes: DISTINCT, UNION, INTERSECT and EXCEPT per snapshot, the results of snapshot aggregates
that cannot follow rows, and STITCH.

Rows of a key become islands, or chains. One that has ended before the bound is final: no later row can touch it. One
that has not is held as a single row, from its start to its end so far; what it is merged from is forgotten. So the
state is a row per open island, and the rows that start behind the bound. Cost: when the bound moves, a pass over
them."""

from __future__ import annotations

from tsql.backends.live.fragments import Engine, Fragment, Rows, given, graft
from tsql.backends.live.lifetimes.forms import Form, Users, columns_of, islands_of, start_of
from tsql.backends.live.operator import (
    HeldRows,
    LiveOperator,
    compare,
    held_bounds,
    negated,
    origin,
    parameter,
    same_columns,
    unless_null,
)
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.types import TIMESTAMP
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Merge:
    """Steps from `rows` to `top`. start, end: the lifetime in the rows; result: (start, end) in the result. ends: the
    columns of the result that are never before its end."""

    top: Step
    rows: Step
    start: str
    end: str
    result: tuple[str, Expr]
    ends: tuple[str, ...]


def find_merge(step: Step, users: Users) -> Form | None:
    """The steps that merge lifetimes and end here."""
    found = _islands(step, users) or _chains(step, users)
    if found is None:
        return None
    return Form((found.rows,), lambda engine: Merges(found, engine))


def _islands(step: Step, users: Users) -> Merge | None:
    islands = islands_of(step)
    if islands is None:
        return None
    until = islands.until
    # Other columns are those of the first row of an island, which is the first one held too.
    known = set(islands.first.inputs[0].schema.names) - {islands.end}
    if not _uses_only(users.get(id(step), []), known, until.sql()):
        return None
    ends = tuple(c.name for c in until.args if isinstance(c, Column))
    rows = origin(islands.first.inputs[0])
    return Merge(step, rows, islands.start, islands.end, (islands.start, until), ends)


def _uses_only(users: list[Step], known: set[str], until: str) -> bool:
    """Whether steps read no more of an island than its key and its lifetime."""

    def fine(expr: Expr) -> bool:
        if expr.sql() == until:
            return True
        if isinstance(expr, Column):
            return expr.name in known
        return all(map(fine, expr.children))

    return bool(users) and all(isinstance(u, Project) and all(fine(e) for _, e in u.columns) for u in users)


def _chains(step: Step, users: Users) -> Merge | None:
    """STITCH: chains of rows, and one row of each."""
    if not isinstance(step, Aggregate) or step.exports:
        return None
    below: Step = origin(step.inputs[0])
    if isinstance(below, Aggregate):
        below = origin(below.inputs[0])
    if not (isinstance(below, Window) and [c.name for _, c in below.calls] == ["stitch_chain"]):
        return None
    (name, call), keys, start = below.calls[0], columns_of(below.by), start_of(below)
    calls = {c.name: (n, c.args) for n, c in step.calls}
    names = {n for n, _ in step.by}
    if keys is None or start is None or set(calls) != {"min", "max"} or names != {*keys, name}:
        return None
    end = call.args[0]
    used = {n for n, _ in step.calls} | set(keys)
    if not isinstance(end, Column) or not _uses_only(users.get(id(step), []), used, ""):
        return None
    (first, _), (last, _) = calls["min"], calls["max"]
    result = first, Column(last, TIMESTAMP)
    return Merge(step, origin(below.inputs[0]), start, end.name, result, (last,))


class Merges(LiveOperator):
    """Merges lifetimes."""

    why = "holds a row for each key from when it is alive, and rows of later times"

    def __init__(self, merge: Merge, engine: Engine):
        self.step, self.engine, self.merge = merge.top, engine, merge
        self.below, self.progress = (merge.rows,), (Progress(),)
        self.held = (HeldRows(merge.rows.schema),)
        self.marks = {}
        self.bounds: dict[str, int] = {}
        start, time = Column(merge.start, TIMESTAMP), parameter("time", TIMESTAMP)
        begun = compare(start, "<", time)
        self.begun, self.later = self.filtered(0, begun), self.filtered(0, unless_null(negated(begun)))
        self.whole = Fragment(engine, graft(merge.top, {id(merge.rows): self.leaf(0)}, engine.shards))
        merged = Filter((self._merged(),), predicate=compare(merge.result[1], "<", time))
        still = Filter((self._merged(),), predicate=compare(merge.result[1], ">=", time))
        self.final = Fragment(engine, merged)
        lifetime: dict[str, Expr] = {merge.start: Column(merge.result[0], TIMESTAMP), merge.end: merge.result[1]}
        self.open = Fragment(
            engine,
            Project((still,), columns=tuple((n, lifetime.get(n, e)) for n, e in same_columns(merge.rows.schema))),
        )

    def _merged(self) -> Step:
        return given("merged", self.merge.top.schema)

    def advance(self) -> Rows:
        held = self.held[0]
        if self.ended:
            return self.whole.rows({"side_0": held.take()})
        time = self.progress[0].bounds.get(self.merge.start)
        if time is None:
            return []
        begun = self.begun.rows({"side_0": held.rows}, time=time) if held.rows else []
        found: Rows = []
        if begun:
            later = self.later.rows({"side_0": held.rows}, time=time)
            merged = {"merged": self.whole.rows({"side_0": begun})}
            found = self.final.rows(merged, time=time)
            held.rows = [*self.open.rows(merged, time=time), *later]
        self.bounds = held_bounds(self.progress[0], held.rows, self.below[0].schema)
        self.bounds |= dict.fromkeys(self.merge.ends, time)
        if self.merge.start in self.bounds:
            self.bounds[self.merge.result[0]] = self.bounds[self.merge.start]
        return found

    def promise(self) -> Progress:
        names = {self.merge.result[0], *self.merge.ends}
        return Progress({} if self.ended else {n: b for n, b in self.bounds.items() if n in names}, self.ended)

    def endless(self) -> str | None:
        if self.ended or self.progress[0].bounds.get(self.merge.start) is not None:
            return None
        return "the lifetimes that are merged start at no time that advances, so none of them is ever final"
