"""The pipeline that ends in the first rows of an order: the scan in units, the workers with a heap each, and a view of
the rows that they keep.

Units are read best first, by the zone of the first sort key. So the rows of the result come early, and once the last of
them is before all that the next unit may hold, no unread unit matters. Where nothing is known of the key, the order is
that of any sample."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tsql.backends.local.progressive.design import Design
from tsql.backends.local.progressive.first_key import FirstKey
from tsql.backends.local.progressive.scan_units import reads_one_by_one, scan_units
from tsql.backends.local.progressive.unit_worker import UnitWorker
from tsql.backends.local.progressive.units import Units
from tsql.backends.local.run.dataset import ChunkData, TopData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk, Context
from tsql.backends.local.run.workers import parallel
from tsql.backends.local.spill.sorts import Order, in_order
from tsql.backends.local.steps.sort import SortStep
from tsql.kernels.emit.rows import POSITION
from tsql.kernels.expr.nodes import Column, SortKey
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.kernels.operators.top import Top
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.progressive.driven_top import DrivenTop
from tsql.planner.progressive.origins import origins

if TYPE_CHECKING:
    from tsql.backends.local.lower.graph import Node
    from tsql.backends.local.run.execution import Execution


@dataclass(frozen=True)
class FirstRows:
    """The first of the rows that were read, in order: their columns, and how many of them no unread row is before."""

    arrays: list[pa.Array]
    rows: int
    certain: int


class TopPipeline:
    """Reads units into heaps."""

    def __init__(self, x: Execution, found: DrivenTop, node: Node):
        self.x, self.found, self.step = x, found, found.partial
        self.ready = x.part(SortStep).prepared(node)
        self.flow, self.make, self.role = self.ready.flow, self.ready.make, self.ready.role
        self.places = 0
        """How many units of the order have been read."""

    @property
    def is_driven(self) -> bool:
        return self.ready.is_heap and reads_one_by_one(self.flow)

    @cached_property
    def units(self) -> Units:
        scan, seed = self.found.scan, self.found.spec.seed
        units, self.flow = scan_units(self.x, scan, seed, self.step, self.role, self.flow, self.make)
        return units

    def begin(self) -> None:
        """Put the units in order."""
        units, found = self.units, origins(self.found)
        empty = Design(units.rows, units.zone, found, (), []).empty
        units.arrange(np.zeros(units.count, np.bool_), empty)
        first = self.found.partial.keys[0]
        self.first = FirstKey(first, found.of(first.expr), units)
        if self.first.best is not None:
            # The sort is stable: of equal units, the seed decides.
            units.order = units.order[np.argsort(-self.first.best[units.order], kind="stable")]
        bounds = self.first.bounds[units.order]
        self.rest = np.append(np.maximum.accumulate(bounds[::-1])[::-1], -np.inf)
        """For each place of the order, the best rank of a row from there on."""
        self.workers = [UnitWorker(self, shard) for shard in range(min(self.x.threads, max(1, units.length)))]

    def read(self, last: int) -> None:
        """Read the units up to a place of the order."""
        last = min(last, self.units.length)
        mine, number = self.units.order[self.places : last], len(self.workers)

        def work(shard: int) -> None:
            units = mine[shard::number]
            if len(units):
                self.workers[shard].run(units)

        parallel(work, number, self.x.threads, self.x.run)
        self.places = last
        self.x.run.done_rows = max(self.x.run.done_rows, self.x.shared.rows_done)

    def _heaps(self) -> tuple[Top, list[Context]]:
        """The heaps of all workers. Those with the same layout of the source have the same entries as all others."""
        if not any(worker.has_state for worker in self.workers):
            self.workers[0].run_empty()
        there = [worker for worker in self.workers if worker.has_state]
        sink = there[0].sink
        assert isinstance(sink, Top)
        return sink, [worker.opened[-1] for worker in there]

    def view(self) -> FirstRows:
        """The first rows. The heaps stay."""
        sink, contexts = self._heaps()
        limit, keys = sink.limit, self.ready.keys
        columns = columns_of(self.flow.schema)
        ordered = tuple(OutputColumn(f"#key {place}", key.expr) for place, key in enumerate(keys))
        position = Column(POSITION, BIGINT, False)
        extra = (*ordered, OutputColumn(POSITION, position, False))
        for context in contexts:
            context.kept = True
        try:
            data = TopData(sink, contexts, self.x.shared)
            lists = self.x.rows.collect(self.step, Flow(data, self.flow.schema), (*columns, *extra), "view")
        finally:
            for context in contexts:
                context.kept = False
        width = len(columns)
        # Ties are in the order of the table, whatever the order of the units.
        order = Order((*keys, SortKey(position)), tuple(range(width, width + len(extra))))
        chunks = in_order([chunk for one in lists for chunk in one], order, width + 1, limit)  # type: ignore[misc]
        if not chunks:
            empty = [pa.array([], column.type.to_arrow()) for column in columns]
            return FirstRows(empty, 0, 0)
        *arrays, first = chunks[0].arrays
        certain = int(np.count_nonzero(self.first.ranks(first) > self.rest[self.places]))
        return FirstRows(arrays, chunks[0].rows, certain)

    def is_certain(self, rows: FirstRows) -> bool:
        """Whether no unread unit can change the first rows."""
        return self.places == self.units.length or rows.certain == self.ready.limit

    def finish(self, rows: FirstRows) -> None:
        """Hand the first rows to the run: what reads them goes on as it would have."""
        sink, _ = self._heaps()
        for worker in self.workers:
            if worker.has_state:
                self.x.states.free(sink, worker.finish())
        self.x.done[id(self.found.final)] = self.flow_of(rows, rows.arrays)

    def flow_of(self, rows: FirstRows, arrays: list[pa.Array]) -> Flow:
        """Rows as a step has them."""
        step = self.found.final
        sources = tuple(column.source() for column in columns_of(step.schema))
        return Flow(ChunkData(sources, [[Chunk((0,), rows.rows, arrays)]]), step.schema)
