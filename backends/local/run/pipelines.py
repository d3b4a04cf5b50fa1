"""The scheduler: gives every shard of a pipeline a task, and runs the tasks on the threads of the process.

The memory of a dataset is freed as soon as its consumer has run. Any failure stops all workers and is raised in the
caller."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import field, replace
from functools import partial
from typing import Any

from tsql.backends import Run
from tsql.backends.local.run.dataset import Part, end_chunks, presize_table
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Code, Context, Full, Shared
from tsql.backends.local.run.kernels import KernelFinder
from tsql.backends.local.run.late_decoding import read_late
from tsql.backends.local.run.repeat import KernelCall, Recorder
from tsql.backends.local.run.spill import Spill
from tsql.backends.local.run.states import States
from tsql.backends.local.run.workers import parallel
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.emit.pipeline import Pipeline, Sink
from tsql.kernels.operators.partition import Partition
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.step import Step

Take = Callable[[Sink, Context, Part, int], None]


@dataclass
class Task:
    """A pipeline on one shard (see `Pipelines.run`)."""

    pipelines: Pipelines
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
        """Prepare the first part."""
        self.feed = self.flow.data.feed(self.shard)
        self._next()

    def run(self) -> tuple[Sink, Context]:
        """Run the pipeline on all parts, in this thread."""
        pipelines = self.pipelines
        if self.feed is None:
            self.prepare()
        with closing(self.feed):
            while self.part is not None:
                try:
                    self.code.run(self.context, self.part.morsels)
                finally:
                    self.context.let_go()
                pipelines.current.done_rows = max(pipelines.current.done_rows, pipelines.shared.rows_done)
                if pipelines.recorder is not None:
                    self.done.append(self.part.morsels)
                if self.take is not None:
                    self.take(self.pipeline.sink, self.context, self.part, self.shard)
                    if pipelines.limit_reached(self.pipeline.sink):
                        break
                self.part = None
                self._next()
        if self.context is None:
            self._run_empty()
        return self._result()

    def _next(self) -> None:
        """Prepare the next part, if there is one."""
        pipelines = self.pipelines
        self.part = None if pipelines.dry else next(self.feed, None)
        if self.part is None:
            return
        pipelines.current.check()
        before = self.pipeline
        if self.part.source is not self.source:
            self.pipeline, self.code = pipelines.finder.find(
                self.step, self.role, self.flow, self.part.source, self.make
            )
            self.source = self.part.source
        if self.context is None or self.context.program is not self.code.program:
            if before is not None and isinstance(before.sink, Partition):
                end_chunks(before.sink, self.context)
            self.context = pipelines.states.context(
                self.pipeline, self.code, self.opened[0].state if self.opened else None, self.shard
            )
            if self.expected and not self.opened:
                presize_table(self.context, self.expected, pipelines.shared)
            self.opened.append(self.context)
        if pipelines.spill.active:
            take = (
                None
                if self.take is None
                else partial(self.take, self.pipeline.sink, self.context, self.part, self.shard)
            )
            self.context.limit(self.full_at, pipelines.spill.room(), take)
        if self.part.counter is not None:
            self.context.share_counter(self.part.counter)
        else:
            self.context.counter.value = 0

    def call(self) -> KernelCall | None:
        """The kernel call that this task made, if it was exactly one."""
        return (
            KernelCall(self.code, self.context, self.done[0], self.pipeline.sink)
            if len(self.done) == len(self.opened) == 1
            else None
        )

    def _run_empty(self) -> None:
        source = self.flow.data.empty_source()
        self.pipeline, self.code = self.pipelines.finder.find(self.step, self.role, self.flow, source, self.make)
        self.context = self.pipelines.states.context(self.pipeline, self.code, None, self.shard)
        self.code.run(self.context, Morsels(len(source.columns)))
        if self.take is not None:
            self.take(self.pipeline.sink, self.context, Part(source, Morsels(0)), self.shard)

    def _result(self) -> tuple[Sink, Context]:
        context = self.context
        for other in self.opened:
            if other is not context:
                # They share one state, which is freed with the returned context.
                other.owns_state, context.owns_state = False, context.owns_state or other.owns_state
                context.add_taken(other.taken)
                self.pipelines.states.close(other)
        if self.full_at is not None and context.taken > self.full_at:
            raise Full(str(self.pipelines.shared.out_of_memory()))
        return self.pipeline.sink, context


class Pipelines:
    """Runs pipelines. It knows kernels, states and threads, and nothing of plans except the names of steps."""

    def __init__(
        self, run: Run, shared: Shared, spill: Spill, states: States, finder: KernelFinder, threads: int, dry: bool
    ):
        self.current, self.shared, self.spill, self.states, self.finder = run, shared, spill, states, finder
        self.threads, self.dry = threads, dry
        self.recorder: Recorder | None = None

    def run(
        self,
        step: Step,
        role: str,
        flow: Flow,
        make: Callable[[], Sink],
        take: Take | None = None,
        expected: int = 0,
        full_at: int | None = None,
        releases: bool = True,
    ) -> list[tuple[Sink, Context]]:
        """Run a pipeline on every shard of the flow's dataset; returns each shard's sink and context.

        `take` is called after each part, and when a sink holds much, to move what it holds out of its state. `expected`
        is a guess of the number of groups that a hash table of the sink will hold. `full_at`: a worker that takes more
        bytes ends the run with `Full`. Without `releases` the caller frees the dataset: it may have to read it
        again."""
        ctypes.c_int64.from_address(self.shared.address + 24).value = 0
        start, before = time.perf_counter(), self.shared.rows_done
        # Handing a task to another thread costs more than processing a few thousand rows.
        few = flow.data.rows is not None and flow.data.rows <= self.current.settings.small_rows
        read = read_late(self, step, role, flow, make)
        tasks = [
            Task(self, step, role, read, make, shard, take, expected, full_at) for shard in range(flow.data.shards)
        ]
        if flow.data.ready and not few:
            # Because of the GIL, parts are prepared here: workers that only call kernels do not wait for each other.
            for task in tasks:
                task.prepare()
        results = parallel(lambda shard: tasks[shard].run(), len(tasks), 1 if few else self.threads, self.current)
        if self.recorder is not None:
            self.recorder.ran([task.call() for task in tasks])
        self.record(step, role, before, start)
        if releases:
            flow.data.release()
        return results

    def coalesced(self, flow: Flow) -> Flow:
        """The same rows in the best number of tasks for all threads, if it does not matter which shard a row is in."""
        if self.dry or any(o.by_shard for o in flow.operators):
            return flow
        few = flow.data.rows is not None and flow.data.rows <= self.current.settings.small_rows
        data = flow.data.spread(1 if few else self.threads)
        return flow if data is flow.data else replace(flow, data=data)

    def record(self, step: Step, role: str, before: int, start: float) -> None:
        """Record what `explain ANALYZE` shows of a pipeline: its input rows and its time."""
        known = self.current.steps.setdefault(f"{step.name} {role}".strip(), {"rows": 0, "ms": 0.0})
        known["rows"] += self.shared.rows_done - before
        known["ms"] += (time.perf_counter() - start) * 1000

    def limit_reached(self, sink: Sink) -> bool:
        limit = getattr(sink, "limit", None)
        return limit is not None and ctypes.c_int64.from_address(self.shared.address + 24).value >= limit
