"""Live joins. Rows of both sides are held; comparisons of times tell which of them no later row can match (seed 004,
figure 4, generalised).

Take a condition `a <= b`, where all later rows of one side have `a` no less than F. The held rows of the other side
with b < F can then be dropped. An equality is two such conditions. An inner join outputs a pair as soon as its second
row has arrived. All other kinds decide about a left row when no later row can match it, and then drop it. Right rows
are kept while a left row, held or to come, may need them."""

from __future__ import annotations

from tsql.backends.live.fragments import Engine, Fragment, Rows
from tsql.backends.live.operator import (
    LiveOperator,
    any_of,
    compare,
    held_bounds,
    negated,
    parameter,
    unless_null,
)
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.predicates import conjuncts
from tsql.planner.physical.join_ranges import MIRROR
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.progress import DAY_US, Progress, moved

KINDS = ("inner", "left", "semi", "anti")
"""The kinds of `Joins`. Kinds in which a NULL in any right row may leave an answer open need all rows."""


@dataclass(frozen=True)
class TimeLimit:
    """A pair of rows needs `low <= high` (or `<`, if strict). `low` is of the side that is waited for, `high` of the
    held side."""

    low: Expr
    high: Expr
    strict: bool


def limits_of(step: HashJoin, held: int) -> list[TimeLimit]:
    """What a held row of a side requires of later rows of the other side."""
    found = []
    mine = step.inputs[held].schema.names
    others = step.inputs[1 - held].schema.names
    for part in [k.expr for k in step.keys if not k.null_safe] + [*step.times, *conjuncts(step.condition)]:
        if not (isinstance(part, Call) and part.name in ("=", "<", "<=", ">", ">=") and len(part.args) == 2):
            continue
        a, b = part.args
        op = part.name
        if a.columns() and set(a.columns()) <= set(mine) and b.columns() and set(b.columns()) <= set(others):
            a, b, op = b, a, MIRROR.get(op, op)
        if not (a.columns() and set(a.columns()) <= set(others) and b.columns() and set(b.columns()) <= set(mine)):
            continue
        # Now `a op b`, with a of the other side and b of the held one.
        if op in ("<", "<=", "="):
            found.append(TimeLimit(a, b, op == "<"))
    return found


class Joins(LiveOperator):
    """A hash join of a kind in KINDS."""

    def __init__(self, step: HashJoin, engine: Engine):
        super().__init__(step, engine)
        self.is_eager = step.kind == "inner"
        self.limits = tuple(limits_of(step, side) for side in range(2))
        self.whole = self.over(gives_of_nothing=True)
        self.why = self._why()
        self.parts: dict[tuple[int, tuple[int, ...]], tuple[Fragment, Fragment]] = {}

    def _why(self) -> str:
        bounded = [f"side {side}" for side in range(2) if self.limits[side]]
        waits = "" if self.is_eager else ", and a row waits until it cannot be matched"
        return f"holds both sides; {' and '.join(bounded) or 'neither'} may be let go by time{waits}"

    @property
    def decides_at_once(self) -> bool:
        return not self.is_eager and self.progress[1].ended

    def consume(self, side: int, rows: Rows) -> Rows:
        if not self.is_eager:
            return super().consume(side, rows)
        found = (
            self.whole.rows({f"side_{side}": rows, f"side_{1 - side}": self.held[1 - side].rows})
            if rows and self.held[1 - side].rows
            else []
        )
        if not self.progress[1 - side].ended:
            self.held[side].add(rows)
        return found

    def advance(self) -> Rows:
        found: Rows = []
        if self.is_eager:
            for side in range(2):
                self._forget(side, self.progress[1 - side])
            return found
        final = self._final()
        if final:
            found = self.whole.rows({"side_0": final, "side_1": self.held[1].rows})
        self._forget(1, self._left())
        return found

    def _final(self) -> Rows:
        """The left rows that no later row can match. They are no longer held."""
        if self.progress[1].ended:
            return self.held[0].take()
        known = self._known(0, self.progress[1])
        return self.part(0, *self._parts(0, tuple(known)), **self._values(0, known)) if known else []

    def _left(self) -> Progress:
        """What is known of left rows, held or to come."""
        if self.progress[0].ended and not self.held[0].rows:
            return Progress(ended=True)
        return self._held_too(0)

    def _held_too(self, side: int) -> Progress:
        """What is known of all rows of a side, including held ones."""
        coming, held = self.progress[side], self.held[side]
        if not coming.ended:
            return Progress(held_bounds(coming, held.rows, held.schema))
        found = {}
        for limit in self.limits[side]:
            low = self.progress[1 - side].lower(limit.low)
            column = _column(limit.high)
            if low is not None and column is not None:
                found[column[0]] = max(found.get(column[0], -(2**63)), moved(low, -column[1]))
        return Progress(found if held.rows else {})

    def _forget(self, side: int, others: Progress) -> None:
        """Drop the held rows of a side that no later row of the other side can match."""
        if others.ended:
            self.held[side].take()
            return
        known = self._known(side, others)
        if known and self.held[side].rows:
            values = self._values(side, known, others)
            self.held[side].rows = self._parts(side, tuple(known))[1].rows(
                {f"side_{side}": self.held[side].rows}, **values
            )

    def _known(self, side: int, others: Progress) -> list[int]:
        return [number for number, limit in enumerate(self.limits[side]) if others.lower(limit.low) is not None]

    def _values(self, side: int, known: list[int], others: Progress | None = None) -> dict[str, int]:
        others = others or self.progress[1 - side]
        return {f"bound_{number}": others.lower(self.limits[side][number].low) for number in known}

    def _parts(self, side: int, known: tuple[int, ...]) -> tuple[Fragment, Fragment]:
        """The held rows that are past one of the limits, and the others. A row with a NULL there matches nothing, so it
        is past."""
        key = (side, known)
        if key not in self.parts:
            limits = [(f"bound_{number}", self.limits[side][number]) for number in known]
            needs = [
                compare(limit.high, ">" if limit.strict else ">=", parameter(name, limit.high.type))
                for name, limit in limits
            ]
            passed = unless_null(any_of([negated(need) for need in needs]))
            self.parts[key] = self.filtered(side, passed), self.filtered(side, negated(passed))
        return self.parts[key]

    def endless(self) -> str | None:
        sides = ("left", "right")
        for side in range(2):
            mine, others = self.progress[side], self.progress[1 - side]
            if not (mine.ended or others.ended or self._known(side, others)):
                return (
                    f"rows of the {sides[side]} side are held for ever: no condition says that a later row of the "
                    f"{sides[1 - side]} side cannot match them"
                )
        if not self.is_eager and not (self.progress[1].ended or self._known(0, self.progress[1])):
            return "no row of the left side is ever known to have no further match"
        return None

    def promise(self) -> Progress:
        if self.ended:
            return Progress(ended=True)
        names = self.step.schema.names
        bounds: dict[str, int] = {}
        for side in range(2 if self.is_eager else 1):
            bounds |= self._held_too(side).bounds
        return Progress({n: b for n, b in bounds.items() if n in names})


def _column(expr: Expr) -> tuple[str, int] | None:
    """(column, length) of an expression that is a column plus a length of time."""
    match expr:
        case Column():
            return expr.name, 0
        case Call(name="+" | "-" as op, args=(Column() as column, Literal(value=(0, days, micros)))):
            length = days * DAY_US + micros
            return column.name, length if op == "+" else -length
    return None


class OpenJoins(Joins):
    """A hash join of a kind in which any right row may change the answer of any left row: a NULL in NOT IN, a second
    row of a scalar subquery. Left rows wait until the right side has ended."""

    def __init__(self, step: HashJoin, engine: Engine):
        super().__init__(step, engine)
        self.limits = ((), ())
        self.why = "holds left rows until the right side has ended: each of its rows may change every answer"
