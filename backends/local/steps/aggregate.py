"""Runs `aggregate`: groups in an array if the keys have few known values, otherwise in hash tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsql.backends.local.lower.graph import Lies, Lowering, Node, Pipe, Shape, Way, relies_on_hashes
from tsql.backends.local.lower.local_step import LocalStep, described, host_pipes, runs
from tsql.backends.local.run.flow import Flow, row_bound
from tsql.backends.local.spill.groups import SpillingGroups, group_pipes
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.dense import DENSE_GROUPS
from tsql.kernels.emit.pipeline import Pipeline, Sink
from tsql.kernels.expr.nodes import Aggregate as Call
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.operators.aggregate.groups import AggregateSink, Grouping, is_dense, make_sink
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.aggregate import Aggregate

ARRAY = Way("groups in an array", f"the keys have at most {DENSE_GROUPS:,} known values, or few for the rows")
TABLE = Way("groups in a hash table")


class DenseProbe(Sink):
    """Sees the group keys that reach a sink, in a dry run, and tells whether they have few known values."""

    needs_probe = True

    def __init__(self, grouping: Grouping, expected: int | None):
        self.grouping, self.expected, self.dense = grouping, expected, False

    def probe(self, k: PipelineKernel, row: Any) -> None:
        self.grouping.calls = ()
        self.grouping.probe(k, row)
        self.dense = is_dense(self.grouping.fields, self.expected)


@dataclass
class ReadyGroups:
    """A pipeline that ends in groups: its rows, the keys and calls over them, what makes its sink, and how many groups
    are expected in each shard."""

    flow: Flow
    by: tuple[tuple[str, Expr], ...]
    calls: tuple[tuple[str, Call], ...]
    make: Callable[..., AggregateSink]
    expected: int


@runs(Aggregate)
class AggregateStep(LocalStep[Aggregate]):
    """Builds groups. The next pipeline reads them in place."""

    @classmethod
    def lower(cls, step: Aggregate, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        expressions = (
            [] if step.absorbs else [*(e for _, e in step.by), *(e for _, c in step.calls for e in c.expressions())]
        )
        groups = Pipe("", described(step), ways=(ARRAY, TABLE) if step.by else ())
        return Shape(
            source=f"groups of {step.name}",
            lies=Lies.GROUPS,
            pipes=(*host_pipes(*expressions), groups, *group_pipes(step, about)),
        )

    def flow(self, node: Node) -> Flow:
        ready = self.prepared(node)
        return self.x.part(SpillingGroups).groups(
            node.step, ready.flow, ready.by, ready.calls, ready.make, ready.expected
        )

    def prepared(self, node: Node) -> ReadyGroups:
        """The pipeline that ends in the groups, before it runs."""
        x, step = self.x, node.step
        flow = x.flow(node.inputs[0])
        if not step.absorbs:
            flow, by, calls = x.hosts.arguments(step, flow)
        else:
            by, calls = step.by, step.calls
        equal = x.run.settings.equal_hashes
        # If rows are multiplied, the dataset's row count is no bound.
        multiplied = any(o.multiplies for o in flow.operators)

        def grouping() -> Grouping:
            return Grouping(by, calls, step.phase, None if multiplied else row_bound(flow.data.rows), equal)

        def make(known: bool = True) -> AggregateSink:
            # Rows that are read back from a file have no known bounds.
            return make_sink(grouping(), dense and known)

        # Many shards exist to keep each table small. An array for all keys in each shard would not be small.
        small_tables = flow.data.shards > x.graph.shards and (step.groups or 0) > DENSE_GROUPS
        may_be_dense = bool(by) and not equal and not small_tables
        likely = step.groups if (flow.data.rows or 0) > DENSE_GROUPS else None
        dense = may_be_dense and self._is_dense(step, flow, grouping(), likely)
        if by:
            x.run.chose(step.name, (ARRAY if dense else TABLE).name)
        if step.phase == "partial" and not relies_on_hashes(node, x.graph.hands_out_shards):
            flow = x.pipelines.coalesced(flow)
        expected = 0 if dense or not by else _expected_groups(step, flow)
        return ReadyGroups(flow, by, calls, make, expected)

    def _is_dense(self, step: Aggregate, flow: Flow, grouping: Grouping, expected: int | None) -> bool:
        """Whether the keys that reach the sink have few known values. Found by a dry run, once per layout."""
        kept, source = self.x.kernels.dense, flow.data.empty_source()
        operators = tuple(o.signature for o in flow.operators)
        signature = (id(step), "dense", source.columns, type(source), operators, expected)
        known = kept.get(signature)
        if known is not None:
            return known
        sink = DenseProbe(grouping, expected)
        Pipeline(source, flow.operators, sink)._probe()
        kept[signature] = sink.dense
        return sink.dense


def _expected_groups(step: Aggregate, flow: Flow) -> int:
    """The expected groups per shard: the planner's estimate, limited by the number of rows."""
    if not step.groups:
        return 0
    shards = 1 if step.phase == "partial" else flow.data.shards
    likely = flow.data.expected if flow.data.rows is None else flow.data.rows
    rows = step.groups if likely is None else likely
    return min(step.groups // shards, rows // flow.data.shards + 1)
