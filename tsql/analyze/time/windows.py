"""Window functions in FROM (TUMBLE, HOP, CUMULATE, SESSION, by time and by count): their plan and the columns they add.

TUMBLE is arithmetic on each row. HOP and CUMULATE repeat a row for each window that contains it
(`planner/logical/overlapping_windows.py`). SESSION and count windows are window functions over the rows of a key
(`kernels/windows/sessions.py`). Rows without a time are in no window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze.scope import WINDOW_COLUMNS, AnalyzedRelation, Names, Scope, ScopeField, ScopeTable
from tsql.grammar.time.intervals import LONGEST_US, length_us
from tsql.grammar.time.nodes import Cumulate as CumulateNode
from tsql.grammar.time.nodes import Hop as HopNode
from tsql.grammar.time.nodes import Session as SessionNode
from tsql.grammar.time.nodes import WindowFunction
from tsql.grammar.time.parameters import USAGE
from tsql.kernels.expr.constant import evaluate
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal, SortKey
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DATE, INTERVAL, TIMESTAMP, TIMESTAMPTZ, Type
from tsql.kernels.windows.call import WHOLE_PARTITION, WindowCall
from tsql.planner.bind.binder import Binder
from tsql.planner.bind.types import coerce
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.generating import Series
from tsql.planner.logical.overlapping_windows import Cumulate, Hop, floor, later, margins

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer

TIMES = (TIMESTAMP, TIMESTAMPTZ, DATE)
MOST_ROWS = 2**48
"""No key has as many rows, so larger windows are equivalent. Row numbers can be added to it without overflow."""


def window_function(queries: QueryAnalyzer, node: WindowFunction, environment: Any) -> ScopeTable:
    """The relation of a window function, under the name of its input."""
    return WindowAnalyzer(queries, node, queries.table(node.this, environment)).analyze()


class WindowAnalyzer:
    """Analyzes one window function over its input."""

    def __init__(self, queries: QueryAnalyzer, node: WindowFunction, input: ScopeTable):
        self.queries, self.node, self.input = queries, node, input
        self.fields = input.relation.fields
        self.plan = input.relation.plan
        self.names = Names((*self.plan.schema.names, *queries.taken))
        scope = Scope((input,), queries.source)

        def resolve(column: exp.Column) -> Expr:
            found = scope.find(column)
            if found is None:
                raise scope.unknown(column)
            return found

        self.binder = Binder(queries.source, resolve, clause=node.sql_name, parameters=queries.parameters)

    def analyze(self) -> ScopeTable:
        if self.input.relation.life is not None:
            raise self.queries.error(
                f"{self.node.sql_name} is over rows with a time: the rows of its input have lifetimes",
                self.node,
                "QUANTIZE(t, slide => .., size => ..) with GROUP BY",
            )
        added = WINDOW_COLUMNS if self._by_count else WINDOW_COLUMNS[:2]
        for field in self.fields:
            if field.name.lower() in added:
                raise self.queries.error(
                    f"the input of {self.node.sql_name} has a column {field.name} already",
                    self.node,
                    f"give it another name: SELECT {field.name} AS other_name, ..",
                )
        if self.node.args.get("timezone") is not None and not self._is_utc():
            raise self.queries.error(
                "windows are aligned in UTC: other time zones are not possible",
                self.node.args["timezone"],
                "timezone => 'UTC'",
            )
        time, keys = self._timed(), self._keys()
        if self._by_count:
            names = self._count_windows(time, keys)
        elif isinstance(self.node, SessionNode):
            names = self._sessions(time, keys)
        else:
            names = self._by_time(time)
        fields = [
            ScopeField(name, column, BIGINT if name == "window_id" else TIMESTAMP, False)
            for name, column in zip(added, names, strict=True)
        ]
        shown = AnalyzedRelation(self.plan, (*self.fields, *fields))
        return ScopeTable(self.input.alias, shown)

    @property
    def _by_count(self) -> bool:
        return self.node.args.get("rows") is not None

    def _is_utc(self) -> bool:
        zone = self.node.args["timezone"]
        return isinstance(zone, exp.Literal) and zone.name.upper() in ("UTC", "ETC/UTC", "GMT")

    def _timed(self) -> Column:
        """The time of a row as a plan column. It is neither NULL nor infinite, and all windows of the row are within
        TIMESTAMP."""
        node = self.node.args["time"]
        time = self.binder.bind_typed(node)
        if time.type not in TIMES:
            hint = "make_timestamp(microseconds) makes a time of a number" if time.type.is_integer else None
            raise self.queries.error(
                (
                    f"{self.node.sql_name} needs the time of a row: a TIMESTAMP, a TIMESTAMPTZ or a DATE, not "
                    f"{_article(time.type)}"
                ),
                node,
                hint or f"as in {USAGE[type(self.node)]}",
            )
        if not (isinstance(time, Column) and time.type == TIMESTAMP):
            time = self._add("time", coerce(time, TIMESTAMP))
        far = tuple(Literal(us, BIGINT) for us in self._margins())
        self.plan = logical.Filter(self.plan, Call("has_time", (time, *far), BOOLEAN, self.binder.position(node)))
        return Column(time.name, TIMESTAMP, False)

    def _margins(self) -> tuple[int, int]:
        """How far the time of a row must be from both ends of TIMESTAMP for its windows to be within it."""
        if self._by_count:
            return 0, 1
        if isinstance(self.node, SessionNode):
            gap, largest = self._length("gap"), self._length("max_size")
            return 0, min(gap, largest) if largest else gap
        size = self._length("size")
        return margins(self._length("slide") if isinstance(self.node, HopNode) else size, size, self._length("offset"))

    def _keys(self) -> tuple[Column, ...]:
        """PARTITION BY as columns of the plan."""
        found = [self.binder.bind_typed(node) for node in self.node.args.get("partition_by") or ()]
        return tuple(e if isinstance(e, Column) else self._add("key", e) for e in found)

    def _add(self, name: str, expr: Expr) -> Column:
        """A column with a computed value."""
        (added,) = self._computed([(name, expr)])
        return Column(added, expr.type)

    def _computed(self, more: Sequence[tuple[str, Expr]]) -> list[str]:
        named = [(self.names.unique(name), expr) for name, expr in more]
        own = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in self.plan.schema)
        self.plan = logical.Project(self.plan, (*own, *named))
        return [name for name, _ in named]

    def _length(self, name: str) -> int:
        """An interval of the call in microseconds; 0 if it is not given."""
        node = self.node.args.get(name)
        if node is None:
            return 0
        bound = self.binder.bind_as(node, INTERVAL)
        value = bound if isinstance(bound, Literal) else None if bound.columns() else evaluate(bound)
        if value is None or value.value is None:
            raise self.queries.error(
                f"{name} of {self.node.sql_name} must be a constant interval", node, f"as in {USAGE[type(self.node)]}"
            )
        if value.value[0]:
            raise self.queries.error(
                f"{name} of {self.node.sql_name} cannot be in months or years, which differ in length", node
            )
        found = length_us(value.value)
        if found <= 0 and name != "offset":
            raise self.queries.error(f"{name} of {self.node.sql_name} must be more than zero", node)
        if abs(found) > LONGEST_US:
            raise self.queries.error(f"{name} of {self.node.sql_name} is longer than 146,000 years", node)
        return found

    def _count(self, name: str) -> int:
        node = self.node.args[name]
        bound = self.binder.bind_as(node, BIGINT)
        value = bound if isinstance(bound, Literal) else None if bound.columns() else evaluate(bound)
        if value is None or value.value is None or value.value < 1:
            raise self.queries.error(f"{name} of {self.node.sql_name} must be a constant, at least 1", node)
        return min(value.value, MOST_ROWS)

    def _by_time(self, time: Column) -> list[str]:
        size, offset = self._length("size"), self._length("offset")
        if isinstance(self.node, HopNode):
            slide = self._length("slide")
            start = self.names.unique("window_start")
            self.plan = Hop.of(self.plan, start, time, slide, size, offset % slide)
            return [start, *self._computed([("window_end", later(Column(start, TIMESTAMP, False), size))])]
        if isinstance(self.node, CumulateNode):
            step = self._length("step")
            if size % step:
                raise self.queries.error("the size of CUMULATE must be a multiple of its step", self.node.args["size"])
            end = self.names.unique("window_end")
            self.plan = Cumulate.of(self.plan, end, time, step, size, offset % size)
            return [*self._computed([("window_start", floor(time, size, offset % size))]), end]
        start = floor(time, size, offset % size)
        return self._computed([("window_start", start), ("window_end", later(start, size))])

    def _window(self, keys: tuple[Expr, ...], time: Column, calls: list[tuple[str, WindowCall]]) -> list[Column]:
        named = [(self.names.unique(name), call) for name, call in calls]
        self.plan = logical.Window(self.plan, keys, (SortKey(time),), tuple(named))
        return [Column(name, call.type) for name, call in named]

    def _sessions(self, time: Column, keys: tuple[Column, ...]) -> list[str]:
        args = (time, Literal(self._length("gap"), BIGINT), Literal(self._length("max_size"), BIGINT))
        return [
            c.name
            for c in self._window(
                keys,
                time,
                [(f"window_{side}", WindowCall(f"session_{side}", args, TIMESTAMP)) for side in ("start", "end")],
            )
        ]

    def _count_windows(self, time: Column, keys: tuple[Column, ...]) -> list[str]:
        rows, slide = self._count("rows"), self._count("slide_rows") if isinstance(self.node, HopNode) else None
        if slide is None or slide == rows:
            size = Literal(rows, BIGINT)
            bounds = [
                (f"window_{side}", WindowCall(f"rows_{side}", (time, size), TIMESTAMP)) for side in ("start", "end")
            ]
            start, end, place = self._window(
                keys, time, [*bounds, ("window_id", WindowCall("rows_number", (size,), BIGINT))]
            )
            self.plan = logical.Filter(self.plan, Call("is_not_null", (start,), BOOLEAN))
            return [start.name, end.name, place.name]
        (number,) = self._window(keys, time, [("row_of_key", WindowCall("row_number", (), BIGINT))])
        place = self.names.unique("window_id")
        first = _divided(Call("greatest", (_minus(number, rows - slide + 1), Literal(0, BIGINT)), BIGINT), slide)
        self.plan = Series(self.plan, place, first, _divided(_minus(number, 1), slide), Literal(1, BIGINT), True)
        # With gaps between the windows a row may be in none.
        window = Column(place, BIGINT, False)
        inside = Call("<=", (_minus(number, rows), Call("*", (window, Literal(slide, BIGINT)), BIGINT)), BOOLEAN)
        self.plan = logical.Filter(self.plan, inside)
        bounds = [
            (f"window_{side}", WindowCall(name, (time,), TIMESTAMP, WHOLE_PARTITION))
            for side, name in (("start", "min"), ("last", "max"))
        ]
        start, last, count = self._window(
            (*keys, window), time, [*bounds, ("rows_of_window", WindowCall("count_star", (), BIGINT, WHOLE_PARTITION))]
        )
        self.plan = logical.Filter(self.plan, Call("=", (count, Literal(rows, BIGINT)), BOOLEAN))
        (end,) = self._computed([("window_end", later(last, 1))])
        return [start.name, end, place]


def _minus(number: Expr, by: int) -> Expr:
    return Call("-", (number, Literal(by, BIGINT)), BIGINT)


def _divided(number: Expr, by: int) -> Expr:
    return Call("//", (number, Literal(by, BIGINT)), BIGINT)


def _article(type: Type) -> str:
    return f"an {type}" if str(type)[0] in "AEIOU" else f"a {type}"
