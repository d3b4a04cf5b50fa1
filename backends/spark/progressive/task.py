"""What a task of a wave does: aggregates its units in the given order into states of its own, notes after each batch of
units what that has added to each group, and sends the groups with what was noted (`Noted.sums`).

A task that runs again does the same. Its states are gone when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tsql.backends.local.progressive.branch import Branch
from tsql.backends.local.progressive.pipeline import DrivenPipeline
from tsql.backends.local.progressive.populations import Populations
from tsql.backends.local.progressive.units import Batch, SplitUnits, Units
from tsql.backends.local.progressive.zones import Zone
from tsql.backends.local.run.dataset import SourceData
from tsql.backends.local.run.entry import BatchData
from tsql.backends.local.run.late_decoding import read_late
from tsql.backends.local.run.positions import ROW_BITS
from tsql.backends.spark.wire import Row, encode_chunks
from tsql.kernels.expr.types import parse_type
from tsql.planner.progressive import driven
from tsql.planner.progressive.measures import Measure, measured

if TYPE_CHECKING:
    from tsql.backends.local.lower.graph import Node
    from tsql.backends.local.run.execution import Execution
    from tsql.backends.spark.kept import LoadedPart
    from tsql.backends.spark.part import StagePart

COLLECTED = "\0collected"
"""The name of a row that says that the rows of the scan are collected before they are grouped."""

Told = dict[str, Any]
"""What the driver tells of a task's units (`waves.py`): their `numbers` among all units, how many of them are counted
in full (`base`), the `sizes` of the batches of the others, the number of the task among those of all waves (`first`),
and `lows` and `highs` of the key that says which groups each may hold."""


class GivenSplits(SplitUnits):
    """Splits in the order in which they came."""

    def __init__(self, data: SourceData, flow: Any):
        super().__init__(data, flow, 0)
        self.order = np.arange(self.count)


class GivenSlices(Units):
    """Slices of rows that came with the task. The rows of one have the positions behind its number."""

    def __init__(self, data: BatchData, numbers: list[int]):
        self.data, self.numbers = data, numbers
        self.pieces: list[list[Any]] = [[] for _ in numbers]
        for place, batch in data.batches():
            self.pieces[place].append(batch)
        super().__init__(np.array([sum(b.num_rows for b in one) for one in self.pieces], np.int64), 0)
        self.order = np.arange(self.count)

    def batches(self, batches: list[np.ndarray]) -> Iterator[Batch]:
        for number, units in enumerate(batches):
            for unit in units:
                position = self.numbers[unit] << ROW_BITS
                for batch in self.pieces[unit]:
                    yield number, self.data.part(batch, position, (self.numbers[unit],))
                    position += batch.num_rows


class GivenBranch(Branch):
    """A branch whose units came with the task."""

    def __init__(self, x: Execution, found: driven.Branch, node: Node, told: Told):
        super().__init__(x, found, node)
        self.told = told

    @property
    def is_driven(self) -> bool:
        # All threads of a task share the tables of its joins.
        return isinstance(self.ready.flow.data, SourceData | BatchData)

    @cached_property
    def units(self) -> Units:
        data = self.flow.data
        if isinstance(data, BatchData):
            return GivenSlices(data, self.told["numbers"])
        assert isinstance(data, SourceData)
        self.flow = read_late(self.x.pipelines, self.step, "", self.flow, self.make)
        return GivenSplits(data, self.flow)


class WavePipeline(DrivenPipeline):
    """The pipeline of one task. `sampled`: what the driver tells of the sample (`waves.py`)."""

    def __init__(self, x: Execution, found: driven.Driven, branch: GivenBranch, sampled: dict[str, Any]):
        super().__init__(x, found, [branch])
        self.branch = branch
        known: dict[str, Measure] = {
            one.name: one
            for name, call in found.groups.calls
            if (of_call := measured(name, call)) is not None
            for one in of_call.measures
        }
        self.measures = tuple(known[name] for name in sampled["measures"])
        self.pairs = tuple((a, b) for a, b in sampled["pairs"])
        self.populations = None
        key = sampled["key"]
        if key is not None:
            lows, highs = (np.array(branch.told[name], np.int64) for name in ("lows", "highs"))
            self.populations = Populations(key["place"], Zone(parse_type(key["type"]), lows, highs, False))
        self.threads = min(x.threads, max(1, self.units.length))
        branch.begin(self, self.threads)

    def read_all(self) -> None:
        """Aggregate all units."""
        told, places = self.branch.told, np.arange(self.units.length)
        base = told["base"]
        if base:
            self._read([places[place : place + 1] for place in range(base)], True)
        ends = base + np.cumsum(told["sizes"], dtype=np.int64)
        if len(ends):
            self._read(np.split(places[base:], ends[:-1] - base), False)


def sampled_groups(part: StagePart, program: LoadedPart, told: Told, execution: Execution) -> Iterator[Row]:
    """The groups of the units of a task, as rows of the wire."""
    found = driven.driven(program.plan.root)
    assert found is not None and part.sampled is not None, "the driver has found it in the same plan"
    mine = next(branch for branch in found.branches if branch.partial.name == part.top)
    with program.plan.deep():
        shards = max(program.plan.shards, execution.threads)
        graph = execution._lower(mine.partial, shards, hands_out_shards=True)
        branch = GivenBranch(execution, mine, graph.node(mine.partial), told)
        if not branch.is_driven:
            yield 0, COLLECTED, 0, b""
            return
        WavePipeline(execution, found, branch, part.sampled).read_all()
        lists = list(branch.view(None))
    execution.tell()
    for place, blob in enumerate(encode_chunks(chunk for chunks in lists for chunk in chunks)):
        yield 0, part.top, (told["first"] << 32) + place, blob
