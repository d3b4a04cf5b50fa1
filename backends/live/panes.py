"""Live windows from panes: a window is output when no later row can be in it, and a pane is dropped when no open window
contains it.

State: panes (partial states, or rows if the plan has `over=rows`), and the time up to which windows have been output.
At each punctuation, windows are computed again from the panes of open windows, and those already output are left out. A
window keeps its panes as long as it is open."""

from __future__ import annotations

from tsql.backends.live.fragments import Engine, Fragment, Rows, given
from tsql.backends.live.groups import States
from tsql.backends.live.operator import LiveOperator, all_of, compare, parameter
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.types import BIGINT, TIMESTAMP
from tsql.planner.logical.predicates import JoinKey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.progress import Progress

NEVER = -(2**63) + 1


class Panes(LiveOperator):
    """A combine step over hopping or growing windows."""

    why = "holds panes while a window that has them is open"

    def __init__(self, step: Combine, engine: Engine):
        super().__init__(step, engine)
        self.windows = step.windows
        self.states = States(engine, self.below[0], self.leaf(0)) if isinstance(self.below[0], Aggregate) else None
        self.takes_groups = self.states is not None
        self.marks = {"given_to": NEVER}
        end = Column(self.windows.end, TIMESTAMP, False)
        is_new = compare(end, ">", parameter("given_to", TIMESTAMP))
        is_over = compare(end, "<=", parameter("time", TIMESTAMP))
        whole = self.over().top
        self.rest = Fragment(engine, Filter((whole,), predicate=is_new))
        self.closed = Fragment(engine, Filter((whole,), predicate=all_of([is_new, is_over])))
        self.open = self.needed()

    def needed(self) -> Fragment:
        """The panes of windows that are still open."""
        pane = Column(self.windows.pane, BIGINT, False)
        return self.filtered(0, compare(pane, ">=", parameter("first", BIGINT)))

    def consume(self, side: int, rows: Rows) -> Rows:
        super().consume(side, rows)
        if self.states is not None:
            self.held[0].rows = self.states.merged(self.held[0].rows)
        return []

    @property
    def time(self) -> int | None:
        """Windows that end here or before are complete."""
        pane = self.progress[0].bounds.get(self.windows.pane)
        return None if pane is None else pane * self.windows.width + self.windows.offset

    def advance(self) -> Rows:
        given_to = self.marks["given_to"]
        if self.ended:
            return self.rest.rows({"side_0": self.held[0].take()}, given_to=given_to)
        time = self.time
        if time is None or time <= given_to:
            return []
        self.marks["given_to"] = time
        if not self.held[0].rows:
            return []
        rows = {"side_0": self.held[0].rows}
        found = self.closed.rows(rows, given_to=given_to, time=time)
        if found:
            self.held[0].rows = self.keep(rows, found)
        return found

    def keep(self, rows: dict[str, Rows], found: Rows) -> Rows:
        """The panes of windows that are still open, after `found` were output."""
        return self.open.rows(rows, first=self.first_open)

    @property
    def first_open(self) -> int:
        """The first pane of the first window that is not complete."""
        windows, pane = self.windows, self.progress[0].bounds[self.windows.pane]
        if windows.kind == "cumulate":
            return pane // windows.size * windows.size
        # The first start, a multiple of the slide, from which a window extends past `pane`.
        return (pane - windows.size) // windows.slide * windows.slide + windows.slide

    def endless(self) -> str | None:
        return None if self.ended or self.time is not None else "the time of the windows never advances"

    def promise(self) -> Progress:
        if self.ended or self.marks["given_to"] == NEVER:
            return Progress(ended=self.ended)
        windows = self.windows
        bounds = {windows.end: self.marks["given_to"] + 1}
        if windows.kind in ("hop", "cumulate") and windows.pane in self.progress[0].bounds:
            bounds[windows.start] = self.first_open * windows.width + windows.offset
        return Progress(bounds)


class Sessions(Panes):
    """A combine step over sessions. A row exactly at the end of a session still belongs to it, so a session is complete
    when the time is past its end."""

    why = "holds the panes of sessions that may go on"

    @property
    def time(self) -> int | None:
        first = self.progress[0].bounds.get(self.windows.first)
        return None if first is None else first - 1

    def needed(self) -> Fragment:
        """The panes that are in none of the sessions that are complete. Sessions of a key are apart, so a pane is in
        one of them if it starts before the last of them ends."""
        step, windows = self.step, self.windows
        leaf, over = self.leaf(0), given("over", step.schema)
        keys = tuple(
            JoinKey(
                Column(n, leaf.schema[n].type, leaf.schema[n].nullable), Column(f"over_{n}", step.schema[n].type), True
            )
            for n in step.by
        )
        by = tuple((f"over_{n}", Column(n, step.schema[n].type)) for n in step.by)
        end = AggregateCall("max", (Column(windows.end, TIMESTAMP, False),), TIMESTAMP)
        ends = Aggregate((over,), by=by, calls=(("over_end", end),))
        before = compare(Column(windows.first, TIMESTAMP, False), "<", Column("over_end", TIMESTAMP))
        return Fragment(self.engine, HashJoin((leaf, ends), kind="anti", keys=keys, condition=before))

    def keep(self, rows: dict[str, Rows], found: Rows) -> Rows:
        return self.open.rows(rows | {"over": found})
