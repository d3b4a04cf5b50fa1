"""Live ASOF joins: a left row finds its match when the right side has passed its time.

State: waiting left rows, and right rows. A right row is dropped when a later row of the same key is nearer for every
left row held or to come. That only works for joins that look back in time (`left >= right`, `>`). A join that looks
ahead with a tolerance waits that long; any other join waits until the right side has ended."""

from __future__ import annotations

from tsql.backends.live.fragments import Engine, Fragment, Rows
from tsql.backends.live.operator import LiveOperator, compare, negated, parameter, restricted, unless_null
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
        self.why = (
            "holds left rows until the right side has passed them, and the right rows nearest to them"
            if self.ahead is not None
            else "holds both sides until the right one has ended"
        )
        self.waiting = self._waiting() if self.ahead is not None else None
        self.needed = self._needed() if self.looks_back and step.condition is None else None

    def _waiting(self) -> tuple[Fragment, Fragment]:
        """The left rows whose match (or lack of one) is known, and the others. A left row is known once the right side
        has passed its time plus `ahead`."""
        passed = unless_null(
            compare(self.left, "<=" if self.step.at.name == ">" else "<", parameter("time", self.left.type))
        )
        return self.filtered(0, passed), self.filtered(0, negated(passed))

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

    def advance(self) -> Rows:
        final = self._final()
        found = self.whole.rows({"side_0": final, "side_1": self.held[1].rows}) if final else []
        if self.progress[0].ended and not self.held[0].rows:
            self.held[1].take()
        elif self.needed is not None and self.held[1].rows and (time := self._first()) is not None:
            self.held[1].rows = self.needed.rows({"side_1": self.held[1].rows}, time=time)
        return found

    def _final(self) -> Rows:
        if self.progress[1].ended:
            return self.held[0].take()
        time = self.progress[1].lower(self.right)
        if self.waiting is None or time is None or not self.held[0].rows:
            return []
        passed, stays = self.waiting
        rows, time = {"side_0": self.held[0].rows}, moved(time, -self.ahead)
        found = passed.rows(rows, time=time)
        if found:
            self.held[0].rows = stays.rows(rows, time=time)
        return found

    def _first(self) -> int | None:
        """A lower bound on the times of left rows, held or to come."""
        waits = self.progress[1].lower(self.right) if self.held[0].rows else None
        if self.held[0].rows and waits is None:
            return None
        comes = None if self.progress[0].ended else self.progress[0].lower(self.left)
        if comes is None and not self.progress[0].ended:
            return None
        known = [t for t in (waits, comes) if t is not None]
        return min(known) if known else None

    def promise(self) -> Progress:
        if self.ended or (self.progress[0].ended and not self.held[0].rows):
            return Progress(ended=True)
        first = self._first()
        return Progress(
            {self.left.name: first} if first is not None and isinstance(self.left, Column) and self.looks_back else {}
        )
