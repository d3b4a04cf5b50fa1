"""Live aggregates: groups with a time among their keys are output, and dropped, when no later row can belong to them.

State: partial states of groups if the plan has them (`phase=partial`), merged when there are many; otherwise rows."""

from __future__ import annotations

from tsql.backends.live.fragments import Engine, Fragment, Rows, count
from tsql.backends.live.operator import LiveOperator, any_of, compare, negated, parameter, unless_null
from tsql.kernels.expr.nodes import Column, Expr
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import Step

MERGE_ROWS = 16_384
"""States are merged when there are twice as many as after the last merge, plus this many."""


class States:
    """Partial states of held groups. Several states of a group are merged from time to time."""

    def __init__(self, engine: Engine, partial: Aggregate, leaf: Step):
        by = tuple((n, Column(n, partial.schema[n].type, partial.schema[n].nullable)) for n, _ in partial.by)
        self.merging = Fragment(engine, Aggregate((leaf,), by=by, calls=partial.calls, phase="merge"))
        self.least = 0

    def merged(self, rows: Rows) -> Rows:
        """The rows, or fewer rows with the same content."""
        found = count(rows)
        if found < 2 * self.least + MERGE_ROWS:
            return rows
        rows = self.merging.rows({"side_0": rows})
        self.least = count(rows)
        return rows


class Groups(LiveOperator):
    """An aggregate step with phase=final, or without a phase. `keys` are its keys as expressions over the held rows."""

    why = "holds groups until a time among their keys has passed"

    def __init__(self, step: Aggregate, engine: Engine):
        super().__init__(step, engine)
        schema = self.below[0].schema
        self.keys: dict[str, Expr] = {
            n: Column(n, schema[n].type, schema[n].nullable) if step.absorbs else e for n, e in step.by
        }
        self.states = (
            States(engine, self.below[0], self.leaf(0))
            if isinstance(self.below[0], Aggregate) and self.below[0].exports
            else None
        )
        self.takes_groups = isinstance(self.below[0], Aggregate) and self.below[0].phase == "partial"
        self._known: tuple[Progress, dict[str, int]] | None = None
        self.given_to: dict[str, int] = {}
        """The bounds up to which groups have been given: nothing is looked through before one of them moves."""
        self.whole = self.over(gives_of_nothing=not step.by)
        self.parts: dict[tuple[str, ...], tuple[Fragment, Fragment]] = {}

    def consume(self, side: int, rows: Rows) -> Rows:
        super().consume(side, rows)
        if self.states is not None:
            self.held[0].rows = self.states.merged(self.held[0].rows)
        return []

    def bounds(self) -> dict[str, int]:
        """The keys whose lower bound is known."""
        progress = self.progress[0]
        if self._known is None or self._known[0] is not progress:
            self._known = progress, progress.of(self.keys.items()).bounds
        return self._known[1]

    def advance(self) -> Rows:
        if self.ended:
            if self.marks.get("given"):
                return []
            self.marks["given"] = True
            return self.whole.rows({"side_0": self.held[0].take()})
        bounds = self.bounds()
        if not bounds or bounds == self.given_to:
            return []
        self.given_to = bounds
        if not len(self.held[0]):
            return []
        done, left = self._parts(tuple(sorted(bounds)))
        rows = {"side_0": self.held[0].rows}
        found = done.rows(rows, **bounds)
        if found:
            # As many groups as there are states: all of them.
            is_all = self.states is not None and count(found) == count(rows["side_0"])
            self.held[0].rows = [] if is_all else left.rows(rows, **bounds)
        return found

    def _parts(self, names: tuple[str, ...]) -> tuple[Fragment, Fragment]:
        """The results of groups with a key below its bound, and the held states of the others."""
        if names not in self.parts:
            passed = any_of([compare(self.keys[n], "<", parameter(n, self.keys[n].type)) for n in names])
            stays = unless_null(negated(passed))
            self.parts[names] = self.over(Filter((self.leaf(0),), predicate=passed)), self.filtered(0, stays)
        return self.parts[names]

    def promise(self) -> Progress:
        return Progress(self.bounds(), self.ended)

    def endless(self) -> str | None:
        if self.ended or self.bounds():
            return None
        return "groups have no time among their keys, so none of them is ever final"
