"""A worker of a progressive run: aggregates units into one state that stays, and notes what each batch of units has
added to the groups."""

from __future__ import annotations

import ctypes
import math
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tsql.backends.local.progressive.populations import Keys
from tsql.backends.local.progressive.unit_worker import UnitWorker
from tsql.backends.local.run.dataset import group_runs
from tsql.backends.local.run.host import Context, take_chunks
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.expr.nodes import Column
from tsql.kernels.operators.aggregate.groups import AggregateSink, DenseAggregate, GroupScan
from tsql.kernels.operators.collect import Collect, OutputColumn
from tsql.kernels.process.quick_dataclass import dataclass

if TYPE_CHECKING:
    from tsql.backends.local.progressive.branch import Branch


@dataclass
class Noted:
    """What was noted of the groups of a worker, by their number: see `Fold`."""

    measures: int
    pairs: int
    totals: np.ndarray = field(default_factory=lambda: np.zeros(0))
    bases: np.ndarray = field(default_factory=lambda: np.zeros(0))
    products: np.ndarray = field(default_factory=lambda: np.zeros(0))
    seen: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def grow(self, groups: int) -> None:
        """Have room for so many groups."""
        if groups <= len(self.seen):
            return
        room = max(groups, 2 * len(self.seen))
        for name, each in (("totals", self.measures), ("bases", self.measures), ("products", self.pairs), ("seen", 1)):
            old = getattr(self, name)
            new = np.zeros(room * each)
            new[: len(old)] = old
            setattr(self, name, new)

    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.totals, self.bases, self.products, self.seen

    def sums(self, groups: np.ndarray) -> list[np.ndarray]:
        """What was noted of these groups: of each measure the total and what was counted in full, of each pair the sum
        of products, and the batches."""
        totals = self.totals.reshape(-1, self.measures)[groups]
        bases = self.bases.reshape(-1, self.measures)[groups]
        found = [column for i in range(self.measures) for column in (totals[:, i], bases[:, i])]
        if self.pairs:
            products = self.products.reshape(-1, self.pairs)[groups]
            found += [products[:, i] for i in range(self.pairs)]
        return [np.ascontiguousarray(column) for column in (*found, self.seen[groups])]


class Worker(UnitWorker):
    """One of the workers of a branch."""

    sink: AggregateSink | None

    def __init__(self, branch: Branch, shard: int):
        super().__init__(branch, shard)
        self.branch, self.pipeline = branch, branch.pipeline
        pipeline = branch.pipeline
        self.noted = Noted(len(pipeline.measures), len(pipeline.pairs))
        self.fold_context: Context | None = None
        self.groups = 0
        """The groups when they were last looked at."""
        self.keys = np.zeros(0, np.int64)

    def run_batches(self, batches: list[np.ndarray], is_base: bool, is_noted: bool = True) -> None:
        """Aggregate batches of units. `is_base`: they are counted in full, and not part of the random sample. What they
        add is noted, unless no snapshot follows."""
        last = None
        for number, part in self.branch.units.batches([batch - self.branch.first for batch in batches]):
            if last is not None and number != last and is_noted and not is_base:
                self.fold(batches[last], False)
            last = number
            self.run_part(part)
        if last is not None and is_noted:
            self.fold(batches[last], is_base)

    def fold(self, units: np.ndarray, is_base: bool) -> None:
        """Note what these units have added to each group."""
        b = self.branch
        if not self.pipeline.measures or self.sink is None:
            return
        runs = list(group_runs(self.sink, self.opened[0].state_address))
        self.groups = sum(rows for _, rows in runs)
        self.noted.grow(self.groups)
        pipeline, code = b.fold_kernel(self.sink)
        if self.fold_context is None:
            self.fold_context = b.x.states.context(pipeline, code)
        context = self.fold_context
        words = (ctypes.c_uint64 * 4).from_address(context.state_address)
        words[:] = [array.ctypes.data for array in self.noted.arrays()]
        weights = self._weights(units)
        if weights is None:
            ctypes.c_double.from_address(context.state_address + 32).value = 1 / len(units)
        else:
            ctypes.c_uint64.from_address(context.state_address + 32).value = weights.ctypes.data
        ctypes.c_int64.from_address(context.state_address + 40).value = is_base
        context.counter.value = 0
        code.run(context, _morsels(runs))

    def _weights(self, units: np.ndarray) -> np.ndarray | None:
        """For each group one over how many of these units may hold it; None where all may."""
        populations = self.pipeline.populations
        if populations is None:
            return None
        zone = populations.zone
        counts = Keys(zone.lows[units], zone.highs[units]).may_hold(self._group_keys())
        return np.where(counts > 0, 1.0 / np.maximum(counts, 1), 0.0)

    def _group_keys(self) -> np.ndarray:
        """The keys of all groups, by their number."""
        sink, populations = self.sink, self.pipeline.populations
        assert sink is not None and populations is not None
        if isinstance(sink, DenseAggregate):
            if not len(self.keys):
                self.keys = _dense_keys(sink, populations.place)
        elif len(self.keys) < self.groups:
            self.keys = populations.keys_of(self._read_keys(sink, populations.place))
        return self.keys

    def _read_keys(self, sink: AggregateSink, place: int) -> pa.Array:
        """The keys in the groups of a table."""
        b = self.branch
        field = b.step.schema.fields[place]
        columns = (OutputColumn(field.name, Column(field.name, field.type, field.nullable)),)
        pipeline, code = b.x.pipelines.finder.find(
            b.step, "keys", b.groups_flow, GroupScan(sink), lambda: Collect(columns)
        )
        context = b.x.states.context(pipeline, code)
        code.run(context, _morsels(list(group_runs(sink, self.opened[0].state_address))))
        chunks = take_chunks(context.state_address, columns, b.x.shared)
        b.x.states.close(context)
        return pa.concat_arrays([chunk.arrays[0] for chunk in chunks])

    def run_empty(self) -> None:
        """Aggregate no rows."""
        super().run_empty()
        assert self.sink is not None
        self.groups = sum(rows for _, rows in group_runs(self.sink, self.opened[0].state_address))
        self.noted.grow(self.groups)

    def finish(self) -> Context:
        """The context that owns the state. The others, and what was noted, are gone."""
        last = super().finish()
        if self.fold_context is not None:
            self.branch.x.states.close(self.fold_context)
            self.fold_context = None
        return last


def _morsels(runs: list[tuple[int, int]]) -> Morsels:
    """All groups of a state."""
    morsels, position = Morsels(1), 0
    for address, rows in runs:
        morsels.add(rows, position, [(address, 0, 0, 0)])
        position += rows
    return morsels


def _dense_keys(sink: DenseAggregate, place: int) -> np.ndarray:
    """A key of each possible group, in stored form."""
    below = math.prod(sink.cards[place + 1 :])
    return np.arange(sink.groups) // below % sink.cards[place] + sink.grouping.fields[place].bounds[0]
