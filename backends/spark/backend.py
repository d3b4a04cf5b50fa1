"""`SparkBackend`: runs physical plans on a Spark cluster. The part after `gather` runs here, on the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tsql.backends.backend import Backend
from tsql.backends.local.kernel_store import KernelStore
from tsql.backends.local.run.dataset import ChunkData, Dataset
from tsql.backends.local.run.entry import chunk_columns
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.names import OuterNames
from tsql.backends.run import Run
from tsql.backends.spark import counts
from tsql.backends.spark.cut import Cut
from tsql.backends.spark.jobs import Jobs
from tsql.backends.spark.stages import Stages, collect_rows, union
from tsql.backends.spark.start import start
from tsql.backends.spark.wire import decode_chunks
from tsql.planner.physical.step import PhysicalPlan


class SparkBackend(Backend):
    """Runs plans on the cluster of a Spark session: a given one, or one that it starts on a master and stops."""

    name = "spark"
    target = "spark"

    def __init__(self, session: SparkSession | str):
        self.kernels = KernelStore()
        """The kernels of the parts of plans that run here, on the driver."""
        self._names: OuterNames | None = None
        self.spark, self._ours = start(session) if isinstance(session, str) else (session, False)

    @property
    def shards(self) -> int:
        """The default number of shards of a plan: the tasks that the cluster runs at a time."""
        return max(1, self.spark.sparkContext.defaultParallelism)

    def run(self, plan: PhysicalPlan, run: Run) -> Iterator[pa.RecordBatch]:
        """The result of a plan."""
        cut = Cut(plan)
        jobs = Jobs(self.spark, run)
        begun = time.perf_counter()
        inputs: dict[int, Dataset | Flow] = {}
        entries = cut.entries(plan.root, on_driver=True)
        if entries:
            stages = Stages(self.spark, cut, run, jobs)
            try:
                rows = collect_rows(union([stages.gathered(step) for step in entries]), jobs)
            finally:
                stages.close()
            counts.collect(stages.tallies, run)
            for step in entries:
                mine = sorted((row for row in rows if row[1] == step.name), key=lambda row: row[2])
                columns = chunk_columns(step.schema)
                chunks = [chunk for _, _, place, blob in mine for chunk in decode_chunks(blob, len(columns), place)]
                inputs[id(step)] = Flow(ChunkData(columns, [chunks], run.settings.batch_rows), step.schema)
            run.done_rows = run.total_rows or run.done_rows
        run.timings_ms["cluster"] = (time.perf_counter() - begun) * 1000
        kernels = self.kernels.of(plan)
        execution = Execution(run, kernels, inputs=inputs)
        before = kernels.compile_ms
        try:
            with plan.deep():
                for batch in execution.batches(plan):
                    run.check()
                    yield batch
        finally:
            execution.tell()
            execution.close(improves=False)
            run.timings_ms["compile"] = kernels.compile_ms - before
            run.timings_ms["run"] = (time.perf_counter() - begun) * 1000 - run.timings_ms["compile"]

    def run_all(self, plan: PhysicalPlan, run: Run) -> Iterator[pa.RecordBatch]:
        """As `run`: all rows are collected from the cluster before the first batch in any case."""
        return self.run(plan, run)

    def frame(self, plan: PhysicalPlan, run: Run) -> DataFrame:
        """The result of a plan as a lazy DataFrame: Spark computes it at each action."""
        return Stages(self.spark, Cut(plan), run, Jobs(self.spark, run)).result()

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
            self.spark.stop()


def source_of(frame: Any, name: str) -> Any:
    """A DataFrame as a source; None for anything else."""
    from tsql.backends.spark.frame import FrameSource, is_frame

    return FrameSource(frame, name) if is_frame(frame) else None
