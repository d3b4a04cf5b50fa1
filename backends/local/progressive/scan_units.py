"""The units of a scan, whatever it reads: a table in memory, Arrow memory, or files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tsql.backends.local.progressive.units import BatchUnits, BlockUnits, SplitUnits, Units, unit_rows
from tsql.backends.local.run.dataset import BlockData, SourceData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.late_decoding import read_late
from tsql.kernels.blocks.table import BlockTable
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution


def reads_one_by_one(flow: Flow) -> bool:
    """Whether the rows of a scan still pass a flow one by one. A join that keeps rows without partners, or a function
    that a library computes, has collected them."""
    return isinstance(flow.data, BlockData | SourceData) and not any(o.by_shard for o in flow.operators)


def scan_units(
    x: Execution, scan: Step, seed: int, step: Step, role: str, flow: Flow, make: Callable[[], Any]
) -> tuple[Units, Flow]:
    """The units of a scan whose rows pass a flow into a sink, and the flow that reads them."""
    data = flow.data
    assert isinstance(scan, Scan)
    if isinstance(scan.source, BlockTable):
        assert isinstance(data, BlockData)
        rows = unit_rows(data.rows or 0)
        return BlockUnits(scan.source, BlockData(scan.source, scan.columns, scan.where, data.shards, rows), seed), flow
    assert isinstance(data, SourceData)
    if getattr(data.source, "in_memory", False):
        return BatchUnits(data, unit_rows(data.rows or 0), seed), flow
    late = read_late(x.pipelines, step, role, flow, make)
    return SplitUnits(data, late, seed), replace(late, data=late.data)
