"""Broadcasts between tasks: rows that each worker computes for itself (how=read, how=send), rows that a job collects
before the main one (how=collect), and rows that move inside of the job, where the driver is far away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tsql.backends.io.open import portable
from tsql.backends.spark.part import Entry, whole
from tsql.backends.spark.splits import plain
from tsql.backends.spark.stages.scans import scanned, table_batches
from tsql.backends.spark.transport.transport import Rows
from tsql.backends.spark.wire import encode_batches
from tsql.kernels.blocks.table import BlockTable
from tsql.planner.physical.movement import Broadcast
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.spark.stages.stages import Stages

SENT_BYTES = 1 << 20
"""Blobs of a broadcast up to this size go with the task; larger ones are a broadcast of Spark."""


class Broadcasts:
    """The broadcasts of one run."""

    def __init__(self, stages: Stages, lazy: bool):
        self.stages, self.cut, self.driver = stages, stages.cut, stages.driver
        self.moves = lazy or stages.transport.most_sent_bytes is not None
        self.kept: list[Any] = []
        """What the cluster keeps of them until the run ends."""
        self.shared: dict[int, Any] = {}
        """What goes to all tasks, by the id of its step: several parts may use it."""
        self.moved: dict[tuple[int, int], Rows] = {}
        """Rows that move inside of the job, by the id of their step and the number of tasks that get them."""

    def collect(self, top: Step) -> None:
        """Run the jobs of all broadcasts that the driver must collect, each beside its siblings."""
        waiting = [step for step in top.walk() if self._is_collected(step) and id(step) not in self.driver.blobs]
        while waiting:
            ready = [
                step
                for step in waiting
                if not any(other is not step and any(s is other for s in step.inputs[0].walk()) for other in waiting)
            ]
            in_tasks = [step for step in ready if self.cut.in_tasks[id(step.inputs[0])]]
            stages = [self.stages.stage(step.inputs[0], step, 1) for step in in_tasks]
            found = self.stages.jobs.collect_all(stages)
            for step in in_tasks:
                rows = sorted(found.get(step.name, []), key=lambda row: row[2])
                self.driver.blobs[id(step)] = [row[3] for row in rows]
            for step in ready:
                if not self.cut.in_tasks[id(step.inputs[0])]:
                    self.driver.blobs[id(step)] = self.driver.driven(step.inputs[0])
            waiting = [step for step in waiting if id(step) not in self.driver.blobs]

    def _is_collected(self, step: Step) -> bool:
        if not isinstance(step, Broadcast) or step.scope != "global" or step.how in ("read", "send"):
            return False
        return not self.moves or isinstance(step.inputs[0], Values)

    def moves_inside(self, step: Broadcast) -> bool:
        """Whether the rows of a broadcast move inside of the job that needs them."""
        if step.how in ("read", "send") and not self.stages.is_large(self._tables_below(step)):
            return False
        return self.moves and not isinstance(step.inputs[0], Values)

    def entry(self, step: Broadcast, tasks: int, moved: list[Rows], shared: dict[str, Any]) -> Entry:
        """The entry of a broadcast."""
        if step.how in ("read", "send") and not self.stages.is_large(self._tables_below(step)):
            return self._read(step, shared)
        if self.moves_inside(step):
            key = (id(step), tasks)
            if key not in self.moved:
                self.moved[key] = self.stages.stage(step.inputs[0], step, tasks)
            moved.append(self.moved[key])
            return Entry(step.name, "chunks")
        if id(step) not in self.driver.blobs:
            self.collect(step)
        shared[step.name] = self._shared(step, self.driver.blobs[id(step)])
        return Entry(step.name, "chunks")

    def _tables_below(self, step: Broadcast) -> Iterator[Any]:
        """The tables in memory below a broadcast, as blobs."""
        for leaf in step.inputs[0].walk():
            if isinstance(leaf, Scan) and (isinstance(leaf.source, BlockTable) or portable(leaf.source) is None):
                yield from encode_batches(table_batches(leaf, self.stages.run))

    def _read(self, step: Broadcast, shared: dict[str, Any]) -> Entry:
        """Rows that each worker computes for itself from whole sources."""
        below = []
        for leaf in step.inputs[0].walk():
            if not isinstance(leaf, Scan):
                continue
            entry, splits = scanned(leaf, self.stages.run, self.cut.shards(leaf))
            if splits is None:
                shared[whole(leaf.name)] = self._shared(leaf, encode_batches(table_batches(leaf, self.stages.run)))
                below.append(entry)
            else:
                below.append(Entry(**{**entry.__dict__, "splits": [plain(split) for split in splits]}))
        return Entry(step.name, "read", below=below)

    def _shared(self, step: Step, blobs: Iterable[Any]) -> Any:
        if id(step) not in self.shared:
            found: Any = [bytes(blob) for blob in blobs]
            if sum(len(blob) for blob in found) > SENT_BYTES:
                found = self.stages.transport.share(found)
                self.kept.append(found)
            self.shared[id(step)] = found
        return self.shared[id(step)]
