"""Live CLIP JOIN: a row ends at the first start of a matching row after its own.

A row is final when that start is known and no earlier one can come, or when the row has ended by then. Starts are
dropped when no row, held or to come, begins before them.

State: rows that go on and have not been clipped, and the starts behind the bounds. Cost: when a bound moves, the
steps of the plan over them. A condition that is no equality is that of an ASOF join that looks ahead
(`clip_plan._nearest`)."""

from __future__ import annotations

from functools import partial

from tsql.backends.live.fragments import Engine, Fragment, Rows, given, graft
from tsql.backends.live.lifetimes.forms import Form, Users, through_projects
from tsql.backends.live.operator import (
    HeldRows,
    LiveOperator,
    any_of,
    compare,
    held_bounds,
    negated,
    origin,
    parameter,
    restricted,
    unless_null,
)
from tsql.kernels.expr.nodes import Call, Column, Expr
from tsql.kernels.expr.types import TIMESTAMP
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.asof_join import AsofJoin
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Clip:
    """top: the join of `rows` with their answers. first: its column with the first start of `others` after a row's.
    start: from when on the row may be clipped, other_start: the start of the others; end: the row's end, where users of
    `top` say it."""

    top: HashJoin
    rows: Step
    others: Step
    start: Expr
    other_start: str
    first: str
    end: Expr | None


def find_clip(step: Step, users: Users) -> Form | None:
    """The steps of a CLIP JOIN that end here."""
    if isinstance(step, AsofJoin):
        nearest = _nearest(step, users.get(id(step), []))
        return None if nearest is None else Form((nearest.rows, nearest.others), partial(Clips, nearest))
    if not (isinstance(step, HashJoin) and step.op == "hash_join" and step.kind == "inner" and len(step.inputs) == 2):
        return None
    for side in range(2):
        found = _clip(step, side, users.get(id(step), []))
        if found is not None:
            return Form((found.rows, found.others), partial(Clips, found))
    return None


def _clip(top: HashJoin, side: int, users: list[Step]) -> Clip | None:
    answers, columns = through_projects(top.inputs[1 - side])
    if not isinstance(answers, Filter):
        return None
    window = origin(answers.inputs[0])
    if not (isinstance(window, Window) and len(window.calls) == 1 and len(window.order) == 2):
        return None
    (first, call), (time, starts) = window.calls[0], window.order
    is_backwards = time.descending and not starts.descending and starts.nulls_first
    if not (is_backwards and call.name == "min" and call.args == (starts.expr,) and isinstance(starts.expr, Column)):
        return None
    if answers.predicate.sql() != f"{starts.expr.sql()} IS NULL" or not isinstance(time.expr, Column):
        return None
    both = origin(window.inputs[0])
    if not isinstance(both, Union) or len(both.inputs) != 2:
        return None
    others, of_others = through_projects(both.inputs[1])
    names = [f.name for f in origin(both.inputs[1]).schema]
    other_start = of_others[names[both.schema.names.index(time.expr.name)]]
    shown = [n for n, e in columns.items() if isinstance(e, Column) and e.name == first]
    at = [n for n, e in columns.items() if isinstance(e, Column) and e.name == time.expr.name]
    if not isinstance(other_start, Column):
        others = origin(both.inputs[1])  # Its time is computed below, as that of SHIFT.
        other_start = Column(others.schema.names[both.schema.names.index(time.expr.name)], TIMESTAMP)
    if len(shown) != 1 or len(at) != 1 or other_start.name not in others.schema:
        return None
    start = None
    for key in top.keys:
        mine, other = (key.left, key.right) if side == 0 else (key.right, key.left)
        if isinstance(other, Column) and other.name == at[0] and isinstance(mine, Column):
            start = mine.name
    rows = origin(top.inputs[side])
    if start is None or top.condition is not None or top.times or start not in rows.schema:
        return None
    end = _end(users, shown[0], rows)
    return Clip(top, rows, others, Column(start, TIMESTAMP), other_start.name, shown[0], end)


def _nearest(top: AsofJoin, users: list[Step]) -> Clip | None:
    """A left ASOF join of which nothing is used but the first start of the others, to clip rows."""
    (start, first), (rows, others) = top.at.args, map(origin, top.inputs)
    if not (top.kind == "left" and top.at.name == "<" and top.tolerance is None and isinstance(first, Column)):
        return None
    end = _end(users, first.name, rows)
    used = {name for user in users for expr in user.expressions() for name in expr.columns()}
    if end is None or not used <= {first.name, *rows.schema.names}:
        return None
    return Clip(top, rows, others, start, first.name, first.name, end)


def _end(users: list[Step], first: str, rows: Step) -> Expr | None:
    """The end of a row: all that users do with the first start is to take the lesser of both."""
    found: dict[str, Expr] = {}
    for user in users:
        if not isinstance(user, Project):
            return None
        for _, expr in user.columns:
            match expr:
                case Call(name="least", args=(end, Call(name="coalesce", args=(Column(name=name), other)))) if (
                    name == first and end == other
                ):
                    found[end.sql()] = end
                case _ if first in expr.columns():
                    return None
    known = [end for end in found.values() if set(end.columns()) <= set(rows.schema.names)]
    return known[0] if len(found) == len(known) == 1 else None


class Clips(LiveOperator):
    """Clips rows (side 0) at the starts of others (side 1)."""

    why = "holds the rows that go on and are not clipped, and the starts to come"

    def __init__(self, clip: Clip, engine: Engine):
        self.step, self.engine, self.clip = clip.top, engine, clip
        self.below, self.progress = (clip.rows, clip.others), (Progress(), Progress())
        self.held = tuple(HeldRows(step.schema) for step in self.below)
        self.marks = {}
        self.bounds: dict[str, int] = {}
        cuts = {id(below): self.leaf(side) for side, below in enumerate(self.below)}
        self.whole = Fragment(engine, graft(clip.top, cuts, engine.shards))
        time = parameter("time", TIMESTAMP)
        known: list[Expr] = [compare(Column(clip.first, TIMESTAMP), "<=", time)]
        if clip.end is not None:
            known.append(compare(clip.end, "<=", time))
        final, clipped = any_of(known), given("clipped", clip.top.schema)
        self.final = Fragment(engine, Filter((clipped,), predicate=final))
        waits = Filter((clipped,), predicate=unless_null(negated(final)))
        self.waiting = Fragment(engine, restricted(waits, clip.rows))
        self.later = self.filtered(1, compare(Column(clip.other_start, TIMESTAMP), ">", time))

    @property
    def decides_at_once(self) -> bool:
        return self.progress[1].ended

    def advance(self) -> Rows:
        rows, others = self.held
        comes = self.progress[0].lower(self.clip.start)
        time = self.progress[1].bounds.get(self.clip.other_start)
        ended = self.progress[1].ended
        found: Rows = []
        if rows.rows and (ended or time is not None):
            clipped = self.whole.rows({"side_0": rows.rows, "side_1": others.rows})
            found = clipped if ended else self.final.rows({"clipped": clipped}, time=time)
            rows.rows = [] if ended else self.waiting.rows({"clipped": clipped}, time=time)
        self._forget(comes, time)
        known = held_bounds(self.progress[0], rows.rows, rows.schema)
        self.bounds = {n: b for n, b in known.items() if n in self.step.schema}
        return found

    def _forget(self, comes: int | None, time: int | None) -> None:
        bounds = ([] if self.progress[0].ended else [comes]) + ([time] if self.held[0].rows else [])
        if None in bounds:
            return
        if not bounds:
            self.held[1].take()
        elif self.held[1].rows:
            least = min(b for b in bounds if b is not None)
            self.held[1].rows = self.later.rows({"side_1": self.held[1].rows}, time=least)

    def promise(self) -> Progress:
        ended = self.progress[0].ended and not self.held[0].rows
        return Progress({} if ended else dict(self.bounds), ended)

    def endless(self) -> str | None:
        if not self.progress[1].ended and self.progress[1].bounds.get(self.clip.other_start) is None:
            return (
                "the rows that clip others start at no time that advances, so nothing is ever known not to be clipped"
            )
        if not self.progress[0].ended and self.progress[0].lower(self.clip.start) is None:
            return "the rows that are clipped start at no time that advances, so all later starts are held"
        return None
