"""Repeated runs: the second run of a plan records its kernel calls, and later runs repeat them with almost no Python.

In: a plan over in-memory tables that has run before. Out: its batches. A plan can be repeated if its rows come from
blocks, only a single group or an array of groups lies between its pipelines, and the work after the last pipeline is on
few rows. A kernel then gets the same addresses in each run. Other plans are executed as usual. So are runs with a
limit, a profile or spilling, and runs that start while another one repeats the plan.

A `Recorder` watches an execution. The contexts of its pipelines are `kept`: their states, at most `MOST_BYTES`
together, live as long as the plan. A `Recording` zeroes the states, fills in parameters and calls the kernels. If a
kernel fails, its error is raised as in an execution, and the recording is dropped. If the last run took at most
`WAITED_SECONDS`, the calling thread makes the calls itself: it cannot be released early, and need not be.

Cost: 0.1 to 0.2 ms of Python, compared with 0.7 to 2 ms for an execution."""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tsql.backends import Run, Settings
from tsql.backends.local.run.dataset import free_state, owns_memory
from tsql.backends.local.run.host import Chunk, Code, Context, Shared, read_i64, read_u64, take_chunks
from tsql.backends.local.run.workers import parallel
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.emit.context import SLOT_BYTES, SLOTS, TAKEN, Slot
from tsql.kernels.emit.pipeline import Sink
from tsql.kernels.operators.aggregate.groups import DenseAggregate, ScalarAggregate
from tsql.kernels.operators.collect import Collect, OutputColumn
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.movement import Gather
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.step import PhysicalPlan, Step

MOST_BYTES = 1 << 20
"""The most memory that the states of a recording may take: they stay in memory between runs."""

WAITED_SECONDS = 0.03
"""A cancelled query may take 100 ms to end. A query that takes less time than this needs no separate thread."""

FIXED_SLOTS = frozenset(
    ("literal", "static", "dictionary", "code_bound", "dictionary_table", "dictionary_hashes", "buffer")
)
"""Slots with the same content in each run. Buffers are zeroed, as they are when first made."""

VARYING_SLOTS = frozenset(("parameter", "parameter_valid", "now"))
"""Slots that are filled anew for each run."""

Work = Callable[[list[Chunk]], list[Chunk]]


@dataclass(frozen=True)
class KernelCall:
    """One worker's call of a kernel."""

    code: Code
    context: Context
    morsels: Morsels
    sink: Sink


class Unaccounted:
    """A memory account without a limit, for the few rows of a repeated run."""

    def release(self, bytes: int) -> None:
        pass


UNACCOUNTED = Unaccounted()


def can_repeat(plan: PhysicalPlan, settings: Settings) -> bool:
    """Whether all steps of a plan can be part of a recording."""
    users: dict[int, int] = {}
    for step in plan.root.walk():
        for child in step.inputs:
            users[id(child)] = users.get(id(child), 0) + 1
        if not _is_repeatable(step):
            return False
    return max(users.values(), default=1) == 1 and settings.memory_limit is None and not settings.spill_after


def _is_repeatable(step: Step) -> bool:
    match step:
        case Scan():
            return isinstance(step.source, BlockTable) and step.ranges is None
        case Sort():
            return step.limit is None and step.phase != "partial"
    return isinstance(step, Filter | Project | Aggregate | Gather)


class Recorder:
    """Watches an execution, which reports what it does. `refused`: it did something that cannot be repeated."""

    def __init__(self) -> None:
        self.stages: list[list[KernelCall]] = []
        self.columns: tuple[OutputColumn, ...] | None = None
        self.work: list[Work] = []
        self.refused = False

    def ran(self, calls: list[KernelCall | None]) -> None:
        """Record that a pipeline has run: one call per worker, or None for a worker that made several."""
        made = [call for call in calls if call is not None and _can_keep(call)]
        collects = [call.sink.columns for call in made if isinstance(call.sink, Collect)]
        self.refused |= self.columns is not None or len(made) < len(calls) or len(collects) > 1
        if self.refused:
            return
        self.columns = collects[0] if collects else None
        for call in made:
            call.context.kept = True
        self.stages.append(made)

    def then(self, work: Work) -> None:
        """Record host work on the rows of the last pipeline. The work must not refer to this run."""
        self.refused |= self.columns is None
        self.work.append(work)

    def free(self) -> None:
        """Free what was kept: there will be no recording."""
        _free(self.stages)

    def recording(self, run: Run, shared: Shared, threads: int, seconds: float) -> Recording | None:
        """The recording of a completed run, or None if the run cannot be repeated."""
        bytes = sum(size for stage in self.stages for call in stage for _, size in _memory(call))
        return (
            None
            if self.refused or self.columns is None or bytes > MOST_BYTES
            else Recording(self, run, shared, threads, seconds)
        )


def _can_keep(call: KernelCall) -> bool:
    """Whether the state of a call is all that it leaves behind."""
    match call.sink:
        case ScalarAggregate() | DenseAggregate():
            whole = not owns_memory(call.sink) and call.context.taken == 0
        case Collect():
            whole = call.sink.limit is None
        case _:
            return False
    return (
        whole
        and not call.context.has_scratch
        and all(slot.kind in FIXED_SLOTS or slot.kind in VARYING_SLOTS for slot in call.context.program.slots)
    )


def _memory(call: KernelCall) -> list[tuple[int, int]]:
    """(address, bytes) of the memory that a kernel expects to be zeroed: its state and its buffers."""
    context = call.context
    slots = [
        context.address + SLOTS + SLOT_BYTES * index
        for index, slot in enumerate(context.program.slots)
        if slot.kind == "buffer"
    ]
    return [(context.state_address, context.state_bytes), *((read_u64(slot), read_i64(slot + 8)) for slot in slots)]


def _free(stages: list[list[KernelCall]]) -> None:
    for call in (call for stage in stages for call in stage):
        call.context.kept = False
        free_state(call.sink, call.context, call.context.shared)


class Recording:
    """The calls of a plan, to be made again."""

    def __init__(self, found: Recorder, run: Run, shared: Shared, threads: int, seconds: float):
        self.stages, self.columns, self.work = found.stages, found.columns, found.work
        self.settings, self.rows, self.shared, self.threads, self.seconds = (
            replace(run.settings),
            run.total_rows,
            shared,
            threads,
            seconds,
        )
        shared.run = None
        calls = [call for stage in self.stages for call in stage]
        self.memory = [found for call in calls for found in _memory(call)]
        self.counters = list({id(call.context.counter): call.context.counter for call in calls}.values())
        self.varying: list[tuple[Context, int, Slot]] = [
            (call.context, call.context.address + SLOTS + SLOT_BYTES * index, slot)
            for call in calls
            for index, slot in enumerate(call.context.program.slots)
            if slot.kind in VARYING_SLOTS
        ]
        self.lock = threading.Lock()
        self.broken = False
        self.end = weakref.finalize(self, _free, self.stages)
        """Frees what was kept, and the scratch memory that kernels took in later runs; at the latest when the plan is
        freed."""

    def begin(self, run: Run) -> bool:
        """Whether a run may be a repetition: the settings are equal, it counts nothing, and no other run is repeating
        the plan. If so, it holds the lock."""
        if run.profile or run.settings != self.settings or not self.lock.acquire(blocking=False):
            return False
        if self.broken:
            self.lock.release()
        return not self.broken

    def chunks(self, run: Run) -> list[Chunk]:
        """Make the calls, and return their rows. The caller holds the lock."""
        begun, shared = time.perf_counter(), self.shared
        run.check()
        keep = self._prepare(run)
        try:
            for stage in self.stages:
                if len(stage) == 1:
                    stage[0].code.run(stage[0].context, stage[0].morsels)
                else:
                    parallel(
                        lambda shard, calls=stage: calls[shard].code.run(calls[shard].context, calls[shard].morsels),
                        len(stage),
                        self.threads,
                        run,
                    )
            found = take_chunks(self.stages[-1][0].context.state_address, self.columns, UNACCOUNTED)
            for work in self.work:
                found = work(found)
        except BaseException as error:
            # The states are now undefined. After Ctrl-C a worker may still be using them, so they are freed with the
            # last reference.
            self.broken = True
            if isinstance(error, Exception):
                self.end()
            else:
                self.end.detach()
            raise
        finally:
            keep.clear()
            run.done_rows = shared.rows_done
            shared.run = None
        self.seconds = time.perf_counter() - begun
        run.timings_ms["compile"], run.timings_ms["run"] = 0.0, self.seconds * 1000
        return found

    def _prepare(self, run: Run) -> list[Any]:
        """Reset memory, counters and parameters before the first call. Returns the objects that must live until the
        last call."""
        self.shared.restart(run)
        run.total_rows = self.rows
        for address, bytes in self.memory:
            ctypes.memset(address, 0, bytes)
        for counter in self.counters:
            counter.value = 0
        self.stages[-1][0].context.store(TAKEN, 0)
        keep: list[Any] = []
        for context, address, slot in self.varying:
            data = context.slot_data(slot, keep)
            ctypes.memmove(address, data, len(data))
        return keep


def to_batch(chunk: Chunk, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a chunk with the names and types of the result."""
    if not chunk.arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * chunk.rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(
        [a if a.type == f.type else a.cast(f.type) for a, f in zip(chunk.arrays, schema, strict=True)], schema=schema
    )
