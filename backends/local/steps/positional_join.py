"""Runs `positional_join`: both sides are collected in columns, cut at each other's ends, and put side by side."""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from tsql.backends.local.lower.graph import Lowering, Node, Pipe, Shape
from tsql.backends.local.lower.local_step import LocalStep, runs
from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk, chunk_type
from tsql.backends.local.run.spill import AnyChunk
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.planner.physical.operators.positional_join import PositionalJoin
from tsql.planner.physical.step import Step

SIDES = ("left", "right")
PADDED_ROWS = 1 << 16
"""NULLs come in chunks of at most so many rows, all of them from the same memory."""


class PairedSide:
    """The rows of a side as they are asked for, the first ones first, and then NULLs. A chunk that lies in a file is
    read when it is reached."""

    def __init__(self, chunks: list[AnyChunk], columns: tuple[OutputColumn, ...]):
        self.waiting = sum(chunk.rows for chunk in chunks)
        self._chunks = deque(chunks)
        self._nulls = [pa.nulls(PADDED_ROWS, chunk_type(column)) for column in columns]
        self._arrays: list[pa.Array] = []
        self._at = self._end = 0

    def ready(self) -> int:
        """How many rows can be taken at once; none if the side is over."""
        while self._at == self._end and self.waiting:
            chunk = self._chunks.popleft()
            self._arrays, self._at, self._end = chunk.arrays, 0, chunk.rows
        return self._end - self._at

    def take(self, rows: int) -> list[pa.Array]:
        if self._at == self._end:
            return [array.slice(0, rows) for array in self._nulls]
        found = [array.slice(self._at, rows) for array in self._arrays]
        self._at, self.waiting = self._at + rows, self.waiting - rows
        return found


@runs(PositionalJoin)
class PositionalJoinStep(LocalStep[PositionalJoin]):
    """Puts rows beside each other."""

    @classmethod
    def lower(cls, step: PositionalJoin, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        pipes = tuple(Pipe(role, "collect", number) for number, role in enumerate(SIDES))
        return Shape(source=f"rows of {step.name}", pipes=pipes)

    def flow(self, node: Node) -> Flow:
        x, step = self.x, node.step
        left, right = (self._side(step, below, role) for below, role in zip(node.inputs, SIDES, strict=True))
        store = x.spill.store(step.name)
        paired: list[AnyChunk] = []
        while left.waiting or right.waiting:
            x.run.check()
            ready = [rows for rows in (left.ready(), right.ready()) if rows]
            rows = min(ready) if len(ready) == 2 else min(ready[0], PADDED_ROWS)
            arrays = [*left.take(rows), *right.take(rows)]
            paired += store.keep([Chunk((len(paired),), rows, arrays, sum(array.nbytes for array in arrays))])
        columns = tuple(column.source() for column in columns_of(step.schema))
        return Flow(ChunkData(columns, [paired], x.spill.morsel_rows()), step.schema)

    def _side(self, step: Step, below: Node, role: str) -> PairedSide:
        flow = self.x.flow(below)
        columns = columns_of(flow.schema)
        found = self.x.rows.collect(step, flow, columns, role, together=True)
        return PairedSide([chunk for chunks in found for chunk in chunks], columns)
