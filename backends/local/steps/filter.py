"""Runs `filter`: an operator inside the pipeline."""

from __future__ import annotations

from tsql.backends.local.lower.graph import Lowering, Node, Shape
from tsql.backends.local.lower.local_step import LocalStep, described, host_pipes, runs
from tsql.backends.local.run.flow import Flow
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.operators import filter as kernel_filter
from tsql.planner.physical.operators.filter import Filter


@runs(Filter)
class FilterStep(LocalStep[Filter]):
    """Adds its predicate to the pipeline."""

    @classmethod
    def lower(cls, step: Filter, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        return Shape((described(step),), pipes=host_pipes(step.predicate))

    def flow(self, node: Node) -> Flow:
        flow, (predicate,) = self.x.hosts.calls(node.step, self.x.flow(node.inputs[0]), (node.step.predicate,))
        return flow.then(self._operator(node.step, predicate), node.step.schema)

    def _operator(self, step: Filter, predicate: Expr) -> kernel_filter.Filter:
        """The filter of a step. Making one analyses the predicate, which is too slow to repeat in every run."""
        kept = self.x.kernels.filters
        known = kept.get(id(step))
        if known is None or known.predicate is not predicate:
            known = kept[id(step)] = kernel_filter.Filter(predicate, selects=step.how == "select")
        return known
