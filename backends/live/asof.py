"""Live ASOF joins.

A join that looks back in time (`left >= right`, `>`) knows the match of a left row when the right side has passed it.
One that looks ahead knows it when the right side has passed a match, or the tolerance.

State: waiting left rows, and right rows. A right row is dropped when a later row of the same key is nearer for every
left row held or to come (which a condition beside the keys may rule out), when it is further away than the tolerance,
and, looking ahead, when it is before them."""

from __future__ import annotations

from dataclasses import replace

from tsql.backends.live.fragments import Engine, Fragment, Rows
from tsql.backends.live.operator import (
    LiveOperator,
    compare,
    held_bounds,
    negated,
    parameter,
    restricted,
    unless_null,
)
from tsql.kernels.expr.nodes import Call, Column, SortKey
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.windows.call import WindowCall
from tsql.planner.physical.operators.asof_join import AsofJoin
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.progress import DAY_US, Progress, moved


class AsofJoins(LiveOperator):
    """An ASOF join, inner or left."""

    def __init__(self, step: AsofJoin, engine: Engine):
        super().__init__(step, engine)
        self.left, self.right = step.at.args
        self.looks_back = step.at.name in (">", ">=")
        self.whole = self.over()
        ahead = (
            None
            if step.tolerance is None or not isinstance(step.tolerance.value, tuple)
            else step.tolerance.value[1] * DAY_US + step.tolerance.value[2]
        )
        self.ahead = 0 if self.looks_back else ahead
        """How far after a left row's time its match may be; None if it may be anywhere."""
        self.tolerance = ahead
        self.why = (
            "holds left rows until the right side has passed them, and the right rows nearest to them"
            if self.looks_back
            else "holds left rows until a match or the tolerance is passed, and right rows that may be nearest to them"
        )
        if not self.frees_right:
            self.why = (
                "holds left rows until the right side has passed them, and all right rows: the join has a condition"
            )
        self.found = None if self.looks_back else self._found()
        self.near = self._near()
        self.waiting = self._waiting() if self.ahead is not None else None
        self.needed = self._needed() if self.looks_back and step.condition is None else None
        self.needed_rows = 0

    def _waiting(self) -> tuple[Fragment, Fragment]:
        """The left rows whose match (or lack of one) is known, and the others. A left row is known once the right side
        has passed its time plus `ahead`."""
        passed = unless_null(
            compare(self.left, "<=" if self.step.at.name == ">" else "<", parameter("time", self.left.type))
        )
        return self.filtered(0, passed), self.filtered(0, negated(passed))

    @property
    def frees_right(self) -> bool:
        return not self.looks_back or self.step.condition is None or self.tolerance is not None

    def _found(self) -> tuple[Fragment, Fragment]:
        """The left rows with a match that no later right row is nearer than, and the others."""
        known = Filter((self.leaf(1),), predicate=compare(self.right, "<", parameter("time", self.right.type)))
        joined = self.over(None, known, step=replace(self.step, kind="left")).top
        has = Call("is_not_null", (self.right,), BOOLEAN)
        return (
            Fragment(self.engine, restricted(Filter((joined,), predicate=has), self.step)),
            Fragment(self.engine, restricted(Filter((joined,), predicate=negated(has)), self.below[0])),
        )

    def _near(self) -> Fragment | None:
        """The right rows that are not too far before a given time."""
        if self.looks_back and self.tolerance is None:
            return None
        return self.filtered(1, compare(self.right, ">=", parameter("time", self.right.type)))

    def _needed(self) -> Fragment:
        """The right rows that may be nearest to a left row from a given time on."""
        leaf = self.leaf(1)
        by = tuple(k.right for k in self.step.keys)
        # A row without a time matches nothing, and would sort after all others.
        timed = Filter((leaf,), predicate=Call("is_not_null", (self.right,), BOOLEAN))
        following = Window(
            (timed,),
            by=by,
            order=(SortKey(self.right),),
            calls=(("next_time", WindowCall("lead", (self.right,), self.right.type)),),
        )
        stands_before = compare(
            Column("next_time", self.right.type),
            "<" if self.step.at.name == ">" else "<=",
            parameter("time", self.right.type),
        )
        kept = Filter((following,), predicate=unless_null(negated(stands_before)))
        return Fragment(self.engine, restricted(kept, leaf))

    @property
    def decides_at_once(self) -> bool:
        return self.progress[1].ended

    def advance(self) -> Rows:
        final = self._final()
        found = self.whole.rows({"side_0": final, "side_1": self.held[1].rows}) if final else []
        found += self._matched()
        if self.progress[0].ended and not self.held[0].rows:
            self.held[1].take()
            return found
        time = self._first()
        rows = self.held[1]
        if self.near is not None and rows.rows and time is not None:
            reach = self.tolerance if self.looks_back and self.tolerance is not None else 0
            rows.rows = self.near.rows({"side_1": rows.rows}, time=moved(time, -reach))
        if self.needed is not None and time is not None and len(rows) > 2 * self.needed_rows:
            # To find those that are needed sorts all: it waits until as many others may have come.
            rows.rows = self.needed.rows({"side_1": rows.rows}, time=time)
            self.needed_rows = len(rows)
        return found

    def _matched(self) -> Rows:
        """The results of left rows whose match lies ahead, and has come."""
        time = None if self.progress[1].ended else self.progress[1].lower(self.right)
        if self.found is None or time is None or not (self.held[0].rows and self.held[1].rows):
            return []
        has, has_not = self.found
        rows = {"side_0": self.held[0].rows, "side_1": self.held[1].rows}
        found = has.rows(rows, time=time)
        if found:
            self.held[0].rows = has_not.rows(rows, time=time)
        return found

    def _final(self) -> Rows:
        if self.progress[1].ended:
            return self.held[0].take()
        time = self.progress[1].lower(self.right)
        if self.waiting is None or time is None:
            return []
        return self.part(0, *self.waiting, time=moved(time, -self.ahead))

    def _first(self) -> int | None:
        """A lower bound on the times of left rows, held or to come."""
        comes = None if self.progress[0].ended else self.progress[0].lower(self.left)
        if comes is None and not self.progress[0].ended:
            return None
        if not self.held[0].rows:
            return comes
        waits = self.progress[1].lower(self.right)
        if waits is None:
            return None
        if not self.looks_back:
            if not isinstance(self.left, Column):
                return None
            far = Progress({self.left.name: waits if comes is None else comes})
            waits = held_bounds(far, self.held[0].rows, self.below[0].schema)[self.left.name]
        return waits if comes is None else min(waits, comes)

    def promise(self) -> Progress:
        if self.ended or (self.progress[0].ended and not self.held[0].rows):
            return Progress(ended=True)
        first = self._first()
        return Progress({self.left.name: first} if first is not None and isinstance(self.left, Column) else {})

    def endless(self) -> str | None:
        left, right = self.progress
        if not right.ended and right.lower(self.right) is None:
            return "the time of the right side never advances, so no row of the left side ever has its match"
        if right.ended:
            return None
        if not self.frees_right:
            return "rows of the right side are held for ever: the condition may be true for any of them"
        if not left.ended and left.lower(self.left) is None:
            return "rows of the right side are held for ever: the time of the left side never advances"
        return None
