"""Live full outer joins: a left row finds its matches when no later right row can match it, as in a left join. A right
row without a match is output when no left row, held or to come, can match it.

State: left rows; right rows that no final left row has matched, and right rows that one has, which may match others.
Cost: when a bound moves, a pass over what is held, and a join of the left rows that become final."""

from __future__ import annotations

from dataclasses import replace

from tsql.backends.live.fragments import Engine, Fragment, Rows, given
from tsql.backends.live.held_joins import Joins
from tsql.backends.live.operator import HeldRows
from tsql.planner.logical.predicates import JoinKey, conjunction, conjuncts
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.progress import Progress


class FullJoins(Joins):
    """A hash join with kind=full."""

    def __init__(self, step: HashJoin, engine: Engine):
        super().__init__(step, engine)
        self.is_eager = False
        condition = conjunction([*step.times, *conjuncts(step.condition)])
        plain = replace(step, build="right", early=False, range=(), overlap=None, condition=condition)
        self.matched = HeldRows(self.below[1].schema)
        self.left_join = self.over(step=replace(plain, kind="left"))
        swapped = tuple(JoinKey(k.right, k.left, k.null_safe) for k in step.keys)
        rows, final = self.leaf(1), given("side_0", self.below[0].schema)
        self.met, self.unmet = (
            Fragment(engine, HashJoin((rows, final), kind=kind, keys=swapped, condition=plain.condition))
            for kind in ("semi", "anti")
        )
        self.padded = self.over(step=plain)

    def tables(self) -> dict[str, HeldRows]:
        return super().tables() | {"matched": self.matched}

    def advance(self) -> Rows:
        found: Rows = []
        final = self._final()
        if final:
            rows = {"side_0": final, "side_1": self.held[1].rows}
            both = {"side_0": final, "side_1": [*self.held[1].rows, *self.matched.rows]}
            found = self.left_join.rows(both)
            if self.held[1].rows:
                self.matched.add(self.met.rows(rows))
                self.held[1].rows = self.unmet.rows(rows)
        # A row that no left row to come can match may match one that is held.
        rest = {"side_0": self.held[0].rows, "side_1": self._passed(self.held[1], self.progress[0])}
        unmatched: Rows = []
        if rest["side_1"]:
            unmatched = self.unmet.rows(rest)
            self.matched.add(self.met.rows(rest))
        self._passed(self.matched, self._left())
        return found + (self.padded.rows({"side_0": [], "side_1": unmatched}) if unmatched else [])

    def _passed(self, held: HeldRows, others: Progress) -> Rows:
        """The right rows that no left row can match any more. They are no longer held."""
        if others.ended:
            return held.take()
        known = self._known(1, others)
        if not (known and held.rows):
            return []
        passed, stays = self._parts(1, tuple(known))
        values = self._values(1, known, others)
        found = passed.rows({"side_1": held.rows}, **values)
        if found:
            held.rows = stays.rows({"side_1": held.rows}, **values)
        return found

    def promise(self) -> Progress:
        return Progress(ended=self.ended and not (self.held[0].rows or self.held[1].rows))

    def endless(self) -> str | None:
        text = super().endless()
        if text is None and not (self.progress[0].ended or self._known(1, self.progress[0])):
            return "no row of the right side is ever known to have no further match"
        return text
