"""A progressive run on a cluster: the driven aggregate is computed by waves of tasks, and after each wave the rest of
the plan runs on the driver over the partial groups of all waves. At the end the rest of the plan runs as in any run,
with the complete groups in the place of the steps that made them.

In: a plan with a step `progressive`. Out: snapshots; the last one is the exact result, unless the query asks to stop
before. Between two snapshots nothing runs. Errors and a stop end the job of the wave, and nothing stays on the cluster.
Cost: a job per wave, and per snapshot the merge of the groups of all waves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tsql.backends.local.progressive.group_progress import GroupProgress
from tsql.backends.local.progressive.progress import error_of
from tsql.backends.local.progressive.units import MOST_ROWS
from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.entry import chunk_columns
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.snapshots import Snapshot
from tsql.backends.spark.cut import Cut
from tsql.backends.spark.progressive.branch import why_no_waves
from tsql.backends.spark.progressive.schedule import Schedule
from tsql.backends.spark.progressive.waves import Waves
from tsql.backends.spark.stages import Stages
from tsql.planner.physical.step import PhysicalPlan, Step

if TYPE_CHECKING:
    from tsql.planner.progressive.driven import Driven

Finished = Callable[[Stages, PhysicalPlan, Execution], Iterator[pa.RecordBatch]]
"""What runs a plan whose last steps are on the driver."""


class WaveProgress(GroupProgress):
    """One run of a plan with a snapshot per wave. x: an execution of steps on the driver."""

    def __init__(self, plan: PhysicalPlan, found: Driven, x: Execution, stages: Stages, finished: Finished):
        super().__init__(plan, found, x)
        self.stages, self.finished = stages, finished

    def snapshots(self) -> Iterator[Snapshot]:
        begun, spec, run = time.perf_counter(), self.found.spec, self.run
        why = why_no_waves(self.stages, self.found)
        if why is not None:
            run.note(why)
            yield from self._at_once()
            return
        waves = Waves(self.stages, self.found)
        units = waves.units
        if units.count < 2 and units.all_rows > MOST_ROWS:
            run.note("the input of the progress is read in one piece: the final result only")
        design = self._design(waves)
        self.shown = self._plan_of(design, False)
        waves.begin(design, self.shown.plan)
        run.total_rows, self.stages.jobs.counts_rows = units.all_rows, False
        self.others = {id(step): self._beside(step) for step in self.shown.plan.others}
        schedule = Schedule(spec, units, self.stages.transport.cores, begun)
        while waves.places < units.length or not any(branch.tasks for branch in waves.branches):
            run.check()
            waves.read(schedule.next())
            if waves.is_collected:
                run.note("the rows of the scan are collected before they are grouped: the final result only")
                yield from self._at_once()
                return
            if waves.places >= units.length:
                break
            shown = self._snapshot(waves)  # type: ignore[arg-type]
            if spec.within_us is not None and (time.perf_counter() - begun) * 1e6 >= spec.within_us:
                shown = replace(shown, is_last=True)
            if spec.until_error is not None and error_of(shown) <= spec.until_error:
                shown = replace(shown, is_last=True)
            yield shown
            if shown.is_last:
                return
        batches, rows = self._rest(waves), units.all_rows
        run.total_rows = run.done_rows = rows
        yield Snapshot(batches, rows, rows, True, True, self.exact(batches, self.shown.plan.bounds))

    def _at_once(self) -> Iterator[Snapshot]:
        """The final result alone, as in any run."""
        self.stages.jobs.counts_rows, self.run.total_rows = True, None
        batches = list(self.finished(self.stages, self.plan, self.x))
        rows = self.run.total_rows
        yield Snapshot(batches, rows or 0, rows, True, True)

    def _beside(self, step: Step) -> Flow:
        """The rows of a step beside the driven aggregate, which all snapshots read."""
        driver = self.stages.driver
        if self.stages.cut.in_tasks[id(step)]:
            found = driver.collected([step])[id(step)]
            assert isinstance(found, Flow)
            return found
        return Flow(ChunkData(chunk_columns(step.schema), [driver.chunks(step)]), step.schema)

    def _rest(self, waves: Waves) -> list[pa.RecordBatch]:
        """The result, from the groups of all waves."""
        before, groups = self.stages, waves.given()
        stages = Stages(before.transport, Cut(self.plan, frozenset(groups)), self.run, before.jobs)
        stages.count = before.count
        # What was collected for the waves is not collected again.
        stages.driver.blobs |= before.driver.blobs
        stages.driver.there |= groups
        try:
            return list(self.finished(stages, self.plan, self.x))
        finally:
            stages.close()
