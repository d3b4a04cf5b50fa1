"""The pipeline that collects the driven rows, unit by unit, in the order of the sample.

In: the flow of the driven rows, before it runs. Out: the chunks of each unit; in the end all of them, in the order of
the input, as the rows that the plan goes on with. Memory: chunks, which the plain query mostly needs too."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tsql.backends.local.progressive.samples import Sample, row_sample
from tsql.backends.local.progressive.scan_units import reads_one_by_one, scan_units
from tsql.backends.local.progressive.unit_worker import UnitWorker
from tsql.backends.local.progressive.units import Units
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.backends.local.run.workers import parallel
from tsql.kernels.operators.collect import Collect, columns_of
from tsql.planner.progressive.driven_rows import DrivenRows

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution


class RowPipeline:
    """`found.rows`, collected. `unit_chunks`: by the number of a unit, those of its rows that have passed."""

    role = "sampled"

    def __init__(self, x: Execution, found: DrivenRows, flow: Flow):
        self.x, self.found, self.step, self.run = x, found, found.rows, x.run
        self.flow, self.shards = flow, flow.data.shards
        self.columns = columns_of(flow.schema)
        self.store = x.spill.store(f"{self.step.name} {self.role}")
        self.places = 0
        """How many units of the order have been read."""
        self.unit_chunks: dict[int, list[Chunk]] = {}

    @property
    def is_driven(self) -> bool:
        return reads_one_by_one(self.flow)

    @cached_property
    def units(self) -> Units:
        scan, seed = self.found.scan, self.found.spec.seed
        found, self.flow = scan_units(self.x, scan, seed, self.step, self.role, self.flow, self.make)
        return found

    @cached_property
    def workers(self) -> list[RowWorker]:
        return [RowWorker(self, shard) for shard in range(min(self.x.threads, max(1, self.units.length)))]

    def make(self) -> Collect:
        return Collect(self.columns)

    def read(self, last: int) -> None:
        """Collect the units up to a place of the order."""
        units, workers = self.units.order[self.places : last], len(self.workers)
        parallel(lambda n: self.workers[n].run(units[n::workers]), workers, self.x.threads, self.run)
        self.places += len(units)
        self.run.done_rows = max(self.run.done_rows, self.x.shared.rows_done)

    def sample(self, most: int) -> Sample:
        """At most about so many of the rows that were read."""
        read = [self.unit_chunks[int(unit)] for unit in self.units.order[: self.places]]
        return row_sample(self.units, read, self.columns, most)

    def finish(self) -> None:
        """Hand the rows to the run, in the order of the input: the steps above go on as they would have."""
        for worker in self.workers:
            if worker.has_state:
                self.x.states.close(worker.finish())
        chunks = [chunk for unit in sorted(self.unit_chunks) for chunk in self.unit_chunks[unit]]
        self.unit_chunks.clear()
        lists: list[list[Chunk]] = [[] for _ in range(self.shards)]
        for number, chunk in enumerate(chunks):
            lists[number * self.shards // len(chunks)].append(chunk)
        self.x.done[id(self.step)] = self.x.rows.chunk_flow(self.columns, lists, self.flow)  # type: ignore[arg-type]


class RowWorker(UnitWorker):
    """Runs the pipeline on a unit, and takes what it has collected."""

    def __init__(self, pipeline: RowPipeline, shard: int):
        super().__init__(pipeline, shard)
        self.pipeline = pipeline

    def run(self, units: np.ndarray) -> None:
        p = self.pipeline
        for unit in units:
            chunks: list[Chunk] = []
            for _, part in p.units.batches([np.array([unit])]):
                self.run_part(part)
                (found,) = p.x.rows.taken(self.opened[-1], p.columns, part, p.store)
                chunks += found  # type: ignore[arg-type]
            p.unit_chunks[int(unit)] = chunks
