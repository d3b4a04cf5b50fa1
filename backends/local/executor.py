"""Runs a physical plan on the threads of this process: steps become pipelines, pipelines become kernels, shards become tasks.

In: a plan (or a part of one, with `inputs` standing in for steps that were cut off). Out: datasets, and for the root Arrow
batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tsql.backends.local.constants import constant_array
from tsql.backends.local.dataset import BlockData, ChunkData, Dataset, GroupData, SourceData, TopData
from tsql.backends.local.generating import GeneratingRunner
from tsql.backends.local.host import Chunk, result_array, take_chunks
from tsql.backends.local.runner import Flow, Kernels
from tsql.backends.local.sorting import sort_indices
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.constant import evaluate_with
from tsql.kernels.context import PipelineKernel
from tsql.kernels.errors import ExecutionError
from tsql.kernels.expr import Column, Expr, Literal, SortKey
from tsql.kernels.operators import expand as kernel_expand
from tsql.kernels.operators import filter as kernel_filter
from tsql.kernels.operators import project as kernel_project
from tsql.kernels.operators import replicate as kernel_replicate
from tsql.kernels.operators.aggregate import AggregateSink, Grouping, is_dense, make_sink
from tsql.kernels.operators.collect import Collect, OutputColumn
from tsql.kernels.operators.top import LARGEST, Top
from tsql.kernels.pipeline import Pipeline, Sink
from tsql.kernels.schema import Schema
from tsql.planner import movement
from tsql.planner.operators.aggregate import Aggregate
from tsql.planner.operators.expand import Expand
from tsql.planner.operators.filter import Filter
from tsql.planner.operators.join import HashJoin
from tsql.planner.operators.limit import Limit
from tsql.planner.operators.project import Project
from tsql.planner.operators.recursive import Recursive
from tsql.planner.operators.replicate import Replicate
from tsql.planner.operators.sample import Sample
from tsql.planner.operators.scan import Scan
from tsql.planner.operators.series import Series
from tsql.planner.operators.sort import Sort
from tsql.planner.operators.union import Union
from tsql.planner.operators.values import Values
from tsql.planner.step import PhysicalPlan, Step


class Executor(GeneratingRunner):
    """One run of one plan."""

    def batches(self, plan: PhysicalPlan) -> Iterator[pa.RecordBatch]:
        """The result, batch by batch."""
        for step in plan.root.walk():
            for child in step.inputs:
                self.uses[id(child)] = self.uses.get(id(child), 0) + 1
                self.users.setdefault(id(child), []).append(step)
        root = plan.root
        flow = self.flow(root.inputs[0] if isinstance(root, movement.Gather) else root, plan.shards)
        if isinstance(root, movement.Gather) and (self.dry or flow.replicated):
            flow = self._gather(root, flow)
        schema = plan.schema
        fields = plan.root.schema
        columns = tuple(OutputColumn(f"c{i}", Column(c, fields[c].type, fields[c].nullable), True, True) for i, c in enumerate(plan.columns))
        for chunk in self._stream(plan.root, flow, columns):
            arrays = [a if a.type == f.type else a.cast(f.type) for a, f in zip(chunk.arrays, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else pa.RecordBatch.from_struct_array(pa.array([{}] * chunk.rows, pa.struct([])))

    def chunks(self, step: Step, shards: int) -> list[list[Chunk]]:
        """The rows of a step by shard, in the kernels' own types; for backends that move them elsewhere."""
        for user in self._within(step):
            for child in user.inputs:
                self.uses[id(child)] = self.uses.get(id(child), 0) + 1
                self.users.setdefault(id(child), []).append(step)
        collected = self._collected(step, self.flow(step, shards))
        return collected.data.chunks[:1] if collected.replicated else collected.data.chunks

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
        """The rows of the last flow in order. A scan is read in waves, all workers on each, so that a result of any size
        passes through bounded memory; many shards are written by all workers; the parts of one shard one by one."""
        if isinstance(flow.data, ChunkData) and not flow.operators:
            yield from self._as_they_are(flow.data, columns)
            return
        if isinstance(flow.data, SourceData | BlockData):
            for wave in flow.data.waves(self.threads):
                yield from self._collect(step, replace(flow, data=wave), columns, "output")[0]
            return
        if flow.data.shards > 1 and not self.dry:
            for chunks in self._collect(step, flow, columns, "output"):
                yield from chunks
            return
        if self.dry:
            self._kernel(step, "output", flow, flow.data.empty_source(), lambda: Collect(columns, by_morsel=False))
            return
        start, before = time.perf_counter(), self.shared.rows_done
        for part in flow.data.feed(0):
            pipeline, code = self._kernel(step, "output", flow, part.source, lambda: Collect(columns, by_morsel=False))
            context = self._context(pipeline, code)
            code.run(context, part.morsels)
            yield from take_chunks(context.state_address, columns, self.shared)
            self._close(context)
            self.run.done_rows = self.shared.rows_done
        self._record(step, "output", before, start)
        flow.data.release()

    def _as_they_are(self, data: ChunkData, columns: tuple[OutputColumn, ...]) -> Iterator[Chunk]:
        """Rows that wait in columns already: a result of them needs no kernel."""
        names = [c.name for c in data.columns]
        places = [names.index(c.expr.name) for c in columns]
        for chunk in (c for shard in data.chunks for c in shard):
            self.run.check()
            yield Chunk(chunk.order, chunk.rows, [result_array(chunk.arrays[p], c.type) for p, c in zip(places, columns, strict=True)])

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
            if self.uses.get(id(step), 1) > 1 and not (isinstance(found.data, ChunkData) and not found.operators):
                found = self._collected(step, found)
            self.done[id(step)] = found
        return found

    def _flow(self, step: Step, shards: int) -> Flow:
        match step:
            case Scan():
                return self._scan(step, shards)
            case Values():
                return self._values(step)
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
                return flow.then(kernel_filter.Filter(predicate, selects=step.how == "select"), step.schema)
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
                return self._aggregate(step, flow)
            case Sort():
                return self._sort(step, flow)
            case Limit():
                return self._limit(step, flow)
            case Union():
                return self._union(step, inputs)
            case movement.Rekey():
                return Flow(flow.data, flow.schema, flow.operators, step.key, flow.replicated)
            case movement.Redistribute():
                return self._redistribute(step, flow, step.shards or shards)
            case movement.Reshard():
                return self._reshard(step, flow, step.shards or shards)
            case movement.Broadcast():
                return self._broadcast(step, flow, step.shards or shards)
            case movement.Gather():
                return self._gather(step, flow, self._rows_asked(step))
        raise TypeError(f"the local backend has no step {step.op}")

    def _scan(self, step: Scan, shards: int) -> Flow:
        settings = self.run.settings
        if isinstance(step.source, BlockTable):
            data: Dataset = BlockData(step.source, step.columns, step.where, shards, settings.batch_rows)
        else:
            data = SourceData(step.source, step.columns, step.where, shards, settings.batch_rows, self.shared)
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
        return Flow(ChunkData(tuple(c.source() for c in columns), [chunks], self.run.settings.batch_rows), step.schema)

    def _value_row(self, step: Values, number: int, row: tuple[Expr, ...], columns: tuple[OutputColumn, ...]) -> Chunk:
        """A row with computed constants: a projection of one row without columns."""
        one = Flow(ChunkData((), [[Chunk((0,), 1, [])]]), Schema(()))
        one, expressions = self._host_calls(step, one, row)
        computed = tuple(OutputColumn(c.name, e) for c, e in zip(columns, expressions, strict=True))
        return Chunk((number,), 1, self._collect(step, one, computed, f"row {number}")[0][0].arrays)

    def _aggregate(self, step: Aggregate, flow: Flow) -> Flow:
        if not step.absorbs:
            flow, by, calls = self._host_arguments(step, flow)
        else:
            by, calls = step.by, step.calls
        equal = self.run.settings.equal_hashes
        # Where rows are multiplied the dataset's number of rows bounds nothing.
        multiplied = any(o.multiplies for o in flow.operators)

        def grouping() -> Grouping:
            return Grouping(by, calls, step.phase, None if multiplied else flow.data.rows, equal)

        def make() -> AggregateSink:
            return make_sink(grouping(), dense)

        dense = bool(by) and not equal and self._is_dense(flow, grouping())
        if step.phase == "partial":
            flow = self._coalesced(flow)
        expected = 0 if dense or not by else self._expected_groups(step, flow)
        states = self._run(step, "", flow, make, expected=expected)
        return Flow(GroupData(states[0][0], [c for _, c in states], self.shared, flow.data), step.schema)

    def _expected_groups(self, step: Aggregate, flow: Flow) -> int:
        """Groups per shard: the planner's estimate, held down by the rows that there are."""
        if not step.groups:
            return 0
        shards = 1 if step.phase == "partial" else flow.data.shards
        rows = flow.data.rows if flow.data.rows is not None else step.groups
        return min(step.groups // shards, rows // flow.data.shards + 1)

    def _is_dense(self, flow: Flow, grouping: Grouping) -> bool:
        """Whether the keys, as they reach the sink, have few known values; found by a dry run over them."""
        answers: list[bool] = []

        class Probe(Sink):
            needs_probe = True

            def probe(self, k: PipelineKernel, row: Any) -> None:
                grouping.calls = ()
                grouping.probe(k, row)
                answers.append(is_dense(grouping.fields))

        Pipeline(flow.data.empty_source(), flow.operators, Probe())._probe()
        return answers[0]

    def _union(self, step: Union, inputs: list[Flow]) -> Flow:
        shards = max(f.data.shards for f in inputs)
        lists: list[list[Chunk]] = [[] for _ in range(shards)]
        columns = self._output_columns(step.schema)
        for number, flow in enumerate(inputs):
            renamed = tuple(OutputColumn(c.name, Column(f.name, f.type, f.nullable)) for c, f in zip(columns, flow.schema, strict=True))
            for shard, chunks in enumerate(self._collect(step, flow, renamed, f"input {number}")):
                lists[shard] += chunks
        return Flow(ChunkData(tuple(c.source() for c in columns), lists, self.run.settings.batch_rows), step.schema)

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
        asked = [(self._constant(u.count), self._constant(u.offset) or 0) for u in users if isinstance(u, Limit) and not u.is_percentage]
        known = len(asked) == len(users) and asked and all(count is not None for count, _ in asked)
        return max(count + offset for count, offset in asked) if known else None

    def _limit(self, step: Limit, flow: Flow) -> Flow:
        count, offset = self._constant(step.count), self._constant(step.offset) or 0
        wanted = None if count is None or step.is_percentage else count + offset
        collected = self._collected(step, flow, min(wanted, 2**62) if wanted is not None else None)
        if step.is_percentage and count is not None:
            if not count <= 100:
                raise ExecutionError("Limit percent out of range, should be between 0% and 100%", position=getattr(step.count, "position", None))
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
        return Flow(ChunkData(collected.data.columns, [kept], self.run.settings.batch_rows), step.schema)

    def _sort(self, step: Sort, flow: Flow) -> Flow:
        flow, expressions = self._host_calls(step, flow, tuple(k.expr for k in step.keys))
        keys = tuple(SortKey(e, k.descending, k.nulls_first) for e, k in zip(expressions, step.keys, strict=True))
        limit = self._constant(step.limit)
        if step.limit is not None and limit is not None and limit <= LARGEST:
            flow = self._top(step, flow, keys, limit)
        if step.phase == "partial":
            return flow
        columns = self._output_columns(step.schema)
        extra = tuple(OutputColumn(f"#key{i}", k.expr) for i, k in enumerate(keys) if not isinstance(k.expr, Column))
        chunks = [c for one in self._collect(step, flow, (*columns, *extra), "rows") for c in one]
        if not chunks:
            return self._chunk_flow(columns, [[]], Flow(flow.data, step.schema))
        # One copy in one piece, one in order, and the indices while they are made.
        rows, bytes = sum(c.rows for c in chunks), sum(a.nbytes for c in chunks for a in c.arrays)
        working = 8 * rows * (len(keys) + 1)
        self._reserve(2 * bytes)
        self.shared.reserve(working)
        arrays = [combine([c.arrays[i] for c in chunks]) for i in range(len(columns) + len(extra))]
        del chunks
        names = [c.name for c in (*columns, *extra)]
        by_name = dict(zip(names, arrays, strict=True))
        key_arrays = [by_name[k.expr.name if isinstance(k.expr, Column) else f"#key{i}"] for i, k in enumerate(keys)]
        order = pa.array(sort_indices(list(zip(key_arrays, keys, strict=True))))
        if limit is not None:
            order = order.slice(0, limit)
        self.run.check()
        ordered = [a.take(order) for a in arrays[: len(columns)]]
        self.shared.release(working)
        return self._chunk_flow(columns, [[Chunk((0,), len(order), ordered)]], Flow(flow.data, step.schema))

    def _top(self, step: Sort, flow: Flow, keys: tuple[SortKey, ...], limit: int) -> Flow:
        """The first rows of each shard, by heaps; they come out in no order."""
        columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in flow.schema)
        states = self._run(step, f"top {limit}", flow, lambda: Top(columns, keys, limit))
        return Flow(TopData(states[0][0], [c for _, c in states], self.shared), flow.schema)

def combine(arrays: list[pa.Array]) -> pa.Array:
    """One array of many."""
    if len(arrays) == 1:
        return arrays[0]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        raise ExecutionError(f"the strings to sort are too long together: {error}", hint="sort fewer rows, or by a key without the long column") from error


__all__ = ["Executor", "Flow", "Kernels"]
