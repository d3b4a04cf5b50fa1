"""A branch of a progressive run on a cluster: a scan in units, the part of the plan that aggregates them in tasks, and
the groups that these have left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from tsql.backends.local.progressive.populations import Populations
from tsql.backends.local.run.host import Chunk
from tsql.backends.spark.part import Entry
from tsql.backends.spark.progressive.merging import Merging
from tsql.backends.spark.progressive.units import UNITS, FileUnits, WaveUnits, units_of
from tsql.backends.spark.splits import decoded_bytes, tasks_for
from tsql.backends.spark.stages import Stages
from tsql.backends.spark.stages.scans import is_there, scan_rows, scanned
from tsql.backends.spark.transport.transport import Rows, TaskWork
from tsql.backends.spark.wire import Row, decode_chunks
from tsql.planner.physical.movement import Broadcast, Movement
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import Step
from tsql.planner.progressive import driven
from tsql.planner.progressive.snapshot_plan import SnapshotPlan


class WaveBranch:
    """`begin` makes its part. `first`: the number of its first unit among those of all branches."""

    def __init__(self, stages: Stages, found: driven.Branch):
        self.stages, self.found, self.step = stages, found, found.partial
        scan = found.scan
        assert isinstance(scan, Scan)
        self.scan = scan
        self.entry, splits = scanned(scan, stages.run, stages.cut.shards(scan))
        self.units: WaveUnits = units_of(scan, splits, stages.run, found.spec.seed)
        self.first = 0
        self.tasks = 0
        """The tasks of all waves so far."""
        self.groups: list[Chunk] = []
        """The groups of all tasks, with what was noted of them."""

    def begin(self, sampled: dict[str, Any], plan: SnapshotPlan, populations: Populations | None) -> None:
        """Make the part. sampled: what all tasks must know."""
        self.width, self.populations = len(self.step.schema) + 2 * len(plan.sums), populations
        self.merging = Merging(self.stages.run, self.step, plan)
        self.shared: dict[str, Any] = {}
        self.whole: list[Row] = []
        """Rows that each task gets."""
        moved: list[Rows] = []
        entries: list[Entry] = []
        for step in self.stages.cut.entries(self.step):
            if step is self.scan:
                entries.append(self.entry)
            elif isinstance(step, Broadcast):
                entries.append(self.stages.broadcasts.entry(step, 1, moved, self.shared))
            else:
                entries.append(self._whole(step))
        assert not moved, "why_no_waves has looked"
        self.part = self.stages.part(self.step, None, 1, entries, sampled=sampled)

    def _whole(self, step: Step) -> Entry:
        """An entry whose rows each task gets."""
        if isinstance(step, Scan):
            entry, splits = scanned(step, self.stages.run, 1)
            self.whole += [row for _, row in scan_rows(step, splits, 1, self.stages.run)]
            return entry
        blobs = self.stages.driver.driven(step)
        self.whole += [(0, step.name, place, blob) for place, blob in enumerate(blobs)]
        return Entry(step.name, "chunks")

    def wave(self, base: list[np.ndarray], batches: list[np.ndarray]) -> Rows | None:
        """What tasks make of these units, `base` counted in full; None if there are none. The caller frees it."""
        if not base and not batches and self.tasks:
            return None
        units = np.concatenate([*base, *batches]) if base or batches else np.zeros(0, np.int64)
        tasks, transport = self._tasks(units), self.stages.transport
        given = [
            list(self._given(task, base[task::tasks], batches[(task - len(base)) % tasks :: tasks]))
            for task in range(tasks)
        ]
        self.tasks += tasks
        work = TaskWork(self.part.encode(), {}, self.shared, self.part.title)
        return transport.computed(transport.given(given), work)

    def _tasks(self, units: np.ndarray) -> int:
        cores = self.stages.transport.cores
        least = max(1, min(cores, len(units)))
        if not isinstance(self.units, FileUnits) or least == 1:
            return least
        bytes = decoded_bytes([self.units.splits[unit] for unit in units], self.scan.schema)
        return max(least, tasks_for(bytes, len(units), cores))

    def _given(self, task: int, base: list[np.ndarray], batches: list[np.ndarray]) -> Iterator[Row]:
        """What a task is given: its units, and what it must know of them."""
        units = np.concatenate([*base, *batches]) if base or batches else np.zeros(0, np.int64)
        told: dict[str, Any] = {
            "numbers": units.tolist(),
            "base": len(base),
            "sizes": [len(batch) for batch in batches],
            "first": self.tasks + task,
        }
        if self.populations is not None:
            zone, mine = self.populations.zone, self.first + units
            told |= {"lows": zone.lows[mine].tolist(), "highs": zone.highs[mine].tolist()}
        yield task, UNITS, 0, json.dumps(told).encode()
        yield from self.units.rows_for(task, self.scan.name, units)
        yield from ((task, *row[1:]) for row in self.whole)

    def keep(self, rows: list[Row]) -> None:
        """Keep the groups of a wave."""
        for _, _, place, blob in rows:
            self.groups += decode_chunks(blob, self.width, place)
        self.groups = self.merging(self.groups)

    def plain(self) -> list[Chunk]:
        """The groups without what was noted of them."""
        columns = len(self.step.schema)
        return [Chunk(one.order, one.rows, one.arrays[:columns]) for one in self.groups]


def why_no_waves(stages: Stages, found: driven.Driven) -> str | None:
    """Why the driven aggregate cannot be computed in waves; None if it can."""
    if stages.run.settings.memory_limit is not None:
        return "a run with a memory limit shows the final result only"
    for branch in found.branches:
        if not isinstance(branch.scan, Scan) or is_there(branch.scan):
            return "the rows of the scan are in the cluster already: the final result only"
        if not all(_travels(stages, step, branch) for step in stages.cut.entries(branch.partial)):
            return "rows of several tasks meet before they are grouped: the final result only"
    return None


def _travels(stages: Stages, step: Step, branch: driven.Branch) -> bool:
    """Whether the rows of an entry can come with each wave."""
    if step is branch.scan:
        return True
    if isinstance(step, Broadcast) and step.scope == "global":
        return not stages.broadcasts.moves_inside(step)
    # In a plan of one shard, what a join builds is where the rows of the scan are.
    return stages.cut.plan.shards == 1 and not is_there(step) and not isinstance(step, Movement)
