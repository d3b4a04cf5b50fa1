"""The last pipeline of a run: its rows are returned in order, as they are produced.

A scan is read in waves, with all workers on each wave, so a result of any size needs bounded memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tsql.backends.local.run.dataset import BlockData, ChunkData, Part, SourceData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk, result_array
from tsql.backends.local.run.repeat import KernelCall
from tsql.backends.local.run.spill import AnyChunk
from tsql.kernels.operators.collect import Collect, OutputColumn
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution


class Result:
    """Returns the rows of the last flow."""

    def __init__(self, x: Execution):
        self.x = x

    def chunks(self, step: Step, flow: Flow, columns: tuple[OutputColumn, ...]) -> Iterator[Chunk]:
        """The rows of the last flow in order. A scan is read in waves by all workers, so a result of any size needs
        bounded memory. Many shards are written by all workers; the parts of a single shard one by one."""
        if isinstance(flow.data, ChunkData) and not flow.operators:
            yield from self._as_they_are(flow.data, columns)
            return
        flow = self.x.pipelines.coalesced(flow) if flow.data.shards == 1 or isinstance(flow.data, BlockData) else flow
        if isinstance(flow.data, SourceData | BlockData):
            for wave in flow.data.waves(self.x.threads, self.x.spill.active):
                yield from self.x.rows.collect(step, replace(flow, data=wave), columns, "output")[0]
            return
        if flow.data.shards > 1 and not self.x.dry:
            for chunks in self.x.rows.collect(step, flow, columns, "output", together=True):
                yield from chunks
            return
        if self.x.dry:
            self.x.finder.find(
                step, "output", flow, flow.data.empty_source(), lambda: Collect(columns, by_morsel=False)
            )
            return
        start, before = time.perf_counter(), self.x.shared.rows_done
        for part in flow.data.feed(0):
            chunks = self._part_chunks(step, flow, part, columns)
            del part
            while chunks:
                yield chunks.pop()
        self.x.pipelines.record(step, "output", before, start)
        flow.data.release()

    def _part_chunks(self, step: Step, flow: Flow, part: Part, columns: tuple[OutputColumn, ...]) -> list[AnyChunk]:
        """The chunks of one part of the last flow, last chunk first."""
        most = self.x.spill.chunk_rows(columns)
        pipeline, code = self.x.finder.find(
            step, "output", flow, part.source, lambda: Collect(columns, by_morsel=False, most=most)
        )
        context, store = self.x.states.context(pipeline, code), self.x.spill.store(f"{step.name} output")
        kept: list[AnyChunk] = []

        def take() -> None:
            kept.extend(self.x.rows.taken(context, columns, part, store)[0])

        if self.x.spill.active:
            context.limit(None, self.x.spill.room(), take)
        try:
            code.run(context, part.morsels)
        finally:
            context.let_go()
        take()
        if self.x.recorder is not None:
            self.x.recorder.ran([KernelCall(code, context, part.morsels, pipeline.sink)])
        self.x.states.close(context)
        self.x.run.done_rows = max(self.x.run.done_rows, self.x.shared.rows_done)
        kept.reverse()
        return kept

    def _as_they_are(self, data: ChunkData, columns: tuple[OutputColumn, ...]) -> Iterator[Chunk]:
        """Rows that are already in columns: they become a result without a kernel."""
        names = [c.name for c in data.columns]
        places = [names.index(c.expr.name) for c in columns]

        def shown(chunk: Chunk) -> Chunk:
            return Chunk(
                chunk.order,
                chunk.rows,
                [result_array(chunk.arrays[p], c.type) for p, c in zip(places, columns, strict=True)],
            )

        if self.x.recorder is not None:
            self.x.recorder.then(lambda chunks: [shown(c) for c in chunks])
        for chunk in (c for shard in data.chunks for c in shard):
            self.x.run.check()
            yield shown(chunk)
