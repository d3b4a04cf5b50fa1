"""Runs `project`: an operator inside the pipeline."""

from __future__ import annotations

from tsql.backends.local.lower.graph import Lowering, Node, Shape
from tsql.backends.local.lower.local_step import LocalStep, described, host_pipes, runs
from tsql.backends.local.run.flow import Flow
from tsql.kernels.operators import project as kernel_project
from tsql.planner.physical.operators.project import Project


@runs(Project)
class ProjectStep(LocalStep[Project]):
    """Adds its columns to the pipeline."""

    @classmethod
    def lower(cls, step: Project, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        return Shape((described(step),), pipes=host_pipes(*(e for _, e in step.columns)))

    def flow(self, node: Node) -> Flow:
        step = node.step
        flow, expressions = self.x.hosts.calls(step, self.x.flow(node.inputs[0]), tuple(e for _, e in step.columns))
        columns = tuple((n, e) for (n, _), e in zip(step.columns, expressions, strict=True))
        return flow.then(kernel_project.Project(columns), step.schema)
