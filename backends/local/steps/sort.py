"""Runs `sort`: with a limit, heaps keep the first rows; the remaining rows are sorted by the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tsql.backends.local.lower.graph import Lies, Lowering, Node, Pipe, Shape, relies_on_hashes
from tsql.backends.local.lower.local_step import LocalStep, described, host_pipes, runs
from tsql.backends.local.run.constants import row_count
from tsql.backends.local.run.dataset import TopData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.spill.sorts import Sorts, sort_pipes
from tsql.kernels.expr.nodes import Column, SortKey
from tsql.kernels.operators.collect import columns_of
from tsql.kernels.operators.top import LARGEST, Top
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.movement import Gather
from tsql.planner.physical.operators.sort import Sort

FEW_PER_SHARD = 1000
"""Up to this many rows per shard are sorted directly: a heap would need another kernel."""


@dataclass
class ReadyTop:
    """The pipeline that ends in heaps, before it runs. keys: as expressions over the rows of the flow."""

    flow: Flow
    keys: tuple[SortKey, ...]
    limit: int | None

    @property
    def is_heap(self) -> bool:
        """Whether the first rows fit a heap."""
        return self.limit is not None and self.limit <= LARGEST

    @property
    def role(self) -> str:
        return f"top {self.limit}"

    @property
    def make(self) -> Callable[[], Top]:
        columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in self.flow.schema)
        return lambda: Top(columns, self.keys, self.limit or 0)


@runs(Sort)
class SortStep(LocalStep[Sort]):
    """Puts rows in order. phase=partial only keeps the first rows of each shard, unordered."""

    @classmethod
    def lower(cls, step: Sort, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        hosts = host_pipes(*(k.expr for k in step.keys))
        when = f"the limit is at most {LARGEST:,}" + (f" and above {FEW_PER_SHARD:,}" if _has_first_rows(step) else "")
        heaps = () if step.limit is None else (Pipe("top *", described(step, "top"), when=when),)
        if step.phase == "partial":
            return Shape(source=f"first rows of {step.name}", lies=Lies.OTHER, pipes=(*hosts, *heaps))
        sorts = sort_pipes(described(step), inputs[0], about)
        return Shape(source=f"rows of {step.name}", pipes=(*hosts, *heaps, *sorts))

    def prepared(self, node: Node) -> ReadyTop:
        """The rows that are sorted."""
        x, step = self.x, node.step
        flow, expressions = x.hosts.calls(step, x.flow(node.inputs[0]), tuple(k.expr for k in step.keys))
        keys = tuple(SortKey(e, k.descending, k.nulls_first) for e, k in zip(expressions, step.keys, strict=True))
        return ReadyTop(flow, keys, row_count(step.limit, x.run.parameters))

    def flow(self, node: Node) -> Flow:
        x, step, ready = self.x, node.step, self.prepared(node)
        flow, keys, limit = ready.flow, ready.keys, ready.limit
        if ready.is_heap and not (limit <= FEW_PER_SHARD and _has_first_rows(step)):
            with x.states.attempt() as attempt:
                flow = self._top(node, ready)
            if attempt.failed:
                # The rows of a heap do not fit: all rows are sorted, in files if necessary.
                flow = replace(flow, data=flow.data.again())
        if step.phase == "partial":
            return flow
        if step.is_arranged and flow.data.shards > 1:
            return self._shards(step, flow, keys)
        return x.part(Sorts).sorted(step, flow, keys, step.schema, limit)

    def _shards(self, step: Sort, flow: Flow, keys: tuple[SortKey, ...]) -> Flow:
        """Each shard in order. The shards of arranged rows follow each other."""
        x, columns, lists = self.x, columns_of(step.schema), []
        for chunks in x.rows.collected(step, flow).data.chunks:
            one = x.rows.chunk_flow(columns, [chunks], flow)
            ordered = x.rows.collected(step, x.part(Sorts).sorted(step, one, keys, step.schema))
            lists.append([c for found in ordered.data.chunks for c in found])
        return x.rows.chunk_flow(columns, lists, Flow(flow.data, step.schema))

    def _top(self, node: Node, ready: ReadyTop) -> Flow:
        """The first rows of each shard, by heaps. They are unordered."""
        x, flow = self.x, ready.flow
        flow = flow if relies_on_hashes(node, x.graph.hands_out_shards) else x.pipelines.coalesced(flow)
        states = x.pipelines.run(node.step, ready.role, flow, ready.make)
        return Flow(TopData(states[0][0], [c for _, c in states], x.shared), flow.schema)


def _has_first_rows(step: Sort) -> bool:
    """Whether the rows of a sort are the first ones of each shard, gathered."""
    (below,) = step.inputs
    return isinstance(below, Gather) and isinstance(below.inputs[0], Sort) and below.inputs[0].phase == "partial"
