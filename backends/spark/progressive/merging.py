"""Merges the groups of several tasks: of each group one stays, with the sums of what was noted of it. So the driver has
each group a few times, and not once for each task of each wave."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from tsql.backends import Run
from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.entry import chunk_columns
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.backends.local.run.kernels import Kernels
from tsql.backends.local.run.spill import AnyChunk
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import DOUBLE
from tsql.planner.physical.movement import Gather
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.step import Step, named
from tsql.planner.progressive.snapshot_plan import SnapshotPlan

LEAST_ROWS, GROWTH = 100_000, 2
"""Groups are merged when there are so many of them, and so many times as many as after the last time."""


class Merging:
    """Of the groups of one branch. Kernels are made when there is something to merge."""

    def __init__(self, run: Run, partial: Aggregate, plan: SnapshotPlan):
        self.run, self.partial, self.plan = run, partial, plan
        self.kernels = Kernels()
        self.step: Step | None = None
        self.after = 0
        """The groups after the last time."""

    def __call__(self, groups: list[Chunk]) -> list[Chunk]:
        """The same groups, perhaps merged."""
        if sum(chunk.rows for chunk in groups) <= max(LEAST_ROWS, GROWTH * self.after):
            return groups
        step = self.step = self.step or self._merge()
        given = next(one for one in step.walk() if isinstance(one, Input))
        rows = Flow(ChunkData(chunk_columns(given.schema), [groups]), given.schema)
        run = Run(settings=self.run.settings, parameters=self.run.parameters, wall_clock=self.run.wall_clock)
        x = Execution(run.shares(self.run), self.kernels, inputs={id(given): rows})
        try:
            found = [_in_memory(chunk) for chunk in chain(*x.chunks(step, 1))]
        finally:
            x.close(improves=False)
        self.after = sum(chunk.rows for chunk in found)
        return found

    def _merge(self) -> Step:
        partial, plan = self.partial, self.plan
        hidden = plan.given.schema.fields[len(partial.schema) : len(partial.schema) + 2 * len(plan.sums)]
        given = Input((), fields=Schema((*partial.schema, *hidden)), name="given")
        sums = [(name, AggregateCall("sum", (Column(name, DOUBLE),), DOUBLE)) for name in plan.sums]
        keys = tuple((name, Column(name, e.type)) for name, e in partial.by)
        calls = (*partial.calls, *sums)
        return named(replace(partial, inputs=(Gather((given,)),), phase="merge", by=keys, calls=calls, name=""))


def _in_memory(chunk: AnyChunk) -> Chunk:
    # Without a limit of memory, nothing was spilled.
    assert isinstance(chunk, Chunk)
    return chunk
