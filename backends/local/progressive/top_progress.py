"""The first rows of an order while they are read: heaps take the units of the scan, the best first where zones tell,
and between them the rest of the plan runs over a view of the heaps.

In: a plan with a step `progressive` below a sort with a limit. Out: snapshots; the last is the exact result, which may
be known before all units have been read. Memory: the heaps belong to the run's `States`; a view copies their rows; a
snapshot owns its batches. Cost: a look sorts the rows of all heaps, and there are few looks for few rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tsql.backends.local.progressive.cut import status_of
from tsql.backends.local.progressive.due import due
from tsql.backends.local.progressive.progress import Progress
from tsql.backends.local.progressive.top_pipeline import FirstRows, TopPipeline
from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.backends.local.run.kernels import Kernels
from tsql.backends.snapshots import Snapshot
from tsql.kernels.operators.collect import columns_of
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.step import PhysicalPlan
from tsql.planner.progressive.driven_top import DrivenTop
from tsql.planner.progressive.top_plan import TopPlan, top_plan


@dataclass
class Kept:
    """The plan of snapshots with its kernels, kept for the next progressive run."""

    plan: TopPlan
    kernels: Kernels


class TopProgress(Progress):
    """First rows that later ones may replace."""

    found: DrivenTop

    def __init__(self, plan: PhysicalPlan, found: DrivenTop, x: Execution):
        super().__init__(plan, found, x)
        if x.kernels.progressive is None:
            x.kernels.progressive = Kept(top_plan(plan, found), Kernels())
        self.kept: Kept = x.kernels.progressive

    def snapshots(self) -> Iterator[Snapshot]:
        """The snapshots until the end, until all rows are certain, or until the query may stop."""
        begun, spec, x = time.perf_counter(), self.found.spec, self.x
        graph = x._lower(self.plan.root, self.plan.shards)
        pipeline = TopPipeline(x, self.found, graph.node(self.found.partial))
        if not pipeline.is_driven:
            few = pipeline.ready.is_heap
            why = "the rows are collected before they are sorted" if few else "the first rows are too many for heaps"
            self.run.note(f"{why}: the final result only")
            batches, all_rows = list(x.batches(self.plan)), self.run.total_rows
            yield Snapshot(batches, all_rows or 0, all_rows, True, True)
            return
        pipeline.begin()
        units = pipeline.units
        # There is no error to look at. But it may be certain early that nothing changes any more.
        for last, is_shown in due(replace(spec, until_error=0.0), units, begun):
            pipeline.read(last)
            is_last = spec.within_us is not None and (time.perf_counter() - begun) * 1e6 >= spec.within_us
            if is_shown is None and not is_last:
                continue
            rows = pipeline.view()
            if pipeline.is_certain(rows):
                break
            if is_shown or is_last:
                yield self._snapshot(pipeline, rows, is_last)
            if is_last:
                return
        else:
            pipeline.read(units.length)
            rows = pipeline.view()
        pipeline.finish(rows)
        yield Snapshot(list(x.batches(self.plan)), units.rows_of(0, pipeline.places), units.all_rows, True, True)

    def _snapshot(self, pipeline: TopPipeline, rows: FirstRows, is_last: bool) -> Snapshot:
        shown, units = self.kept.plan, pipeline.units
        sure = np.arange(rows.rows) < (rows.certain if self.found.keeps_places else 0)
        chunk = Chunk((0,), rows.rows, [*rows.arrays, pa.array(sure)])
        sources = tuple(column.source() for column in columns_of(shown.given.schema))
        given = Flow(ChunkData(sources, [[chunk]]), shown.given.schema)
        batches = self.run_plan(shown.plan, self.kept.kernels, {id(shown.given): given}, {})
        marks = np.concatenate([np.asarray(batch.columns[-1]) for batch in batches]) if batches else np.zeros(0)
        schema = self.plan.schema
        found = [pa.RecordBatch.from_arrays(batch.columns[:-1], schema=schema) for batch in batches]
        read = units.rows_of(0, pipeline.places)
        return Snapshot(found, read, units.all_rows, False, is_last, status=status_of(marks))
