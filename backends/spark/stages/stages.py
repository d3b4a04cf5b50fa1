"""Builds the stages of a run on the driver: what the tasks of each part are given, and how rows move in between.

A stage is one part of the plan over all its shards. Rows enter it in five ways (`Entry`): as splits of files that the
task reads, as rows that the driver sends with the task, as rows that a movement has placed, as the partitions of a
DataFrame, or as rows that each worker computes for itself. Movement inside of a plan is movement inside of one Spark
job. Only a broadcast with how=collect is a job of its own, and such jobs run side by side.

With `lazy`, nothing runs while stages are built: a DataFrame of `to_spark` computes its plan at each action. Rows of a
broadcast are then sent to every shard by the tasks that compute them, and what follows `gather` runs in one task."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import field
from typing import Any

from tsql.backends import Run
from tsql.backends.spark.cut import Cut, crosses
from tsql.backends.spark.datasets import ClusterDataset
from tsql.backends.spark.failures import SPARK_ERRORS
from tsql.backends.spark.jobs import Jobs
from tsql.backends.spark.part import Entry, StagePart
from tsql.backends.spark.splits import decoded_bytes, tasks_for
from tsql.backends.spark.stages.broadcasts import Broadcasts
from tsql.backends.spark.stages.driver import DriverSteps
from tsql.backends.spark.stages.movements import Movements
from tsql.backends.spark.stages.scans import is_there, scan_rows, scanned
from tsql.backends.spark.transport.transport import Given, Rows, TaskWork, Transport
from tsql.backends.spark.wire import encode_value, expression_nodes
from tsql.kernels.expr.nodes import Parameter
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.movement import Arrange, Broadcast, Gather
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import Step

ADAPTED, MANY_SHARDS = 4, 1000
"""From so many shards per core on, or so many in all, the number of tasks follows what was written. It takes a job
more. The driver takes a second to start a thousand tasks."""


@dataclass
class Inputs:
    """What enters a part: its entries, the rows that are in partitions already, those of the driver by task, blobs for
    all tasks by entry, and whether a task has several shards."""

    entries: list[Entry]
    rows: Rows
    given: Given = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    several: bool = False


class Stages:
    """The stages of one run of one plan."""

    def __init__(self, transport: Transport, cut: Cut, run: Run, jobs: Jobs, lazy: bool = False):
        self.transport, self.cut, self.run, self.jobs, self.lazy = transport, cut, run, jobs, lazy
        travelling = cut.travelling()
        nodes = list(expression_nodes(travelling.root))
        kinds = {node.name: str(node.type) for node in nodes if isinstance(node, Parameter)}
        settings = run.settings
        self.common: dict[str, Any] = {
            "text": travelling.text(),
            "run": uuid.uuid4().hex,
            "positions": [node.position for node in nodes],
            "parameters": {name: encode_value(run.parameters[name]) for name in kinds},
            "parameter_types": kinds,
            "settings": {
                "shards": 1,
                "memory_limit": settings.memory_limit,
                "batch_rows": settings.batch_rows,
                "equal_hashes": settings.equal_hashes,
                "temp_directory": settings.temp_directory,
                "spill_after": settings.spill_after,
                "tasks_per_machine": max(1, transport.cores // transport.executors),
            },
            "wall_clock": run.wall_clock,
            "profile": run.profile,
        }
        self.count = 0
        self.made: list[Rows] = []
        self.driver = DriverSteps(self)
        self.movements = Movements(self)
        self.broadcasts = Broadcasts(self, lazy)

    def close(self) -> None:
        """Release what the cluster keeps for this run."""
        self.jobs.at_rest(self._release)

    def _release(self) -> None:
        # Where the cluster is gone, so is what it kept.
        for one in self.broadcasts.kept:
            with suppress(*SPARK_ERRORS):
                one.destroy()
        with suppress(*SPARK_ERRORS):
            self.transport.free(self.made)

    def gathered(self, step: Step, most: int | None = None) -> Rows:
        """The rows of a step for the driver."""
        top = step.inputs[0] if isinstance(step, Gather) else step
        return self.stage(top, step if isinstance(step, Gather) else None, 1, most=most)

    def result(self, most: int | None = None) -> Rows:
        """The result of a plan whose last step is a gather, as its own columns."""
        plan = self.cut.plan
        return self.stage(self._last(), None, 1, output=(plan.columns, plan.names), most=most)

    def written(self, sink: dict[str, Any]) -> Rows:
        """What the tasks of the last stage have written (`folders.Written`). What follows `gather` is one task."""
        plan = self.cut.plan
        return self.stage(self._last(), None, 1, output=(plan.columns, plan.names), sink=sink)

    def frame(self) -> tuple[Rows, TaskWork]:
        """What the last stage of a DataFrame reads, and its work."""
        plan = self.cut.plan
        return self.entering(self._last(), None, 0, output=(plan.columns, plan.names))

    def _last(self) -> Step:
        top = self.cut.plan.root
        while isinstance(top, Gather) and self.cut.in_tasks[id(top.inputs[0])]:
            top = top.inputs[0]
        return top

    def stage(
        self,
        top: Step,
        movement: Step | None,
        targets: int,
        output: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
        **details: Any,
    ) -> Rows:
        """The rows of `top`, sent where `movement` says. `details` are fields of the part."""
        return self.computed(*self.entering(top, movement, targets, output, **details))

    def computed(self, rows: Rows, work: TaskWork) -> Rows:
        """What tasks make of rows; freed when the run ends."""
        found = self.transport.computed(rows, work)
        self.made.append(found)
        return found

    def entering(
        self,
        top: Step,
        movement: Step | None,
        targets: int,
        output: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
        **details: Any,
    ) -> tuple[Rows, TaskWork]:
        """The rows that enter the stage of `top`, and the work of its tasks."""
        steps = self.cut.entries(top, not self.cut.in_tasks[id(top)])
        inputs = self._inputs(steps)
        one_copy = bool(self.cut.properties[id(top)].replicated)
        details |= {"output": output, "one_copy": one_copy, "several": inputs.several}
        part = self.part(top, movement, targets, inputs.entries, **details)
        return inputs.rows, TaskWork(part.encode(), inputs.given, inputs.shared, part.title)

    def part(self, top: Step, movement: Step | None, targets: int, entries: list[Entry], **details: Any) -> StagePart:
        """The next part of the run, as it goes to tasks."""
        self.count += 1
        where = None if movement is None else movement.name
        return StagePart(
            stage=self.count, top=top.name, movement=where, targets=targets, entries=entries, **details, **self.common
        )

    def _inputs(self, steps: list[Step]) -> Inputs:
        """What enters a part with these entries."""
        if self.lazy and len(steps) == 1 and isinstance(steps[0], Arrange):
            return Inputs([Entry(steps[0].name, "frame")], self.movements.arranged_frame(steps[0]))
        if len(steps) == 1 and is_there(steps[0]) and self.cut.shards(steps[0]) > 1:
            entry, rows = self.there(steps[0])
            return Inputs([entry], rows)
        scans = [step for step in steps if isinstance(step, Scan) and not is_there(step)]
        sources = {id(scan): scanned(scan, self.run, self.cut.shards(scan)) for scan in scans}
        placed = [step for step in steps if self._is_placed(step)]
        tasks = self._tasks(placed, scans, sources)
        given: Given = {}
        shared: dict[str, Any] = {}
        entries: list[Entry] = []
        moved: list[Rows] = []
        for step in steps:
            if isinstance(step, Scan) and id(step) in sources:
                entry, splits = sources[id(step)]
                entries.append(entry)
                for shard, row in scan_rows(step, splits, tasks, self.run):
                    given.setdefault(shard, []).append(row)
            elif isinstance(step, Broadcast) and crosses(step):
                entries.append(self.broadcasts.entry(step, tasks, moved, shared))
            elif self._is_placed(step):
                entries.append(Entry(step.name, "chunks"))
                moved.append(self.movements.moved(step))
            else:
                entries.append(Entry(step.name, "chunks"))
                blobs = self.driver.driven(step)
                given.setdefault(0, []).extend((0, step.name, n, blob) for n, blob in enumerate(blobs))
        if moved:
            if self._is_placed_better(given):
                moved.append(self.transport.given([given.get(task, []) for task in range(tasks)]))
                self.made.append(moved[-1])
                given = {}
            # A task may get any shards, so ranges that follow each other are not put together.
            is_arranged = any(isinstance(step, Arrange) for step in steps)
            fewer = None if given or is_arranged else self._fewer(moved, tasks)
            return Inputs(entries, self.transport.placed(moved, tasks, fewer), given, shared, fewer is not None)
        rows = self.transport.given([given.get(task, []) for task in range(tasks)])
        return Inputs(entries, rows, shared=shared)

    def _fewer(self, moved: list[Rows], shards: int) -> int | None:
        """The number of tasks for many shards, by what was written to them; None for a task per shard."""
        if self.lazy or shards < min(ADAPTED * self.transport.cores, MANY_SHARDS):
            return None
        bytes = self.jobs.written(moved, shards)
        if bytes is None:
            return None
        tasks = tasks_for(bytes, shards, self.transport.cores)
        return tasks if tasks < shards else None

    def there(self, scan: Any) -> tuple[Entry, Rows]:
        """Rows that are in the cluster already: of a DataFrame, or of a dataset."""
        if isinstance(scan.source, ClusterDataset):
            return scan.source.entry(scan.name), self.transport.again(scan.source.rows())
        frame = scan.source.select(scan.columns)

        def found() -> Rows:
            # Spark may run jobs for that: shuffles of an adaptive plan, the sample of an ORDER BY.
            with self.transport.in_group(self.jobs.group):
                return self.transport.frame(frame)

        return Entry(scan.name, "frame"), self.jobs.act(found)

    def _is_placed(self, step: Step) -> bool:
        """Whether the rows of an entry come out of other tasks."""
        if isinstance(step, Broadcast) and crosses(step):
            return False
        if isinstance(step, Scan):
            return is_there(step)
        return self.cut.in_tasks[id(step)] or self.lazy or self._depends_on_tasks(step)

    def _depends_on_tasks(self, step: Step) -> bool:
        return id(step) not in self.cut.there and any(self.cut.in_tasks[id(below)] for below in step.walk())

    def _tasks(self, placed: list[Step], scans: list[Scan], sources: dict[int, Any]) -> int:
        """The number of tasks of a stage. Rows that were placed decide, otherwise the bytes of the scans."""
        if placed:
            return max(self.cut.shards(step) for step in placed)
        wide = [scan for scan in scans if self.cut.properties[id(scan)].shards > 1]
        if not wide:
            return 1
        splits = [split for scan in wide for split in sources[id(scan)][1] or ()]
        if any(sources[id(scan)][1] is None for scan in wide) or not splits:
            return self.cut.plan.shards
        total = sum(decoded_bytes(sources[id(scan)][1], scan.schema) for scan in wide)
        return tasks_for(total, len(splits), self.cut.plan.shards)

    def _is_placed_better(self, given: Given) -> bool:
        """Whether rows of the driver are too many to go to all tasks."""
        most = self.transport.most_given_bytes
        return most is not None and sum(len(row[3]) for rows in given.values() for row in rows) > most

    def is_large(self, blobs: Iterable[Any]) -> bool:
        """Whether these are more bytes than go with tasks."""
        most = self.transport.most_sent_bytes
        return most is not None and sum(len(blob) for blob in blobs) > most
