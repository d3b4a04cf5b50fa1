"""Runs a physical plan on the threads of this process: steps become pipelines, pipelines become kernels, shards become tasks.

In: a plan (or a part of one, with `inputs` standing in for steps that were cut off). Out: datasets, and for the root Arrow
batches. A `Flow` is a dataset with operators that wait for a sink: filters and projections cost no pass of their own.
Memory of a dataset is freed as soon as its consumer has run. Any failure stops all workers and is raised in the caller.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.local import hostcalls
from tsql.backends.local.constants import constant_array
from tsql.backends.local.dataset import BlockData, ChunkData, CoalescedData, Dataset, GroupData, Part, SourceData, TopData, free_state, presize_table
from tsql.backends.local.host import Chunk, Code, Context, Shared, take_chunks
from tsql.backends.local.sorting import sort_indices
from tsql.backends.local.workers import parallel
from tsql.kernels.aggregates.bodies import plain_body
from tsql.kernels.batch import Morsels, SourceColumn
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.codegen.llvm import FULL, QUICK
from tsql.kernels.constant import evaluate_with
from tsql.kernels.context import PipelineKernel
from tsql.kernels.errors import ExecutionError
from tsql.kernels.expr import Call, Case, Cast, Column, Expr, InList, Literal, Parameter, SortKey
from tsql.kernels.functions.registry import SCALARS
from tsql.kernels.operators import expand as kernel_expand
from tsql.kernels.operators import filter as kernel_filter
from tsql.kernels.operators import project as kernel_project
from tsql.kernels.operators import replicate as kernel_replicate
from tsql.kernels.operators.aggregate import AggregateSink, Grouping, ScalarAggregate, is_dense, make_sink
from tsql.kernels.operators.collect import Collect, OutputColumn
from tsql.kernels.operators.partition import Partition
from tsql.kernels.operators.top import LARGEST, Top
from tsql.kernels.pipeline import Operator, Pipeline, Sink
from tsql.kernels.schema import Field, Schema
from tsql.planner import movement
from tsql.planner.operators.aggregate import Aggregate
from tsql.planner.operators.expand import Expand
from tsql.planner.operators.filter import Filter
from tsql.planner.operators.limit import Limit
from tsql.planner.operators.project import Project
from tsql.planner.operators.replicate import Replicate
from tsql.planner.operators.scan import Scan
from tsql.planner.operators.sort import Sort
from tsql.planner.operators.union import Union
from tsql.planner.operators.values import Values
from tsql.planner.step import PhysicalPlan, Step


@dataclass
class Flow:
    """A dataset and the operators that its rows still pass through; `schema` is that of the rows behind them."""

    data: Dataset
    schema: Schema
    operators: list[Operator] = field(default_factory=list)
    key: tuple[str, ...] | None = None
    replicated: bool = False

    def then(self, operator: Operator, schema: Schema) -> Flow:
        return Flow(self.data, schema, [*self.operators, operator], self.key, self.replicated)


class Kernels:
    """The kernels of one plan, kept between its runs: by step and by layout of the source."""

    def __init__(self) -> None:
        self.made: dict[Any, tuple[Pipeline, Code]] = {}
        self.lock = threading.Lock()
        self.compile_ms = 0.0


class Executor:
    """One run of one plan."""

    def __init__(self, run: Run, kernels: Kernels | None = None, interpret: bool = False, inputs: dict[int, Dataset | Flow] | None = None, dry: bool = False):
        self.run, self.kernels, self.interpret, self.dry = run, kernels or Kernels(), interpret, dry
        self.inputs = inputs or {}
        self.shared = Shared(run)
        self.threads = 1 if interpret else run.settings.threads or os.cpu_count() or 1
        self.done: dict[int, Flow] = {}
        self.uses: dict[int, int] = {}
        self.users: dict[int, list[Step]] = {}
        self.pipelines: list[tuple[Step, Pipeline]] = []
        self.states: dict[int, tuple[Sink, Context]] = {}
        self.reserved = 0

    def close(self) -> None:
        """Free what a run that has failed, or was left early, still holds. No worker runs any more."""
        while self.states:
            free_state(*self.states.popitem()[1], self.shared)
        self.shared.release(self.reserved)
        self.reserved = 0

    def _reserve(self, bytes: int) -> None:
        """Account for arrays that a library makes; they count until the run ends."""
        self.shared.reserve(bytes)
        self.reserved += bytes

    # results

    def batches(self, plan: PhysicalPlan) -> Iterator[pa.RecordBatch]:
        """The result, batch by batch."""
        for step in plan.root.walk():
            for child in step.inputs:
                self.uses[id(child)] = self.uses.get(id(child), 0) + 1
                self.users.setdefault(id(child), []).append(step)
        root = plan.root
        flow = self.flow(root.inputs[0] if isinstance(root, movement.Gather) else root, plan.shards)
        if isinstance(root, movement.Gather) and (self.dry or not isinstance(flow.data, SourceData | BlockData)):
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
        passes through bounded memory; other datasets are one shard, whose parts are done one by one."""
        if isinstance(flow.data, SourceData | BlockData):
            for wave in flow.data.waves(self.threads):
                yield from self._collect(step, replace(flow, data=wave), columns, "output")[0]
            return
        if self.dry:
            self._kernel(step, "output", flow, flow.data.empty_source(), lambda: Collect(columns))
            return
        start, before = time.perf_counter(), self.shared.rows_done
        for part in flow.data.feed(0) if flow.data.shards == 1 else self._all_parts(flow.data):
            pipeline, code = self._kernel(step, "output", flow, part.source, lambda: Collect(columns))
            context = self._context(pipeline, code)
            code.run(context, part.morsels)
            yield from take_chunks(context.state_address, columns, self.shared)
            self._close(context)
            self.run.done_rows = self.shared.rows_done
        self._record(step, "output", before, start)
        flow.data.release()

    def _all_parts(self, data: Dataset) -> Iterator[Part]:
        for shard in range(data.shards):
            yield from data.feed(shard)

    # kernels and tasks

    def _kernel(self, step: Step, role: str, flow: Flow, source: Any, make: Callable[[], Sink]) -> tuple[Pipeline, Code]:
        """The kernel of a step for a layout of its source; made on first use, and kept with the plan."""
        signature = (id(step), role, source.columns, type(source), getattr(source, "stable", False))
        with self.kernels.lock:
            found = self.kernels.made.get(signature)
            if found is None:
                sink = make()
                operators = self._masked(flow.operators, sink)
                pipeline = Pipeline(source, operators, sink, f"{step.name} {role}".strip())
                start = time.perf_counter()
                rows = flow.data.rows
                small = rows is not None and rows <= self.run.settings.small_rows
                code = Code(pipeline.emit(), self.interpret, QUICK if small else FULL)
                self.kernels.compile_ms += (time.perf_counter() - start) * 1000
                found = self.kernels.made[signature] = (pipeline, code)
        if all(p is not found[0] for _, p in self.pipelines):
            self.pipelines.append((step, found[0]))
        return found

    def _masked(self, operators: list[Operator], sink: Sink) -> list[Operator]:
        """Filters before an aggregate of one group need no branches if everything is plain arithmetic."""
        if not isinstance(sink, ScalarAggregate) or sink.grouping.absorbs:
            return operators
        expressions: list[Expr] = [e for _, c in sink.grouping.calls for e in c.expressions()]
        for operator in operators:
            if isinstance(operator, kernel_filter.Filter):
                expressions.append(operator.predicate)
            elif isinstance(operator, kernel_project.Project):
                expressions += operator.columns.values()
            else:
                return operators
        if not all(is_plain(e) for e in expressions) or any(c.distinct for _, c in sink.grouping.calls):
            return operators
        return [kernel_filter.Filter(o.predicate, masked=True) if isinstance(o, kernel_filter.Filter) else o for o in operators]

    def _context(self, pipeline: Pipeline, code: Code, state: Any = None) -> Context:
        """A context whose state (a new one, unless given) is freed by the time the run ends."""
        context = Context(code.program, self.shared, pipeline.sink.state_bytes, state)
        self.states[id(context)] = (pipeline.sink, context)
        return context

    def _close(self, context: Context) -> None:
        """Free a context whose state holds nothing any more."""
        self.states.pop(id(context), None)
        context.close()

    def _run(
        self, step: Step, role: str, flow: Flow, make: Callable[[], Sink], take: Callable[[Sink, Context, Part, int], None] | None = None, expected: int = 0
    ) -> list[tuple[Sink, Context]]:
        """Run a pipeline on every shard of the flow's dataset; returns each shard's sink and context.

        `take` is called after each part, to move what the sink holds out of its state. `expected` is a guess of the number
        of groups that a hash table of the sink will hold.
        """
        ctypes.c_int64.from_address(self.shared.address + 24).value = 0

        def work(shard: int) -> tuple[Sink, Context]:
            pipeline, code, context = None, None, None
            opened: list[Context] = []
            for part in () if self.dry else flow.data.feed(shard):
                self.run.check()
                pipeline, code = self._kernel(step, role, flow, part.source, make)
                if context is None or context.program is not code.program:
                    context = self._context(pipeline, code, opened[0].state if opened else None)
                    if expected and not opened:
                        presize_table(context.state_address, expected, self.shared)
                    opened.append(context)
                if part.counter is not None:
                    context.share_counter(part.counter)
                else:
                    context.counter.value = 0
                code.run(context, part.morsels)
                self.run.done_rows = self.shared.rows_done
                if take is not None:
                    take(pipeline.sink, context, part, shard)
                    if self._limit_reached(pipeline.sink):
                        break
            if context is None:
                source = flow.data.empty_source()
                pipeline, code = self._kernel(step, role, flow, source, make)
                context = self._context(pipeline, code)
                code.run(context, Morsels(len(source.columns)))
                if take is not None:
                    take(pipeline.sink, context, Part(source, Morsels(0)), shard)
            for other in opened:
                if other is not context:
                    # They share one state, which goes with the context that is returned.
                    other.owns_state, context.owns_state = False, context.owns_state or other.owns_state
                    self._close(other)
            return pipeline.sink, context

        start, before = time.perf_counter(), self.shared.rows_done
        results = parallel(work, flow.data.shards, self.threads, self.run)
        self._record(step, role, before, start)
        self._release(flow)
        return results

    def _coalesced(self, flow: Flow) -> Flow:
        """The same rows in no more tasks than threads, where it does not matter which shard a row is in."""
        if flow.data.shards <= self.threads or isinstance(flow.data, BlockData | SourceData):
            return flow
        return replace(flow, data=CoalescedData(flow.data, self.threads))

    def _record(self, step: Step, role: str, before: int, start: float) -> None:
        """What `explain ANALYZE` shows of a pipeline: the rows that went in and the time it took."""
        self.run.steps[f"{step.name} {role}".strip()] = {"rows": self.shared.rows_done - before, "ms": (time.perf_counter() - start) * 1000}

    def _limit_reached(self, sink: Sink) -> bool:
        limit = getattr(sink, "limit", None)
        return limit is not None and ctypes.c_int64.from_address(self.shared.address + 24).value >= limit

    def _release(self, flow: Flow) -> None:
        owner = [s for s, f in self.done.items() if f.data is flow.data]
        if all(self.uses.get(s, 1) <= 1 for s in owner):
            flow.data.release()

    # steps

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
        inputs = [self.flow(i, shards) for i in step.inputs]
        flow = inputs[0]
        match step:
            case Filter():
                flow, (predicate,) = self._host_calls(step, flow, (step.predicate,))
                return flow.then(kernel_filter.Filter(predicate), step.schema)
            case Project():
                flow, expressions = self._host_calls(step, flow, tuple(e for _, e in step.columns))
                columns = tuple((n, e) for (n, _), e in zip(step.columns, expressions, strict=True))
                return flow.then(kernel_project.Project(columns), step.schema)
            case Expand():
                return flow.then(kernel_expand.Expand(step.keys, step.sets), step.schema)
            case Replicate():
                return flow.then(kernel_replicate.Replicate(step.times), step.schema)
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
                return self._gather(step, flow)
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
        # Expansion and replication multiply rows, so the dataset's number of rows bounds nothing behind them.
        multiplied = any(isinstance(o, kernel_expand.Expand | kernel_replicate.Replicate) for o in flow.operators)

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

    def _collect(self, step: Step, flow: Flow, columns: tuple[OutputColumn, ...], role: str, limit: int | None = None) -> list[list[Chunk]]:
        """Collect the flow's rows; one ordered list of chunks per shard, or all in the first if the shards share their input."""
        flow = self._coalesced(flow)
        lists: list[list[Chunk]] = [[] for _ in range(flow.data.shards)]

        def take(sink: Sink, context: Context, part: Part, shard: int) -> None:
            for chunk in take_chunks(context.state_address, columns, self.shared):
                chunk.order = (*part.order, *chunk.order)
                lists[shard].append(chunk)

        for _, context in self._run(step, role, flow, lambda: Collect(columns, limit), take):
            self._close(context)
        if isinstance(flow.data, BlockData | SourceData | CoalescedData):
            return [sorted((c for one in lists for c in one), key=lambda c: c.order)]
        return lists

    def _output_columns(self, schema: Schema) -> tuple[OutputColumn, ...]:
        return tuple(OutputColumn(f.name, Column(f.name, f.type, f.nullable)) for f in schema)

    def _collected(self, step: Step, flow: Flow, limit: int | None = None) -> Flow:
        """The flow with its operators run; a shared input (a scan) is dealt out to as many shards as it had."""
        if isinstance(flow.data, ChunkData) and not flow.operators:
            return flow
        columns = self._output_columns(flow.schema)
        lists = self._collect(step, flow, columns, "collect" if limit is None else f"collect {limit}", limit)
        shards = flow.data.shards
        if len(lists) < shards:
            dealt: list[list[Chunk]] = [[] for _ in range(shards)]
            for number, chunk in enumerate(lists[0]):
                dealt[number * shards // len(lists[0])].append(chunk)
            lists = dealt
        return self._chunk_flow(columns, lists, flow)

    def _chunk_flow(self, columns: tuple[OutputColumn, ...], lists: list[list[Chunk]], flow: Flow) -> Flow:
        sources: tuple[SourceColumn, ...] = tuple(c.source() for c in columns)
        return Flow(ChunkData(sources, lists, self.run.settings.batch_rows), flow.schema, [], flow.key, flow.replicated)

    def _gather(self, step: Step, flow: Flow, limit: int | None = None) -> Flow:
        if isinstance(flow.data, GroupData):
            merged = GroupData(flow.data.sink, flow.data.states, self.shared, flow.data.origin, merged=True)
            return Flow(merged, flow.schema, flow.operators, flow.key)
        collected = self._collected(step, flow, limit)
        lists = collected.data.chunks
        chunks = lists[0] if flow.replicated else [c for one in lists for c in one]
        return Flow(ChunkData(collected.data.columns, [chunks], self.run.settings.batch_rows), flow.schema, [], flow.key)

    def _redistribute(self, step: Step, flow: Flow, shards: int) -> Flow:
        columns = self._output_columns(flow.schema)
        key = tuple(Column(c, flow.schema[c].type, flow.schema[c].nullable) for c in flow.key)
        lists: list[list[Chunk]] = [[] for _ in range(shards)]
        lock = threading.Lock()
        flow = self._coalesced(flow)
        per_shard = None if flow.data.rows is None else flow.data.rows // (shards * flow.data.shards)

        def take(sink: Sink, context: Context, part: Part, shard: int) -> None:
            for target in range(shards):
                chunks = take_chunks(context.state_address + target * sink.shard_bytes, columns, self.shared)
                for chunk in chunks:
                    chunk.order = (*part.order, *chunk.order)
                with lock:
                    lists[target] += chunks

        for _, context in self._run(step, "", flow, lambda: Partition(columns, key, shards, self.run.settings.equal_hashes, self._keeps_order(step), per_shard), take):
            self._close(context)
        for one in lists:
            one.sort(key=lambda c: c.order)
        return self._chunk_flow(columns, lists, flow)

    def _keeps_order(self, step: Step) -> bool:
        """Whether a consumer of a redistribution depends on the order of rows; most aggregates do not."""
        users = self.users.get(id(step), [])
        return not users or not all(isinstance(u, Aggregate) and not any(plain_body(c).wants_position for _, c in u.calls) for u in users)

    def _reshard(self, step: Step, flow: Flow, shards: int) -> Flow:
        collected = self._collected(step, flow)
        dealt: list[list[Chunk]] = [[] for _ in range(shards)]
        for number, chunk in enumerate(c for one in collected.data.chunks for c in one):
            dealt[number % shards].append(chunk)
        return Flow(ChunkData(collected.data.columns, dealt, self.run.settings.batch_rows), flow.schema, [], flow.key)

    def _broadcast(self, step: Step, flow: Flow, shards: int) -> Flow:
        collected = self._collected(step, flow)
        chunks = [c for one in collected.data.chunks for c in one]
        return Flow(ChunkData(collected.data.columns, [chunks] * shards, self.run.settings.batch_rows), flow.schema, [], flow.key, replicated=True)

    def _union(self, step: Union, inputs: list[Flow]) -> Flow:
        shards = max(f.data.shards for f in inputs)
        lists: list[list[Chunk]] = [[] for _ in range(shards)]
        columns = self._output_columns(step.schema)
        for number, flow in enumerate(inputs):
            renamed = tuple(OutputColumn(c.name, Column(f.name, f.type, f.nullable)) for c, f in zip(columns, flow.schema, strict=True))
            for shard, chunks in enumerate(self._collect(step, flow, renamed, f"input {number}")):
                lists[shard] += chunks
        return Flow(ChunkData(tuple(c.source() for c in columns), lists, self.run.settings.batch_rows), step.schema)

    def _constant(self, expr: Expr | None) -> int | None:
        """The value of a LIMIT or OFFSET."""
        if expr is None:
            return None
        value = evaluate_with(expr, self.run.parameters)
        if value is not None and value < 0:
            raise ExecutionError("LIMIT and OFFSET cannot be negative", position=getattr(expr, "position", None))
        return value

    def _limit(self, step: Limit, flow: Flow) -> Flow:
        count, offset = self._constant(step.count), self._constant(step.offset) or 0
        wanted = None if count is None else count + offset
        collected = self._collected(step, flow, min(wanted, 2**62) if wanted is not None else None)
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

    # host functions

    def _host_calls(self, step: Step, flow: Flow, expressions: tuple[Expr, ...]) -> tuple[Flow, tuple[Expr, ...]]:
        """Compute host functions batch by batch; the expressions come back with columns in their place."""
        while calls := hostcalls.innermost(expressions):
            names = {call: f"#host{len(flow.schema)}_{i}" for i, call in enumerate(calls)}
            flow = self._host_columns(step, flow, names)
            expressions = tuple(hostcalls.replace_calls(e, names) for e in expressions)
        return flow, expressions

    def _host_columns(self, step: Step, flow: Flow, names: dict[Call, str]) -> Flow:
        columns = self._output_columns(flow.schema)
        arguments, places = hostcalls.arguments(list(names))
        extra = tuple(OutputColumn(f"#argument{i}", e, True, True) for i, e in enumerate(arguments))
        lists = self._collect(step, flow, (*columns, *extra), f"arguments {len(flow.schema)}")
        added = tuple(OutputColumn(n, Column(n, call.type)) for call, n in names.items())
        for chunks in lists:
            for chunk in chunks:
                self.run.check()
                values = chunk.arrays[len(columns) :]
                results = [hostcalls.compute(call, places[i], values, chunk.rows, self.run.parameters) for i, call in enumerate(names)]
                self._reserve(sum(r.nbytes for r in results))
                chunk.arrays = chunk.arrays[: len(columns)] + results
        fields = Schema((*flow.schema.fields, *(Field(c.name, c.type) for c in added)))
        result = self._chunk_flow((*columns, *added), lists, flow)
        result.schema = fields
        return result

    def _host_arguments(self, step: Aggregate, flow: Flow) -> tuple[Flow, Any, Any]:
        """An aggregate's keys and arguments without host functions."""
        expressions = [e for _, e in step.by]
        for _, call in step.calls:
            expressions += call.expressions()
        flow, rewritten = self._host_calls(step, flow, tuple(expressions))
        if all(a is b for a, b in zip(expressions, rewritten, strict=True)):
            return flow, step.by, step.calls
        left = list(rewritten)
        by = tuple((n, left.pop(0)) for n, _ in step.by)
        calls = []
        for name, call in step.calls:
            args = tuple(left.pop(0) for _ in call.args)
            condition = left.pop(0) if call.filter is not None else None
            order = tuple(SortKey(left.pop(0), k.descending, k.nulls_first) for k in call.order)
            calls.append((name, replace(call, args=args, filter=condition, order=order)))
        return flow, by, tuple(calls)


def combine(arrays: list[pa.Array]) -> pa.Array:
    """One array of many."""
    if len(arrays) == 1:
        return arrays[0]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        raise ExecutionError(f"the strings to sort are too long together: {error}", hint="sort fewer rows, or by a key without the long column") from error


def is_plain(expr: Expr) -> bool:
    """Arithmetic, comparisons and logic over fixed-width values: nothing that needs a branch or a call."""
    for node in expr.walk():
        match node:
            case Column() | Literal() | Parameter():
                if node.type.is_string or node.type.name == "INTERVAL":
                    return False
            case Call():
                f = SCALARS.find(node.name, tuple(a.type for a in node.args))
                if f.lazy or f.emit is None:
                    return False
            case Cast():
                if node.type.is_string or node.arg.type.is_string or node.safe:
                    return False
            case Case():
                return False
            case InList():
                if len(node.options) > 8:
                    return False
    return True

