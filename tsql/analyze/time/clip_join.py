"""CLIP JOIN in FROM: each left row ends at the first right row that matches it and starts strictly after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsql.analyze.scope import AnalyzedRelation
from tsql.analyze.subquery import pendings
from tsql.analyze.time.clip_plan import clip
from tsql.analyze.time.lifetime_functions import TIMES, timed
from tsql.analyze.time.lifetime_joins import TemporalSide
from tsql.analyze.time.lifetimes import ONE_MICROSECOND, plus, relived
from tsql.grammar.time.nodes import ClipJoin
from tsql.kernels.expr.types import TIMESTAMP
from tsql.planner.bind.types import coerce

if TYPE_CHECKING:
    from tsql.analyze.from_ import FromAnalyzer, Joined


class ClipJoins:
    """Analyzes the CLIP JOIN of one left side."""

    def __init__(self, owner: FromAnalyzer, left: Joined):
        self.owner = owner
        self.queries = owner.queries
        self.left = left

    def join(self, node: ClipJoin) -> Joined:
        from tsql.analyze.from_ import JoinCondition, Joined

        if self.left.scope.life is None:
            raise self.queries.error(
                "CLIP JOIN needs a temporal relation on its left side",
                node,
                "as in LIFETIME(logins, start => ts) s CLIP JOIN ..",
            )
        right, is_lateral = self.owner._beside(self.left, node.this)
        if is_lateral:
            raise self.queries.error("the right side of a CLIP JOIN cannot name columns of the left", node.this)
        if right.scope.life is None:
            right = self._timed(node, right)
        condition = JoinCondition(self.owner, "inner", self.left, right, False).bound(node.args["on"])
        if pendings(condition):
            raise self.queries.error("a subquery in the condition of a CLIP JOIN is not supported", node.args["on"])
        side = clip(
            TemporalSide(self.left.plan, self.left.scope.life),
            TemporalSide(right.plan, right.scope.life),
            condition,
            (*self.queries.taken, *right.plan.schema.names),
        )
        return Joined(side.plan, self.left.scope.living(side.life))

    def _timed(self, node: ClipJoin, right: Joined) -> Joined:
        """The right side with the time that its table says, or with that of its only column of times."""
        from tsql.analyze.from_ import Joined

        relation = AnalyzedRelation(right.plan, tuple(right.scope.fields))
        taken = self.left.plan.schema.names
        found = timed(self.queries, node.this, relation, self.owner.environment, taken)
        times = [field for field in relation.fields if field.type in TIMES]
        if found is None and len(times) == 1:
            start = coerce(times[0].to_column(), TIMESTAMP)
            plan, life = relived(
                relation.plan, start, plus(start, ONE_MICROSECOND), (*self.queries.taken, *taken), counted=True
            )
            found = AnalyzedRelation(plan, relation.fields, life)
        if found is None:
            several = ", ".join(field.name for field in times)
            raise self.queries.error(
                f"CLIP JOIN needs the time of its right rows{f', which have several: {several}' if several else ''}",
                node.this,
                "as in CLIP JOIN LIFETIME(logouts, start => ts) e ON ..",
            )
        return Joined(found.plan, right.scope.living(found.life))
