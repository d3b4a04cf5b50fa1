"""Steps that make rows or choose among them: `series` and `sample` on the threads of one process."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends.local.run.dataset import ChunkData, Part, SourceData, TopData
from tsql.backends.local.run.host import Chunk
from tsql.backends.local.run.runner import Flow
from tsql.backends.local.steps.recursive import RecursionRunner
from tsql.kernels.emit.batch import Morsels, round_range
from tsql.kernels.expr.constant import evaluate_with
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Call, Column, Literal, SortKey
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN, Type
from tsql.kernels.operators import filter as kernel_filter
from tsql.kernels.operators import series as kernel_series
from tsql.kernels.operators.sample import RANDOM, RANDOM_BITS, Randomize
from tsql.kernels.operators.top import LARGEST, Top
from tsql.planner.physical.operators.sample import Sample
from tsql.planner.physical.operators.series import Series

MORSEL_ROWS = 1 << 16
PART_MORSELS = 16
FIRST_WAVE_ROWS = 1 << 12
DAY_US = 86_400_000_000


class SeriesData(SourceData):
    """A series of numbers: workers take parts of it in order, and nothing is stored."""

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
        """The same rows in several datasets; the first are small, for consumers that stop early."""
        start, size = 0, FIRST_WAVE_ROWS
        while start < self.rows or start == 0:
            wave = copy(self)
            wave._start, wave._at, wave._end, wave._lock = start, start, min(self.rows, start + size), threading.Lock()
            yield wave
            start, size = start + size, size if small else min(size * 4, threads * self.part_rows)

    def _take(self) -> tuple[int, int] | None:
        """The first row of a part and the one behind its last."""
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


class GeneratingRunner(RecursionRunner):
    """Runs `series` and `sample` steps."""

    def _series(self, step: Series, shards: int) -> Flow:
        operator = kernel_series.Series(step.column, step.start, step.stop, step.by, step.inclusive)
        if step.inputs:
            flow = self.flow(step.inputs[0], shards)
            flow, (start, stop, by) = self._host_calls(step, flow, (step.start, step.stop, step.by))
            operator = kernel_series.Series(step.column, start, stop, by, step.inclusive)
            return flow.then(operator, step.schema)
        first, last, by = (evaluate_with(e, self.run.parameters) for e in (step.start, step.stop, step.by))
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
                # Months have no fixed length; and the kernel says what is wrong with other steps.
                one = Flow(ChunkData((), [[Chunk((0,), 1, [])]] + [[] for _ in range(shards - 1)]), Schema(()))
                return one.then(operator, step.schema)
        if size == 0:
            raise ExecutionError(kernel_series.ZERO_STEP, position=getattr(step.by, "position", None))
        rows = max(0, (last - first) // size + 1 if step.inclusive else -((first - last) // size))
        return self._numbers(step, first, size, rows, shards)

    def _numbers(self, step: Series, first: int, size: int, rows: int, shards: int) -> Flow:
        self.run.total_rows = (self.run.total_rows or 0) + rows
        return Flow(
            SeriesData(step.column, step.start.type, first, size, rows, shards, self.run.settings.batch_rows),
            step.schema,
        )

    def _sample(self, step: Sample, flow: Flow) -> Flow:
        seed = step.seed if step.seed is not None else random.getrandbits(31)
        if any(o.multiplies for o in flow.operators) or not flow.data.positioned:
            # A row's random number is made of its position, which rows of one origin share.
            flow = self._collected(step, flow)
        if isinstance(flow.data, ChunkData):
            # Every task counts the rows that it has collected from 0.
            seed += self.task
        name = f"#seed of {step.name}"
        self.run.parameters = {**self.run.parameters, name: seed}
        if step.is_exact:
            return self._exact_sample(step, flow, name, seed)
        limit = Literal(int(step.percent / 100 * 2**RANDOM_BITS), BIGINT)
        chosen = Call("<", (Column(RANDOM, BIGINT, False), limit), BOOLEAN)
        return flow.then(Randomize(name, step.method == "system"), flow.schema).then(
            kernel_filter.Filter(chosen), step.schema
        )

    def _exact_sample(self, step: Sample, flow: Flow, seed_name: str, seed: int) -> Flow:
        """So many rows: those with the least random numbers, or for a percentage and many rows a choice among all of
        them."""
        if step.rows is not None and step.rows <= LARGEST:
            columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in flow.schema)
            keys = (SortKey(Column(RANDOM, BIGINT, False), False, False),)
            states = self._run(
                step, "rows", flow.then(Randomize(seed_name), flow.schema), lambda: Top(columns, keys, step.rows)
            )
            return Flow(TopData(states[0][0], [c for _, c in states], self.shared), step.schema)
        collected = self._collected(step, flow)
        chunks = [c for shard in collected.data.chunks for c in shard]
        total = sum(c.rows for c in chunks)
        wanted = min(total, step.rows if step.rows is not None else round(total * step.percent / 100))
        chosen = np.sort(np.random.default_rng(seed % 2**63).permutation(total)[:wanted])
        kept, start = [], 0
        for chunk in chunks:
            inside = chosen[np.searchsorted(chosen, start) : np.searchsorted(chosen, start + chunk.rows)] - start
            kept.append(Chunk(chunk.order, len(inside), [_take(a, inside) for a in chunk.arrays]))
            start += chunk.rows
        return Flow(ChunkData(collected.data.columns, [kept], self.run.settings.batch_rows), step.schema)


def _take(array: pa.Array, places: Any) -> pa.Array:
    return array.take(pa.array(places, pa.int64()))
