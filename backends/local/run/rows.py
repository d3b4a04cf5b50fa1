"""Rows that pipelines leave in columns: collected shard by shard, and kept in memory or in files as a store decides."""

from __future__ import annotations

from tsql.backends.local.run.dataset import BlockData, ChunkData, CoalescedData, Part, SourceData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Context, Shared, take_chunks
from tsql.backends.local.run.pipelines import Pipelines
from tsql.backends.local.run.spill import AnyChunk, Spill, Store
from tsql.kernels.emit.batch import SourceColumn
from tsql.kernels.emit.pipeline import Sink
from tsql.kernels.operators.collect import Collect, OutputColumn, columns_of
from tsql.planner.physical.step import Step


class Rows:
    """Collects the rows of flows."""

    def __init__(self, pipelines: Pipelines, spill: Spill, shared: Shared):
        self.pipelines, self.spill, self.shared = pipelines, spill, shared

    def taken(
        self,
        context: Context,
        columns: tuple[OutputColumn, ...],
        part: Part,
        store: Store,
        writers: int = 1,
        writer_bytes: int = 0,
    ) -> list[list[AnyChunk]]:
        """The chunks of each writer of a state, as they are kept."""
        chunks, sizes = [], []
        for writer in range(writers):
            found = take_chunks(
                context.state_address + writer * writer_bytes, columns, self.shared, context.taken_chunks
            )
            context.taken_chunks += len(found)
            sizes.append(len(found))
            chunks += found
        for chunk in chunks:
            chunk.order = (*part.order, *chunk.order)
        kept = iter(store.keep(chunks))
        return [[next(kept) for _ in range(size)] for size in sizes]

    def collect(
        self,
        step: Step,
        flow: Flow,
        columns: tuple[OutputColumn, ...],
        role: str,
        limit: int | None = None,
        store: Store | None = None,
        together: bool = False,
    ) -> list[list[AnyChunk]]:
        """Collect the flow's rows, as one ordered list of chunks per shard. All rows are in the first list if the
        shards share their input, or with `together`: then it does not matter which shard a row was in, and fewer tasks
        are used."""
        if (together and flow.data.shards > self.pipelines.threads) or (
            limit is None and (together or flow.data.shards == 1)
        ):
            # If it costs nothing, the rows up to a limit are the first ones.
            flow = self.pipelines.coalesced(flow)
        lists: list[list[AnyChunk]] = [[] for _ in range(flow.data.shards)]
        store = store or self.spill.store(f"{step.name} {role}".strip())
        most = self.spill.chunk_rows(columns)

        def take(sink: Sink, context: Context, part: Part, shard: int) -> None:
            lists[shard] += self.taken(context, columns, part, store)[0]

        for _, context in self.pipelines.run(
            step, role, flow, lambda: Collect(columns, limit, flow.data.by_morsel, most), take
        ):
            self.pipelines.states.close(context)
        if isinstance(flow.data, BlockData | SourceData | CoalescedData):
            return [sorted((c for one in lists for c in one), key=lambda c: c.order)]
        return lists

    def collected(self, step: Step, flow: Flow, limit: int | None = None, together: bool = False) -> Flow:
        """The flow with its operators run. A shared input (a scan) is split into as many shards as it had."""
        if isinstance(flow.data, ChunkData) and not flow.operators:
            return flow
        columns = columns_of(flow.schema)
        lists = self.collect(
            step, flow, columns, "collect" if limit is None else f"collect {limit}", limit, together=together
        )
        shards = flow.data.shards
        if len(lists) < shards:
            dealt: list[list[AnyChunk]] = [[] for _ in range(shards)]
            for number, chunk in enumerate(lists[0]):
                dealt[number * shards // len(lists[0])].append(chunk)
            lists = dealt
        return self.chunk_flow(columns, lists, flow)

    def chunk_flow(self, columns: tuple[OutputColumn, ...], lists: list[list[AnyChunk]], flow: Flow) -> Flow:
        sources: tuple[SourceColumn, ...] = tuple(c.source() for c in columns)
        return Flow(ChunkData(sources, lists, self.spill.morsel_rows()), flow.schema, [], flow.replicated)
