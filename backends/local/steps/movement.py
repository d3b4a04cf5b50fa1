"""Movement between the shards of one process: gather, redistribute, reshard, broadcast, multicast."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from tsql.backends.local.run.dataset import BlockData, ChunkData, Dataset, GroupData, Part, SourceData, end_chunks
from tsql.backends.local.run.host import Context
from tsql.backends.local.run.host_functions import HostFunctionRunner
from tsql.backends.local.run.runner import Flow
from tsql.backends.local.run.sliced_groups import relies_on_hashes, sliced
from tsql.backends.local.spill.spill import AnyChunk
from tsql.kernels.aggregates.bodies import plain_body
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.emit.pipeline import Sink
from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.types import BIGINT, INTEGER
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.kernels.operators.multicast import Multicast as MulticastSink
from tsql.kernels.operators.partition import Partition
from tsql.planner.physical.movement import Multicast
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import Step


def one_copy(flow: Flow) -> Flow:
    """The rows of a flow once: those of one shard, where every shard has all of them."""
    return replace(flow, data=first_shard(flow.data), replicated=False) if flow.replicated else flow


def first_shard(data: Dataset) -> Dataset:
    """One copy of a replicated dataset."""
    return ChunkData(data.columns, data.chunks[:1], data.batch_rows)


class MovementRunner(HostFunctionRunner):
    """Moves rows between shards."""

    def _gather(self, step: Step, flow: Flow, limit: int | None = None) -> Flow:
        if isinstance(flow.data, GroupData):
            merged = GroupData(flow.data.sink, flow.data.states, self.shared, flow.data.origin, merged=True)
            return Flow(merged, flow.schema, flow.operators)
        if limit is not None and isinstance(flow.data, SourceData | BlockData):
            return self._gather_first(step, flow, limit)
        # Of copies one is taken before anything is collected: afterwards rows of all shards may be in one list.
        collected = self._collected(step, one_copy(flow), limit, together=True)
        chunks = [c for one in collected.data.chunks for c in one]
        return Flow(ChunkData(collected.data.columns, [chunks], self.spill.morsel_rows()), flow.schema)

    def _gather_first(self, step: Step, flow: Flow, limit: int) -> Flow:
        """The first rows of a scan, and some more: it is read in waves until there are enough. Where a row may become
        many, no more than that are kept of a morsel."""
        columns = columns_of(flow.schema)
        chunks: list[AnyChunk] = []
        most = limit if any(o.multiplies for o in flow.operators) else None
        for wave in flow.data.waves(self.threads):
            chunks += self._collect(
                step, replace(flow, data=wave), columns, "first" if most is None else f"first {most}", most
            )[0]
            if sum(c.rows for c in chunks) >= limit:
                break
        return self._chunk_flow(columns, [chunks], flow)

    def _redistribute(self, step: Step, flow: Flow, shards: int) -> Flow:
        names = self._key(step)
        free = not relies_on_hashes(step, self.users, self.hands_out_shards)
        cut = sliced(flow, names, shards) if free else None
        if cut is not None:
            return replace(flow, data=cut)
        compact = free and self._gains_from_near_keys(step, flow, names, shards)
        key = tuple(Column(c, flow.schema[c].type, flow.schema[c].nullable) for c in names)
        equal, keeps_order = self.run.settings.equal_hashes, self._keeps_order(step)
        # Where nothing is taken away in between, the batches of a source fill the same chunks.
        leaves_open = not keeps_order and not self.spill.active and not self.interpret
        return self._sent(
            step, flow, shards, lambda columns, expected,
            most: Partition(columns, key, shards, equal, keeps_order, expected, most=most, leaves_open=leaves_open,
                            compact=compact), leaves_open
        )  # fmt: skip

    def _gains_from_near_keys(self, step: Step, flow: Flow, key: tuple[str, ...], shards: int) -> bool:
        """Whether the rows are sorted by an integer key: keys that are near each other are counted out."""
        users = self.users.get(id(step), [])
        is_power = shards > 1 and shards & (shards - 1) == 0
        by_key = bool(users) and all(isinstance(u, Combine) and u.by == key for u in users)
        return (
            by_key
            and is_power
            and len(key) == 1
            and flow.schema[key[0]].type in (BIGINT, INTEGER)
            and not self.spill.active
            and not self.run.settings.equal_hashes
        )

    def _key(self, step: Step) -> tuple[str, ...]:
        """The key that the rows of a step's input carry, by the names that they have there."""
        known: dict[int, Properties] = {}
        for below in step.inputs[0].walk():
            known[id(below)] = below.provides(tuple(known[id(i)] for i in below.inputs), 1)
        return known[id(step.inputs[0])].key

    def _multicast(self, step: Multicast, flow: Flow, shards: int) -> Flow:
        flow, to = self._host_calls(step, flow, step.to)
        flow = replace(flow, schema=step.schema)
        return self._sent(
            step,
            flow,
            shards,
            lambda columns, expected, most: MulticastSink(columns, to, shards, self._keeps_order(step), expected, most),
        )

    def _sent(
        self,
        step: Step,
        flow: Flow,
        shards: int,
        make: Callable[[tuple[OutputColumn, ...], int | None, int], Partition],
        leaves_open: bool = False,
    ) -> Flow:
        """The rows in the shards to which a sink writes them; it is made for columns, an expected number of rows per
        shard and worker, and the rows of the largest chunk. `leaves_open`: its chunks are ended when all of the input
        has been read."""
        columns = columns_of(flow.schema)
        lists: list[list[AnyChunk]] = [[] for _ in range(shards)]
        lock = threading.Lock()
        flow = self._coalesced(one_copy(flow))
        per_shard = None if flow.data.rows is None else flow.data.rows // (shards * flow.data.shards)

        store, most = self.spill.store(step.name), self.spill.chunk_rows(columns, shards)

        def take(sink: Sink, context: Context, part: Part, shard: int) -> None:
            taken = self._taken(context, columns, part, store, shards, sink.shard_bytes)
            with lock:
                for target, chunks in zip(lists, taken, strict=True):
                    target += chunks

        shift = 0
        for number, (sink, context) in enumerate(
            self._run(step, "", flow, lambda: make(columns, per_shard, most), None if leaves_open else take)
        ):
            if leaves_open:
                end_chunks(sink, context)
                take(sink, context, Part(None, Morsels(0), (number,)), number)
            self._close(context)
            shift = sink.shift
        for one in lists:
            one.sort(key=lambda c: c.order)
        sent = self._chunk_flow(columns, lists, flow)
        sent.data.shift = shift
        return sent

    def _keeps_order(self, step: Step) -> bool:
        """Whether a consumer of rows that move depends on the order of rows; most aggregates do not, and windows of
        panes do not."""
        users = self.users.get(id(step), [])

        def is_free(user: Step) -> bool:
            groups = isinstance(user, Aggregate) or (isinstance(user, Combine) and user.windows.kind != "rows")
            return groups and not any(plain_body(c).wants_position for _, c in user.calls)

        return not users or not all(map(is_free, users))

    def _reshard(self, step: Step, flow: Flow, shards: int) -> Flow:
        collected = self._collected(step, flow, together=True)
        dealt: list[list[AnyChunk]] = [[] for _ in range(shards)]
        for number, chunk in enumerate(c for one in collected.data.chunks for c in one):
            dealt[number % shards].append(chunk)
        return Flow(ChunkData(collected.data.columns, dealt, self.spill.morsel_rows()), flow.schema)

    def _broadcast(self, step: Step, flow: Flow, shards: int) -> Flow:
        collected = self._collected(step, flow, together=True)
        chunks = [c for one in collected.data.chunks for c in one]
        return Flow(
            ChunkData(collected.data.columns, [chunks] * shards, self.spill.morsel_rows()), flow.schema, replicated=True
        )
