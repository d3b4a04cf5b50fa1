"""Runs `progressive`: the rows pass as they come. A progressive run reads the scan below in units (`progressive/`)."""

from __future__ import annotations

from tsql.backends.local.lower.graph import Lowering, Node, Shape
from tsql.backends.local.lower.local_step import LocalStep, runs
from tsql.backends.local.run.flow import Flow
from tsql.planner.physical.operators.progressive import Progressive


@runs(Progressive)
class ProgressiveStep(LocalStep[Progressive]):
    """Where the whole result is wanted at once, there is no better order than that of the scan."""

    counts_rows = False

    @classmethod
    def lower(cls, step: Progressive, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        return Shape()

    def flow(self, node: Node) -> Flow:
        return self.x.flow(node.inputs[0])
