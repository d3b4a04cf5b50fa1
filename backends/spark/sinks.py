"""`SparkSinks`: results that the tasks of a cluster write by themselves. No rows pass through the driver."""

from __future__ import annotations

import json
from typing import Any

from tsql.backends import Run
from tsql.backends.io.folders import FolderTarget, Written, cannot_write, commit
from tsql.backends.io.whole_files import shared_folder
from tsql.backends.spark.cut import Cut
from tsql.backends.spark.jobs import Jobs
from tsql.backends.spark.stages import Stages
from tsql.backends.spark.transport.transport import Transport
from tsql.planner.physical.step import PhysicalPlan


class SparkSinks:
    """The sinks of one Spark session."""

    def __init__(self, spark: Any, transport: Transport):
        self.spark, self.transport = spark, transport

    def write_folder(self, plan: PhysicalPlan, run: Run, target: FolderTarget) -> int:
        """Write a folder of files, all of them or none. Returns the number of rows."""
        target.check()
        try:
            with shared_folder(target.path) as staged:
                files = self._written(plan, run, target, str(staged))
                run.check()
                commit(target, staged, _short(staged.name), files)
        except OSError as error:
            raise cannot_write(target.path, error) from error
        return sum(file.rows for file in files)

    def _written(self, plan: PhysicalPlan, run: Run, target: FolderTarget, staged: str) -> list[Written]:
        jobs = Jobs(self.transport, run)
        stages = Stages(self.transport, Cut(plan), run, jobs)
        try:
            stages.collect_broadcasts(plan.root)
            rows = jobs.collect(stages.written(target.describe(staged, _short(staged))))
            return [Written(**json.loads(bytes(row[3]))) for row in rows]
        finally:
            stages.close()
            jobs.tallies.tell(run)
            run.done_rows = run.total_rows or run.done_rows


def _short(staged: str) -> str:
    """What tells the files of a run from those of others: the number in the name of its folder."""
    return staged.rsplit(".", 2)[1]
