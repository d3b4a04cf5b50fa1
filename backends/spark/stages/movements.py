"""Rows that other tasks place: what a movement, a step with one shard, or a DataFrame sends to its users. Computed once
for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tsql.backends.local.run.arranging import SAMPLED_ROWS, Boundary, boundaries
from tsql.backends.spark.arranged import chosen, decode_sample, encode_boundaries
from tsql.backends.spark.heavy import heavy_keys, split_side
from tsql.backends.spark.transport.transport import Rows, TaskWork
from tsql.kernels.expr.nodes import Column
from tsql.planner.physical.movement import Arrange, Gather, Movement, Redistribute
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.spark.stages.stages import Stages


class Movements:
    """The movements of one run."""

    def __init__(self, stages: Stages):
        self.stages, self.cut = stages, stages.cut
        self.done: dict[int, Rows] = {}
        self.heavy: dict[int, list[Boundary]] = {}

    def moved(self, step: Step) -> Rows:
        """The rows that a movement between tasks, or a step with one shard, sends to its users. Computed once for all
        of them."""
        if id(step) not in self.done:
            if isinstance(step, Scan):
                self.done[id(step)] = self._framed(step)
            elif isinstance(step, Arrange):
                self.done[id(step)] = self._arranged(step)
            elif isinstance(step, Movement):
                heavy = self._heavy(step) if isinstance(step, Redistribute) and step.heavy is not None else {}
                shards = step.shards or self.cut.plan.shards
                self.done[id(step)] = self.stages.stage(step.inputs[0], step, shards, **heavy)
            elif self.cut.in_tasks[id(step)] or (isinstance(step, Gather) and self.cut.in_tasks[id(step.inputs[0])]):
                self.done[id(step)] = self.stages.gathered(step)
            else:
                self.done[id(step)] = self.stages.stage(step, None, 1)
        return self.done[id(step)]

    def _arranged(self, step: Arrange) -> Rows:
        """Rows in shards by ranges of their keys. Without a sample there is one range."""
        shards = step.shards or self.cut.plan.shards
        ranges: list[list[Any]] = []
        if not self.stages.lazy:
            keys = self._sampled(step, [key.expr.name for key in step.keys if isinstance(key.expr, Column)])
            ranges = encode_boundaries(boundaries(keys, step.keys, shards))
        return self.stages.stage(step.inputs[0], step, shards, ranges=ranges)

    def _heavy(self, step: Redistribute) -> dict[str, Any]:
        """The key columns of a side of a join, and the keys that are heavy on the side that is split."""
        split = split_side(self.cut.plan.root, step)
        if id(split) not in self.heavy:
            keys = [] if self.stages.lazy else self._sampled(split, self._key(split))
            self.heavy[id(split)] = heavy_keys(keys, split.shards or self.cut.plan.shards)
        return {"keys": self._key(step), "heavy": encode_boundaries(self.heavy[id(split)])}

    def _key(self, step: Redistribute) -> list[str]:
        return list(self.cut.properties[id(step.inputs[0])].key or ())

    def _sampled(self, step: Step, names: list[str]) -> list[Boundary]:
        """Keys of some of the rows that a step moves."""
        sample = self.stages.stage(step.inputs[0], step, 1, sample=SAMPLED_ROWS, keys=names)
        which = chosen(self.stages.transport.partitions(sample), self.stages.transport.cores)
        return decode_sample([row[3] for row in self.stages.jobs.collect(sample, which)])

    def arranged_frame(self, step: Arrange) -> Rows:
        """The rows of a lazy ORDER BY, placed by Spark."""
        (below,) = step.inputs
        names = tuple(below.schema.names)
        rows, work = self.stages.entering(below, None, 0, output=(names, names))
        plan = replace(self.cut.plan, root=below, columns=names, names=names)
        return self.stages.transport.arranged(rows, work, plan, step.keys, step.shards or plan.shards)

    def _framed(self, scan: Scan) -> Rows:
        """Rows of a DataFrame or a dataset that meet other inputs: they become blobs of this plan first."""
        entry, rows = self.stages.there(scan)
        part = self.stages.part(scan, None, self.cut.shards(scan), [entry])
        return self.stages.computed(rows, TaskWork(part.encode(), {}, {}, part.title))
