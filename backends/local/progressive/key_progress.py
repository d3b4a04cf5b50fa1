"""Progress by keys, of a join of two large sides, groups or windows: in ripples, each over more keys than before.

In: a plan whose step `progressive` stands above a join, groups or windows. Out: a snapshot per ripple; the last one is
exact. A ripple has the rows whose keys are in some parts of all keys (`planner/progressive/key_parts.py`), and the
first one those of heavy keys too (`heavy_keys.py`). It leaves partial groups; what is above the groups runs over those
of all ripples. No pair is joined twice. Memory: the partial groups of all ripples, one for each batch of parts, and
the join's table for one ripple. Cost: all tables are read for each ripple, but only the rows of its keys go on; so
there are few ripples, each four times as large as those before it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tsql.backends import Run
from tsql.backends.local.progressive.design import PlainDesign
from tsql.backends.local.progressive.group_progress import GroupProgress
from tsql.backends.local.progressive.heavy_keys import heavy_keys
from tsql.backends.local.progressive.known import Known
from tsql.backends.local.progressive.progress import error_of
from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.backends.local.run.kernels import Kernels
from tsql.backends.snapshots import Snapshot
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.operators.collect import columns_of
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.progression import Progression
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import PhysicalPlan
from tsql.planner.progressive.dealing import COUNT, FROM, PARTS, SEED, TO, WIDTH
from tsql.planner.progressive.driven_keys import DrivenKeys
from tsql.planner.progressive.key_parts import plan_of_part
from tsql.planner.progressive.part_filters import counts_rows, is_at_scans
from tsql.planner.progressive.snapshot_plan import SnapshotPlan

ENDS, ENDS_OF_FILES = (16, 64, 256), (32,)
"""Behind which of the parts a ripple ends, before the last one. Files are decoded again for each."""

BATCHES = 16
"""A ripple has so many batches of parts, which are all of one size: each has partial groups of its own."""

GROWTH = 4.0
"""How many times as long as the last ripple the next one may take."""


@dataclass
class Ripple:
    """The plan of partial groups with its kernels."""

    plan: PhysicalPlan
    kernels: Kernels


class KeyProgress(GroupProgress):
    """Groups over a join or over other groups, for some of the keys after the other."""

    found: DrivenKeys  # type: ignore[assignment]

    def snapshots(self) -> Iterator[Snapshot]:
        begun, spec, x = time.perf_counter(), self.found.spec, self.x
        rest = plan_of_part(self.plan, self.found, None).root
        if counts_rows(rest) and not is_at_scans(rest):
            self.run.note("rows that are left out would be counted several times: the final result only")
            batches = list(x.batches(self.plan))
            yield Snapshot(batches, self.run.total_rows or 0, self.run.total_rows, True, True, self.exact(batches, {}))
            return
        x._lower(self.plan.root, self.plan.shards)
        design = PlainDesign(PARTS, bool(self.found.partial.by))
        self.shown = self._plan_of(design, False)
        self.others = {id(step): self._collected(step) for step in self.shown.plan.others}
        self.heavy = heavy_keys(self.x, self.plan, rest, spec, self.kept.parts)
        self.all_rows = 0
        groups: list[list[Chunk]] = []
        sizes: list[int] = []
        first, last = 0, time.perf_counter()
        for end in ends(spec, self._is_in_memory()):
            width = (end - first) // BATCHES
            groups += self._ripple(first, end, width)
            sizes += [width] * BATCHES
            parts = np.arange(PARTS)
            known = Known(design, self.shown.plan.terms, spec, parts[:end], parts[end:], sizes)
            shown = self._show(known, groups, self.all_rows * end // PARTS, self.all_rows)
            now = time.perf_counter()
            if spec.within_us is not None and (now - begun + GROWTH * (now - last)) * 1e6 >= spec.within_us:
                shown = replace(shown, is_last=True)
            if spec.until_error is not None and error_of(shown) <= spec.until_error:
                shown = replace(shown, is_last=True)
            yield shown
            if shown.is_last:
                return
            first, last = end, time.perf_counter()
        groups = [[self._plain(chunk) for chunk in chunks] for chunks in groups] + self._ripple(first, PARTS, 0)
        states = self.found.states
        x.inputs[id(self.found.partial)] = Flow(
            ChunkData(tuple(c.source() for c in columns_of(states)), _spread(groups, self.plan.shards)), states
        )
        batches, rows = list(x.batches(self.plan)), self.all_rows
        yield Snapshot(batches, rows, rows, True, True, self.exact(batches, self.shown.plan.bounds))

    def _is_in_memory(self) -> bool:
        sources = [one.source for one in self.found.below.walk() if isinstance(one, Scan)]
        return all(isinstance(one, BlockTable) or getattr(one, "in_memory", False) for one in sources)

    def _ripple(self, first: int, end: int, width: int) -> list[list[Chunk]]:
        """The partial groups of these parts; with their sums in batches of so many parts, unless it is 0."""
        kept = self._part(self.shown.plan if width else None)
        width, seed = max(1, width), self.found.spec.seed
        given = {FROM: first, TO: end, WIDTH: width, COUNT: (end - first) // width, SEED: seed, **self.heavy}
        run = Run(settings=self.run.settings, parameters={**self.run.parameters, **given})
        run.wall_clock = self.run.wall_clock
        x = Execution(run.shares(self.run), kept.kernels, self.x.interpret)
        try:
            with kept.plan.deep():
                found = x.collected(kept.plan.root, kept.plan.shards)
            x.tell()
            for what, rows in run.counts.items():
                self.run.count(what, rows)
            assert isinstance(found.data, ChunkData)
            chunks = found.data.chunks[:1] if found.replicated else found.data.chunks
        finally:
            x.close()
        self.all_rows = max(self.all_rows, run.total_rows or 0)
        self.run.total_rows, self.run.done_rows = self.all_rows, self.all_rows * end // PARTS
        return chunks

    def _part(self, snapshot: SnapshotPlan | None) -> Ripple:
        """The plan of a ripple; of the last one, which no snapshot follows, if there is none."""
        key = snapshot is None, len(self.heavy)
        found: Ripple | None = self.kept.parts.get(key)
        if found is None:
            plan = plan_of_part(self.plan, self.found, snapshot, len(self.heavy))
            found = self.kept.parts[key] = Ripple(plan, Kernels())
        return found

    def _plain(self, chunk: Chunk) -> Chunk:
        """A chunk without sums."""
        return replace(chunk, arrays=chunk.arrays[: len(self.found.states)])


def ends(spec: Progression, in_memory: bool) -> list[int]:
    """Behind which parts the ripples end. Those that come long before the first snapshot is due are left out."""
    share = spec.every / 100 if spec.unit == "percent" else 0.0
    found = ENDS if in_memory else ENDS_OF_FILES
    return [end for end in found if end * GROWTH >= share * PARTS or end == found[-1]]


def _spread(groups: list[list[Chunk]], shards: int) -> list[list[Chunk]]:
    """Lists of chunks as so many shards."""
    found: list[list[Chunk]] = [[] for _ in range(shards)]
    for number, chunks in enumerate(groups):
        found[number % shards] += chunks
    return found
