"""The local backend: compiled kernels on the threads of this process."""

from __future__ import annotations

import time
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NoReturn

import pyarrow as pa

from tsql.backends.backend import Backend, not_on_spark
from tsql.backends.local.kernel_store import KernelStore
from tsql.backends.local.run import workers
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.kernels import Kernels
from tsql.backends.local.run.query_threads import end_idle_threads, released, released_all
from tsql.backends.local.run.repeat import WAITED_SECONDS, Recorder, Recording, can_repeat, to_batch
from tsql.backends.run import Run
from tsql.backends.snapshots import Snapshot
from tsql.kernels.blocks.content import any_is_mapped
from tsql.kernels.blocks.stored import StoredTable
from tsql.kernels.codegen import memory
from tsql.planner.physical.step import PhysicalPlan

SECOND = 2
"""The run of a plan that is recorded. Most plans run only once, so the first run is not."""


class LocalBackend(Backend):
    """Runs plans with compiled code, and keeps their kernels: a plan that runs again compiles nothing."""

    name = "local"
    target = "local"
    shards = None
    interpret = False

    def __init__(self) -> None:
        self.kernels = KernelStore()
        self._user = workers.users.add()
        self._end = weakref.finalize(self, _close, self._user)
        self._end.atexit = False

    def run(self, plan: PhysicalPlan, run: Run) -> Iterator[pa.RecordBatch]:
        """The result of a plan, computed in a separate thread (see `released`)."""
        _check_files(plan)
        return released(lambda: self._batches(plan, run), run)

    def run_all(self, plan: PhysicalPlan, run: Run) -> list[pa.RecordBatch]:
        """The whole result of a plan, for callers that want all of it at once."""
        _check_files(plan)
        recording = self.kernels.of(plan).recording
        if recording is not None and recording.begin(run):
            if recording.seconds <= WAITED_SECONDS:
                return self._repeated(recording, plan, run)
            return released_all(lambda: self._repeated_later(recording, plan, run), run)
        return released_all(lambda: self._batches(plan, run), run)

    def frame(self, plan: PhysicalPlan, run: Run) -> NoReturn:
        """The local backend has no Spark DataFrames."""
        raise not_on_spark()

    def close(self) -> None:
        """Free the kernels, and end the threads that no other open backend needs."""
        self.kernels.clear()
        self._end()

    def _repeated(self, recording: Recording, plan: PhysicalPlan, run: Run) -> list[pa.RecordBatch]:
        """The result of a plan by repeating its recorded calls. The caller holds the recording's lock; it is released
        here."""
        try:
            return [to_batch(chunk, plan.schema) for chunk in recording.chunks(run)]
        finally:
            recording.lock.release()

    def _repeated_later(
        self, recording: Recording, plan: PhysicalPlan, run: Run
    ) -> Generator[pa.RecordBatch, None, None]:
        yield from self._repeated(recording, plan, run)

    def snapshots(self, plan: PhysicalPlan, run: Run) -> Iterator[Snapshot]:
        """The snapshots of a plan; the last is the whole result, unless the query may stop before."""
        _check_files(plan)
        return released(lambda: self._snapshots(plan, run), run)

    def _snapshots(self, plan: PhysicalPlan, run: Run) -> Generator[Snapshot, None, None]:
        # Imported here: most processes show no snapshot.
        from tsql.backends.local.progressive.kinds import KINDS
        from tsql.planner.progressive.kinds import progress_of
        from tsql.planner.progressive.reasons import FINAL_ONLY

        with self._execution(plan, run, self.kernels.of(plan)) as execution, plan.deep():
            found = progress_of(plan.root)
            if found is None or execution.spill.active:
                if found is not None:
                    run.note("a run with a memory limit shows the final result only")
                for note in plan.notes:
                    if note.startswith(FINAL_ONLY):
                        run.note(note)
                batches = list(execution.batches(plan))
                yield Snapshot(batches, run.total_rows or 0, run.total_rows, True, True)
                return
            for snapshot in KINDS[type(found)](plan, found, execution).snapshots():
                run.check()
                yield snapshot

    def _batches(self, plan: PhysicalPlan, run: Run) -> Generator[pa.RecordBatch, None, None]:
        if plan.may_stop:
            *_, last = self._snapshots(plan, run)
            yield from last.batches
            return
        kernels = Kernels() if run.profile else self.kernels.of(plan)
        with self._execution(plan, run, kernels) as execution:
            kernels.runs += 1
            plain = not self.interpret and not run.profile
            watched = kernels.runs == SECOND and plain and can_repeat(plan, run.settings)
            recorder = execution.recorder = Recorder() if watched else None
            recorded: Recording | None = None
            start = time.perf_counter()
            # Imported here, since the live operators are built on this package.
            from tsql.backends.live.bounded import batches_by_time, scans_of

            try:
                with plan.deep():
                    for batch in (
                        batches_by_time(plan, run, self.interpret) if scans_of(plan) else execution.batches(plan)
                    ):
                        run.check()
                        yield batch
                if recorder is not None:
                    recorded = kernels.recording = recorder.recording(
                        run, execution.shared, execution.threads, time.perf_counter() - start
                    )
            finally:
                if recorder is not None and recorded is None:
                    recorder.free()

    @contextmanager
    def _execution(self, plan: PhysicalPlan, run: Run, kernels: Kernels) -> Iterator[Execution]:
        """An execution of a plan, with what a run tells of its time and memory."""
        before, limit = kernels.compile_ms, run.settings.memory_limit
        memory.bound(limit)
        pool = memory.usage()
        execution = Execution(run, kernels, self.interpret)
        workers.users.uses(self._user, execution.threads)
        start = time.perf_counter()
        try:
            yield execution
        finally:
            execution.tell()
            execution.close()
            memory.unbound(limit)
            memory.rest()
            after = memory.usage()
            run.memory_bytes = {
                "at most": execution.shared.peak,
                "used again": after.recycled - pool.recycled,
                "fresh": after.fresh - pool.fresh,
                "idle now": after.idle,
            }
            compile_ms = kernels.compile_ms - before
            run.timings_ms["compile"] = compile_ms
            run.timings_ms["run"] = (time.perf_counter() - start) * 1000 - compile_ms
            run.done_rows = execution.shared.rows_done


def _close(user: int) -> None:
    if workers.users.remove(user):
        end_idle_threads()


def _check_files(plan: PhysicalPlan) -> None:
    """Check the mapped files of a plan's tables, if there are any."""
    if any_is_mapped():
        for step in plan.root.walk():
            source = getattr(step, "source", None)
            if isinstance(source, StoredTable):
                source.check_files()
