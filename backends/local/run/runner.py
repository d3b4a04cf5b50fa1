"""Runs pipelines: finds or makes the kernel of each, gives every shard a task, and collects what sinks leave behind.

A `Flow` is a dataset with operators that wait for a sink: filters and projections cost no pass of their own. Kernels
are kept with the plan (`Kernels`), by step and by the layout of their source. Memory of a dataset is freed as soon as
its consumer has run. Any failure stops all workers and is raised in the caller."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tsql.backends import Run
from tsql.backends.local.run.dataset import (
    BlockData,
    ChunkData,
    CoalescedData,
    Dataset,
    Part,
    SourceData,
    end_chunks,
    free_state,
    presize_table,
)
from tsql.backends.local.run.host import Code, Context, Full, Shared, take_chunks
from tsql.backends.local.run.late_decoding import read_late
from tsql.backends.local.run.repeat import KernelCall, Recorder, Recording
from tsql.backends.local.run.workers import parallel
from tsql.backends.local.spill.spill import AnyChunk, Spill, Store
from tsql.kernels.codegen.llvm import FULL, QUICK, TIERED
from tsql.kernels.emit.batch import Morsels, SourceColumn
from tsql.kernels.emit.context import Slot
from tsql.kernels.emit.pipeline import Operator, Pipeline, Sink
from tsql.kernels.emit.selection import is_plain
from tsql.kernels.expr.errors import OutOfMemoryError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.operators import filter as kernel_filter
from tsql.kernels.operators import project as kernel_project
from tsql.kernels.operators.aggregate.groups import ScalarAggregate
from tsql.kernels.operators.collect import Collect, OutputColumn, columns_of
from tsql.kernels.operators.partition import Partition
from tsql.kernels.process import forks, garbage
from tsql.kernels.process.cores import CORES
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.step import Step

FULL_ROWS = 4_000_000
"""Up to so many rows a first run is better off with code that is made quickly."""

Take = Callable[[Sink, Context, Part, int], None]


@dataclass
class Flow:
    """A dataset and the operators that its rows still pass through; `schema` is that of the rows behind them."""

    data: Dataset
    schema: Schema
    operators: list[Operator] = field(default_factory=list)
    replicated: bool = False
    """Whether every shard has all rows: then the data are chunks, the same ones in each."""

    def then(self, operator: Operator, schema: Schema) -> Flow:
        return Flow(self.data, schema, [*self.operators, operator], self.replicated)


def row_bound(rows: int | None) -> int | None:
    """A number of rows that kernels are made for: no less than there are, and the same for most runs of a plan."""
    return None if rows is None else (1 << rows.bit_length()) - 1


@dataclass
class Attempt:
    """Whether work had to be given up."""

    failed: bool = False


class Kernels:
    """The kernels of one plan, kept between its runs: by step and by layout of the source."""

    def __init__(self) -> None:
        self.made: dict[Any, tuple[Pipeline, Code]] = {}
        self.last: dict[tuple[int, str], tuple[Any, Any, tuple[Pipeline, Code]]] = {}
        """The kernel that a step has used last, with the columns of its source and the rest of its signature."""
        self.variants: dict[Any, Step] = {}
        self.filters: dict[int, kernel_filter.Filter] = {}
        self.dense: dict[Any, bool] = {}
        self.lock = forks.lock()
        self.compile_ms = 0.0
        self.runs = 0
        self.recording: Recording | None = None
        """The calls of the plan, once they are known to be the same in each run."""


@dataclass
class Task:
    """A pipeline on one shard; see `PipelineRunner._run`."""

    runner: PipelineRunner
    step: Step
    role: str
    flow: Flow
    make: Callable[[], Sink]
    shard: int
    take: Take | None = None
    expected: int = 0
    full_at: int | None = None

    feed: Iterator[Part] | None = None
    part: Part | None = None
    source: Any = None
    pipeline: Pipeline | None = None
    code: Code | None = None
    context: Context | None = None
    opened: list[Context] = field(default_factory=list)
    done: list[Morsels] = field(default_factory=list)
    """The parts that have been run."""

    def prepare(self) -> None:
        """Have the first part ready to run."""
        self.feed = self.flow.data.feed(self.shard)
        self._next()

    def run(self) -> tuple[Sink, Context]:
        """Run the pipeline on all parts, in this thread."""
        runner = self.runner
        if self.feed is None:
            self.prepare()
        with closing(self.feed):
            while self.part is not None:
                try:
                    self.code.run(self.context, self.part.morsels)
                finally:
                    self.context.let_go()
                runner.run.done_rows = max(runner.run.done_rows, runner.shared.rows_done)
                if runner.recorder is not None:
                    self.done.append(self.part.morsels)
                if self.take is not None:
                    self.take(self.pipeline.sink, self.context, self.part, self.shard)
                    if runner._limit_reached(self.pipeline.sink):
                        break
                self.part = None
                self._next()
        if self.context is None:
            self._run_empty()
        return self._result()

    def _next(self) -> None:
        """Have the next part ready to run, if there is one."""
        runner = self.runner
        self.part = None if runner.dry else next(self.feed, None)
        if self.part is None:
            return
        runner.run.check()
        before = self.pipeline
        if self.part.source is not self.source:
            self.pipeline, self.code = runner._kernel(self.step, self.role, self.flow, self.part.source, self.make)
            self.source = self.part.source
        if self.context is None or self.context.program is not self.code.program:
            if before is not None and isinstance(before.sink, Partition):
                end_chunks(before.sink, self.context)
            self.context = runner._context(
                self.pipeline, self.code, self.opened[0].state if self.opened else None, self.shard
            )
            if self.expected and not self.opened:
                presize_table(self.context, self.expected, runner.shared)
            self.opened.append(self.context)
        if runner.spill.active:
            take = (
                None
                if self.take is None
                else partial(self.take, self.pipeline.sink, self.context, self.part, self.shard)
            )
            self.context.limit(self.full_at, runner.spill.room(), take)
        if self.part.counter is not None:
            self.context.share_counter(self.part.counter)
        else:
            self.context.counter.value = 0

    def call(self) -> KernelCall | None:
        """The one call of a kernel that this was, if it was one."""
        return (
            KernelCall(self.code, self.context, self.done[0], self.pipeline.sink)
            if len(self.done) == len(self.opened) == 1
            else None
        )

    def _run_empty(self) -> None:
        source = self.flow.data.empty_source()
        self.pipeline, self.code = self.runner._kernel(self.step, self.role, self.flow, source, self.make)
        self.context = self.runner._context(self.pipeline, self.code, None, self.shard)
        self.code.run(self.context, Morsels(len(source.columns)))
        if self.take is not None:
            self.take(self.pipeline.sink, self.context, Part(source, Morsels(0)), self.shard)

    def _result(self) -> tuple[Sink, Context]:
        context = self.context
        for other in self.opened:
            if other is not context:
                # They share one state, which goes with the context that is returned.
                other.owns_state, context.owns_state = False, context.owns_state or other.owns_state
                context.add_taken(other.taken)
                self.runner._close(other)
        if self.full_at is not None and context.taken > self.full_at:
            raise Full(str(self.runner.shared.out_of_memory()))
        return self.pipeline.sink, context


class PipelineRunner:
    """The part of a run that knows pipelines but not plans. `task` is its number where several processes run the same
    steps."""

    def __init__(
        self,
        run: Run,
        kernels: Kernels | None = None,
        interpret: bool = False,
        inputs: dict[int, Dataset | Flow] | None = None,
        dry: bool = False,
        task: int = 0,
    ):
        self.run, self.kernels, self.interpret, self.dry, self.task = run, kernels or Kernels(), interpret, dry, task
        self.inputs = {} if inputs is None else inputs
        self.shared = Shared(run)
        self.threads = 1 if interpret else run.settings.threads or CORES
        self.done: dict[int, Flow] = {}
        self.uses: dict[int, int] = {}
        self.users: dict[int, list[Step]] = {}
        self.hands_out_shards = False
        """Whether the shards of the last step are read by others, who expect rows where their hashes place them."""
        self.pipelines: list[tuple[Step, Pipeline]] = []
        self.listed: set[int] = set()
        self.states: dict[int, tuple[Sink, Context]] = {}
        self.tables: dict[str, Any] = {}
        self.counters: dict[str | tuple[str], list[ctypes.c_int64]] = {}
        """What kernels count: rows by the name of their step (for `explain ANALYZE`), and under (text,) rows that the
        user should hear of."""
        self.kept_joins: dict[int, Any] = {}
        self.kept_states: set[int] = set()
        self.recorder: Recorder | None = None
        self.spill = Spill(run, self.shared, self.threads)

    def tell(self) -> None:
        """Hand what the kernels have counted to the run, once they are done."""
        for name, words in self.counters.items():
            rows = sum(word.value for word in words)
            if isinstance(name, tuple):
                self.run.count(name[0], rows)
            else:
                self.run.rows_of[name] = rows

    def close(self) -> None:
        """Free what a run that has failed, or was left early, still holds. No worker runs any more."""
        for _, code in list(self.kernels.made.values()):
            code.improve()
        while self.states:
            free_state(*self.states.popitem()[1], self.shared)
        while self.tables:
            self.tables.popitem()[1].release()
        self.done.clear()
        for name, bytes in self.spill.written.items():
            self.run.steps.setdefault(name, {"rows": 0, "ms": 0.0})["spilled"] = bytes
        self.spill.close()

    def _kernel(
        self, step: Step, role: str, flow: Flow, source: Any, make: Callable[[], Sink]
    ) -> tuple[Pipeline, Code]:
        """The kernel of a step for a layout of its source; made on first use, and kept with the plan."""
        rest = (
            type(source),
            getattr(source, "stable", False),
            getattr(source, "signature", None),
            tuple([o.signature for o in flow.operators]),
        )
        if isinstance(step, Aggregate):
            # Sums are as wide as so many rows need: a later run of the plan may have more.
            rest += (row_bound(flow.data.rows),)
        with self.kernels.lock:
            last = self.kernels.last.get((id(step), role))
            # Hashing the layouts of many columns takes longer than a kernel over few rows.
            if last is not None and last[0] is source.columns and last[1] == rest:
                found = last[2]
            else:
                signature = (id(step), role, source.columns, *rest)
                found = self.kernels.made.get(signature)
                if found is None:
                    found = self.kernels.made[signature] = self._made(step, role, flow, source, make)
                self.kernels.last[id(step), role] = (source.columns, rest, found)
        if id(found[0]) not in self.listed:
            self.listed.add(id(found[0]))
            self.pipelines.append((step, found[0]))
        return found

    def _made(self, step: Step, role: str, flow: Flow, source: Any, make: Callable[[], Sink]) -> tuple[Pipeline, Code]:
        sink = make()
        pipeline = Pipeline(source, self._masked(flow.operators, sink), sink, f"{step.name} {role}".strip())
        start = time.perf_counter()
        rows, small = flow.data.rows, self.run.settings.small_rows
        level = TIERED if rows is None else QUICK if rows <= small else FULL if rows > FULL_ROWS else TIERED
        with garbage.paused():
            code = Code(pipeline.emit(), self.interpret, level, self.run.check)
        if rows is None:
            # They may be very many: the batches that come once the better code is made run with it.
            code.improve()
        self.kernels.compile_ms += (time.perf_counter() - start) * 1000
        return pipeline, code

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
            elif operator.counts:
                continue
            else:
                return operators
        if not all(is_plain(e) for e in expressions) or any(c.distinct for _, c in sink.grouping.calls):
            return operators
        return [
            kernel_filter.Filter(o.predicate, masked=True) if isinstance(o, kernel_filter.Filter) else o
            for o in operators
        ]

    def _context(self, pipeline: Pipeline, code: Code, state: Any = None, shard: int = 0) -> Context:
        """A context whose state (a new one, unless given) is freed by the time the run ends."""

        def fill(slot: Slot, keep: list[Any]) -> bytes:
            if slot.kind == "count":
                word = ctypes.c_int64(0)
                self.counters.setdefault(slot.payload, []).append(word)
                return struct.pack("<Qq", ctypes.addressof(word), 0)
            return struct.pack("<Qq", self.tables[slot.payload].record(shard), 0)

        context = Context(code.program, self.shared, pipeline.sink.state_bytes, state, fill)
        self.states[id(context)] = (pipeline.sink, context)
        return context

    def _close(self, context: Context) -> None:
        """Free a context whose state holds nothing any more."""
        self.states.pop(id(context), None)
        context.close()

    def _run(
        self,
        step: Step,
        role: str,
        flow: Flow,
        make: Callable[[], Sink],
        take: Take | None = None,
        expected: int = 0,
        full_at: int | None = None,
    ) -> list[tuple[Sink, Context]]:
        """Run a pipeline on every shard of the flow's dataset; returns each shard's sink and context.

        `take` is called after each part, and when a sink holds much, to move what it holds out of its state. `expected`
        is a guess of the number of groups that a hash table of the sink will hold. `full_at`: a worker that takes more
        bytes ends the run with `Full`."""
        ctypes.c_int64.from_address(self.shared.address + 24).value = 0
        start, before = time.perf_counter(), self.shared.rows_done
        # Handing a task to another thread costs more than a few thousand rows do.
        few = flow.data.rows is not None and flow.data.rows <= self.run.settings.small_rows
        read = read_late(self, step, role, flow, make)
        tasks = [
            Task(self, step, role, read, make, shard, take, expected, full_at) for shard in range(flow.data.shards)
        ]
        if flow.data.ready and not few:
            # The interpreter has one lock: workers that only call kernels do not wait for each other.
            for task in tasks:
                task.prepare()
        results = parallel(lambda shard: tasks[shard].run(), len(tasks), 1 if few else self.threads, self.run)
        if self.recorder is not None:
            self.recorder.ran([task.call() for task in tasks])
        self._record(step, role, before, start)
        self._release(flow)
        return results

    @contextmanager
    def _attempt(self, last: bool = False) -> Iterator[Attempt]:
        """Work that may be given up for lack of memory: what it has left is freed, and the workers may go on. The
        caller asks whether it `failed` behind the block, where the failure holds on to nothing any more. `last`:
        nothing else can be tried."""
        attempt, before = Attempt(), set(self.states)
        counted = {name: len(words) for name, words in self.counters.items()}
        try:
            yield attempt
        except OutOfMemoryError:
            attempt.failed = True
            for name, words in self.counters.items():
                for word in words[counted.get(name, 0) :]:
                    word.value = 0  # the rows are read again
            # Tables that serve all rounds of a recursion are looked into by what is tried next, too.
            for key in [k for k in self.states if k not in before and k not in self.kept_states]:
                free_state(*self.states.pop(key), self.shared)
            self.shared.go_on()
            if last:
                raise

    def _coalesced(self, flow: Flow) -> Flow:
        """The same rows in as many tasks as is best for all threads, where it does not matter which shard a row is
        in."""
        if self.dry or any(o.by_shard for o in flow.operators):
            return flow
        few = flow.data.rows is not None and flow.data.rows <= self.run.settings.small_rows
        data = flow.data.spread(1 if few else self.threads)
        return flow if data is flow.data else replace(flow, data=data)

    def _record(self, step: Step, role: str, before: int, start: float) -> None:
        """What `explain ANALYZE` shows of a pipeline: the rows that went in and the time it took."""
        known = self.run.steps.setdefault(f"{step.name} {role}".strip(), {"rows": 0, "ms": 0.0})
        known["rows"] += self.shared.rows_done - before
        known["ms"] += (time.perf_counter() - start) * 1000

    def _limit_reached(self, sink: Sink) -> bool:
        limit = getattr(sink, "limit", None)
        return limit is not None and ctypes.c_int64.from_address(self.shared.address + 24).value >= limit

    def _release(self, flow: Flow) -> None:
        owner = [s for s, f in self.done.items() if f.data is flow.data]
        if all(self.uses.get(s, 1) <= 1 for s in owner):
            flow.data.release()

    def _taken(
        self,
        context: Context,
        columns: tuple[OutputColumn, ...],
        part: Part,
        store: Store,
        writers: int = 1,
        writer_bytes: int = 0,
    ) -> list[list[AnyChunk]]:
        """The chunks of each of the writers of a state, as they are kept."""
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

    def _collect(
        self,
        step: Step,
        flow: Flow,
        columns: tuple[OutputColumn, ...],
        role: str,
        limit: int | None = None,
        store: Store | None = None,
        together: bool = False,
    ) -> list[list[AnyChunk]]:
        """Collect the flow's rows; one ordered list of chunks per shard, or all in the first if the shards share their
        input, or if all rows come `together` anyway: then it does not matter which shard a row was in, and fewer tasks
        do."""
        if (together and flow.data.shards > self.threads) or (limit is None and (together or flow.data.shards == 1)):
            # Rows up to a limit are the first ones, if that costs nothing.
            flow = self._coalesced(flow)
        lists: list[list[AnyChunk]] = [[] for _ in range(flow.data.shards)]
        store = store or self.spill.store(f"{step.name} {role}".strip())
        most = self.spill.chunk_rows(columns)

        def take(sink: Sink, context: Context, part: Part, shard: int) -> None:
            lists[shard] += self._taken(context, columns, part, store)[0]

        for _, context in self._run(step, role, flow, lambda: Collect(columns, limit, flow.data.by_morsel, most), take):
            self._close(context)
        if isinstance(flow.data, BlockData | SourceData | CoalescedData):
            return [sorted((c for one in lists for c in one), key=lambda c: c.order)]
        return lists

    def _collected(self, step: Step, flow: Flow, limit: int | None = None, together: bool = False) -> Flow:
        """The flow with its operators run; a shared input (a scan) is dealt out to as many shards as it had."""
        if isinstance(flow.data, ChunkData) and not flow.operators:
            return flow
        columns = columns_of(flow.schema)
        lists = self._collect(
            step, flow, columns, "collect" if limit is None else f"collect {limit}", limit, together=together
        )
        shards = flow.data.shards
        if len(lists) < shards:
            dealt: list[list[AnyChunk]] = [[] for _ in range(shards)]
            for number, chunk in enumerate(lists[0]):
                dealt[number * shards // len(lists[0])].append(chunk)
            lists = dealt
        return self._chunk_flow(columns, lists, flow)

    def _chunk_flow(self, columns: tuple[OutputColumn, ...], lists: list[list[AnyChunk]], flow: Flow) -> Flow:
        sources: tuple[SourceColumn, ...] = tuple(c.source() for c in columns)
        return Flow(ChunkData(sources, lists, self.spill.morsel_rows()), flow.schema, [], flow.replicated)
