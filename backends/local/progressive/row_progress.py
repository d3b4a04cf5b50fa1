"""A progressive run over rows: the units of a scan are collected in random order, and between them the rest of the plan
runs over a sample of the rows so far. At the end it runs over all of them, as any other run.

In: a plan whose aggregate has states that cannot be merged, or of which rows tell more. Out: snapshots; the last one is
the exact result, unless the query asks to stop before. Memory: the rows, until the end; a snapshot owns its batches.
Cost: per snapshot the steps above a sample, and above its replicates where values have no closed form for their
error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from tsql.backends.local.lower.graph import Node
from tsql.backends.local.progressive.confidence import at_all_times, student
from tsql.backends.local.progressive.due import due
from tsql.backends.local.progressive.progress import Progress, error_of
from tsql.backends.local.progressive.proven_ends import proven_ends
from tsql.backends.local.progressive.row_bounds import RowBounds, answer_of, doubles, nullable
from tsql.backends.local.progressive.row_pipeline import RowPipeline
from tsql.backends.local.progressive.samples import COUNTED, LOOKED_AT, REPLICATED, STOPPING
from tsql.backends.local.progressive.state_pipeline import StatePipeline
from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.backends.local.run.kernels import Kernels
from tsql.backends.snapshots import Snapshot
from tsql.kernels.operators.collect import columns_of
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.step import PhysicalPlan
from tsql.planner.progressive.driven_rows import DrivenRows
from tsql.planner.progressive.origins import Origins, origins_of
from tsql.planner.progressive.row_plans import (
    GROUP,
    GivenPlan,
    RowPlans,
    plain,
    row_plans,
)
from tsql.planner.progressive.row_values import REST, SCALE
from tsql.planner.progressive.values import OBSERVED

SAMPLED = "of a sample of the rows read so far"
"""What is said of a value that is computed from some of the rows that were read."""


@dataclass
class RowKept:
    """What is kept with the kernels of a plan for its next progressive run: the plans of its snapshots, their kernels,
    and where its rows come from."""

    plans: RowPlans
    origins: Origins
    kernels: dict[int, Kernels] = field(default_factory=dict)


class RowProgress(Progress):
    """Rows that are not complete yet."""

    found: DrivenRows

    def __init__(self, plan: PhysicalPlan, found: DrivenRows, x: Execution):
        super().__init__(plan, found, x)
        if x.kernels.progressive is None:
            source = origins_of(found.scan, found.source)
            x.kernels.progressive = RowKept(row_plans(plan, found, source.is_plain), source)
        kept: RowKept = x.kernels.progressive
        self.kept, self.plans, self.values = kept, kept.plans, kept.plans.values
        is_asked_often = found.spec.until_error is not None
        self.width = partial(at_all_times if is_asked_often else student, found.spec.confidence)
        is_plain = kept.plans.replicates is None and not kept.plans.quantiles
        self.cap = COUNTED if is_plain else STOPPING if is_asked_often else LOOKED_AT

    def snapshots(self) -> Iterator[Snapshot]:
        """The snapshots until the end, or until the query may stop."""
        begun, spec, x = time.perf_counter(), self.found.spec, self.x
        graph = x._lower(self.plan.root, self.plan.shards)
        pipeline = self._pipeline(graph.node(self.found.rows))
        if not pipeline.is_driven:
            self.run.note("the rows of the scan are collected before they are grouped: the final result only")
            batches, rows = list(x.batches(self.plan)), self.run.total_rows
            yield Snapshot(batches, rows or 0, rows, True, True, self.exact(batches, {}))
            return
        units = pipeline.units
        self.others = {id(step): x.rows.collected(step, x.flow(graph.node(step))) for step in self.plans.others}
        x.done.update(self.others)
        self.ends = proven_ends(self.found, self.kept.origins, units)
        for last, is_shown in due(spec, units, begun):
            pipeline.read(last)
            if pipeline.places >= units.length:
                break
            is_late = spec.within_us is not None and (time.perf_counter() - begun) * 1e6 >= spec.within_us
            if is_shown is None and not is_late:
                continue
            shown = self._snapshot(pipeline)
            if is_late:
                shown = replace(shown, is_last=True)
            if spec.until_error is not None and error_of(shown) <= spec.until_error:
                shown = replace(shown, is_last=True)
            if is_shown or shown.is_last:
                yield shown
            if shown.is_last:
                return
        pipeline.read(units.length)
        pipeline.finish()
        batches = list(x.batches(self.plan))
        rows = units.all_rows
        yield Snapshot(batches, rows, rows, True, True, self.exact(batches, dict.fromkeys(self._bounded(), ("", ""))))

    def _pipeline(self, node: Node) -> RowPipeline | StatePipeline:
        if self.found.are_states:
            return StatePipeline(self.x, self.found, node)
        return RowPipeline(self.x, self.found, self.x.flow(node))

    def _bounded(self) -> list[int]:
        """The columns that may have bounds."""
        return [place for place, value in self.values.items() if value.kind is None and value.may_have_bounds]

    def _snapshot(self, pipeline: RowPipeline | StatePipeline) -> Snapshot:
        read = pipeline.units.rows_of(0, pipeline.places)
        sample = pipeline.sample(self.cap.of(read))
        parameters = {SCALE: sample.scale, REST: sample.rest, **self.ends}
        batches = self._run(self.plans.estimates, sample.chunks(self.plan.shards), parameters, self.others)
        schema, width = self.plan.schema, len(self.plan.columns)
        shown = pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(batch.columns[:width], schema=schema) for batch in batches], schema
        )
        bounds: dict[int, tuple[pa.ChunkedArray, pa.ChunkedArray]] = {}
        if self.plans.named:
            whole = pa.Table.from_batches(batches, self.plans.estimates.plan.schema)
            hidden = {name: whole.column(i) for i, name in enumerate(self.plans.estimates.plan.columns) if i >= width}
            known = RowBounds(self.plans, sample, REPLICATED.of(read), self._computed, self.x.threads, self.width)
            of = known.groups.of(hidden[GROUP])
            for place, value in self.values.items():
                middle = doubles(shown.column(place) if value.kind is None else hidden[plain(place)])
                low, high = known.of(value, middle, of, hidden)
                if value.kind is not None:
                    answer = answer_of(value.kind, middle, low, high)
                    shown = shown.set_column(place, schema.field(place), answer.cast(schema.field(place).type, False))
                elif value.may_have_bounds:
                    bounds[place] = (nullable(low), nullable(high))
        notes = dict.fromkeys(self.plans.observed, OBSERVED if sample.is_whole else SAMPLED)
        found = shown.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema)]
        return Snapshot(found, read, pipeline.units.all_rows, False, False, bounds, notes)

    def _run(
        self, plan: GivenPlan, lists: list[list[Chunk]], parameters: dict[str, float], others: dict[int, Any]
    ) -> list[pa.RecordBatch]:
        given: Input = plan.given
        rows = Flow(ChunkData(tuple(c.source() for c in columns_of(given.schema)), lists), given.schema)
        kernels = self.kept.kernels.setdefault(id(plan), Kernels())
        return self.run_plan(replace(plan.plan, shards=len(lists)), kernels, {id(given): rows, **others}, parameters)

    def _computed(self, plan: GivenPlan, lists: list[list[Chunk]]) -> pa.Table:
        """The rows of a plan over a sample."""
        return pa.Table.from_batches(self._run(plan, lists, {}, {}), plan.plan.schema)
