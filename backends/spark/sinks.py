"""`SparkSinks`: results that the tasks of a cluster write by themselves. No rows pass through the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tsql.backends import Run
from tsql.backends.datasets import Datasets, datasets_of
from tsql.backends.io.folders import FolderTarget, Written, cannot_write, commit
from tsql.backends.io.normalize import unique_names
from tsql.backends.sinks import TableTarget
from tsql.backends.spark import storage, tables
from tsql.backends.spark.arranged import lazily_sorted
from tsql.backends.spark.cut import Cut
from tsql.backends.spark.datasets import ClusterDataset
from tsql.backends.spark.failures import telling
from tsql.backends.spark.jobs import Jobs
from tsql.backends.spark.stages import Stages
from tsql.backends.spark.transport.frames import FrameTransport
from tsql.backends.spark.transport.transport import Transport
from tsql.kernels.expr.schema import Field, Schema
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import PhysicalPlan


class SparkSinks:
    """The sinks of one Spark session."""

    def __init__(self, spark: Any, transport: Transport):
        self.spark, self.transport = spark, transport
        self.has_tables = not isinstance(spark, Transport)

    def write_folder(self, plan: PhysicalPlan, run: Run, target: FolderTarget) -> int:
        """Write a folder of files, all of them or none. Returns the number of rows."""
        if self.has_tables:
            storage.remember(self.spark, [target.path])
        target.check()
        try:
            with target.staged() as staged:
                files = self._written(plan, run, target, str(staged))
                run.check()
                commit(target, staged, _short(str(staged)), files)
        except OSError as error:
            raise cannot_write(target.path, error) from error
        return sum(file.rows for file in files)

    def _written(self, plan: PhysicalPlan, run: Run, target: FolderTarget, staged: str) -> list[Written]:
        jobs = Jobs(self.transport, run)
        stages = Stages(self.transport, Cut(plan), run, jobs)
        try:
            jobs.prepare()
            stages.broadcasts.collect(plan.root)
            rows = jobs.collect(stages.written(target.describe(staged, _short(staged))))
            return [Written(**json.loads(bytes(row[3]))) for row in rows]
        finally:
            stages.close()
            jobs.tallies.tell(run)
            run.done_rows = run.total_rows or run.done_rows

    def table_exists(self, parts: tuple[str, ...]) -> bool:
        return tables.exists(self.spark, parts)

    def table_schema(self, parts: tuple[str, ...]) -> Schema | None:
        return tables.schema_of(self.spark, parts)

    def table_partitions(self, parts: tuple[str, ...]) -> list[str]:
        return tables.partitions_of(self.spark, parts)

    def save_table(self, plan: PhysicalPlan, run: Run, target: TableTarget) -> int:
        """Store the rows of a plan in a table, from a lazy DataFrame."""
        jobs = Jobs(self.transport, run)
        frame = frame_of(self.spark, self.transport, plan, run)

        def work() -> int:
            with self.transport.in_group(jobs.group), shuffles_are_freed(self.spark):
                return tables.save(self.spark, frame, target)

        return int(jobs.act(work))

    def keep(self, plan: PhysicalPlan, run: Run, name: str) -> ClusterDataset:
        """The rows of a plan as a dataset. Nothing is freed before it is dropped: lost rows are computed again."""
        jobs = Jobs(self.transport, run)
        stages = Stages(self.transport, Cut(plan), run, jobs)
        try:
            jobs.prepare()
            stages.broadcasts.collect(plan.root)
            kept = self.transport.kept(stages.result())
        except BaseException:
            stages.close()
            raise

        types = (plan.root.schema[column].type for column in plan.columns)
        schema = Schema(tuple(map(Field, unique_names(list(plan.names)), types)))
        sources = [step.source for step in plan.root.walk() if isinstance(step, Scan)]
        return ClusterDataset(
            name,
            schema,
            kept,
            collect=lambda rows: Jobs(self.transport, Run()).raw(rows),
            forget=self.transport.forget,
            close=stages.close,
            used=[source for source in sources if isinstance(source, ClusterDataset)],
        )

    def datasets(self) -> Datasets:
        return datasets_of(self.transport.cluster)

    def drop_table(self, parts: tuple[str, ...]) -> None:
        tables.drop(self.spark, parts)


FREES_SHUFFLES = "spark.sql.classic.shuffleDependency.fileCleanup.enabled"


@contextmanager
def shuffles_are_freed(spark: Any) -> Iterator[None]:
    """Spark removes the files of the shuffles of an action that begins here when it is over. It is no setting of the
    session: the next action over the same DataFrame begins while the files of the last one are still being removed, and
    fails now and then."""
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect.")
    before = None if is_remote else spark.conf.get(FREES_SHUFFLES, "false")
    if before is not None:
        spark.conf.set(FREES_SHUFFLES, "true")
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(FREES_SHUFFLES, before)


def frame_of(spark: Any, near: Transport, plan: PhysicalPlan, run: Run) -> Any:
    """The result of a plan as a lazy DataFrame: Spark computes it at each action. It is a plan of the user's session
    and runs with its settings: a view of it can be made there."""
    transport = near if isinstance(near, FrameTransport) else FrameTransport(spark)
    Jobs(near, run).prepare()
    stages = Stages(transport, Cut(lazily_sorted(plan)), run, Jobs(transport, run), lazy=True)
    with telling():
        return transport.result(*stages.frame(), plan)


def _short(staged: str) -> str:
    """What tells the files of a run from those of others: the number in the name of its folder."""
    return staged.rsplit(".", 2)[1]
