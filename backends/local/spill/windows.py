"""Window steps over more rows than fit in memory.

A shard that is too large is split by the hash of PARTITION BY into partitions, possibly in files. Each is sorted and
walked by itself, and split again if it is still too large and has several keys. What remains (a single window partition
larger than memory, or no PARTITION BY) is sorted by runs in files (`sorts.py`) and written once more, in order, as
blocks. The ends of partitions and peer groups are recorded on the way. Then a kernel walks one block after the other
(`WindowBlock`), with the surrounding rows that the calls read (kernels/windows/halo.py). Calls that may read any row of
their partition need all of them in memory: such windows are tried in memory, and refused if they do not fit.

Memory: a share for sorting a partition (its rows as collected, concatenated, and sorted), or for making and merging
runs; then some blocks. Cost: rows are written and read once per level of partitions, and three times if runs are
made."""

from __future__ import annotations

import ctypes
import time
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tsql.backends.local.lower.graph import Lowering, Node, Pipe
from tsql.backends.local.lower.local_step import described
from tsql.backends.local.run.dataset import ChunkData, Part, running_sums
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Reserved, Shared
from tsql.backends.local.run.spill import TABLE, AnyChunk, bytes_of
from tsql.backends.local.sort.sorting import changes, combine
from tsql.backends.local.sort.window_rows import POSITION_NAME, CollectedRows, WindowShape, too_many_rows
from tsql.backends.local.spill.partitions import FORCED_PARTITIONS, PARTITIONS, Partitions
from tsql.backends.local.spill.sorts import FAN_IN, ExternalSort, Order
from tsql.kernels.codegen.kir import BYTES
from tsql.kernels.emit.batch import Morsels, SourceColumn
from tsql.kernels.emit.rows import POSITION
from tsql.kernels.expr.nodes import Column, SortKey
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.operators.collect import OutputColumn
from tsql.kernels.operators.window_parts import CARRY_BYTES, part_words
from tsql.kernels.windows.base import MOST_ROWS
from tsql.kernels.windows.halo import Halo
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution

COPIES = 3
"""Rows of a job are held as collected, concatenated and sorted."""


class Runs:
    """Tracks where runs of rows with equal keys end, while ordered blocks pass by."""

    def __init__(self, places: tuple[int, ...]):
        self.places = places
        self.rows = 0
        self.firsts: list[int | None] = []
        self.before: list[pa.Array] = []

    def add(self, arrays: list[pa.Array]) -> None:
        """Record the first row of the block that starts a new run."""
        rows = len(arrays[0])
        keys = [arrays[p] for p in self.places]
        if not self.firsts:
            first: int | None = 0
        else:
            joined = [combine(pair) for pair in zip(self.before, keys, strict=True)]
            changed = np.flatnonzero(changes(joined)[1:]) if joined else ()
            first = self.rows + int(changed[0]) if len(changed) else None
        self.firsts.append(first)
        self.before = [pa.concat_arrays([a.slice(rows - 1), a.slice(0, 0)]) for a in keys]
        self.rows += rows

    def ends(self) -> list[int]:
        """For each block, where the run of its last row ends."""
        result, end = [], self.rows
        for first in reversed(self.firsts):
            result.append(end)
            end = end if first is None else first
        return result[::-1]


class SortedBlocks:
    """Rows in window order, in blocks that may be in files."""

    def __init__(self, shape: WindowShape, blocks: list[AnyChunk], halo: Halo, partitions: list[int], peers: list[int]):
        self.shape, self.blocks, self.halo, self.partitions, self.peers = shape, blocks, halo, partitions, peers
        self.starts = running_sums([b.rows for b in blocks])
        self.rows = self.starts[-1]

    def parts(self, shared: Shared, order: tuple[int, ...], position: int) -> Iterator[Part]:
        shape = self.shape
        carry = (ctypes.c_uint64 * (CARRY_BYTES // 8))()
        for number, block in enumerate(self.blocks):
            shared.run.check()
            first = self.starts[number]
            low, high = self._around(number)
            bytes = bytes_of(self.blocks[low : high + 1])
            reserved = Reserved(bytes, shared) if low < high else None
            loaded = [b.arrays for b in self.blocks[low : high + 1]]
            arrays = [combine([a[i] for a in loaded]) for i in range(len(shape.names))]
            del loaded
            carry[1], carry[2] = self.partitions[high], self.peers[high]
            morsels = Morsels(len(shape.block.columns))
            columns = [
                _moved(morsels.column(a), c, self.starts[low]) for a, c in zip(arrays, shape.sources(), strict=True)
            ]
            morsels.add(
                block.rows,
                position + first,
                [*columns, part_words(first, self.starts[high + 1], ctypes.addressof(carry))],
            )
            morsels.keep.append((arrays, carry))
            del arrays
            part = Part(shape.block, morsels, (*order, number))
            del morsels
            yield part
            del part, reserved

    def _around(self, number: int) -> tuple[int, int]:
        """The first and the last block that must be in memory to walk this one."""
        first, end = self.starts[number], self.starts[number + 1]
        least, most = max(0, first - self.halo.before), min(self.rows, end + self.halo.behind)
        if self.halo.peers:
            most = max(most, self.peers[number])
        return bisect_right(self.starts, least) - 1, bisect_right(self.starts, most - 1) - 1


def _moved(words: tuple[int, int, int, int], column: SourceColumn, rows: int) -> tuple[int, int, int, int]:
    """The words of a column, shifted so that its first row has the number `rows`."""
    data, aux, validity, bit = words
    width = {"bits": 0, "interval": 16}.get(column.layout.kind, BYTES[column.layout.machine])
    return (data - rows * width) % 2**64, aux, validity, bit - rows


Job = CollectedRows | SortedBlocks


def window_pipes(step: Step, below: Node, about: Lowering) -> tuple[Pipe, ...]:
    """The pipelines before a walk over sorted rows."""
    rows = Pipe("rows", described(step), when="an expression is to be computed" if below.is_in_columns else "")
    if not about.spills:
        return (rows,)
    full = "the rows of a shard outgrow their share of memory_limit"
    return rows, Pipe("partition * of *", "partition rows by the hash of PARTITION BY", None, "a shard", when=full)


class WindowJobs:
    """Makes jobs from the rows of a window step, or of another step that walks sorted rows."""

    def __init__(self, x: Execution):
        self.x = x

    def rows(self, step: Step, flow: Flow, wanted: tuple[OutputColumn, ...], computed: bool) -> list[list[AnyChunk]]:
        """The rows by shard. Shards are not combined, since each has its own partitions."""
        if isinstance(flow.data, ChunkData) and not flow.operators and not computed:
            return [list(one) for one in flow.data.chunks]
        return self.x.rows.collect(step, flow, wanted, "rows")

    def jobs(self, step: Step, shape: WindowShape, lists: list[list[AnyChunk]]) -> list[list[Job]]:
        """The jobs of each shard. Without a memory limit, the rows of a shard are one job."""
        keeps = self.x.spill.active
        jobs: list[list[Job]] = [[] for _ in lists]
        tasks = min(self.x.threads, len(lists))
        halo = shape.halo

        def add(shape: WindowShape, shard: int, chunks: list[AnyChunk], level: int, whole: int) -> None:
            """Make jobs from chunks of a shard. `whole`: the bytes of the partition they were split from."""
            if not keeps or self._fits(shape, chunks, tasks):
                jobs[shard].append(CollectedRows(shape, chunks, keeps))
            elif shape.partition_keys and (
                level == 1 or self.x.part(Partitions).can_split(level, whole, bytes_of(chunks))
            ):
                again.append((shape, shard, chunks, level))
            else:
                jobs[shard].append(self._unsplit(step, shape, chunks, halo))

        again: list[tuple[WindowShape, int, list[AnyChunk], int]] = []
        for shard, chunks in enumerate(lists):
            add(shape, shard, chunks, 1, 0)
        while again:
            # Shards that are too large are partitioned together, one worker each. Partitions that are split again
            # come one by one.
            level = again[-1][3]
            together = again[:] if level == 1 else again[-1:]
            del again[-len(together) :]
            placed, parts = self._placed(step, together[0][0], [chunks for _, _, chunks, _ in together], level, tasks)
            for (_, shard, chunks, _), of_shard in zip(together, parts, strict=True):
                for part in of_shard:
                    if part:
                        add(placed, shard, part, level + 1, bytes_of(chunks))
        return jobs

    def _needed(self, shape: WindowShape, chunks: list[AnyChunk]) -> int:
        """The bytes needed to sort chunks."""
        return COPIES * bytes_of(chunks) + shape.working_bytes(sum(c.rows for c in chunks))

    def _fits(self, shape: WindowShape, chunks: list[AnyChunk], tasks: int) -> bool:
        return not chunks or self._needed(shape, chunks) <= (self.x.spill.share(TABLE, tasks) or 0)

    def _placed(
        self, step: Step, shape: WindowShape, lists: list[list[AnyChunk]], level: int, tasks: int
    ) -> tuple[WindowShape, list[list[list[AnyChunk]]]]:
        """The rows of each list in partitions. Rows then carry their input positions, and need not be in input
        order."""
        share = self.x.spill.share(TABLE, tasks) or 0
        number = self._window_partitions(max(self._needed(shape, chunks) for chunks in lists), share)
        schema = Schema(tuple(Field(c.name, c.type) for c in shape.columns))
        data = ChunkData(tuple(c.source() for c in shape.columns), lists, self.x.spill.morsel_rows())
        data.part_bytes = max(data.part_bytes, share // 4)
        placed = shape if shape.ties else shape.with_positions()
        columns = (
            placed.columns
            if shape.ties
            else (*shape.columns, OutputColumn(POSITION_NAME, Column(POSITION, BIGINT, False), False))
        )
        return placed, self.x.part(Partitions).of(
            step, "partition", Flow(data, schema), shape.partition_keys, columns, level, number
        )

    def _window_partitions(self, bytes: int, share: int) -> int:
        """How many partitions to split rows of this many bytes into. Some will be larger than others."""
        return (
            FORCED_PARTITIONS
            if self.x.spill.forced
            else min(2 * PARTITIONS, 1 << max(1, (2 * bytes // share).bit_length()))
        )

    def _unsplit(self, step: Step, shape: WindowShape, chunks: list[AnyChunk], halo: Halo | None) -> Job:
        """A job for rows that are too large and are, or may be, in a single partition."""
        if halo is None:
            return CollectedRows(shape, chunks, True)
        start = time.perf_counter()
        rows = sum(c.rows for c in chunks)
        if rows >= MOST_ROWS:
            raise too_many_rows(rows)
        if not shape.keys:
            # All rows are peers, and stay in input order.
            ends = [rows] * len(chunks)
            return SortedBlocks(shape, chunks, halo, ends, ends)
        partitions, peers = (
            Runs(shape.places(tuple(SortKey(c) for c in shape.partition_keys))),
            Runs(shape.places(shape.peer_keys)),
        )

        def noted(blocks: Iterator[list[pa.Array]]) -> Iterator[list[pa.Array]]:
            for arrays in blocks:
                partitions.add(arrays)
                peers.add(arrays)
                yield arrays

        share = self.x.spill.share(TABLE) or 0
        sorter = ExternalSort(
            self.x.spill.store(f"{step.name} runs"), Order(shape.keys, shape.places(shape.keys)), share, self.x.shared
        )
        runs = sorter.runs(list(chunks))
        while len(runs) > FAN_IN:
            runs = [sorter.write(sorter.merge(runs[i : i + FAN_IN])) for i in range(0, len(runs), FAN_IN)]
        blocks = sorter.write(noted(sorter.merge(runs))).blocks
        self.x.pipelines.record(step, "runs", self.x.shared.rows_done - rows, start)
        return SortedBlocks(shape, list(blocks), halo, partitions.ends(), peers.ends())
