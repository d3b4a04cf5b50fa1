"""Rows of a sorted in-memory table, split into shards by ranges of the sort column.

Rows with equal values are in the same shard, so they can be grouped without being moved, and each shard has few enough
groups for a table that fits in a core's cache. Splitting costs one binary search per shard, once per table."""

from __future__ import annotations

from collections.abc import Iterator

from tsql.backends.local.run.dataset import Dataset, Part
from tsql.kernels.emit.pipeline import ColumnarScan
from tsql.kernels.expr.errors import ExecutionError
from tsql.planner.logical.sources import is_sorted
from tsql.planner.physical.operators.scan import Scan


class RangeData(Dataset):
    """One range for each shard."""

    ready = positioned = True

    def __init__(self, step: Scan, shards: int, batch_rows: int):
        if not is_sorted(step.source, step.ranges):
            raise ExecutionError(f"table {step.table} is not sorted by {step.ranges} any more: make the plan again")
        self.shards = step.shards or shards
        self.rows = step.source.rows
        sources, self.parts = step.source.ranges(step.columns, step.ranges, self.shards, step.where, batch_rows)
        self.source = ColumnarScan(sources)

    def empty_source(self) -> ColumnarScan:
        return self.source

    def feed(self, shard: int) -> Iterator[Part]:
        yield Part(self.source, self.parts[shard], (shard,))
