"""Runs `combine`: the panes of each shard are collected and sorted, and a kernel walks them once and gives windows.

Memory and spilling are those of a window step (`windows.py`, `spill_windows.py`): a shard whose panes do not fit is split by its
keys; the panes of one key must fit. Panes that are groups in arrays are neither collected nor sorted: they are walked where they lie.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tsql.backends.local.dataset import BlockData, ChunkData, Dataset, Part
from tsql.backends.local.runner import Flow
from tsql.backends.local.sliced import SlicedGroups
from tsql.backends.local.window_rows import WindowShape
from tsql.backends.local.windows import WindowData, WindowRunner, nullable_columns
from tsql.kernels.batch import Morsels
from tsql.kernels.expr import Aggregate, Column, SortKey
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.kernels.operators.combine import CombineScan, Windows
from tsql.kernels.operators.combine_groups import GroupCombineScan
from tsql.planner.operators.combine import Combine

MORSEL_PLACES = 1 << 15
"""So many places of an array are looked at for a morsel, or those of one key."""


@dataclass(frozen=True)
class PaneShape(WindowShape):
    """Panes, sorted by key and pane."""

    aggregates: tuple[tuple[str, Aggregate], ...] = ()
    windows: Windows | None = None

    @cached_property
    def whole(self) -> CombineScan:
        return CombineScan(self.sources(), self.partition_keys, self.aggregates, self.windows)

    @cached_property
    def halo(self) -> None:
        """A window may have any pane of its key."""
        return None


class PaneData(WindowData):
    """The windows of a combine step; a shard is walked by one worker."""

    def __init__(self, step: Combine, *given: object):
        super().__init__(step, *given)
        self.rows *= step.windows.most_per_pane

    def spread(self, tasks: int) -> Dataset:
        return Dataset.spread(self, tasks)


class GroupPaneData(Dataset):
    """The windows of a combine step whose panes are groups in arrays; the shards are those of the groups."""

    ready = True

    def __init__(self, groups: SlicedGroups, scan: GroupCombineScan):
        self.groups, self.scan, self.shards = groups, scan, groups.shards
        self.rows = groups.rows * scan.windows.most_per_pane
        addresses = [context.state_address for context in groups.data.states]
        self.arrays = (ctypes.c_uint64 * len(addresses))(*addresses)

    def empty_source(self) -> GroupCombineScan:
        return self.scan

    def feed(self, shard: int) -> Iterator[Part]:
        yield Part(self.scan, self._morsels(self.groups.keys(shard, self.scan.pane)), (shard,))

    def _morsels(self, runs: Iterator[tuple[int, int]]) -> Morsels:
        """The keys of runs, so many at a time that workers find enough to do."""
        sink, morsels = self.scan.sink, Morsels(1)
        most = max(1, MORSEL_PLACES // sink.cards[self.scan.pane])
        panes = sink.cards[self.scan.pane] * self.scan.windows.most_per_pane
        for first, count in runs:
            for start in range(first, first + count, most):
                morsels.add(min(most, first + count - start), start * panes, [(ctypes.addressof(self.arrays), start, 0, len(self.arrays))])
        return morsels

    def spread(self, tasks: int) -> Dataset:
        return SpreadPanes(self, tasks)

    def all_keys(self) -> Morsels:
        sink = self.scan.sink
        return self._morsels(iter([(0, prod(sink.cards) // sink.cards[self.scan.pane])]))

    def release(self) -> None:
        self.groups.release()


class SpreadPanes(BlockData):
    """The same windows; all workers take keys from one counter."""

    positioned = by_morsel = False

    def __init__(self, data: GroupPaneData, tasks: int):
        self.data, self.shards, self.rows = data, tasks, data.rows
        self.parts = [(data.scan, data.all_keys(), ctypes.c_int64(0))]

    def release(self) -> None:
        self.data.release()


class CombineRunner(WindowRunner):
    """Adds combine steps to windows."""

    def _combine(self, step: Combine, flow: Flow) -> Flow:
        in_place = self._in_place(step, flow)
        if in_place is not None:
            return Flow(in_place, step.schema, [], flow.key)
        wanted = columns_of(flow.schema)
        shift = flow.data.shift if isinstance(flow.data, ChunkData) and len(step.by) == 1 else 0
        lists = self._window_rows(step, flow, wanted, False)
        columns = tuple(OutputColumn(c.name, Column(c.name, c.type)) for c in wanted)
        by = tuple(Column(n, flow.schema[n].type) for n in step.by)
        tasks = max(1, min(self.threads, len(lists)))
        order = (SortKey(step.windows.order),)
        shape = PaneShape(step.name, tasks, columns, by, order, (), nullable_columns(lists, len(wanted)), (), shift, step.calls, step.windows)
        return Flow(PaneData(step, shape, self._window_jobs(step, shape, lists), self.shared, self.spill.active), step.schema, [], flow.key)

    def _in_place(self, step: Combine, flow: Flow) -> GroupPaneData | None:
        """The windows of panes that lie in arrays; None if they do not, or are kept in other memory besides."""
        groups = flow.data
        if not isinstance(groups, SlicedGroups) or step.windows.pane is None or step.windows.over != "states":
            return None
        sink = groups.data.sink
        names = [name for name, _ in sink.grouping.keys]
        if {*step.by, step.windows.pane} != set(names) or step.windows.pane not in names:
            return None
        pane = names.index(step.windows.pane)
        if sink.grouping.fields[pane].nullable or any(i.distinct is not None or i.body.release() for i in sink.grouping.items):
            return None
        return GroupPaneData(groups, GroupCombineScan(sink, pane, flow.operators, step.calls, step.windows))
