"""Runs groupings of lifetimes: the rows of each shard are collected and sorted by (keys, start), like those of a
window, and a kernel walks them once (kernels/operators/snapshot.py). The kernel is a source, so that the following
operators run in the same pass.

Rows that do not fit in memory are partitioned by the hash of the keys, and sorted and walked one partition at a time
(`spill/windows.py`). The rows of one group are walked together: a group larger than its share is tried
in memory, and refused if there is not enough."""

from __future__ import annotations

from functools import cached_property

from tsql.backends.local.lower.graph import Lies, Lowering, Node, Shape
from tsql.backends.local.lower.local_step import LocalStep, host_pipes, runs
from tsql.backends.local.run.dataset import Dataset
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.sort.window_data import WindowData, nullable_columns, refuse_nulls
from tsql.backends.local.sort.window_rows import WindowShape
from tsql.backends.local.spill.windows import WindowJobs, window_pipes
from tsql.kernels.expr.nodes import Aggregate, Column, Expr, Literal, Parameter, SortKey
from tsql.kernels.expr.types import TIMESTAMP
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.kernels.operators.snapshot import SnapshotScan, SnapshotShape
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.calls import map_call
from tsql.planner.physical.operators.snapshot import Snapshot

MOST_RESULTS = 2
"""The most results per row: one begins when it starts, and one when it ends."""


@dataclass(frozen=True)
class SortedLifetimes(WindowShape):
    """The rows of a snapshot step, like those of a window without calls."""

    snapshot: SnapshotShape | None = None

    halo = None

    @cached_property
    def whole(self) -> SnapshotScan:
        return SnapshotScan(self.sources(), self.snapshot)


class SnapshotData(WindowData):
    """The results of a snapshot step."""

    most_results = MOST_RESULTS

    def spread(self, tasks: int) -> Dataset:
        """A group is walked by one worker."""
        return Dataset.spread(self, tasks)


@runs(Snapshot)
class SnapshotStep(LocalStep[Snapshot]):
    """Outputs one row per group and maximal period in which its results do not change."""

    @classmethod
    def lower(cls, step: Snapshot, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        pipes = (*host_pipes(*step.expressions()), *window_pipes(step, inputs[0], about))
        return Shape(source=f"walk over sorted lifetimes of {step.name}", lies=Lies.OTHER, pipes=pipes)

    def flow(self, node: Node) -> Flow:
        step, jobs = node.step, self.x.part(WindowJobs)
        expressions = tuple(dict.fromkeys(step.expressions()))
        flow, computed = self.x.hosts.calls(step, self.x.flow(node.inputs[0]), expressions)
        known = dict(zip(expressions, computed, strict=True))
        extra: dict[Expr, Column] = {}

        def column(expr: Expr) -> Expr:
            """What the kernel reads instead of an expression: a column, unless it is constant."""
            expr = known[expr]
            if isinstance(expr, Column | Literal | Parameter):
                return expr
            return extra.setdefault(expr, Column(f"#computed{len(extra)}", expr.type))

        calls: tuple[tuple[str, Aggregate], ...] = tuple(
            (name, map_call(call, column)) for name, call in step.aggregates
        )
        given = step.inputs[0].schema
        by = tuple(Column(name, given[name].type) for name in step.by)
        start, end = (Column(name, TIMESTAMP, False) for name in step.lifetime)
        wanted = (*columns_of(flow.schema), *(OutputColumn(c.name, e) for e, c in extra.items()))
        lists = jobs.rows(step, flow, wanted, bool(extra))
        nullable = nullable_columns(lists, len(wanted))
        refuse_nulls(step, step.lifetime, wanted, nullable, lists)
        shape = SortedLifetimes(
            step.name,
            max(1, min(self.x.threads, len(lists))),
            tuple(OutputColumn(c.name, Column(c.name, c.type)) for c in wanted),
            by,
            (SortKey(start),),
            (),
            nullable,
            snapshot=SnapshotShape(by, start, end, step.span, calls, step.ends),
        )
        return Flow(
            SnapshotData(step, shape, jobs.jobs(step, shape, lists), self.x.shared, self.x.spill.active), step.schema
        )
