"""Runs `series`: numbers generated as they are read, or one row per value for each input row."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from copy import copy

from tsql.backends.local.lower.graph import Lies, Lowering, Node, Shape
from tsql.backends.local.lower.local_step import LocalStep, described, host_pipes, runs
from tsql.backends.local.run.dataset import ChunkData, Part, SourceData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.kernels.emit.batch import Morsels, round_range
from tsql.kernels.expr.constant import evaluate_with
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import Type
from tsql.kernels.operators import series as kernel_series
from tsql.planner.physical.operators.series import Series

MORSEL_ROWS = 1 << 16
PART_MORSELS = 16
FIRST_WAVE_ROWS = 1 << 12
DAY_US = 86_400_000_000


class SeriesData(SourceData):
    """A series of numbers. Workers take parts of it in order, and nothing is stored."""

    def __init__(self, name: str, dtype: Type, first: int, step: int, rows: int, shards: int, batch_rows: int):
        last = first + max(0, rows - 1) * step
        self.scan = kernel_series.SeriesScan(name, dtype, round_range(min(first, last), max(first, last)))
        self.first, self.step, self.rows, self.shards = first, step, rows, shards
        self.morsel_rows = batch_rows or MORSEL_ROWS
        self.part_rows = self.morsel_rows * PART_MORSELS
        self._start, self._at, self._end = 0, 0, rows
        self._lock = threading.Lock()

    def again(self) -> SeriesData:
        fresh = copy(self)
        fresh._at, fresh._lock = self._start, threading.Lock()
        return fresh

    def empty_source(self) -> kernel_series.SeriesScan:
        return self.scan

    def waves(self, threads: int, small: bool = False) -> Iterator[SeriesData]:
        """The same rows as several datasets. The first ones are small, for consumers that stop early."""
        start, size = 0, FIRST_WAVE_ROWS
        while start < self.rows or start == 0:
            wave = copy(self)
            wave._start, wave._at, wave._end, wave._lock = start, start, min(self.rows, start + size), threading.Lock()
            yield wave
            start, size = start + size, size if small else min(size * 4, threads * self.part_rows)

    def _take(self) -> tuple[int, int] | None:
        """The first row of a part, and the row after its last."""
        with self._lock:
            start = self._at
            self._at = min(self._end, start + self.part_rows)
            return (start, self._at) if start < self._end else None

    def feed(self, shard: int) -> Iterator[Part]:
        while (part := self._take()) is not None:
            morsels = Morsels(1)
            start, end = part
            for position in range(start, end, self.morsel_rows):
                words = ((self.first + position * self.step) % 2**64, self.step % 2**64, 0, 0)
                morsels.add(min(self.morsel_rows, end - position), position, [words])
            yield Part(self.scan, morsels, (start,))


@runs(Series)
class SeriesStep(LocalStep[Series]):
    """A source, or an operator that multiplies rows."""

    @classmethod
    def lower(cls, step: Series, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        if not step.inputs:
            return Shape(source=described(step), lies=Lies.SCAN)
        return Shape((described(step),), pipes=host_pipes(step.start, step.stop, step.by))

    def flow(self, node: Node) -> Flow:
        step, shards = node.step, self.x.graph.shards
        operator = kernel_series.Series(step.column, step.start, step.stop, step.by, step.inclusive)
        if step.inputs:
            flow = self.x.flow(node.inputs[0])
            flow, (start, stop, by) = self.x.hosts.calls(step, flow, (step.start, step.stop, step.by))
            operator = kernel_series.Series(step.column, start, stop, by, step.inclusive)
            return flow.then(operator, step.schema)
        first, last, by = (evaluate_with(e, self.x.run.parameters) for e in (step.start, step.stop, step.by))
        shards = shards if step.spread else 1
        if first is None or last is None or by is None:
            return self._numbers(step, 0, 1, 0, shards)
        if isinstance(by, int):
            size = by
        else:
            months, days, micros = by
            size = days * DAY_US + micros
            is_regular = not months and days * micros >= 0 and kernel_series.INFINITY not in (abs(first), abs(last))
            if not is_regular:
                # Months have no fixed length. Other irregular steps are reported by the kernel.
                one = Flow(ChunkData((), [[Chunk((0,), 1, [])]] + [[] for _ in range(shards - 1)]), Schema(()))
                return one.then(operator, step.schema)
        if size == 0:
            raise ExecutionError(kernel_series.ZERO_STEP, position=getattr(step.by, "position", None))
        rows = max(0, (last - first) // size + 1 if step.inclusive else -((first - last) // size))
        return self._numbers(step, first, size, rows, shards)

    def _numbers(self, step: Series, first: int, size: int, rows: int, shards: int) -> Flow:
        self.x.run.total_rows = (self.x.run.total_rows or 0) + rows
        return Flow(
            SeriesData(step.column, step.start.type, first, size, rows, shards, self.x.run.settings.batch_rows),
            step.schema,
        )
