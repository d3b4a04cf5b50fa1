"""Waves of tasks: each is a job that reads the next units of the sample, and leaves partial groups with the driver.

In: the stages of the run, what the planner has found, and what a snapshot needs to know of groups. Out: the groups of
all waves, with what was noted of them (`view`). The parts of the plan, their broadcasts and what they share are made
once and serve all waves. Memory: the driver has the groups of all waves, and merges them when there are many; what
a wave has on the cluster is freed when it is over. Errors are those of any stage."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from tsql.backends.local.progressive.branch import term_arrays
from tsql.backends.local.progressive.design import Design
from tsql.backends.local.progressive.known import Known
from tsql.backends.local.progressive.pipeline import FIRST_UNITS
from tsql.backends.local.progressive.populations import Populations
from tsql.backends.local.progressive.units import JoinedUnits, Units
from tsql.backends.local.run.host import Chunk
from tsql.backends.spark.progressive.branch import WaveBranch
from tsql.backends.spark.progressive.task import COLLECTED
from tsql.backends.spark.stages import Stages
from tsql.backends.spark.wire import Row
from tsql.planner.progressive import driven
from tsql.planner.progressive.snapshot_plan import SnapshotPlan


class Waves:
    """The waves of one run. To the maker of snapshots it is what a pipeline of this machine is."""

    def __init__(self, stages: Stages, found: driven.Driven):
        self.stages, self.found = stages, found
        self.branches = [WaveBranch(stages, one) for one in found.branches]
        self.places = 0
        """How many units of the order have been read."""
        self.sizes: list[int] = []
        """Of the batches of the random sample."""
        self.is_collected = False
        """Whether tasks have found that the rows of a scan do not pass them one by one."""

    @cached_property
    def units(self) -> Units:
        if len(self.branches) == 1:
            return self.branches[0].units
        for before, branch in pairwise(self.branches):
            branch.first = before.first + before.units.count
        return JoinedUnits([branch.units for branch in self.branches], self.found.spec.seed)

    @property
    def parts(self) -> list[tuple[driven.Branch, Units]]:
        """The scans with their units."""
        return [(branch.found, branch.units) for branch in self.branches]

    def begin(self, design: Design, plan: SnapshotPlan) -> None:
        """Get ready for the first wave."""
        self.design, self.plan = design, plan
        self.units.arrange(design.certain, design.empty)
        self.populations: Populations | None = design.populations if plan.terms.by_group else None
        key = None
        if self.populations is not None:
            key = {"place": self.populations.place, "type": str(self.populations.zone.type)}
        sampled = {"measures": [one.name for one in plan.measures], "pairs": [*map(list, plan.pairs)], "key": key}
        for branch in self.branches:
            branch.begin(sampled, plan, self.populations)

    def read(self, last: int) -> None:
        """Run a wave over the units up to this place of the order; those that are counted in full come first."""
        order, first, certain = self.units.order, self.places, self.units.certain
        base = [order[place : place + 1] for place in range(first, min(last, certain))]
        batches = list(self._batches(max(first, certain), last))
        jobs, transport = self.stages.jobs, self.stages.transport
        several = [
            rows
            for branch in self.branches
            if (rows := branch.wave(self._of(branch, base), self._of(branch, batches))) is not None
        ]
        try:
            self._keep(jobs.collect(several[0] if len(several) == 1 else transport.together(several)))
        finally:
            jobs.at_rest(lambda: transport.free(several))
        self.places = last
        self.sizes += [len(batch) for batch in batches]
        self.stages.run.done_rows = self.units.rows_of(0, last)

    def _batches(self, first: int, last: int) -> Iterator[np.ndarray]:
        """The units of a wave in batches of one branch each. The later ones are larger, and each core has one."""
        certain, cores = self.units.certain, self.stages.transport.cores
        most = 1 if self.units.are_read_singly else max(1, (last - first) // (cores * len(self.branches)))
        starts = [branch.first for branch in self.branches]
        while first < last:
            size = min(1 + (first - certain) // FIRST_UNITS, most)
            units = self.units.order[first : min(last, first + size)]
            owners = np.searchsorted(starts, units, "right")
            yield from (units[owners == number] for number in np.unique(owners))
            first += size

    def _of(self, branch: WaveBranch, batches: list[np.ndarray]) -> list[np.ndarray]:
        """The batches of a branch, by the numbers that its units have there."""
        end = branch.first + branch.units.count
        return [batch - branch.first for batch in batches if branch.first <= batch[0] < end]

    def _keep(self, rows: list[Row]) -> None:
        rows = sorted(rows, key=lambda row: row[2])
        self.is_collected = any(row[1] == COLLECTED for row in rows)
        for branch in self.branches:
            branch.keep([row for row in rows if row[1] == branch.step.name])

    # What a snapshot asks for

    def known(self) -> Known:
        """What is known of the sample now."""
        order, certain = self.units.order, self.units.certain
        read, left = order[certain : self.places], order[self.places :]
        return Known(self.design, self.plan.terms, self.found.spec, read, left, self.sizes)

    def view(self, known: Known) -> list[list[Chunk]]:
        """The groups with their sums and terms, in columns."""
        groups = [branch.groups for branch in self.branches]
        populations = self.populations
        if populations is None or not self.plan.measures:
            return groups
        return [
            [
                Chunk(one.order, one.rows, [*one.arrays, *term_arrays(self.plan, populations, known, one.arrays)])
                for one in mine
            ]
            for mine in groups
        ]

    def given(self) -> dict[int, list[Chunk]]:
        """The groups of each branch without what was noted of them, by the id of its step."""
        return {id(branch.step): branch.plain() for branch in self.branches}
