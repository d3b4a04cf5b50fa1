"""Sorts that may be larger than memory: in one piece if the rows fit, otherwise as sorted runs that are merged when
they are read.

In: a flow and sort keys. Out: an ordered flow of one shard; the sort is stable. `Sorts.sorted` serves every step that
needs ordered rows.

A run consists of as many chunks as fit a share of memory, sorted and written as blocks. A merge holds a little more
than one block of each run. Each round sorts these together, and outputs everything up to the minimum of their last
rows: no row that is still in a file can come before it, and among equal rows the earlier run comes first. Rounds
consist of library calls over whole blocks. A run that starts where the previous one ends (sorted input) extends it.
More than `FAN_IN` runs are merged in several steps.

Memory: a share for making runs (the rows, their concatenated copy, their sorted copy, the indices), then the same share
for the blocks of a merge. Cost: every row is written once when it is collected (if it does not fit), once in a run, and
once more for each further merge step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tsql.backends.local.lower.graph import Lowering, Node, Pipe, Way
from tsql.backends.local.run.dataset import ChunkData, Dataset, Part
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk, Reserved, Shared
from tsql.backends.local.run.spill import TABLE, AnyChunk, SpilledChunk, Store, bytes_of, in_memory
from tsql.backends.local.sort.sorting import sort_indices, sorted_order
from tsql.kernels.emit.batch import SourceColumn
from tsql.kernels.emit.pipeline import ColumnarScan
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Column, SortKey
from tsql.kernels.expr.schema import Schema
from tsql.kernels.operators.collect import OutputColumn, columns_of
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution

FAN_IN = 32
COPIES = 4
"""While rows are sorted, memory holds them as collected, concatenated and sorted, plus some working memory."""


@dataclass
class Order:
    """Sort keys, and the indexes of their columns among the collected ones."""

    keys: tuple[SortKey, ...]
    places: tuple[int, ...]

    def of(self, arrays: list[pa.Array]) -> list[tuple[pa.Array, SortKey]]:
        """The key arrays of rows."""
        return [(arrays[p], k) for p, k in zip(self.places, self.keys, strict=True)]

    def indices(self, arrays: list[pa.Array]) -> np.ndarray:
        return sort_indices(self.of(arrays))


@dataclass
class SortedRun:
    """Blocks in order. `ends` are the first and the last row."""

    blocks: list[SpilledChunk] = field(default_factory=list)
    first: list[pa.Array] = field(default_factory=list)
    last: list[pa.Array] = field(default_factory=list)


def in_order(chunks: list[Chunk], order: Order, columns: int, limit: int | None) -> list[Chunk]:
    """The rows of chunks as a single sorted chunk, with the first `columns` columns and at most `limit` rows. The list
    is emptied on the way."""
    if not chunks:
        return []
    arrays = [combine([c.arrays[i] for c in chunks]) for i in range(len(chunks[0].arrays))]
    chunks.clear()  # many chunks are a copy now, and need not stay while it is sorted
    rows = len(arrays[0])
    found = sorted_order(order.of(arrays))
    if found is None:
        # For example, groups of an array are already ordered by their keys.
        ordered = arrays[:columns] if limit is None else [a.slice(0, limit) for a in arrays[:columns]]
    else:
        indices = pa.array(found[:limit])
        ordered = (
            pa.RecordBatch.from_arrays(arrays[:columns], [str(i) for i in range(columns)]).take(indices).columns
            if columns
            else []
        )
    return [Chunk((0,), rows if limit is None else min(rows, limit), ordered)]


def sort_pipes(text: str, below: Node, about: Lowering) -> tuple[Pipe, ...]:
    """The pipeline before a sort, which the host performs."""
    runs = Way("by sorted runs in files", "the rows outgrow their share of memory_limit")
    if about.spills:
        return (Pipe("rows", text, ways=(runs, Way("in one piece"))),)
    return (Pipe("rows", text, when="a key is no column, or lies in another form" if below.is_in_columns else ""),)


class Sorts:
    """Sorts rows."""

    def __init__(self, x: Execution):
        self.x = x

    def sorted(
        self,
        step: Step,
        flow: Flow,
        keys: tuple[SortKey, ...],
        schema: Schema,
        limit: int | None = None,
        role: str = "rows",
    ) -> Flow:
        """The rows of a flow in order, in one shard; at most `limit` of them."""
        columns = columns_of(schema)
        extra = tuple(OutputColumn(f"#key{i}", k.expr) for i, k in enumerate(keys) if not isinstance(k.expr, Column))
        names = [c.name for c in (*columns, *extra)]
        order = Order(
            keys,
            tuple(names.index(k.expr.name if isinstance(k.expr, Column) else f"#key{i}") for i, k in enumerate(keys)),
        )
        chunks = self._rows_to_sort(step, flow, (*columns, *extra), role)
        result = Flow(flow.data, schema)
        if self.x.recorder is not None:
            self.x.recorder.then(lambda chunks: in_order(chunks, order, len(columns), limit))
        if not chunks:
            return self.x.rows.chunk_flow(columns, [[]], result)
        rows, resident = sum(c.rows for c in chunks), in_memory(chunks)
        bytes = sum(a.nbytes for c in chunks for a in c.arrays) if resident else bytes_of(chunks)
        working = _working_bytes(rows, keys)
        share = self.x.spill.share(TABLE)
        if share is not None and (not resident or 2 * bytes + working > share):
            return self._merged(step, chunks, columns, order, result, limit, share)
        working_memory = Reserved(bytes + working, self.x.shared)
        copy = Reserved(bytes, self.x.shared)
        (ordered,) = in_order(chunks, order, len(columns), limit)
        self.x.run.check()
        del chunks, working_memory
        ordered.bytes, ordered.owner = bytes, copy
        return self.x.rows.chunk_flow(columns, [[ordered]], result)

    def _rows_to_sort(self, step: Step, flow: Flow, columns: tuple[OutputColumn, ...], role: str) -> list[AnyChunk]:
        """The rows of a flow, with the keys among their columns. Rows that are already in chunks are sorted from
        there."""
        data = flow.data
        waits = isinstance(data, ChunkData) and not flow.operators and not self.x.spill.active
        known = {c.name: (place, c.layout) for place, c in enumerate(data.columns)} if waits else {}
        found = [known.get(c.expr.name, (0, None)) if isinstance(c.expr, Column) else (0, None) for c in columns]
        if not waits or any(layout != c.source().layout for (_, layout), c in zip(found, columns, strict=True)):
            return [c for one in self.x.rows.collect(step, flow, columns, role, together=True) for c in one]
        start, places = time.perf_counter(), [place for place, _ in found]
        chunks: list[AnyChunk] = [
            replace(c, arrays=[c.arrays[p] for p in places]) for one in data.chunks for c in one if c.rows
        ]
        self.x.pipelines.record(step, role, self.x.shared.rows_done - data.rows, start)
        flow.data.release()
        return chunks

    def _merged(
        self,
        step: Step,
        chunks: list[AnyChunk],
        columns: tuple[OutputColumn, ...],
        order: Order,
        flow: Flow,
        limit: int | None,
        share: int,
    ) -> Flow:
        start = time.perf_counter()
        sorter = ExternalSort(self.x.spill.store(f"{step.name} runs"), order, share, self.x.shared)
        runs = sorter.runs(chunks)
        while len(runs) > FAN_IN:
            runs = [sorter.write(sorter.merge(runs[i : i + FAN_IN])) for i in range(0, len(runs), FAN_IN)]
        rows = sum(b.rows for r in runs for b in r.blocks)
        self.x.pipelines.record(step, "runs", self.x.shared.rows_done - rows, start)
        data = MergedData(tuple(c.source() for c in columns), sorter, runs, rows, limit, self.x.spill.morsel_rows())
        return Flow(data, flow.schema)


class ExternalSort:
    """Makes runs and merges them."""

    def __init__(self, store: Store, order: Order, share: int, shared: Shared):
        self.store, self.order, self.share, self.shared = store, order, share, shared
        self.block_bytes = max(1 << 12, share // (COPIES * FAN_IN))

    def runs(self, chunks: list[AnyChunk]) -> list[SortedRun]:
        """Sorted runs of the chunks, in input order. The list is emptied on the way."""
        runs: list[SortedRun] = []
        chunks.reverse()
        while chunks:
            group, bytes = [], 0
            while chunks and (not group or bytes + chunks[-1].bytes <= self.share // COPIES):
                bytes += chunks[-1].bytes
                group.append(chunks.pop())
            self._add(runs, self._sorted(group, bytes))
        return runs

    def _sorted(self, group: list[AnyChunk], bytes: int) -> Iterator[list[pa.Array]]:
        rows = sum(c.rows for c in group)
        reserved = Reserved(2 * bytes + _working_bytes(rows, self.order.keys), self.shared)
        loaded = [c.arrays for c in group]
        group.clear()
        arrays = [combine([c[i] for c in loaded]) for i in range(len(loaded[0]))]
        del loaded
        indices = pa.array(self.order.indices(arrays))
        yield from self._blocks(arrays, indices, bytes)
        del reserved

    def _blocks(self, arrays: list[pa.Array], indices: pa.Array, bytes: int) -> Iterator[list[pa.Array]]:
        """The rows in order, in blocks."""
        size = max(1, len(arrays[0]) * self.block_bytes // max(1, bytes))
        for start in range(0, len(indices), size):
            self.store.spill.run.check()
            yield [a.take(indices.slice(start, size)) for a in arrays]

    def _add(self, runs: list[SortedRun], blocks: Iterator[list[pa.Array]]) -> None:
        """Write a run. It extends the previous run if that ends before it starts."""
        fresh = self.write(blocks)
        if runs and self._before(runs[-1].last, fresh.first):
            runs[-1].blocks += fresh.blocks
            runs[-1].last = fresh.last
        else:
            runs.append(fresh)

    def _before(self, a: list[pa.Array], b: list[pa.Array]) -> bool:
        return self.order.indices([pa.concat_arrays(pair) for pair in zip(a, b, strict=True)])[0] == 0

    def write(self, blocks: Iterator[list[pa.Array]]) -> SortedRun:
        run = SortedRun()
        for arrays in blocks:
            if not run.blocks:
                run.first = _row(arrays, 0)
            run.last = _row(arrays, len(arrays[0]) - 1)
            run.blocks += self.store.write([Chunk((len(run.blocks),), len(arrays[0]), arrays)])
        return run

    def merge(self, runs: list[SortedRun]) -> Iterator[list[pa.Array]]:
        """The rows of the runs in order. Each run has a piece in memory: the rest of the blocks that were read."""
        waiting = [iter(r.blocks) for r in runs]
        left = [len(r.blocks) for r in runs]
        pieces: list[list[pa.Array] | None] = [None] * len(runs)
        while True:
            for number, piece in enumerate(pieces):
                # The shortest piece limits the output of a round, so no piece may be much shorter than the others.
                if left[number] and (piece is None or 2 * len(piece[0]) < runs[number].blocks[0].rows):
                    block = next(waiting[number]).arrays
                    pieces[number] = (
                        block if piece is None else [combine(pair) for pair in zip(piece, block, strict=True)]
                    )
                    left[number] -= 1
            alive = [n for n, p in enumerate(pieces) if p is not None]
            if not alive:
                return
            yield from self._round(pieces, alive, left)

    def _round(
        self, pieces: list[list[pa.Array] | None], alive: list[int], left: list[int]
    ) -> Iterator[list[pa.Array]]:
        sizes = [len(pieces[n][0]) for n in alive]
        arrays = [combine([pieces[n][i] for n in alive]) for i in range(len(pieces[alive[0]]))]
        reserved = Reserved(
            sum(a.nbytes for a in arrays) * 2 + _working_bytes(sum(sizes), self.order.keys), self.shared
        )
        starts = np.concatenate([[0], np.cumsum(sizes)])
        indices = self.order.indices(arrays)
        # The last loaded row of each run that has more in its file: the output is certain up to the smallest of them.
        bounds = [starts[i + 1] - 1 for i, n in enumerate(alive) if left[n]]
        if bounds:
            is_bound = np.zeros(len(indices), bool)
            is_bound[bounds] = True
            indices = indices[: int(np.argmax(is_bound[indices])) + 1]
        counts = np.bincount(np.searchsorted(starts, indices, side="right") - 1, minlength=len(alive))
        for i, n in enumerate(alive):
            done, size = int(counts[i]), sizes[i]
            pieces[n] = None if done == size else [pa.concat_arrays([a.slice(done)]) if done else a for a in pieces[n]]
        yield from self._blocks(arrays, pa.array(indices), max(1, sum(a.nbytes for a in arrays)))
        del reserved


class MergedData(Dataset):
    """Sorted runs, merged while they are read."""

    def __init__(
        self,
        columns: tuple[SourceColumn, ...],
        sorter: ExternalSort,
        runs: list[SortedRun],
        rows: int,
        limit: int | None,
        batch_rows: int,
    ):
        self.columns, self.sorter, self.runs, self.limit, self.batch_rows = columns, sorter, runs, limit, batch_rows
        self.shards, self.rows = 1, rows if limit is None else min(rows, limit)

    def empty_source(self) -> ColumnarScan:
        return ColumnarScan(self.columns)

    def feed(self, shard: int) -> Iterator[Part]:
        position = 0
        for number, arrays in enumerate(self.sorter.merge(self.runs)):
            rows = len(arrays[0])
            if self.limit is not None:
                rows = min(rows, self.limit - position)
            if rows <= 0:
                return
            block = Chunk((number,), rows, [a.slice(0, rows) for a in arrays[: len(self.columns)]])
            data = ChunkData(self.columns, [[block]], self.batch_rows)
            data.first = position
            for part in data.feed(0):
                yield Part(self.empty_source(), part.morsels, (0, number))
            position += rows

    def release(self) -> None:
        self.runs = []


def combine(arrays: list[pa.Array]) -> pa.Array:
    """Concatenate arrays."""
    if len(arrays) == 1:
        return arrays[0]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        raise ExecutionError(
            f"the strings to sort are too long together: {error}",
            hint="sort fewer rows, or by a key without the long column",
        ) from error


def _working_bytes(rows: int, keys: tuple[SortKey, ...]) -> int:
    """The memory of the indices and the key ranks while rows are sorted."""
    return 8 * rows * (len(keys) + 1)


def _row(arrays: list[pa.Array], at: int) -> list[pa.Array]:
    """One row, copied to its own memory."""
    return [pa.concat_arrays([a.slice(at, 1), a.slice(0, 0)]) for a in arrays]
