"""Runs `merge_join`: rows walk along a sorted table. If memory is limited it runs as a hash join, which can spill."""

from __future__ import annotations

from tsql.backends.local.lower.graph import Lowering, Node, Shape
from tsql.backends.local.lower.local_step import runs
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.steps.hash_join import HashJoinStep
from tsql.planner.physical.operators.merge_join import MergeJoin


@runs(MergeJoin)
class MergeJoinStep(HashJoinStep):
    """Runs as a variant of the hash join."""

    @classmethod
    def lower(cls, step: MergeJoin, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        return super().lower(step.hashed if about.spills else step.walked, inputs, about)

    def flow(self, node: Node) -> Flow:
        return self.joined(node, node.step.hashed if self.x.spill.active else node.step.walked)
