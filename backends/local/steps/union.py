"""Runs `union`: the rows of each input are collected under the column names of the first."""

from __future__ import annotations

from tsql.backends.local.lower.graph import Lowering, Node, Pipe, Shape
from tsql.backends.local.lower.local_step import LocalStep, runs
from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.spill import AnyChunk
from tsql.kernels.expr.nodes import Column
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.planner.physical.operators.union import Union


@runs(Union)
class UnionStep(LocalStep[Union]):
    """Appends rows, shard by shard."""

    @classmethod
    def lower(cls, step: Union, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        pipes = tuple(Pipe(f"input {number}", "collect", number) for number in range(len(step.inputs)))
        return Shape(source=f"rows of {step.name}", pipes=pipes)

    def flow(self, node: Node) -> Flow:
        x, step = self.x, node.step
        inputs = [x.flow(i) for i in node.inputs]
        lists: list[list[AnyChunk]] = [[] for _ in range(max(f.data.shards for f in inputs))]
        columns = columns_of(step.schema)
        store = x.spill.store(step.name)
        for number, flow in enumerate(inputs):
            renamed = tuple(
                OutputColumn(c.name, Column(f.name, f.type, f.nullable))
                for c, f in zip(columns, flow.schema, strict=True)
            )
            for shard, chunks in enumerate(x.rows.collect(step, flow, renamed, f"input {number}", store=store)):
                lists[shard] += chunks
        return Flow(ChunkData(tuple(c.source() for c in columns), lists, x.spill.morsel_rows()), step.schema)
