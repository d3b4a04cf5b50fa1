"""Runs movement between the shards of one process: rekey, redistribute, reshard, broadcast, multicast, gather."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tsql.backends.local.lower.graph import Lies, Lowering, Node, Pipe, Shape, Way, relies_on_hashes
from tsql.backends.local.lower.local_step import LocalStep, described, host_pipes, runs
from tsql.backends.local.run.arranging import SAMPLED_ROWS, boundaries, sampled, shard_of
from tsql.backends.local.run.constants import row_count
from tsql.backends.local.run.dataset import BlockData, ChunkData, GroupData, Part, SourceData, end_chunks
from tsql.backends.local.run.flow import Flow, one_copy
from tsql.backends.local.run.host import Context
from tsql.backends.local.run.sliced_groups import sliced
from tsql.backends.local.run.spill import AnyChunk
from tsql.kernels.aggregates.bodies import plain_body
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.emit.pipeline import Sink
from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.types import BIGINT, INTEGER
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.kernels.operators.multicast import Multicast as MulticastSink
from tsql.kernels.operators.partition import Partition
from tsql.planner.physical.movement import Arrange, Broadcast, Gather, Multicast, Redistribute, Rekey, Reshard
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import Step

SLICED = Way("groups cut where they lie", "they are in arrays, and nobody relies on the shards of hashes")
MOVED = Way("rows written to their shards")

MakeSink = Callable[[tuple[OutputColumn, ...], int | None, int], Partition]
"""Makes a sink from columns, an expected number of rows per shard and worker, and the rows of the largest chunk."""


@runs(Rekey)
class RekeyStep(LocalStep[Rekey]):
    """Changes the key that rows will be placed by. Moves nothing."""

    counts_rows = False

    @classmethod
    def lower(cls, step: Rekey, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        return Shape()

    def flow(self, node: Node) -> Flow:
        return self.x.flow(node.inputs[0])


@runs(Gather)
class GatherStep(LocalStep[Gather]):
    """All rows in one shard. Groups are merged as they are read. Below a limit, only as much of a scan is read as
    needed."""

    counts_rows = False

    @classmethod
    def lower(cls, step: Gather, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        below, users = inputs[0], about.users_of(step)
        if not users or below.lies is Lies.GROUPS or below.is_in_columns:
            # The last gather only passes its input on.
            copies = Pipe("collect", described(step), when="every shard has all rows")
            return Shape(pipes=(copies,) if not users and below.is_replicated and below.has_operators else ())
        if not all(isinstance(u, Limit) and not u.is_percentage for u in users):
            return Shape(source=f"rows of {step.name}", pipes=(Pipe("collect", described(step)),))
        if below.lies is not Lies.SCAN:
            return Shape(source=f"rows of {step.name}", pipes=(Pipe("collect *", described(step)),))
        some = Pipe("first *", described(step), when="rows are multiplied on the way")
        return Shape(source=f"rows of {step.name}", pipes=(Pipe("first", described(step)), some))

    def flow(self, node: Node) -> Flow:
        return self.gathered(node.step, self.x.flow(node.inputs[0]), self._rows_asked(node))

    def gathered(self, step: Step, flow: Flow, limit: int | None = None) -> Flow:
        """The rows of a flow in one shard. `limit`: no more rows than this are needed."""
        x = self.x
        if isinstance(flow.data, GroupData):
            merged = GroupData(flow.data.sink, flow.data.states, x.shared, flow.data.origin, merged=True)
            return Flow(merged, flow.schema, flow.operators)
        if limit is not None and isinstance(flow.data, SourceData | BlockData):
            return self._first(step, flow, limit)
        # Take one of several copies before collecting: afterwards, rows of all shards may be in one list.
        collected = x.rows.collected(step, one_copy(flow), limit, together=True)
        chunks = [c for one in collected.data.chunks for c in one]
        return Flow(ChunkData(collected.data.columns, [chunks], x.spill.morsel_rows()), flow.schema)

    def _first(self, step: Step, flow: Flow, limit: int) -> Flow:
        """The first rows of a scan, and perhaps some more: it is read in waves until there are enough. If a row may
        become many, at most `limit` rows of a morsel are kept."""
        columns = columns_of(flow.schema)
        chunks: list[AnyChunk] = []
        most = limit if any(o.multiplies for o in flow.operators) else None
        role = "first" if most is None else f"first {most}"
        for wave in flow.data.waves(self.x.threads):
            chunks += self.x.rows.collect(step, replace(flow, data=wave), columns, role, most)[0]
            if sum(c.rows for c in chunks) >= limit:
                break
        return self.x.rows.chunk_flow(columns, [chunks], flow)

    def _rows_asked(self, node: Node) -> int | None:
        """The most rows that the users of a node need, if all of them are limits."""
        limits = [u.step for u in node.users if isinstance(u.step, Limit) and not u.step.is_percentage]
        parameters = self.x.run.parameters
        asked = [(row_count(s.count, parameters), row_count(s.offset, parameters) or 0) for s in limits]
        known = len(asked) == len(node.users) and asked and all(count is not None for count, _ in asked)
        return max(count + offset for count, offset in asked) if known else None


@runs(Reshard)
class ReshardStep(LocalStep[Reshard]):
    """Deals whole chunks to the shards in turn."""

    counts_rows = False

    @classmethod
    def lower(cls, step: Reshard, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        pipes = () if inputs[0].is_in_columns else (Pipe("collect", described(step)),)
        return Shape(source=f"rows of {step.name}", pipes=pipes)

    def flow(self, node: Node) -> Flow:
        x, flow = self.x, self.x.flow(node.inputs[0])
        collected = x.rows.collected(node.step, flow, together=True)
        dealt: list[list[AnyChunk]] = [[] for _ in range(node.step.shards or x.graph.shards)]
        for number, chunk in enumerate(c for one in collected.data.chunks for c in one):
            dealt[number % len(dealt)].append(chunk)
        return Flow(ChunkData(collected.data.columns, dealt, x.spill.morsel_rows()), flow.schema)


@runs(Broadcast)
class BroadcastStep(LocalStep[Broadcast]):
    """All rows in each shard, as the same chunks. A join that builds them reads its input itself (`hash_join.py`)."""

    counts_rows = False

    @classmethod
    def lower(cls, step: Broadcast, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        users = about.users_of(step)
        if len(users) == 1 and is_built(step, users[0]):
            return Shape()
        pipes = () if inputs[0].is_in_columns else (Pipe("collect", described(step)),)
        return Shape(source=f"rows of {step.name}", pipes=pipes)

    def flow(self, node: Node) -> Flow:
        x, flow = self.x, self.x.flow(node.inputs[0])
        collected = x.rows.collected(node.step, flow, together=True)
        copies = [[c for one in collected.data.chunks for c in one]] * (node.step.shards or x.graph.shards)
        return Flow(ChunkData(collected.data.columns, copies, x.spill.morsel_rows()), flow.schema, replicated=True)


class SendingStep(LocalStep[Step]):
    """Base of the steps that write each row to chosen shards."""

    counts_rows = False

    def send(self, step: Step, flow: Flow, shards: int, make: MakeSink, leaves_open: bool = False) -> Flow:
        """The rows in the shards that a sink writes them to. `leaves_open`: chunks are ended once all input has been
        read."""
        x, columns = self.x, columns_of(flow.schema)
        lists: list[list[AnyChunk]] = [[] for _ in range(shards)]
        lock = threading.Lock()
        flow = x.pipelines.coalesced(one_copy(flow))
        rows = flow.data.expected if flow.data.rows is None else flow.data.rows
        per_shard = None if rows is None else rows // (shards * flow.data.shards)
        store, most = x.spill.store(step.name), x.spill.chunk_rows(columns, shards)

        def take(sink: Sink, context: Context, part: Part, shard: int) -> None:
            taken = x.rows.taken(context, columns, part, store, shards, sink.shard_bytes)
            with lock:
                for target, chunks in zip(lists, taken, strict=True):
                    target += chunks

        shift = 0
        made = x.pipelines.run(step, "", flow, lambda: make(columns, per_shard, most), None if leaves_open else take)
        for number, (sink, context) in enumerate(made):
            if leaves_open:
                end_chunks(sink, context)
                take(sink, context, Part(None, Morsels(0), (number,)), number)
            x.states.close(context)
            shift = sink.shift
        for one in lists:
            one.sort(key=lambda c: c.order)
        sent = x.rows.chunk_flow(columns, lists, flow)
        sent.data.shift = shift
        return sent


@runs(Redistribute)
class RedistributeStep(SendingStep):
    """Sends all rows of a key to one shard."""

    @classmethod
    def lower(cls, step: Redistribute, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        ways = (SLICED, MOVED) if inputs[0].lies is Lies.GROUPS else ()
        return Shape(source=f"rows of {step.name}", pipes=(Pipe("", described(step), ways=ways),))

    def flow(self, node: Node) -> Flow:
        x, step, flow = self.x, node.step, self.x.flow(node.inputs[0])
        shards, names = step.shards or x.graph.shards, _key(step)
        free = not relies_on_hashes(node, x.graph.hands_out_shards)
        cut = sliced(flow, names, shards) if free else None
        x.run.chose(step.name, (MOVED if cut is None else SLICED).name)
        if cut is not None:
            return replace(flow, data=cut)
        keeps_order = _keeps_order(node)
        # If nothing is taken out in between, the batches of a source fill the same chunks.
        leaves_open = not keeps_order and not x.spill.active and not x.interpret
        key = tuple(Column(c, flow.schema[c].type, flow.schema[c].nullable) for c in names)
        make = partial(
            Partition,
            leaves_open=leaves_open,
            compact=free and self._gains_from_near_keys(node, flow, names, shards),
        )
        equal = x.run.settings.equal_hashes

        def sink(columns: tuple[OutputColumn, ...], expected: int | None, most: int) -> Partition:
            return make(columns, key, shards, equal, keeps_order, expected, most=most)

        return self.send(step, flow, shards, sink, leaves_open)

    def _gains_from_near_keys(self, node: Node, flow: Flow, key: tuple[str, ...], shards: int) -> bool:
        """Whether the users sort the rows by an integer key: keys close to each other are then sorted by counting."""
        users = [u.step for u in node.users]
        if not users or not all(isinstance(u, Combine) and u.by == key for u in users):
            return False
        is_power = shards > 1 and shards & (shards - 1) == 0
        is_integer = len(key) == 1 and flow.schema[key[0]].type in (BIGINT, INTEGER)
        return is_power and is_integer and not self.x.spill.active and not self.x.run.settings.equal_hashes


@runs(Multicast)
class MulticastStep(SendingStep):
    """Sends each row to the shards named by its expressions."""

    @classmethod
    def lower(cls, step: Multicast, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        return Shape(source=f"rows of {step.name}", pipes=(*host_pipes(*step.to), Pipe("", described(step))))

    def flow(self, node: Node) -> Flow:
        x, step = self.x, node.step
        shards = step.shards or x.graph.shards
        flow, to = x.hosts.calls(step, x.flow(node.inputs[0]), step.to)
        keeps_order = _keeps_order(node)

        def sink(columns: tuple[OutputColumn, ...], expected: int | None, most: int) -> Partition:
            return MulticastSink(columns, to, shards, keeps_order, expected, most)

        return self.send(step, replace(flow, schema=step.schema), shards, sink)


@runs(Arrange)
class ArrangeStep(SendingStep):
    """Sends rows to shards by ranges of their keys."""

    @classmethod
    def lower(cls, step: Arrange, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        collects = () if inputs[0].is_in_columns else (Pipe("collect", described(step)),)
        return Shape(source=f"rows of {step.name}", pipes=(*collects, Pipe("", described(step))))

    def flow(self, node: Node) -> Flow:
        x, step = self.x, node.step
        shards = step.shards or x.graph.shards
        flow = x.rows.collected(step, one_copy(x.flow(node.inputs[0])))
        names = list(flow.schema.names)
        places = [names.index(key.expr.name) for key in step.keys]
        chunks = [chunk for one in flow.data.chunks for chunk in one]
        sample = sampled(chunks, places, [key.expr.type for key in step.keys], SAMPLED_ROWS * shards)
        to = (shard_of(step.keys, boundaries(sample, step.keys, shards)),)

        def sink(columns: tuple[OutputColumn, ...], expected: int | None, most: int) -> Partition:
            return MulticastSink(columns, to, shards, True, expected, most)

        return self.send(step, flow, shards, sink)


def is_built(step: Broadcast, user: Step) -> bool:
    """Whether a join builds one table, shared by all shards, from these broadcast rows."""
    return step.scope == "local" and isinstance(user, HashJoin) and user.inputs[user.build == "right"] is step


def _key(step: Step) -> tuple[str, ...]:
    """The key of a step's input rows, by the column names of the input."""
    known: dict[int, Properties] = {}
    for below in step.inputs[0].walk():
        known[id(below)] = below.provides(tuple(known[id(i)] for i in below.inputs), 1)
    return known[id(step.inputs[0])].key


def _keeps_order(node: Node) -> bool:
    """Whether a consumer depends on the order of moved rows. Most aggregates and windows of panes do not."""

    def is_free(user: Step) -> bool:
        groups = isinstance(user, Aggregate) or (isinstance(user, Combine) and user.windows.kind != "rows")
        return groups and not any(plain_body(c).wants_position for _, c in user.calls)

    return not node.users or not all(is_free(user.step) for user in node.users)
