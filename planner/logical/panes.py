"""Aggregates over overlapping windows, or over windows that rows define, computed from panes: which aggregates qualify,
and how.

Each row is in one pane. The rows of a key and pane become a state (`aggregate phase=partial`), and the states of panes
become windows (`combine`). This is used wherever possible: no row is repeated, and the cost of a window does not grow
with its size. It is impossible where a key or an argument is computed from the window's bounds, or for an aggregate
that needs all values."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal, substitute
from tsql.kernels.expr.types import BIGINT, BOOLEAN, TIMESTAMP
from tsql.kernels.operators.aggregate.combine import Windows, is_placed
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.aggregate_states import can_combine
from tsql.planner.logical.calls import map_call
from tsql.planner.logical.overlapping_windows import Cumulate, Hop, length

PANE, FIRST, LAST = "pane", "pane_first", "pane_last"


@dataclass(frozen=True)
class Paned:
    """A grouping of windows: the rows, the keys and calls of their panes, and the windows. `shown` are the columns of
    the result, over the columns of `combine`."""

    rows: logical.Node
    keys: tuple[tuple[str, Expr], ...]
    pane: Call
    calls: tuple[tuple[str, AggregateCall], ...]
    extra: tuple[tuple[str, AggregateCall], ...]
    windows: Windows
    shown: tuple[tuple[str, Expr], ...]

    def from_rows(self) -> tuple[tuple[tuple[str, Expr], ...], tuple[tuple[str, AggregateCall], ...], Windows]:
        """The same without panes: what a row must have, the calls over that, and the windows over rows."""
        columns = dict(self.keys)
        if self.windows.pane is not None:
            columns[PANE], windows = self.pane, replace(self.windows, over="rows")
        else:
            columns[FIRST] = self.pane.args[0]
            windows = replace(self.windows, over="rows", last=FIRST if self.windows.last is not None else None)
        arguments: dict[Expr, Column] = {}

        def argument(expr: Expr) -> Expr:
            return (
                expr
                if isinstance(expr, Literal)
                else arguments.setdefault(expr, Column(f"argument_{len(arguments)}", expr.type))
            )

        calls = tuple((n, map_call(c, argument)) for n, c in self.calls)
        return (*columns.items(), *((c.name, e) for e, c in arguments.items())), calls, windows


def paned(node: logical.Aggregate) -> Paned | None:
    """The grouping by panes that is equivalent to an aggregate; None if there is none."""
    if node.sets is not None or not node.keys:
        return None
    below, columns = node.input, None
    while isinstance(below, logical.Project):
        columns = _inlined(columns, dict(below.columns))
        below = below.input
    keys = node.keys if columns is None else tuple((n, substitute(e, columns)) for n, e in node.keys)
    calls = (
        node.aggregates
        if columns is None
        else tuple((n, map_call(c, lambda e: substitute(e, columns))) for n, c in node.aggregates)
    )
    if not all(can_combine(c) for _, c in calls):
        return None
    found: PaneSource | None
    match below:
        case Hop() | Cumulate():
            found = _by_time(below)
        case logical.Window():
            found = _session(below)
        case logical.Filter(input=logical.Window() as window):
            found = _rows(below, window)
        case _:
            return None
    return None if found is None else found.grouped(node, keys, calls)


def _inlined(outer: dict[str, Expr] | None, inner: dict[str, Expr]) -> dict[str, Expr]:
    return inner if outer is None else {n: substitute(e, inner) for n, e in outer.items()}


@dataclass(frozen=True)
class PaneSource:
    """Rows in windows: the names of the columns that the windows add, how a key says one of the bounds, and the keys of
    the windows themselves. needs: which of its columns tells a window from the others, where not each does."""

    rows: logical.Node
    added: frozenset[str]
    start: Expr
    end: Expr
    time: Expr
    width: int
    offset: int
    windows: Windows
    by: tuple[Expr, ...] | None = None
    id: Expr | None = None
    needs: str | None = None

    def grouped(
        self, node: logical.Aggregate, keys: tuple[tuple[str, Expr], ...], calls: tuple[tuple[str, AggregateCall], ...]
    ) -> Paned | None:
        plain: list[tuple[str, Expr]] = []
        shown: list[tuple[str, Expr]] = []
        bounds = set()
        for name, expr in keys:
            side = (
                "start"
                if same(expr, self.start)
                else "end"
                if same(expr, self.end)
                else "id"
                if self.id is not None and same(expr, self.id)
                else None
            )
            if side is not None:
                bounds.add(side)
                shown.append((name, Column(getattr(self.windows, side), expr.type, False)))
            elif self.added & set(expr.columns()):
                return None
            else:
                plain.append((name, expr))
                shown.append((name, Column(name, expr.type)))
        if (
            not bounds
            or (self.needs is not None and self.needs not in bounds)
            or any(self.added & set(e.columns()) for _, c in calls for e in c.expressions())
        ):
            return None
        if self.by is not None and ({str(e) for _, e in plain} != {str(e) for e in self.by}):
            return None
        taken = {n for n, _ in (*plain, *calls)} & {
            PANE,
            FIRST,
            LAST,
            self.windows.start,
            self.windows.end,
            self.windows.id,
        }
        if taken:
            return None
        windows = self.windows
        if windows.kind == "session" and any(is_placed(c) for _, c in calls):
            # The rows of sessions come in the order of time, but the state of a pane has positions in the input.
            windows = replace(windows, over="rows")
        pane = Call("time_pane", (self.time, Literal(self.width, BIGINT), Literal(self.offset, BIGINT)), BIGINT)
        extra: tuple[tuple[str, AggregateCall], ...] = ()
        if self.windows.kind == "session":
            extra = (
                (FIRST, AggregateCall("min", (self.time,), TIMESTAMP)),
                (LAST, AggregateCall("max", (self.time,), TIMESTAMP)),
            )
        shown += [(n, Column(n, c.type)) for n, c in calls]
        return Paned(self.rows, tuple(plain), pane, calls, extra, windows, tuple(shown))


def _by_time(node: Hop | Cumulate) -> PaneSource:
    column = Column(node.column, TIMESTAMP, False)
    if isinstance(node, Hop):
        width = node.pane
        windows = Windows(
            "hop", slide=node.slide // width, size=node.size // width, width=width, pane=PANE, offset=node.offset
        )
        end = Call("+", (column, length(node.size)), TIMESTAMP)
        return PaneSource(node.input, frozenset([node.column]), column, end, node.time, width, node.offset, windows)
    width = node.step_size
    windows = Windows("cumulate", size=node.size // width, width=width, pane=PANE, offset=node.offset)
    start = Call("time_floor", (node.time, Literal(node.size, BIGINT), Literal(node.offset, BIGINT)), TIMESTAMP)
    return PaneSource(
        node.input, frozenset([node.column]), start, column, node.time, width, node.offset, windows, needs="end"
    )


def _session(node: logical.Window) -> PaneSource | None:
    """Sessions of any length: two rows in a pane as wide as the gap are in one session."""
    names = {call.name: name for name, call in node.calls}
    if set(names) - {"session_start", "session_end"} or not names:
        return None
    args = {call.args for _, call in node.calls}
    if len(args) > 1:
        return None
    time, gap, largest = next(iter(args))
    if not (isinstance(gap, Literal) and isinstance(largest, Literal) and largest.value == 0 and gap.value > 0):
        return None
    windows = Windows("session", gap=gap.value, first=FIRST, last=LAST)
    start, end = (Column(names.get(f"session_{side}", f"#{side}"), TIMESTAMP) for side in ("start", "end"))
    return PaneSource(node.input, frozenset(names.values()), start, end, time, gap.value, 0, windows, by=node.keys)


def _rows(node: logical.Filter, window: logical.Window) -> PaneSource | None:
    """Full windows of a fixed number of consecutive rows."""
    names = {call.name: name for name, call in window.calls}
    if (
        not {"rows_start", "rows_number"} <= set(names) <= {"rows_start", "rows_end", "rows_number"}
        or len(window.order) != 1
    ):
        return None
    time, rows = next(call.args for _, call in window.calls if call.name == "rows_start")
    start, end, id = (
        Column(names.get(f"rows_{what}", f"#{what}"), BIGINT if what == "number" else TIMESTAMP)
        for what in ("start", "end", "number")
    )
    if (
        any(call.args[-1] != rows for _, call in window.calls)
        or not isinstance(rows, Literal)
        or not same(node.predicate, Call("is_not_null", (start,), BOOLEAN))
    ):
        return None
    windows = Windows("rows", slide=rows.value, size=rows.value, first=FIRST, id="window_id", over="rows")
    return PaneSource(
        window.input, frozenset(names.values()), start, end, time, 1, 0, windows, by=window.keys, id=id, needs="id"
    )


def same(a: Expr, b: Expr) -> bool:
    """Whether two expressions compute the same; what is known of NULLs in a column does not matter."""
    return _bare(a) == _bare(b)


def _bare(expr: Expr) -> Expr:
    columns: dict[str, Expr] = {c.name: Column(c.name, c.dtype) for c in expr.walk() if isinstance(c, Column)}
    return substitute(expr, columns)
