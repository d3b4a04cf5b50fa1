"""Runs `combine`: the panes of each shard are collected and sorted, and a kernel walks them once to produce windows.

Memory and spilling are those of a window step (`window.py`, `spill/windows.py`): a shard whose panes do not fit is
split by its keys, and the panes of one key must fit. Panes that are groups in arrays are neither collected nor sorted,
but walked in place."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from math import prod

from tsql.backends.local.lower.graph import Lies, Lowering, Node, Shape, Way
from tsql.backends.local.lower.local_step import LocalStep, runs
from tsql.backends.local.run.dataset import BlockData, ChunkData, Dataset, GroupData, Part
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.sliced_groups import SlicedGroups
from tsql.backends.local.sort.window_data import WindowData, nullable_columns, refuse_nulls
from tsql.backends.local.sort.window_rows import WindowShape
from tsql.backends.local.spill.windows import WindowJobs, window_pipes
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.emit.rows import POSITION
from tsql.kernels.expr.nodes import Aggregate, Column, SortKey
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.operators.aggregate.combine import PLACE, CombineScan, Windows, needs_places
from tsql.kernels.operators.aggregate.combine_groups import GroupCombineScan
from tsql.kernels.operators.aggregate.groups import DenseAggregate
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.combine import Combine

IN_PLACE = Way("panes walked where they lie", "they are groups in arrays")
SORTED = Way("panes collected and sorted")

MORSEL_PLACES = 1 << 15
"""Array places per morsel, or those of one key if it has more."""


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
    """The windows of a combine step. A shard is walked by one worker."""

    def __init__(self, step: Combine, *given: object):
        super().__init__(step, *given)
        self.rows *= step.windows.most_per_pane

    def spread(self, tasks: int) -> Dataset:
        return Dataset.spread(self, tasks)


class GroupPaneData(Dataset):
    """The windows of a combine step whose panes are groups in arrays: the panes of all workers in one shard, or in the
    shards that the groups are split into."""

    ready = True

    def __init__(self, groups: GroupData | SlicedGroups, scan: GroupCombineScan):
        self.groups, self.scan, self.shards = groups, scan, groups.shards
        self.rows = groups.rows * scan.windows.most_per_pane
        states = groups.data.states if isinstance(groups, SlicedGroups) else groups.states
        self.arrays = (ctypes.c_uint64 * len(states))(*(context.state_address for context in states))

    def empty_source(self) -> GroupCombineScan:
        return self.scan

    def feed(self, shard: int) -> Iterator[Part]:
        cut = isinstance(self.groups, SlicedGroups)
        yield Part(
            self.scan, self._morsels(self.groups.keys(shard, self.scan.pane)) if cut else self.all_keys(), (shard,)
        )

    def _morsels(self, runs: Iterable[tuple[int, int]]) -> Morsels:
        """Morsels over the keys of runs, small enough to keep all workers busy. A morsel's rows are the places it
        scans."""
        panes, arrays, morsels = self.scan.sink.cards[self.scan.pane], len(self.arrays), Morsels(1)
        most = max(1, MORSEL_PLACES // panes)
        for first, count in runs:
            for start in range(first, first + count, most):
                keys = min(most, first + count - start)
                morsels.add(
                    keys * panes * arrays,
                    start * panes * self.scan.windows.most_per_pane,
                    [(ctypes.addressof(self.arrays), start, keys, arrays)],
                )
        return morsels

    def spread(self, tasks: int) -> Dataset:
        return SpreadPanes(self, tasks)

    def all_keys(self) -> Morsels:
        cards = self.scan.sink.cards
        return self._morsels([(0, prod(cards) // cards[self.scan.pane])])

    def release(self) -> None:
        self.groups.release()


class SpreadPanes(BlockData):
    """The same windows. All workers take keys from one counter."""

    positioned = by_morsel = False

    def __init__(self, data: GroupPaneData, tasks: int):
        self.data, self.shards, self.rows = data, tasks, data.rows
        self.parts = [(data.scan, data.all_keys(), ctypes.c_int64(0))]

    def waves(self, threads: int, small: bool = False) -> Iterator[BlockData]:
        """All at once: the consumer of the first wave frees the arrays."""
        yield self

    def release(self) -> None:
        self.data.release()


@runs(Combine)
class CombineStep(LocalStep[Combine]):
    """Makes windows from panes."""

    @classmethod
    def lower(cls, step: Combine, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        rows, *others = window_pipes(step, inputs[0], about)
        rows = replace(rows, ways=(IN_PLACE, SORTED) if inputs[0].lies is Lies.GROUPS else ())
        return Shape(source=f"windows of {step.name}", lies=Lies.OTHER, pipes=(rows, *others))

    def flow(self, node: Node) -> Flow:
        step, flow, jobs = node.step, self.x.flow(node.inputs[0]), self.x.part(WindowJobs)
        in_place = self._in_place(step, flow)
        self.x.run.chose(step.name, (SORTED if in_place is None else IN_PLACE).name)
        if in_place is not None:
            return Flow(in_place, step.schema)
        placed = needs_places(step.calls, step.windows)
        wanted = (
            *columns_of(flow.schema),
            *([OutputColumn(PLACE.name, Column(POSITION, BIGINT, False), False)] if placed else []),
        )
        shift = flow.data.shift if isinstance(flow.data, ChunkData) and len(step.by) == 1 else 0
        lists = jobs.rows(step, flow, wanted, placed)
        columns = tuple(OutputColumn(c.name, Column(c.name, c.type)) for c in wanted)
        by = tuple(Column(n, flow.schema[n].type) for n in step.by)
        tasks = max(1, min(self.x.threads, len(lists)))
        order = (SortKey(step.windows.order),)
        nullable = nullable_columns(lists, len(wanted))
        refuse_nulls(step, (step.windows.pane, step.windows.first, step.windows.last), wanted, nullable, lists)
        shape = PaneShape(step.name, tasks, columns, by, order, (), nullable, (), shift, step.calls, step.windows)
        return Flow(
            PaneData(step, shape, jobs.jobs(step, shape, lists), self.x.shared, self.x.spill.active), step.schema
        )

    def _in_place(self, step: Combine, flow: Flow) -> GroupPaneData | None:
        """The windows of panes in arrays; None if they are not in arrays, or also use other memory."""
        groups = flow.data
        data = groups.data if isinstance(groups, SlicedGroups) else groups
        is_whole = isinstance(groups, SlicedGroups) or groups.shards == 1
        if (
            not isinstance(data, GroupData)
            or not is_whole
            or step.windows.pane is None
            or step.windows.over != "states"
        ):
            return None
        sink = data.sink
        if not isinstance(sink, DenseAggregate) or not all(o.counts for o in flow.operators):
            return None
        names = [name for name, _ in sink.grouping.keys]
        if {*step.by, step.windows.pane} != set(names):
            return None
        pane = names.index(step.windows.pane)
        if sink.grouping.fields[pane].nullable or any(
            i.distinct is not None or i.body.release() for i in sink.grouping.items
        ):
            return None
        return GroupPaneData(groups, GroupCombineScan(sink, pane, flow.operators, step.calls, step.windows))
