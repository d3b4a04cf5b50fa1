"""Live windows of N rows: a window is output when all of its rows have arrived and no later row can precede them.

State: the rows after the last window of each key, and the number of windows of each key so far, which numbers the next
ones."""

from __future__ import annotations

from tsql.backends.live.fragments import Engine, Fragment, Rows, given
from tsql.backends.live.operator import HeldRows, LiveOperator, compare, parameter, restricted
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal, SortKey
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, TIMESTAMP
from tsql.kernels.windows.call import WHOLE_PARTITION, WindowCall
from tsql.planner.logical.predicates import JoinKey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import Step


class CountWindows(LiveOperator):
    """A combine step over windows of consecutive rows."""

    why = "holds the rows behind the last full window of each key"

    def __init__(self, step: Combine, engine: Engine):
        super().__init__(step, engine)
        windows, schema = step.windows, step.schema
        self.first = Column(windows.first, TIMESTAMP, False)
        self.numbered = HeldRows(
            Schema((*(Field(f"of_{n}", schema[n].type) for n in step.by), Field("windows", BIGINT)))
        )
        is_final = compare(self.first, "<", parameter("time", TIMESTAMP))
        self.whole = Fragment(engine, self._renumbered(self.over().top))
        self.closed = Fragment(engine, self._renumbered(self.over(Filter((self.leaf(0),), predicate=is_final)).top))
        self.counts = Fragment(engine, self._counted())
        self.left = Fragment(engine, self._left(is_final))

    def _renumbered(self, windows: Step) -> Step:
        """The windows of a walk, numbered after the earlier ones."""
        step, before = self.step, given("numbered", self.numbered.schema)
        keys = tuple(
            JoinKey(Column(n, windows.schema[n].type), Column(f"of_{n}", windows.schema[n].type), True) for n in step.by
        )
        joined = HashJoin((windows, before), kind="left", keys=keys)
        number = Call(
            "+",
            (
                Column(step.windows.id, BIGINT),
                Call("coalesce", (Column("windows", BIGINT), Literal(0, BIGINT)), BIGINT),
            ),
            BIGINT,
        )
        return Project(
            (joined,),
            columns=tuple(
                (f.name, number if f.name == step.windows.id else Column(f.name, f.type, f.nullable))
                for f in step.schema
            ),
        )

    def _counted(self) -> Step:
        """The number of windows of each key so far."""
        step, schema = self.step, self.numbered.schema
        number = Call("+", (Column(step.windows.id, BIGINT), Literal(1, BIGINT)), BIGINT)
        keys: tuple[tuple[str, Expr], ...] = tuple((f"of_{n}", Column(n, step.schema[n].type)) for n in step.by)
        new = Project((given("found", step.schema),), columns=(*keys, ("windows", number)))
        both = Union((new, given("numbered", schema)))
        by = tuple((f.name, Column(f.name, f.type)) for f in schema if f.name != "windows")
        return Aggregate(
            (both,), by=by, calls=(("windows", AggregateCall("max", (Column("windows", BIGINT),), BIGINT)),)
        )

    def _left(self, is_final: Expr) -> Step:
        """The rows that are not in a full window of final rows."""
        leaf, size = self.leaf(0), Literal(self.step.windows.size, BIGINT)
        by = tuple(Column(n, leaf.schema[n].type, leaf.schema[n].nullable) for n in self.step.by)
        calls = (
            ("row_of_key", WindowCall("row_number", (), BIGINT)),
            ("final_of_key", WindowCall("count_star", (), BIGINT, frame=WHOLE_PARTITION, filter=is_final)),
        )
        placed = Window((leaf,), by=by, order=(SortKey(self.first),), calls=calls)
        given_rows = Call("*", (Call("//", (Column("final_of_key", BIGINT), size), BIGINT), size), BIGINT)
        return restricted(Filter((placed,), predicate=compare(Column("row_of_key", BIGINT), ">", given_rows)), leaf)

    def tables(self) -> dict[str, HeldRows]:
        return super().tables() | {"numbered": self.numbered}

    def advance(self) -> Rows:
        rows = {"side_0": self.held[0].rows}
        before = {"numbered": self.numbered.rows}
        if self.ended:
            self.held[0].take()
            self.numbered.take()
            return self.whole.rows(rows | before) if rows["side_0"] else []
        time = self.progress[0].bounds.get(self.first.name)
        if time is None or not rows["side_0"]:
            return []
        found = self.closed.rows(rows | before, time=time)
        if found:
            self.numbered.rows = self.counts.rows({"found": found} | before)
            self.held[0].rows = self.left.rows(rows, time=time)
        return found

    def endless(self) -> str | None:
        if self.ended or self.first.name in self.progress[0].bounds:
            return None
        return "the time that orders the rows of the windows never advances, so no window is ever full"

    def promise(self) -> Progress:
        return Progress(ended=self.ended)
