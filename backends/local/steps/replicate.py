"""Runs `replicate`: repeats each row as often as an expression says, inside the pipeline."""

from __future__ import annotations

from tsql.backends.local.lower.graph import Lowering, Node, Shape
from tsql.backends.local.lower.local_step import LocalStep, described, runs
from tsql.backends.local.run.flow import Flow
from tsql.kernels.operators import replicate as kernel_replicate
from tsql.planner.physical.operators.replicate import Replicate


@runs(Replicate)
class ReplicateStep(LocalStep[Replicate]):
    """Multiplies rows."""

    @classmethod
    def lower(cls, step: Replicate, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        return Shape((described(step),))

    def flow(self, node: Node) -> Flow:
        return self.x.flow(node.inputs[0]).then(kernel_replicate.Replicate(node.step.times), node.step.schema)
