"""Runs `combine`: the panes of each shard are collected and sorted, and a kernel walks them once and gives windows.

Memory and spilling are those of a window step (`windows.py`, `spill_windows.py`): a shard whose panes do not fit is split by its
keys; the panes of one key must fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tsql.backends.local.dataset import Dataset
from tsql.backends.local.runner import Flow
from tsql.backends.local.window_rows import WindowShape
from tsql.backends.local.windows import WindowData, WindowRunner, nullable_columns
from tsql.kernels.expr import Aggregate, Column, SortKey
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.kernels.operators.combine import CombineScan, Windows
from tsql.planner.operators.combine import Combine


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

    def spread(self, tasks: int) -> Dataset:
        return Dataset.spread(self, tasks)


class CombineRunner(WindowRunner):
    """Adds combine steps to windows."""

    def _combine(self, step: Combine, flow: Flow) -> Flow:
        wanted = columns_of(flow.schema)
        lists = self._window_rows(step, flow, wanted, False)
        columns = tuple(OutputColumn(c.name, Column(c.name, c.type)) for c in wanted)
        by = tuple(Column(n, flow.schema[n].type) for n in step.by)
        tasks = max(1, min(self.threads, len(lists)))
        order = (SortKey(step.windows.order),)
        shape = PaneShape(step.name, tasks, columns, by, order, (), nullable_columns(lists, len(wanted)), (), step.calls, step.windows)
        return Flow(PaneData(step, shape, self._window_jobs(step, shape, lists), self.shared, self.spill.active), step.schema, [], flow.key)
