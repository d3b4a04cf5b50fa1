"""Runs a physical plan on the threads of this process: steps become pipelines, pipelines become kernels, shards become
tasks.

In: a plan (or a part of one, with `inputs` standing in for steps that were cut off). Out: datasets, and for the root
Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tsql.backends.local.run.constants import constant_array
from tsql.backends.local.run.dataset import BlockData, ChunkData, Dataset, Part, SourceData, TopData
from tsql.backends.local.run.host import Chunk, result_array
from tsql.backends.local.run.range_data import RangeData
from tsql.backends.local.run.repeat import KernelCall, to_batch
from tsql.backends.local.run.runner import Flow, Kernels, row_bound
from tsql.backends.local.run.sliced_groups import relies_on_hashes
from tsql.backends.local.spill.groups import GroupRunner
from tsql.backends.local.spill.partition_joins import SpillingJoinRunner
from tsql.backends.local.spill.sorts import SortRunner
from tsql.backends.local.spill.spill import AnyChunk
from tsql.backends.local.steps.combine import CombineRunner
from tsql.backends.local.steps.generating import GeneratingRunner
from tsql.backends.local.steps.match import MatchRunner
from tsql.backends.local.steps.snapshot import SnapshotRunner
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.dense import DENSE_GROUPS
from tsql.kernels.emit.pipeline import Pipeline, Sink
from tsql.kernels.expr.constant import evaluate_with
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Column, Expr, Literal, SortKey
from tsql.kernels.expr.schema import Schema
from tsql.kernels.operators import expand as kernel_expand
from tsql.kernels.operators import filter as kernel_filter
from tsql.kernels.operators import project as kernel_project
from tsql.kernels.operators import replicate as kernel_replicate
from tsql.kernels.operators.aggregate.groups import AggregateSink, Grouping, is_dense, make_sink
from tsql.kernels.operators.collect import Collect, OutputColumn, columns_of
from tsql.kernels.operators.count import Count
from tsql.kernels.operators.top import LARGEST, Top
from tsql.planner.physical import movement
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.expand import Expand
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.match import Match
from tsql.planner.physical.operators.merge_join import MergeJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.recursive import Recursive
from tsql.planner.physical.operators.replicate import Replicate
from tsql.planner.physical.operators.sample import Sample
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.series import Series
from tsql.planner.physical.operators.snapshot import Snapshot
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import PhysicalPlan, Step

FEW_PER_SHARD = 1000
"""So few rows of each shard are sorted at once: another heap would be another kernel to compile."""


class DenseProbe(Sink):
    """Sees the keys of groups as they reach a sink, in a dry run, and knows whether they have few known values."""

    needs_probe = True

    def __init__(self, grouping: Grouping, expected: int | None):
        self.grouping, self.expected, self.dense = grouping, expected, False

    def probe(self, k: PipelineKernel, row: Any) -> None:
        self.grouping.calls = ()
        self.grouping.probe(k, row)
        self.dense = is_dense(self.grouping.fields, self.expected)


class Executor(
    GeneratingRunner, CombineRunner, SnapshotRunner, MatchRunner, SpillingJoinRunner, SortRunner, GroupRunner
):
    """One run of one plan."""

    def batches(self, plan: PhysicalPlan) -> Iterator[pa.RecordBatch]:
        """The result, batch by batch."""
        for step in plan.root.walk():
            for child in step.inputs:
                self.uses[id(child)] = self.uses.get(id(child), 0) + 1
                self.users.setdefault(id(child), []).append(step)
        root = plan.root
        # The last gather only hands out what is there, unless its rows have come from elsewhere.
        gathers = isinstance(root, movement.Gather) and id(root) not in self.inputs
        flow = self.flow(root.inputs[0] if gathers else root, plan.shards)
        if gathers and (self.dry or flow.replicated):
            flow = self._gather(root, flow)
        schema = plan.schema
        fields = plan.root.schema
        columns = tuple(
            OutputColumn(f"c{i}", Column(c, fields[c].type, fields[c].nullable), True, True)
            for i, c in enumerate(plan.columns)
        )
        for chunk in self._stream(plan.root, flow, columns):
            yield to_batch(chunk, schema)

    def chunks(self, step: Step, shards: int) -> list[list[AnyChunk]]:
        """The rows of a step by shard, in the kernels' own types; for backends that move them elsewhere."""
        collected = self.collected(step, shards)
        return collected.data.chunks[:1] if collected.replicated else collected.data.chunks

    def collected(self, step: Step, shards: int) -> Flow:
        """The rows of a step, collected shard by shard."""
        for user in self._within(step):
            for child in user.inputs:
                self.uses[id(child)] = self.uses.get(id(child), 0) + 1
                self.users.setdefault(id(child), []).append(user)
        self.hands_out_shards = True
        return self._collected(step, self.flow(step, shards))

    def _within(self, root: Step) -> Iterator[Step]:
        """The steps that this executor computes for `root`: down to the inputs that it was given."""
        seen: set[int] = set()
        stack = [root]
        while stack:
            step = stack.pop()
            if id(step) not in seen and id(step) not in self.inputs:
                seen.add(id(step))
                yield step
                stack.extend(step.inputs)

    def _stream(self, step: Step, flow: Flow, columns: tuple[OutputColumn, ...]) -> Iterator[Chunk]:
        """The rows of the last flow in order. A scan is read in waves, all workers on each, so that a result of any
        size passes through bounded memory; many shards are written by all workers; the parts of one shard one by
        one."""
        if isinstance(flow.data, ChunkData) and not flow.operators:
            yield from self._as_they_are(flow.data, columns)
            return
        flow = self._coalesced(flow) if flow.data.shards == 1 or isinstance(flow.data, BlockData) else flow
        if isinstance(flow.data, SourceData | BlockData):
            for wave in flow.data.waves(self.threads, self.spill.active):
                yield from self._collect(step, replace(flow, data=wave), columns, "output")[0]
            return
        if flow.data.shards > 1 and not self.dry:
            for chunks in self._collect(step, flow, columns, "output", together=True):
                yield from chunks
            return
        if self.dry:
            self._kernel(step, "output", flow, flow.data.empty_source(), lambda: Collect(columns, by_morsel=False))
            return
        start, before = time.perf_counter(), self.shared.rows_done
        for part in flow.data.feed(0):
            chunks = self._part_chunks(step, flow, part, columns)
            del part
            while chunks:
                yield chunks.pop()
        self._record(step, "output", before, start)
        flow.data.release()

    def _part_chunks(self, step: Step, flow: Flow, part: Part, columns: tuple[OutputColumn, ...]) -> list[AnyChunk]:
        """The rows of one part of the last flow, the last first."""
        most = self.spill.chunk_rows(columns)
        pipeline, code = self._kernel(
            step, "output", flow, part.source, lambda: Collect(columns, by_morsel=False, most=most)
        )
        context, store = self._context(pipeline, code), self.spill.store(f"{step.name} output")
        kept: list[AnyChunk] = []

        def take() -> None:
            kept.extend(self._taken(context, columns, part, store)[0])

        if self.spill.active:
            context.limit(None, self.spill.room(), take)
        try:
            code.run(context, part.morsels)
        finally:
            context.let_go()
        take()
        if self.recorder is not None:
            self.recorder.ran([KernelCall(code, context, part.morsels, pipeline.sink)])
        self._close(context)
        self.run.done_rows = max(self.run.done_rows, self.shared.rows_done)
        kept.reverse()
        return kept

    def _as_they_are(self, data: ChunkData, columns: tuple[OutputColumn, ...]) -> Iterator[Chunk]:
        """Rows that wait in columns already: a result of them needs no kernel."""
        names = [c.name for c in data.columns]
        places = [names.index(c.expr.name) for c in columns]

        def shown(chunk: Chunk) -> Chunk:
            return Chunk(
                chunk.order,
                chunk.rows,
                [result_array(chunk.arrays[p], c.type) for p, c in zip(places, columns, strict=True)],
            )

        if self.recorder is not None:
            self.recorder.then(lambda chunks: [shown(c) for c in chunks])
        for chunk in (c for shard in data.chunks for c in shard):
            self.run.check()
            yield shown(chunk)

    def flow(self, step: Step, shards: int) -> Flow:
        """The rows of a step; a step with several users is collected once."""
        found = self.done.get(id(step))
        if found is None:
            self.run.check()
            if id(step) in self.inputs:
                given = self.inputs[id(step)]
                found = given if isinstance(given, Flow) else Flow(given, step.schema)
            else:
                found = self._flow(step, shards)
                if self.run.profile and not isinstance(
                    step, Scan | movement.Movement | movement.Rekey | movement.Gather
                ):
                    found = found.then(Count(step.name), found.schema)
            if self.uses.get(id(step), 1) > 1 and not (isinstance(found.data, ChunkData) and not found.operators):
                found = self._collected(step, found)
            if self.uses.get(id(step), 1) > 1 or not self.spill.active:
                self.done[id(step)] = found
        return found

    def _flow(self, step: Step, shards: int) -> Flow:
        match step:
            case Scan():
                return self._scan(step, shards)
            case Values():
                return self._values(step)
            case MergeJoin():
                return self._hash_join(step.hashed if self.spill.active else step.walked, shards)
            case HashJoin():
                return self._hash_join(step, shards)
            case Series():
                return self._series(step, shards)
            case Recursive():
                return self._recursive(step, shards)
        inputs = [self.flow(i, shards) for i in step.inputs]
        flow = inputs[0]
        match step:
            case Filter():
                flow, (predicate,) = self._host_calls(step, flow, (step.predicate,))
                return flow.then(self._filter(step, predicate), step.schema)
            case Project():
                flow, expressions = self._host_calls(step, flow, tuple(e for _, e in step.columns))
                columns = tuple((n, e) for (n, _), e in zip(step.columns, expressions, strict=True))
                return flow.then(kernel_project.Project(columns), step.schema)
            case Expand():
                return flow.then(kernel_expand.Expand(step.keys, step.sets), step.schema)
            case Replicate():
                return flow.then(kernel_replicate.Replicate(step.times), step.schema)
            case Sample():
                return self._sample(step, flow)
            case Aggregate():
                return self._aggregate(step, flow, shards)
            case Sort():
                return self._sort(step, flow)
            case Limit():
                return self._limit(step, flow)
            case Window():
                return self._window(step, flow)
            case Combine():
                return self._combine(step, flow)
            case Snapshot():
                return self._snapshot(step, flow)
            case Match():
                return self._match(step, flow)
            case Union():
                return self._union(step, inputs)
            case movement.Rekey():
                return flow
            case movement.Redistribute():
                return self._redistribute(step, flow, step.shards or shards)
            case movement.Reshard():
                return self._reshard(step, flow, step.shards or shards)
            case movement.Broadcast():
                return self._broadcast(step, flow, step.shards or shards)
            case movement.Multicast():
                return self._multicast(step, flow, step.shards or shards)
            case movement.Gather():
                return self._gather(step, flow, self._rows_asked(step))
        raise TypeError(f"the local backend has no step {step.op}")

    def _filter(self, step: Filter, predicate: Expr) -> kernel_filter.Filter:
        """The filter of a step; it looks at its predicate more closely than every run should."""
        known = self.kernels.filters.get(id(step))
        if known is None or known.predicate is not predicate:
            known = self.kernels.filters[id(step)] = kernel_filter.Filter(predicate, selects=step.how == "select")
        return known

    def _scan(self, step: Scan, shards: int) -> Flow:
        if step.ranges is not None:
            data: Dataset = RangeData(step, shards, self.spill.morsel_rows())
        elif isinstance(step.source, BlockTable):
            data = BlockData(step.source, step.columns, step.where, shards, self.spill.morsel_rows())
        else:
            data = SourceData(
                step.source, step.columns, step.where, shards, self.spill.morsel_rows(), self.shared, step.late
            )
        if data.rows is not None:
            self.run.total_rows = (self.run.total_rows or 0) + data.rows
        return Flow(data, step.schema)

    def _values(self, step: Values) -> Flow:
        rows = step.rows
        columns = tuple(OutputColumn(f.name, Column(f.name, f.type)) for f in step.fields)
        if all(isinstance(e, Literal) for row in rows for e in row):
            arrays = [constant_array(f.type, [row[i].value for row in rows]) for i, f in enumerate(step.fields)]
            chunks = [Chunk((0,), len(rows), arrays)] if rows else []
        else:
            chunks = [self._value_row(step, number, row, columns) for number, row in enumerate(rows)]
        return Flow(ChunkData(tuple(c.source() for c in columns), [chunks], self.spill.morsel_rows()), step.schema)

    def _value_row(self, step: Values, number: int, row: tuple[Expr, ...], columns: tuple[OutputColumn, ...]) -> Chunk:
        """A row with computed constants: a projection of one row without columns."""
        one = Flow(ChunkData((), [[Chunk((0,), 1, [])]]), Schema(()))
        one, expressions = self._host_calls(step, one, row)
        computed = tuple(OutputColumn(c.name, e) for c, e in zip(columns, expressions, strict=True))
        return Chunk((number,), 1, self._collect(step, one, computed, f"row {number}")[0][0].arrays)

    def _aggregate(self, step: Aggregate, flow: Flow, shards: int) -> Flow:
        if not step.absorbs:
            flow, by, calls = self._host_arguments(step, flow)
        else:
            by, calls = step.by, step.calls
        equal = self.run.settings.equal_hashes
        # Where rows are multiplied the dataset's number of rows bounds nothing.
        multiplied = any(o.multiplies for o in flow.operators)

        def grouping() -> Grouping:
            return Grouping(by, calls, step.phase, None if multiplied else row_bound(flow.data.rows), equal)

        def make(known: bool = True) -> AggregateSink:
            # Of rows that come back from a file no bounds are known.
            return make_sink(grouping(), dense and known)

        # Many shards are there to keep each table small: an array for all keys in each would not be.
        small_tables = flow.data.shards > shards and (step.groups or 0) > DENSE_GROUPS
        dense = (
            bool(by)
            and not equal
            and not small_tables
            and self._is_dense(step, flow, grouping(), step.groups if (flow.data.rows or 0) > DENSE_GROUPS else None)
        )
        if step.phase == "partial" and self._may_coalesce(step):
            flow = self._coalesced(flow)
        expected = 0 if dense or not by else self._expected_groups(step, flow)
        return self._groups(step, flow, by, calls, make, expected)

    def _expected_groups(self, step: Aggregate, flow: Flow) -> int:
        """Groups per shard: the planner's estimate, held down by the rows that there are."""
        if not step.groups:
            return 0
        shards = 1 if step.phase == "partial" else flow.data.shards
        rows = flow.data.rows if flow.data.rows is not None else step.groups
        return min(step.groups // shards, rows // flow.data.shards + 1)

    def _is_dense(self, step: Aggregate, flow: Flow, grouping: Grouping, expected: int | None) -> bool:
        """Whether the keys, as they reach the sink, have few known values; found by a dry run over them, once for a
        layout."""
        source = flow.data.empty_source()
        signature = (
            id(step),
            "dense",
            source.columns,
            type(source),
            tuple(o.signature for o in flow.operators),
            expected,
        )
        known = self.kernels.dense.get(signature)
        if known is not None:
            return known
        sink = DenseProbe(grouping, expected)
        Pipeline(source, flow.operators, sink)._probe()
        self.kernels.dense[signature] = sink.dense
        return sink.dense

    def _union(self, step: Union, inputs: list[Flow]) -> Flow:
        shards = max(f.data.shards for f in inputs)
        lists: list[list[AnyChunk]] = [[] for _ in range(shards)]
        columns = columns_of(step.schema)
        store = self.spill.store(step.name)
        for number, flow in enumerate(inputs):
            renamed = tuple(
                OutputColumn(c.name, Column(f.name, f.type, f.nullable))
                for c, f in zip(columns, flow.schema, strict=True)
            )
            for shard, chunks in enumerate(self._collect(step, flow, renamed, f"input {number}", store=store)):
                lists[shard] += chunks
        return Flow(ChunkData(tuple(c.source() for c in columns), lists, self.spill.morsel_rows()), step.schema)

    def _constant(self, expr: Expr | None) -> Any:
        """The value of a LIMIT or OFFSET."""
        if expr is None:
            return None
        value = evaluate_with(expr, self.run.parameters)
        if value is not None and value < 0:
            raise ExecutionError("LIMIT and OFFSET cannot be negative", position=getattr(expr, "position", None))
        return value

    def _rows_asked(self, step: Step) -> int | None:
        """How many rows the users of a step take at most, where all of them are limits."""
        users = self.users.get(id(step), [])
        asked = [
            (self._constant(u.count), self._constant(u.offset) or 0)
            for u in users
            if isinstance(u, Limit) and not u.is_percentage
        ]
        known = len(asked) == len(users) and asked and all(count is not None for count, _ in asked)
        return max(count + offset for count, offset in asked) if known else None

    def _limit(self, step: Limit, flow: Flow) -> Flow:
        count, offset = self._constant(step.count), self._constant(step.offset) or 0
        wanted = None if count is None or step.is_percentage else count + offset
        collected = self._collected(step, flow, min(wanted, 2**62) if wanted is not None else None, together=True)
        if step.is_percentage and count is not None:
            if not count <= 100:
                raise ExecutionError(
                    "Limit percent out of range, should be between 0% and 100%",
                    position=getattr(step.count, "position", None),
                )
            wanted = int(sum(chunk.rows for chunk in collected.data.chunks[0]) * count / 100) + offset
        kept, skip, left = [], offset, wanted
        for chunk in collected.data.chunks[0]:
            if left is not None and left <= 0:
                break
            rows = chunk.rows if left is None else min(chunk.rows, left)
            if rows > skip:
                kept.append(Chunk(chunk.order, rows - skip, [a.slice(skip, rows - skip) for a in chunk.arrays]))
            skip = max(0, skip - rows)
            left = None if left is None else left - rows
        return Flow(ChunkData(collected.data.columns, [kept], self.spill.morsel_rows()), step.schema)

    def _sort(self, step: Sort, flow: Flow) -> Flow:
        flow, expressions = self._host_calls(step, flow, tuple(k.expr for k in step.keys))
        keys = tuple(SortKey(e, k.descending, k.nulls_first) for e, k in zip(expressions, step.keys, strict=True))
        limit = self._constant(step.limit)
        if (
            step.limit is not None
            and limit is not None
            and limit <= LARGEST
            and not (limit <= FEW_PER_SHARD and self._has_first_rows(step))
        ):
            with self._attempt() as attempt:
                flow = self._top(step, flow, keys, limit)
            if attempt.failed:
                # The rows that a heap would hold do not fit: all are sorted, in files if need be.
                flow = replace(flow, data=flow.data.again())
        if step.phase == "partial":
            return flow
        return self._sorted(step, flow, keys, step.schema, limit)

    def _has_first_rows(self, step: Sort) -> bool:
        """Whether the rows of a sort are the first ones of each shard, gathered."""
        (below,) = step.inputs
        return (
            isinstance(below, movement.Gather)
            and isinstance(below.inputs[0], Sort)
            and below.inputs[0].phase == "partial"
        )

    def _may_coalesce(self, step: Step) -> bool:
        """Whether the rows of shards may be put together in a step: not if they meet those of other steps shard by
        shard."""
        return not relies_on_hashes(step, self.users, self.hands_out_shards)

    def _top(self, step: Sort, flow: Flow, keys: tuple[SortKey, ...], limit: int) -> Flow:
        """The first rows of each shard, by heaps; they come out in no order."""
        columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in flow.schema)
        flow = self._coalesced(flow) if self._may_coalesce(step) else flow
        states = self._run(step, f"top {limit}", flow, lambda: Top(columns, keys, limit))
        return Flow(TopData(states[0][0], [c for _, c in states], self.shared), flow.schema)


__all__ = ["Executor", "Flow", "Kernels"]
