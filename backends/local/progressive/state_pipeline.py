"""The pipeline of an aggregate whose states merge, with a state for each batch of units.

In: the flow of the driven aggregate, before it runs. Out: the states of each batch, in columns; in the end all of them,
which the plan merges as it merges those of shards. Memory: as many groups as each batch has, together. A sample of
batches is a sample of their states, so a replicate of it costs a merge."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tsql.backends.local.progressive.samples import Sample, state_sample
from tsql.backends.local.progressive.scan_units import reads_one_by_one, scan_units
from tsql.backends.local.progressive.unit_worker import UnitWorker
from tsql.backends.local.progressive.units import SplitUnits, Units
from tsql.backends.local.run.dataset import ChunkData, GroupData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk, Context
from tsql.backends.local.run.workers import parallel
from tsql.backends.local.steps.aggregate import AggregateStep
from tsql.kernels.operators.aggregate.groups import AggregateSink
from tsql.kernels.operators.collect import columns_of
from tsql.planner.progressive.driven_rows import DrivenRows

if TYPE_CHECKING:
    from tsql.backends.local.lower.graph import Node
    from tsql.backends.local.run.execution import Execution

FIRST_UNITS = 32
"""So many units are batches of their own. Later batches have more: the spread is known better by then."""

OPEN = 16
"""The most states of batches at a time that are not in columns yet."""


class StatePipeline:
    """`found.rows`, the states of a partial aggregate. `batches`: of units that were read, with their states."""

    role = ""

    def __init__(self, x: Execution, found: DrivenRows, node: Node):
        self.x, self.found, self.step, self.run = x, found, found.rows, x.run
        ready = x.part(AggregateStep).prepared(node)
        self.flow, self.make, self.shards = ready.flow, ready.make, x.threads
        self.columns = columns_of(self.step.schema)
        self.places = 0
        """How many units of the order have been read."""
        self.batches: list[tuple[np.ndarray, list[Chunk]]] = []

    @property
    def is_driven(self) -> bool:
        return reads_one_by_one(self.flow)

    @cached_property
    def units(self) -> Units:
        scan, seed = self.found.scan, self.found.spec.seed
        found, self.flow = scan_units(self.x, scan, seed, self.step, self.role, self.flow, self.make)
        return found

    def read(self, last: int) -> None:
        """Aggregate the units up to a place of the order."""
        waiting = self._batches(last)
        for first in range(0, len(waiting), OPEN):
            some = waiting[first : first + OPEN]
            self._keep(some, self._states(some))
        self.places = max(last, self.places)
        self.run.done_rows = max(self.run.done_rows, self.x.shared.rows_done)

    def _states(self, batches: list[np.ndarray]) -> list[tuple[AggregateSink, Context] | None]:
        found: list[tuple[AggregateSink, Context] | None] = [None] * len(batches)
        workers = min(self.x.threads, len(batches))

        def work(worker: int) -> None:
            for number in range(worker, len(batches), workers):
                found[number] = self._aggregated(batches[number], worker)

        parallel(work, workers, self.x.threads, self.run)
        return found

    def _batches(self, last: int) -> list[np.ndarray]:
        found, first = [], self.places
        while first < last:
            size = 1 if isinstance(self.units, SplitUnits) else 1 + first // FIRST_UNITS
            found.append(self.units.order[first : min(last, first + size)])
            first += size
        return found

    def _aggregated(self, units: np.ndarray, shard: int) -> tuple[AggregateSink, Context] | None:
        """A state with the groups of a batch of units; None if there is nothing in them to read."""
        worker = UnitWorker(self, shard)
        worker.run(units)
        if not worker.has_state:
            return None
        assert isinstance(worker.sink, AggregateSink)
        return worker.sink, worker.finish()

    def _keep(self, batches: list[np.ndarray], states: list[tuple[AggregateSink, Context] | None]) -> None:
        """Put states into columns, and free them."""
        there = [place for place, state in enumerate(states) if state is not None]
        lists: list[list[Chunk]] = [[] for _ in batches]
        if there:
            known = [state for state in states if state is not None]
            data = GroupData(known[0][0], [context for _, context in known], self.x.shared, self.flow.data)
            found = self.x.rows.collect(self.step, Flow(data, self.step.schema), self.columns, "view")
            for place, chunks in zip(there, found, strict=True):
                lists[place] = chunks  # type: ignore[assignment]
            for _, context in known:
                self.x.states.close(context)
        self.batches += zip(batches, lists, strict=True)

    def sample(self, most: int) -> Sample:
        """The states of all batches: they are what was read, and few."""
        return state_sample(self.units, self.batches, self.columns)

    def finish(self) -> None:
        """Hand the states to the run, which merges them."""
        chunks = [chunk for _, found in self.batches for chunk in found]
        lists = [chunks[shard :: self.shards] for shard in range(self.shards)]
        self.batches = []
        sources = tuple(column.source() for column in self.columns)
        self.x.done[id(self.step)] = Flow(ChunkData(sources, lists), self.step.schema)
