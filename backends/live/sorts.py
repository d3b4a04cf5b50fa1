"""Live sorts.

Rows in the order of a time leave as soon as no later row can precede them; all others are sorted when their input has
ended. With a limit only the first rows are held; once that many are output, the sort has ended.

State: the rows that are not output. Cost: when the bound moves, a pass over them; with a limit, a sort of what has come
whenever it has doubled."""

from __future__ import annotations

from dataclasses import replace

from tsql.backends.live.fragments import Engine, Fragment, Rows, count
from tsql.backends.live.operator import LiveOperator, compare, held_bounds, negated, parameter, unless_null
from tsql.backends.live.window_needs import is_in_time
from tsql.backends.local.run.constants import row_count
from tsql.kernels.expr.types import BIGINT
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.progress import Progress

CUT_ROWS = 1_000
"""Rows beyond the first ones are dropped when there are twice as many as the limit, plus this many."""


class Sorts(LiveOperator):
    """A sort step over all rows."""

    step: Sort

    def __init__(self, step: Sort, engine: Engine):
        super().__init__(step, engine)
        self.limit = None if step.limit is None else row_count(step.limit, engine.run.parameters)
        self.marks = {"given": 0}
        self.least = 0
        kept = step if step.limit is None else replace(step, limit=parameter("left", BIGINT))
        self.whole = self.over(step=kept)
        self.in_time = is_in_time(step.keys)
        if self.in_time:
            passed = compare(step.keys[0].expr, "<", parameter("time", step.keys[0].expr.type))
            self.passed = self.over(Filter((self.leaf(0),), predicate=passed), step=kept)
            self.later = self.filtered(0, unless_null(negated(passed)))
        self.bounds: dict[str, int] = {}
        rows = "its rows" if self.limit is None else f"the first {self.limit} rows"
        self.why = f"holds {rows} until " + (
            "their time has passed" if self.in_time and step.keys[0].expr.type.is_temporal else "its input has ended"
        )

    @property
    def left(self) -> int | None:
        """How many rows may still leave; None if all may."""
        return None if self.limit is None else max(self.limit - self.marks["given"], 0)

    def consume(self, side: int, rows: Rows) -> Rows:
        if self.left == 0:
            return []
        super().consume(side, rows)
        if self.left is not None and count(self.held[0].rows) >= self.left + self.least + CUT_ROWS:
            self.held[0].rows = self.whole.rows({"side_0": self.held[0].rows}, left=self.left)
            self.least = count(self.held[0].rows)
        return []

    def advance(self) -> Rows:
        found: Rows = []
        rows = {"side_0": self.held[0].rows}
        time = self.progress[0].lower(self.step.keys[0].expr) if self.in_time else None
        if self.left == 0:
            self.held[0].take()
        elif self.ended:
            found = self.whole.rows(rows, left=self.left)
            self.held[0].take()
        elif time is not None and self.held[0].rows:
            found = self.passed.rows(rows, time=time, left=self.left)
            if found:
                self.held[0].rows = self.later.rows(rows, time=time)
        self.marks["given"] += count(found)
        self.bounds = held_bounds(self.progress[0], self.held[0].rows, self.step.schema)
        return found

    def promise(self) -> Progress:
        ended = self.ended or self.left == 0
        return Progress(dict(self.bounds) if self.in_time and not ended else {}, ended)

    def endless(self) -> str | None:
        if self.ended or (self.in_time and self.progress[0].lower(self.step.keys[0].expr) is not None):
            return None
        return "ORDER BY does not begin with a time, so its first row is known only when all rows are"


class FirstOfBatch(LiveOperator):
    """A sort step with phase=partial: keeps the first rows of what comes, for the sort that follows."""

    why = "holds nothing"

    def __init__(self, step: Sort, engine: Engine):
        super().__init__(step, engine)
        self.first: Fragment = self.over()

    def consume(self, side: int, rows: Rows) -> Rows:
        return self.first.rows({"side_0": rows})

    def advance(self) -> Rows:
        return []

    def promise(self) -> Progress:
        return self.progress[0]

    def endless(self) -> str | None:
        return None
