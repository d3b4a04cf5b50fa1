"""Runs `expand`: outputs each row once per grouping set, inside the pipeline."""

from __future__ import annotations

from tsql.backends.local.lower.graph import Lowering, Node, Shape
from tsql.backends.local.lower.local_step import LocalStep, described, runs
from tsql.backends.local.run.flow import Flow
from tsql.kernels.operators import expand as kernel_expand
from tsql.planner.physical.operators.expand import Expand


@runs(Expand)
class ExpandStep(LocalStep[Expand]):
    """Multiplies rows."""

    @classmethod
    def lower(cls, step: Expand, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        return Shape((described(step),))

    def flow(self, node: Node) -> Flow:
        step = node.step
        return self.x.flow(node.inputs[0]).then(kernel_expand.Expand(step.keys, step.sets), step.schema)
