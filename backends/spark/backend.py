"""`SparkBackend`: runs physical plans on a Spark cluster. The part after `gather` runs here, on the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tsql.backends.backend import Backend
from tsql.backends.datasets import datasets_of
from tsql.backends.local.kernel_store import KernelStore
from tsql.backends.local.run.execution import Execution
from tsql.backends.names import OuterNames
from tsql.backends.run import Run
from tsql.backends.snapshots import Snapshot
from tsql.backends.spark.cut import Cut
from tsql.backends.spark.failures import telling
from tsql.backends.spark.jobs import Jobs
from tsql.backends.spark.limits import rows_asked
from tsql.backends.spark.sinks import SparkSinks, frame_of
from tsql.backends.spark.stages import Stages
from tsql.backends.spark.start import start, stop
from tsql.backends.spark.transport.transport import Rows, Transport
from tsql.backends.spark.wire import Row, decode_batches
from tsql.planner.physical.movement import Gather
from tsql.planner.physical.properties import MAX_SHARDS
from tsql.planner.physical.step import PhysicalPlan

LEAST_BROADCAST_BYTES, MOST_BROADCAST_BYTES = 64 << 20, 1 << 30
WAVE = 4
"""Partitions of a result per core that are collected at a time."""


class SparkBackend(Backend):
    """Runs plans on the cluster of a Spark session: a given one, or one that it starts on a master and stops."""

    name = "spark"
    target = "spark"

    def __init__(self, session: SparkSession | Transport | str, conf: Mapping[str, Any] | None = None):
        self.kernels = KernelStore()
        """The kernels of the parts of plans that run here, on the driver."""
        self._names: OuterNames | None = None
        self._ours = False
        if isinstance(session, str):
            session, self._ours = start(session, conf)
        self.spark: Any = session
        self.transport = session if isinstance(session, Transport) else _transport(session)

    @property
    def shards(self) -> int:
        """The default number of shards of a plan: the tasks that the cluster runs at a time."""
        with telling():
            return min(self.transport.cores, MAX_SHARDS)

    @property
    def broadcast_bytes(self) -> int | None:
        """What each task has room for: a quarter of its part of an executor's memory, within limits."""
        memory = self.transport.executor_bytes
        if memory is None:
            return None
        tasks = max(1, self.transport.cores // self.transport.executors)
        return min(max(memory // (4 * tasks), LEAST_BROADCAST_BYTES), MOST_BROADCAST_BYTES)

    def run(self, plan: PhysicalPlan, run: Run) -> Iterator[pa.RecordBatch]:
        """The result of a plan."""
        with telling():
            if plan.may_stop:
                *_, last = self._snapshots(plan, run)
                yield from last.batches
                return
            yield from self._run(plan, run)

    def _run(self, plan: PhysicalPlan, run: Run) -> Iterator[pa.RecordBatch]:
        begun = time.perf_counter()
        cut, jobs = Cut(plan), Jobs(self.transport, run)
        stages = Stages(self.transport, cut, run, jobs)
        kernels = self.kernels.of(plan)
        before = kernels.compile_ms
        try:
            jobs.prepare()
            entries = cut.entries(plan.root, on_driver=True)
            if entries == [plan.root] and isinstance(plan.root, Gather):
                yield from self._streamed(stages, jobs, plan, run)
            else:
                yield from self._finished(stages, plan, Execution(run, kernels, inputs={}))
        finally:
            stages.close()
            jobs.tallies.tell(run)
            run.done_rows = run.total_rows or run.done_rows
            run.timings_ms["compile"] = kernels.compile_ms - before
            run.timings_ms["run"] = (time.perf_counter() - begun) * 1000 - run.timings_ms["compile"]

    def snapshots(self, plan: PhysicalPlan, run: Run) -> Iterator[Snapshot]:
        """A snapshot per wave of tasks; the last is the whole result, unless the query may stop before."""
        with telling():
            yield from self._snapshots(plan, run)

    def _snapshots(self, plan: PhysicalPlan, run: Run) -> Iterator[Snapshot]:
        # Imported here: most processes show no snapshot.
        from tsql.backends.spark.progressive.run import WaveProgress
        from tsql.planner.progressive.driven import driven

        found = driven(plan.root)
        if found is None:
            batches = list(self._run(plan, run))
            yield Snapshot(batches, run.total_rows or 0, run.total_rows, True, True)
            return
        begun, kernels = time.perf_counter(), self.kernels.of(plan)
        before, jobs = kernels.compile_ms, Jobs(self.transport, run)
        stages = Stages(self.transport, Cut(plan), run, jobs)
        execution = Execution(run, kernels, inputs={})
        try:
            jobs.prepare()
            with plan.deep():
                for snapshot in WaveProgress(plan, found, execution, stages, self._finished).snapshots():
                    run.check()
                    yield snapshot
        finally:
            execution.close(improves=False)
            stages.close()
            jobs.tallies.tell(run)
            run.timings_ms["compile"] = kernels.compile_ms - before
            run.timings_ms["run"] = (time.perf_counter() - begun) * 1000 - run.timings_ms["compile"]

    def _streamed(self, stages: Stages, jobs: Jobs, plan: PhysicalPlan, run: Run) -> Iterator[pa.RecordBatch]:
        """The rows of the last stage, partition by partition, as they are computed."""
        stages.broadcasts.collect(plan.root)
        rows = stages.result()
        for found in jobs.stream(rows) if self.transport.streams else self._waves(jobs, rows):
            for row in sorted(found, key=lambda row: row[2]):
                for batch in decode_batches(row[3]):
                    run.check()
                    yield batch

    def _waves(self, jobs: Jobs, rows: Rows) -> Iterator[list[Row]]:
        partitions = list(range(self.transport.partitions(rows)))
        size = WAVE * self.transport.cores
        return jobs.waves(rows, iter([partitions[start : start + size] for start in range(0, len(partitions), size)]))

    def _finished(self, stages: Stages, plan: PhysicalPlan, execution: Execution) -> Iterator[pa.RecordBatch]:
        """The result of the steps behind `gather`, over the rows of the cluster."""
        run = execution.run
        try:
            entries = stages.cut.entries(plan.root, on_driver=True)
            execution.inputs.update(stages.driver.collected(entries, rows_asked(plan.root, entries, run)))
            with plan.deep():
                for batch in execution.batches(plan):
                    run.check()
                    yield batch
        finally:
            execution.tell()
            execution.close(improves=False)

    def run_all(self, plan: PhysicalPlan, run: Run) -> Iterator[pa.RecordBatch]:
        """As `run`."""
        return self.run(plan, run)

    def frame(self, plan: PhysicalPlan, run: Run) -> Any:
        """The result of a plan as a lazy DataFrame: Spark computes it at each action."""
        return frame_of(self.spark, self.transport, plan, run)

    def sinks(self) -> SparkSinks:
        """What writes results from tasks."""
        return SparkSinks(self.spark, self.transport)

    def outer_names(self) -> OuterNames | None:
        """The tables and views of the Spark session. (A stand-in for a session may have none.)"""
        if self._names is None and hasattr(self.spark, "table"):
            from tsql.backends.spark.names import SparkNames

            self._names = SparkNames(self.spark)
        return self._names

    def close(self) -> None:
        """Free the kernels, and stop the session if it was started here."""
        self.kernels.clear()
        if self._ours:
            self._ours = False
            datasets_of(self.transport.cluster).clear()
            stop(self.spark)


def _transport(session: Any) -> Transport:
    if type(session).__module__.startswith("pyspark.sql.connect."):
        from tsql.backends.spark.transport.connect import ConnectTransport

        return ConnectTransport(session)
    from tsql.backends.spark.transport.rdd import RddTransport

    return RddTransport(session)


def source_of(frame: Any, name: str) -> Any:
    """A DataFrame as a source; None for anything else."""
    from tsql.backends.spark.frame import FrameSource, StreamFrame, is_frame

    if not is_frame(frame):
        return None
    return (StreamFrame if frame.isStreaming else FrameSource)(frame, name)
