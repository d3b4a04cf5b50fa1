"""Runs `limit`: rows are collected until there are enough, and then cut."""

from __future__ import annotations

from tsql.backends.local.lower.graph import Lowering, Node, Pipe, Shape
from tsql.backends.local.lower.local_step import LocalStep, described, runs
from tsql.backends.local.run.constants import row_count
from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.kernels.expr.errors import ExecutionError
from tsql.planner.physical.operators.limit import Limit

MOST = 2**62
"""A limit above this means all rows."""


@runs(Limit)
class LimitStep(LocalStep[Limit]):
    """Keeps the first rows after an offset."""

    @classmethod
    def lower(cls, step: Limit, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        role = "collect" if step.count is None or step.is_percentage else "collect *"
        pipes = () if inputs[0].is_in_columns else (Pipe(role, described(step)),)
        return Shape(source=f"rows of {step.name}", pipes=pipes)

    def flow(self, node: Node) -> Flow:
        x, step = self.x, node.step
        count, offset = row_count(step.count, x.run.parameters), row_count(step.offset, x.run.parameters) or 0
        wanted = None if count is None or step.is_percentage else count + offset
        first = None if wanted is None else min(wanted, MOST)
        collected = x.rows.collected(step, x.flow(node.inputs[0]), first, together=True)
        if step.is_percentage and count is not None:
            if not count <= 100:
                raise ExecutionError(
                    "Limit percent out of range, should be between 0% and 100%",
                    position=getattr(step.count, "position", None),
                )
            wanted = int(sum(chunk.rows for chunk in collected.data.chunks[0]) * count / 100) + offset
        kept, skip, left = [], offset, wanted
        for chunk in collected.data.chunks[0]:
            if left is not None and left <= 0:
                break
            rows = chunk.rows if left is None else min(chunk.rows, left)
            if rows > skip:
                kept.append(Chunk(chunk.order, rows - skip, [a.slice(skip, rows - skip) for a in chunk.arrays]))
            skip = max(0, skip - rows)
            left = None if left is None else left - rows
        return Flow(ChunkData(collected.data.columns, [kept], x.spill.morsel_rows()), step.schema)
