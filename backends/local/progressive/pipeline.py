"""What makes the progress of groups: the units of all branches in one random order, and a view of the groups for each
snapshot."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tsql.backends.local.progressive.branch import Branch
from tsql.backends.local.progressive.design import Design
from tsql.backends.local.progressive.known import Known
from tsql.backends.local.progressive.units import JoinedUnits, Units
from tsql.backends.local.run.host import Chunk
from tsql.backends.local.run.workers import parallel
from tsql.planner.progressive import driven
from tsql.planner.progressive.snapshot_plan import SnapshotPlan

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution

FIRST_UNITS = 32
"""While so few units have been read, each of them is a batch of its own, if there are few groups. Later batches have
more: the spread is known better by then, and a batch costs a call."""

FIRST_BATCHES = 12
"""The first snapshot has at least so many batches, unless they would take FIRST_SHARE of the time of all rows."""

FOLD_NS, WEIGHT_NS, ROW_NS, FOLD_SHARE, FIRST_SHARE = 1.5, 60.0, 1.5, 0.05, 0.2
"""Noting a measure or a product of a group takes about this long, finding the weight of a group, a row of a unit; and
folds may take this share of the time of rows."""


class DrivenPipeline:
    """`begin` gives it the design of the sample and the plan of its snapshots."""

    def __init__(self, x: Execution, found: driven.Driven, branches: list[Branch]):
        self.x, self.found, self.branches, self.run = x, found, branches, x.run
        self.places = 0
        """How many units of the order have been read."""
        self.sizes: list[int] = []
        """Of the batches of the random sample."""

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
        self.design, self.plan = design, plan
        self.measures, self.pairs = plan.measures, plan.pairs
        self.units.arrange(design.certain, design.empty)
        self.populations = design.populations if plan.terms.by_group else None
        self.threads = min(self.x.threads, max(1, self.units.length))
        for branch in self.branches:
            branch.begin(self, self.threads)

    def read(self, units: int) -> None:
        """Aggregate the next units; those that are counted in full come first, and all at once."""
        last = min(self.units.length, max(self.places + units, self.units.certain))
        if self.places < self.units.certain:
            self._read(self._singles(self.units.certain), True)
        if self.places < last:
            batches = self._batches(last)
            self._read(batches, False)
            self.sizes += [len(batch) for batch in batches]
        self.run.done_rows = max(self.run.done_rows, self.x.shared.rows_done)

    def read_rest(self) -> None:
        """Aggregate the units that are left, for the exact result."""
        rest = self.units.order[self.places :]
        parts = [rest] if self.units.are_read_singly else np.array_split(rest, self.threads)
        batches = [batch for part in parts if len(part) for batch in self._by_branch(part)]
        if self.units.are_read_singly:
            batches = [batch[place : place + 1] for batch in batches for place in range(len(batch))]
        self._read(batches, False, is_noted=False)
        self.run.done_rows = max(self.run.done_rows, self.x.shared.rows_done)

    def _read(self, batches: list[np.ndarray], is_base: bool, is_noted: bool = True) -> None:
        owners = [self._owner(batch) for batch in batches]

        def work(number: int) -> None:
            for branch in self.branches:
                mine = [batch for batch, owner in zip(batches, owners, strict=True) if owner is branch]
                branch.workers[number].run_batches(mine[number :: self.threads], is_base, is_noted)

        parallel(work, self.threads, self.x.threads, self.run)
        self.places += sum(len(batch) for batch in batches)

    def _owner(self, batch: np.ndarray) -> Branch:
        """The branch of the units of a batch."""
        return next(branch for branch in reversed(self.branches) if branch.first <= batch[0])

    def _by_branch(self, units: np.ndarray) -> list[np.ndarray]:
        """These units in batches of one branch each."""
        if len(self.branches) == 1:
            return [units]
        owners = np.searchsorted([branch.first for branch in self.branches], units, "right")
        return [units[owners == number] for number in np.unique(owners)]

    def _singles(self, last: int) -> list[np.ndarray]:
        return [self.units.order[place : place + 1] for place in range(self.places, last)]

    def _batches(self, last: int) -> list[np.ndarray]:
        """The next units, up to a place of the order, in batches: the later ones are larger, and all are where folding
        many groups would take long. Each worker has one of them at least."""
        if self.units.are_read_singly:
            return self._singles(last)
        groups = self.groups
        weight = 0.0 if self.populations is None else WEIGHT_NS
        fold = groups * ((len(self.measures) + len(self.pairs)) * FOLD_NS + weight)
        rows = ROW_NS * max(1, self.units.all_rows)
        least = math.ceil(fold / (FOLD_SHARE * rows / max(1, self.units.length)))
        parts = self.threads * len(self.branches)
        if not self.sizes and FIRST_BATCHES * fold <= FIRST_SHARE * rows:
            parts = FIRST_BATCHES
        most = max(1, -(-(last - self.places) // parts))
        found, first = [], self.places
        while first < last:
            size = min(max(1 + (first - self.units.certain) // FIRST_UNITS, least), most)
            found += self._by_branch(self.units.order[first : min(last, first + size)])
            first += size
        return found

    @property
    def groups(self) -> int:
        """The groups of the largest worker of each branch."""
        return sum(max(worker.groups for worker in branch.workers) for branch in self.branches)

    def known(self) -> Known:
        """What is known of the sample now."""
        order, certain = self.units.order, self.units.certain
        read, left = order[certain : self.places], order[self.places :]
        return Known(self.design, self.plan.terms, self.found.spec, read, left, self.sizes)

    def view(self, known: Known | None) -> list[list[Chunk]]:
        """The groups of each worker with their sums, and with their terms if these are `known`, in columns. The states
        stay."""
        there = [branch for branch in self.branches if branch.has_state] or self.branches[:1]
        return [chunks for branch in there for chunks in branch.view(known)]

    def finish(self) -> None:
        """Hand the groups to the run: what reads them goes on as it would have."""
        for branch in self.branches:
            branch.finish()
