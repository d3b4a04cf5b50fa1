"""Aggregates over any frames, by a tree of states: for ends that may move back, since their distance depends on the
row.

Level 1 has the states of runs of 16 rows, level 2 of 16 such runs, and so on, over the whole shard. A frame is made of
the rows and states that cover it, at most 30 of each level, so that a row costs O(log rows) merges."""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateState, MemoryState, fields_bytes
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.windows.base import Memory, Place, SortedRows
from tsql.kernels.windows.running import OverFrame, registers

FAN = 16
MOST_LEVELS = 10


class Tree(OverFrame):
    """Merges the nodes that cover a frame."""

    how = "tree"

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        super().begin(k, rows)
        self.rows = rows
        self.bytes = fields_bytes(self.fold.fields)
        self.node = registers(k, self.fold.fields)
        self.starts = k.buffer(8 * (MOST_LEVELS + 2))
        self.levels = k.var(k.i64(0))
        size, total = k.var(rows.count // FAN), k.var(k.i64(0))
        with k.forever() as loop:
            loop.stop_if(size.value <= 0)
            self.levels.set(self.levels.value + 1)
            k.store(self.starts, total.value, self.levels.value)
            total.set(total.value + size.value)
            size.set(size.value // FAN)
        self.memory = Memory(k, total.value * self.bytes)

    def end(self, k: PipelineKernel) -> None:
        self.memory.free(k)
        super().end(k)

    def _node(self, k: PipelineKernel, level: Val, number: Val) -> AggregateState:
        place = k.load("i64", self.starts, level) + number
        return MemoryState(k, k.offset(self.memory.address, place * self.bytes), self.fold.fields, 0)

    def prepare(self, k: PipelineKernel, rows: SortedRows) -> None:
        """Fill the levels from below; runs that are not full have no state."""
        super().prepare(k, rows)
        size = k.var(rows.count)
        with k.range(self.levels.value + 1, 1) as level:
            size.set(size.value // FAN)
            with k.range(size.value) as number:
                self.fold.init(k, self.node)
                with k.range(number * FAN + FAN, number * FAN) as below:
                    with k.when(level == 1):
                        self.fold.add(k, self.node, below)
                    with k.otherwise():
                        self.fold.merge(k, self.node, self._node(k, level - 1, below))
                target = self._node(k, level, number)
                for index in range(len(self.fold.fields)):
                    target.set(index, self.node.get(index))

    def _cover(self, k: PipelineKernel, level: Val, start: Val, end: Val) -> None:
        """Take in the entries `[start, end)` of a level; level 0 is the rows."""
        with k.range(end, start) as number:
            with k.when(level == 0):
                self.fold.add(k, self.state, number)
            with k.otherwise():
                self.fold.merge(k, self.state, self._node(k, level, number))

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        self.fold.init(k, self.state)
        pieces = self.frames.pieces(k, place)
        low, high, level = k.var(k.i64(0)), k.var(k.i64(0)), k.var(k.i64(0))
        for start, end in pieces:
            low.set(start)
            high.set(end)
            level.set(0)
            with k.forever() as loop:
                loop.stop_if(low.value >= high.value)
                last = (high.value - low.value < 2 * FAN) | (level.value >= self.levels.value)
                inner_low = k.select(last, high.value, (low.value + FAN - 1) // FAN * FAN)
                inner_high = k.select(last, high.value, high.value // FAN * FAN)
                self._cover(k, level.value, low.value, inner_low)
                self._cover(k, level.value, inner_high, high.value)
                low.set(k.select(last, k.i64(0), inner_low // FAN))
                high.set(k.select(last, k.i64(0), inner_high // FAN))
                level.set(level.value + 1)
        return self.fold.finish(k, self.state, place)
