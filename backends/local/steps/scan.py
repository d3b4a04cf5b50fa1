"""Runs `scan`: an in-memory table, by blocks or by ranges, or a source, split by split."""

from __future__ import annotations

from tsql.backends.local.lower.graph import Lies, Lowering, Node, Shape
from tsql.backends.local.lower.local_step import LocalStep, described, runs
from tsql.backends.local.run.dataset import BlockData, Dataset, SourceData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.range_data import RangeData
from tsql.kernels.blocks.table import BlockTable
from tsql.planner.physical.operators.scan import Scan


@runs(Scan)
class ScanStep(LocalStep[Scan]):
    """The source of a pipeline. Rows are counted as they are read."""

    counts_rows = False

    @classmethod
    def lower(cls, step: Scan, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        return Shape(source=described(step), lies=Lies.SCAN)

    def flow(self, node: Node) -> Flow:
        x, step = self.x, node.step
        shards, batch_rows = (
            step.shards if step.ranges is None and step.shards else x.graph.shards,
            x.spill.morsel_rows(),
        )
        if step.ranges is not None:
            data: Dataset = RangeData(step, shards, batch_rows)
        elif isinstance(step.source, BlockTable):
            data = BlockData(step.source, step.columns, step.where, shards, batch_rows)
        else:
            data = SourceData(step.source, step.columns, step.where, shards, batch_rows, x.shared, step.late)
        if data.rows is not None:
            x.run.total_rows = (x.run.total_rows or 0) + data.rows
        return Flow(data, step.schema)
