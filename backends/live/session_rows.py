"""Live rows in sessions: the rows of a session are output, with its bounds, when no later row can be in it.

State: the rows of sessions that may continue. This is a window step whose only calls are `session_start` and
`session_end`. It is used below aggregates that need all values of their window."""

from __future__ import annotations

from tsql.backends.live.fragments import Engine, Fragment, Rows
from tsql.backends.live.operator import LiveOperator, compare, parameter, restricted
from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.types import TIMESTAMP
from tsql.kernels.windows.call import WindowCall
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.progress import Progress


def has_sessions(step: Window) -> bool:
    """Whether a window step only finds sessions."""
    calls = [call for _, call in step.calls]
    return bool(calls) and all(c.name in ("session_start", "session_end") and c.args == calls[0].args for c in calls)


class SessionRows(LiveOperator):
    """A window step over sessions, of any length or with a maximum."""

    why = "holds the rows of sessions that may go on"

    def __init__(self, step: Window, engine: Engine):
        super().__init__(step, engine)
        call = step.calls[0][1]
        self.time = call.args[0]
        self.ends = next((n for n, c in step.calls if c.name == "session_end"), None)
        name = self.ends or "session_closes"
        more = () if self.ends else ((name, WindowCall("session_end", call.args, TIMESTAMP)),)
        closing = Window(step.inputs, by=step.by, order=step.order, calls=(*step.calls, *more))
        whole = self.over(step=closing).top
        end, bound = Column(name, TIMESTAMP), parameter("time", TIMESTAMP)
        self.whole = self.over()
        # A row exactly at the end of a session is in it.
        self.closed = Fragment(engine, restricted(Filter((whole,), predicate=compare(end, "<", bound)), step))
        self.open = Fragment(engine, restricted(Filter((whole,), predicate=compare(end, ">=", bound)), self.below[0]))

    def advance(self) -> Rows:
        if self.ended:
            return self.whole.rows({"side_0": self.held[0].take()})
        time = self.progress[0].lower(self.time)
        if time is None or not self.held[0].rows:
            return []
        rows = {"side_0": self.held[0].rows}
        found = self.closed.rows(rows, time=time)
        if found:
            self.held[0].rows = self.open.rows(rows, time=time)
        return found

    def endless(self) -> str | None:
        if self.ended or self.progress[0].lower(self.time) is not None:
            return None
        return "the time of the sessions never advances, so none of them is ever over"

    def promise(self) -> Progress:
        time = self.progress[0].lower(self.time)
        return Progress({} if time is None or self.ends is None else {self.ends: time}, self.ended)
