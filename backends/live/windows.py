"""Live window functions (OVER).

There are two ways, and the bounds that are known choose between them:

- *By partition*, if a key of PARTITION BY has a bound (the window of a TUMBLE): a partition is complete when its key is
  below the bound. It is output and forgotten. State: the rows of open partitions.
- *In time*, if the first key of ORDER BY has a bound: no later row precedes a row below it. Such a row is output when
  the rows that it looks ahead to are known as well. State: the rows that are not output yet, those before them that
  they or later rows look back to (`Needs`), and one row of running results for each partition: counts, sums, minima.
  A running sum of floating-point numbers is added up in the pieces in which rows become final.

A window step without ORDER BY that only numbers rows gives them as they come.

Cost: when the bound moves, a pass over the rows that are not output and over those that are kept; nothing otherwise.
Not done: RANGE frames over other orders than times and whole numbers, GROUPS frames and ORDER BY .. DESC are answered
by partition or at the end."""

from __future__ import annotations

from tsql.backends.live.fragments import Engine, Fragment, Rows, given
from tsql.backends.live.operator import (
    HeldRows,
    LiveOperator,
    all_of,
    any_of,
    compare,
    held_bounds,
    negated,
    parameter,
    restricted,
    same_columns,
    unless_null,
)
from tsql.backends.live.running import Running
from tsql.backends.live.window_needs import is_in_time, needs_of
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN, INTERVAL
from tsql.kernels.windows.call import WHOLE_PARTITION, WindowCall
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.progress import INFINITE, Progress, moved
from tsql.planner.physical.step import Step

GIVEN, PLACE, AHEAD, FINAL = "live given", "live place", "live ahead", "live final"
SETTLED = "live settled"
IS_GIVEN, IS_FINAL = Column(GIVEN, BOOLEAN), Column(FINAL, BOOLEAN)


class Windows(LiveOperator):
    """A window step."""

    step: Window

    def __init__(self, step: Window, engine: Engine):
        super().__init__(step, engine)
        self.needs = needs_of(step)
        self.marks = {"way": ""}
        self.numbers_only = not step.order and all(call.name == "row_number" for _, call in step.calls)
        self.whole = self.over()
        self.parts: dict[tuple[str, ...], tuple[Fragment, Fragment]] = {}
        goes_in_time = is_in_time(step.order) and self.needs.whole is None
        self.in_time = InTime(self) if goes_in_time or self.numbers_only else None
        self.bounds: dict[str, int] = {}
        self.why = self._why()

    def _why(self) -> str:
        if self.numbers_only:
            return "numbers rows as they come, and holds how many there were"
        partitions = "holds the rows of partitions until a time among their keys has passed"
        if self.in_time is None:
            return partitions
        needs = self.needs
        kept = [
            f"all rows of each partition, for {needs.all_back}" if needs.all_back else "",
            f"the last {needs.rows_back} of each partition" if needs.rows_back and not needs.all_back else "",
            "those that a RANGE frame reaches" if needs.length_back is not None and not needs.all_back else "",
            "a row of results per partition" if needs.carried else "",
        ]
        in_time = ", ".join(["holds rows until those before them are known", *filter(None, kept)])
        return f"{partitions}; without one, {in_time}"

    def tables(self) -> dict[str, HeldRows]:
        return super().tables() | ({} if self.in_time is None else self.in_time.tables())

    def consume(self, side: int, rows: Rows) -> Rows:
        if self.numbers_only and self.in_time is not None:
            return self.in_time.given(rows, None)
        return super().consume(side, rows)

    def _keys(self) -> dict[str, int]:
        """The bounds of the keys of PARTITION BY, by their places."""
        found = ((f"key_{number}", self.progress[0].lower(key)) for number, key in enumerate(self.step.by))
        return {name: bound for name, bound in found if bound is not None}

    def advance(self) -> Rows:
        rows, way = self.held[0].rows, self.marks["way"]
        if self.numbers_only:
            for held in self.tables().values() if self.ended else ():
                held.take()
            return []
        if self.ended:
            if self.in_time is not None and way == "in time":
                return self.in_time.given(self.held[0].take(), None)
            return self.whole.rows({"side_0": self.held[0].take()}) if rows else []
        keys = self._keys()
        time = self.progress[0].lower(self.step.order[0].expr) if self.in_time is not None else None
        if not way and (keys or time is not None):
            way = self.marks["way"] = "by partition" if keys else "in time"
        found: Rows = []
        if way == "by partition" and keys and rows:
            done, left = self._parts(tuple(sorted(keys)))
            found = done.rows({"side_0": rows}, **keys)
            if found:
                self.held[0].rows = left.rows({"side_0": rows}, **keys)
        elif way == "in time" and time is not None and self.in_time is not None:
            found = self.in_time.advance(time)
        self.bounds = held_bounds(self.progress[0], self.held[0].rows, self.below[0].schema)
        return found

    def _parts(self, names: tuple[str, ...]) -> tuple[Fragment, Fragment]:
        """The results of partitions with a key below its bound, and the rows of the others."""
        if names not in self.parts:
            keys = {f"key_{number}": key for number, key in enumerate(self.step.by)}
            passed = any_of([compare(keys[n], "<", parameter(n, keys[n].type)) for n in names])
            done = self.over(Filter((self.leaf(0),), predicate=passed))
            self.parts[names] = done, self.filtered(0, unless_null(negated(passed)))
        return self.parts[names]

    def promise(self) -> Progress:
        if self.numbers_only:
            return self.progress[0]
        return Progress(dict(self.bounds) if self.marks["way"] and not self.ended else {}, self.ended)

    def endless(self) -> str | None:
        if self.ended or self.numbers_only:
            return None
        if self.marks["way"] == "by partition":
            return None
        if self.marks["way"] == "in time":
            back = self.needs.all_back
            return back and f"{back} sees all rows before its own, so none of them can ever be forgotten"
        if self.needs.whole:
            return f"{self.needs.whole} needs all rows of a partition, and PARTITION BY has no time"
        return "neither PARTITION BY nor the start of ORDER BY is a time, so no row is ever final"


class InTime:
    """The state and the fragments of a window step in the order of time: `seen`, rows that were output and are looked
    back to, and the running results of each partition."""

    def __init__(self, operator: Windows):
        self.operator, self.engine = operator, operator.engine
        step, self.needs, self.below = operator.step, operator.needs, operator.below[0]
        self.seen = HeldRows(self.below.schema)
        self.time = step.order[0].expr if step.order else None
        names = self.needs.carried
        if self.time is not None:
            past = compare(self.time, "<", parameter("time", self.time.type))
            self.passed = operator.filtered(0, past)
            self.later = operator.filtered(0, unless_null(negated(past)))
        near = tuple((n, c) for n, c in step.calls if n not in names)
        self.looks_ahead = bool(self.needs.rows_ahead or self.needs.length_ahead)
        self.placed = Fragment(self.engine, self._placed(near))
        leaf = given("placed", self.placed.top.schema)
        self.running = Running(self.engine, step, leaf.schema, names) if names else None
        is_new = Filter((leaf,), predicate=negated(IS_GIVEN))
        self.new = Fragment(self.engine, is_new)
        self.given_at_once = Fragment(self.engine, restricted(is_new, step)) if self.is_plain else None
        self.kept = Fragment(self.engine, restricted(self._kept(leaf), self.below)) if self._looks_back() else None
        found = given("new", leaf.schema if self.running is None else self.running.schema)
        self.final = Fragment(self.engine, restricted(Filter((found,), predicate=IS_FINAL), step))
        waits = Filter((found,), predicate=negated(IS_FINAL))
        self.waiting = Fragment(self.engine, restricted(waits, self.below))

    @property
    def is_plain(self) -> bool:
        """Whether new rows are final, with results that need no others than those that are kept."""
        return self.running is None and not self.looks_ahead

    def tables(self) -> dict[str, HeldRows]:
        return {"seen": self.seen} | ({} if self.running is None else {"running": self.running.held})

    def _looks_back(self) -> bool:
        return bool(self.needs.rows_back or self.needs.all_back) or self.needs.length_back is not None

    def _placed(self, near: tuple[tuple[str, WindowCall], ...]) -> Step:
        """Rows seen and new ones with the results that follow from them, their places, and whether they are final."""
        step, columns = self.operator.step, same_columns(self.below.schema)
        both = Union(
            tuple(
                Project((given(name, self.below.schema),), columns=(*columns, (GIVEN, Literal(flag, BOOLEAN))))
                for name, flag in (("seen", True), ("new", False))
            )
        )
        marks = [(PLACE, WindowCall("row_number", (), BIGINT))]
        if self.needs.rows_ahead:
            ahead = Literal(self.needs.rows_ahead, BIGINT)
            marks.append((AHEAD, WindowCall("lead", (Literal(True, BOOLEAN), ahead), BOOLEAN)))
        if not self.looks_ahead:  # then all rows are settled
            marks.append((SETTLED, WindowCall("count_star", (), BIGINT, WHOLE_PARTITION)))
        windows = Window((both,), by=step.by, order=step.order, calls=(*near, *marks))
        ready: list[Expr] = []
        if self.needs.rows_ahead:
            ready.append(Call("is_not_null", (Column(AHEAD, BOOLEAN),), BOOLEAN))
        if self.needs.length_ahead and self.time is not None:
            ready.append(compare(self.time, "<", parameter("to", self.time.type)))
        settled = any_of([IS_GIVEN, parameter("ended", BOOLEAN), all_of(ready)] if ready else [Literal(True, BOOLEAN)])
        schema = windows.schema
        return Project((windows,), columns=(*same_columns(schema), (FINAL, unless_null(settled))))

    def _kept(self, placed: Step) -> Step:
        """The rows that were output, now or before, and that rows to be output look back to."""
        step, needs = self.operator.step, self.needs
        if needs.all_back is not None:
            return Filter((placed,), predicate=IS_FINAL)
        settled, first = Column(SETTLED, BIGINT), "live first"
        calls: list[tuple[str, WindowCall]] = []
        if self.looks_ahead:
            calls.append((SETTLED, WindowCall("count_star", (), BIGINT, WHOLE_PARTITION, filter=IS_FINAL)))
        near: list[Expr] = []
        if needs.rows_back:
            behind = Call("-", (settled, Column(PLACE, BIGINT)), BIGINT)
            near.append(compare(behind, "<", Literal(needs.rows_back, BIGINT)))
        if needs.length_back is not None and self.time is not None:
            kind = self.time.type
            next_one: Expr = parameter("time", kind)
            if self.looks_ahead:
                waits = WindowCall("min", (self.time,), kind, WHOLE_PARTITION, filter=negated(IS_FINAL))
                calls.append((first, waits))
                next_one = Call("least", (next_one, Column(first, kind)), kind)
            length = Literal((0, 0, needs.length_back), INTERVAL)
            reach = length if not kind.is_integer else Literal(needs.length_back, kind)
            near.append(compare(Call("+", (self.time, reach), kind), ">=", next_one))
        counted = Window((placed,), by=step.by, order=step.order, calls=tuple(calls)) if calls else placed
        return Filter((counted,), predicate=all_of([IS_FINAL, any_of(near)]))

    def advance(self, time: int) -> Rows:
        """The rows that are final below a time. They are no longer held."""
        new = self.operator.part(0, self.passed, self.later, time=time)
        if not new and not (self.seen.rows and self.needs.length_back is not None and self.needs.all_back is None):
            return []
        return self.given(new, time)

    def given(self, new: Rows, time: int | None) -> Rows:
        """The results of rows before which no other will come; time: of none after which one may come."""
        if not new and not self.seen.rows:
            return []
        ended = time is None and self.time is not None
        bound = INFINITE if time is None else time
        values = {"time": bound, "to": moved(bound, -self.needs.length_ahead), "ended": ended}
        placed = self.placed.rows({"seen": self.seen.rows, "new": new}, **values)
        if self.given_at_once is not None and not ended:
            if self.kept is not None:
                self.seen.rows = self.kept.rows({"placed": placed}, **values)
            return self.given_at_once.rows({"placed": placed})
        fresh = self.new.rows({"placed": placed})
        if self.running is not None:
            fresh = self.running.results(fresh)
        found = self.final.rows({"new": fresh})
        if ended:
            for held in self.tables().values():
                held.take()
            return found
        if self.looks_ahead:
            self.operator.held[0].rows = self.waiting.rows({"new": fresh}) + self.operator.held[0].rows
        if self.running is not None:
            self.running.go_on(fresh)
        if self.kept is not None:
            self.seen.rows = self.kept.rows({"placed": placed}, **values)
        return found
