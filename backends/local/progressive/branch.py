"""A branch of a progressive run: a scan in units, and the workers that aggregate them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tsql.backends.local.progressive.known import Known
from tsql.backends.local.progressive.populations import Populations
from tsql.backends.local.progressive.scan_units import reads_one_by_one, scan_units
from tsql.backends.local.progressive.units import Units
from tsql.backends.local.progressive.worker import Worker
from tsql.backends.local.run.dataset import ChunkData, GroupData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk, Code
from tsql.backends.local.spill.groups import SpillingGroups
from tsql.backends.local.steps.aggregate import AggregateStep
from tsql.kernels.emit.pipeline import Pipeline
from tsql.kernels.emit.rows import POSITION
from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.operators.aggregate.groups import AggregateSink, GroupScan
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.kernels.operators.fold import Fold
from tsql.planner.progressive import driven
from tsql.planner.progressive.snapshot_plan import SnapshotPlan

if TYPE_CHECKING:
    from tsql.backends.local.lower.graph import Node
    from tsql.backends.local.progressive.pipeline import DrivenPipeline
    from tsql.backends.local.run.execution import Execution


class Branch:
    """`begin` gives it workers. `first`: the number of its first unit among those of all branches."""

    role = ""

    def __init__(self, x: Execution, found: driven.Branch, node: Node):
        self.x, self.found, self.step, self.run = x, found, found.partial, x.run
        ready = x.part(AggregateStep).prepared(node)
        self.ready, self.flow, self.make = ready, ready.flow, ready.make
        self.first = 0

    def begin(self, pipeline: DrivenPipeline, workers: int) -> None:
        self.pipeline = pipeline
        self.workers = [Worker(self, shard) for shard in range(workers)]

    @property
    def is_driven(self) -> bool:
        """Whether the rows of the scan still pass the pipeline one by one."""
        return reads_one_by_one(self.ready.flow)

    def run_at_once(self) -> None:
        """Aggregate all rows, as any run does."""
        r = self.ready
        groups = self.x.part(SpillingGroups).groups(self.step, r.flow, r.by, r.calls, r.make, r.expected)
        self.x.done[id(self.step)] = groups

    @cached_property
    def units(self) -> Units:
        f = self.found
        units, self.flow = scan_units(self.x, f.scan, f.spec.seed, self.step, self.role, self.flow, self.make)
        return units

    def fold_kernel(self, sink: AggregateSink) -> tuple[Pipeline, Code]:
        p = self.pipeline
        states, by_group = tuple(measure.state for measure in p.measures), p.populations is not None
        return self.x.pipelines.finder.find(
            self.step,
            f"fold {'by group' if by_group else ''}".strip(),
            self.groups_flow,
            GroupScan(sink),
            lambda: Fold(states, p.pairs, by_group),
        )

    @cached_property
    def groups_flow(self) -> Flow:
        return Flow(ChunkData((), [[]]), self.step.schema)

    @property
    def has_state(self) -> bool:
        return any(worker.has_state for worker in self.workers)

    def groups(self) -> GroupData:
        """The groups of all workers."""
        if not self.has_state:
            self.workers[0].run_empty()
        there = [worker for worker in self.workers if worker.has_state]
        sink = there[0].sink
        assert isinstance(sink, AggregateSink)
        return GroupData(sink, [worker.opened[-1] for worker in there], self.x.shared, self.flow.data)

    def view(self, known: Known | None) -> Iterator[list[Chunk]]:
        """The groups of each worker with their sums, and with their terms if these are `known`, in columns. The states
        stay."""
        data = self.groups()
        there = [worker for worker in self.workers if worker.has_state]
        columns = (*columns_of(self.step.schema), OutputColumn(POSITION, Column(POSITION, BIGINT, False), False))
        for context in data.states:
            context.kept = True
        try:
            lists = self.x.rows.collect(self.step, Flow(data, self.step.schema), columns, "view")
        finally:
            for context in data.states:
                context.kept = False
        for worker, start, chunks in zip(there, data.starts, lists, strict=False):
            yield [self._with_sums(chunk, worker, start, known) for chunk in chunks]  # type: ignore[arg-type]

    def _with_sums(self, chunk: Chunk, worker: Worker, start: int, known: Known | None) -> Chunk:
        p = self.pipeline
        *arrays, positions = chunk.arrays
        if p.measures:
            columns = worker.noted.sums(np.asarray(positions) - start)
            ones = pa.array(np.ones(chunk.rows, np.int64))
            arrays += [one for column in columns for one in (pa.array(column), ones)]
            if known is not None and p.populations is not None:
                arrays += term_arrays(p.plan, p.populations, known, arrays)
        return Chunk(chunk.order, chunk.rows, arrays, chunk.bytes, chunk.owner)

    def finish(self) -> None:
        """Hand the groups to the run: what reads them goes on as it would have."""
        data = self.groups()
        data.states = [worker.finish() for worker in self.workers if worker.has_state]
        self.x.done[id(self.step)] = Flow(data, self.step.schema)


def term_arrays(plan: SnapshotPlan, populations: Populations, known: Known, arrays: list[pa.Array]) -> list[pa.Array]:
    """The terms of groups with these columns."""
    terms = known.columns(populations.keys_of(arrays[populations.place]))
    names = plan.terms.columns([measure.name for measure in plan.measures])
    return [pa.array(np.ascontiguousarray(terms[name], np.float64)) for name in names]
