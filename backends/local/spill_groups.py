"""Aggregations that may be larger than memory: in tables where these fit, otherwise partition by partition.

In: the flow of an aggregate step, its keys and calls. Out: a flow of groups, in the shards in which their rows were.

The tables of the workers get a share of memory. If one takes more (`Full`), all are freed and the input is read again, this
time into partitions: rows (or exported states) go to one of some dozens of lists by the hash of their keys, by other bits than
those that chose their shard. Then a few partitions at a time, one for each thread, are aggregated as if each were the whole
input, their groups are collected, and the tables are freed. A partition whose table is still too large is split again, by
yet other bits. That serves every phase and every aggregate alike, also those whose states cannot be exported (a median, DISTINCT).

What cannot be split is a single group with a state that is too large. For one DISTINCT aggregate the rows of a group are placed by
the values too: the values of different partitions differ, so that their states can be merged like those of different shards.
Otherwise the query is refused.

Cost: the columns that the aggregate uses are written and read once for each level of splitting, and the groups if they are many.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tsql.backends.local.dataset import ChunkData, Dataset, GroupData, Part
from tsql.backends.local.host import Context
from tsql.backends.local.host_functions import HostFunctionRunner
from tsql.backends.local.runner import Flow
from tsql.backends.local.spill import TABLE, AnyChunk, Store, bytes_of
from tsql.kernels.aggregates.bodies import plain_body
from tsql.kernels.expr import Aggregate as Call
from tsql.kernels.expr import Column, Expr
from tsql.kernels.operators.aggregate import AggregateSink
from tsql.kernels.operators.collect import OutputColumn
from tsql.kernels.operators.partition import Partition
from tsql.kernels.pipeline import Sink
from tsql.kernels.schema import Schema
from tsql.planner.operators.aggregate import Aggregate
from tsql.planner.step import Step

ENTRY_BYTES = 40
"""What a row takes in a table besides its columns: links, hashes, and its part of the directory."""

PARTITIONS = 32
FORCED_PARTITIONS = 3
LEVELS = 5
BUFFERED = 0.125
"""The share of memory that partitions may keep of what they collect."""


class PartitionRunner(HostFunctionRunner):
    """Places rows in partitions that may be in files."""

    def _number(self, data: Dataset, columns: tuple[OutputColumn, ...], share: int) -> int:
        """Into how many partitions the rows of a dataset should go, if the table of each may take so many bytes."""
        if self.spill.forced:
            return FORCED_PARTITIONS
        if data.rows is None:
            return PARTITIONS
        if isinstance(data, ChunkData):
            bytes = max(bytes_of(c) for c in data.chunks) + ENTRY_BYTES * data.rows // data.shards
        else:
            width = sum(24 if c.type.is_string else c.value_bytes for c in columns)
            bytes = data.rows * (width + ENTRY_BYTES)
        return min(2 * PARTITIONS, max(4, 1 << (2 * bytes // max(1, share)).bit_length()))

    def _partitions(
        self, step: Step, role: str, flow: Flow, key: tuple[Expr, ...], columns: tuple[OutputColumn, ...], level: int, number: int, keep_order: bool = False
    ) -> list[list[list[AnyChunk]]]:
        """The rows of each shard in partitions by the hash of `key`; by other bits on each level, which counts from 1."""
        flow = replace(flow, data=flow.data.again())
        lists: list[list[list[AnyChunk]]] = [[[] for _ in range(number)] for _ in range(flow.data.shards)]
        lock = threading.Lock()
        name = f"{role} {level} of {number}"
        # What is split again stays in no memory: there may be many such partitions.
        store, most = self.spill.store(f"{step.name} {name}", BUFFERED if level == 1 else 0), self.spill.chunk_rows(columns, number)

        def take(sink: Sink, context: Context, part: Part, shard: int) -> None:
            for target in range(number):
                chunks = self._taken(context, target * sink.shard_bytes, columns, part, store)
                with lock:
                    lists[shard][target] += chunks

        def make() -> Partition:
            return Partition(columns, key, number, self.run.settings.equal_hashes, keep_order, level=level, most=most)

        for _, context in self._run(step, name, flow, make, take):
            self._close(context)
        for of_shard in lists:
            for chunks in of_shard:
                chunks.sort(key=lambda c: c.order)
        return lists

    def _can_split(self, level: int, whole: int, part: int) -> bool:
        """Whether it helps to split a partition of `part` bytes again, which came from one of `whole` bytes."""
        return not self.spill.forced and level <= LEVELS and part * 10 <= whole * 9 and not self.run.settings.equal_hashes


class GroupRunner(PartitionRunner):
    """Runs aggregations."""

    def _groups(self, step: Aggregate, flow: Flow, by: tuple[tuple[str, Expr], ...], calls: tuple[tuple[str, Call], ...], make: Callable[..., AggregateSink], expected: int) -> Flow:
        """The groups of a flow."""
        share = self.spill.share(TABLE, flow.data.shards)
        if share is None or not by:
            return self._in_tables(step, "", flow, make, expected)
        with self._attempt() as attempt:
            return self._in_tables(step, "", flow, make, 0 if expected * 16 > share else expected, share)
        assert attempt.failed
        return self._by_partitions(step, flow, by, calls, partial(make, False))

    def _in_tables(self, step: Aggregate, role: str, flow: Flow, make: Callable[..., AggregateSink], expected: int = 0, full_at: int | None = None) -> Flow:
        states = self._run(step, role, flow, make, expected=expected, full_at=full_at)
        return Flow(GroupData(states[0][0], [c for _, c in states], self.shared, flow.data), step.schema)

    def _by_partitions(self, step: Aggregate, flow: Flow, by: tuple[tuple[str, Expr], ...], calls: tuple[tuple[str, Call], ...], make: Callable[..., AggregateSink]) -> Flow:
        shards = flow.data.shards
        columns = needed_columns(flow.schema, None if step.absorbs else [*(e for _, e in by), *(e for _, c in calls for e in c.expressions())])
        keep_order = any(plain_body(c).wants_position for _, c in calls)
        key = tuple(e for _, e in by)
        store = self.spill.store(f"{step.name} groups")
        lists: list[list[AnyChunk]] = [[] for _ in range(shards)]
        output = self._output_columns(step.schema)
        written = tuple(c.source() for c in columns)

        def split(flow: Flow, places: list[int], level: int) -> None:
            """Aggregate the flow, whose shards belong to the shards `places` of the step, by partitions."""
            work(placed(flow, places, level), level)

        def placed(flow: Flow, places: list[int], level: int) -> list[tuple[int, list[AnyChunk]]]:
            number = self._number(flow.data, columns, self.spill.share(TABLE, self.threads) or 0)
            parts = self._partitions(step, "partition", flow, key, columns, level, number, keep_order)
            return [(place, chunks) for place, of_shard in zip(places, parts, strict=True) for chunks in of_shard if chunks]

        def work(jobs: list[tuple[int, list[AnyChunk]]], level: int) -> None:
            whole = sum(bytes_of(c) for _, c in jobs)
            jobs.reverse()
            while jobs:
                wave = [jobs.pop() for _ in range(min(self.threads, len(jobs)))]
                aggregate(wave, level, whole)

        def aggregate(wave: list[tuple[int, list[AnyChunk]]], level: int, whole: int) -> None:
            sources = flow.data.columns if level == 0 else written
            rows = Flow(ChunkData(sources, [c for _, c in wave], self.spill.morsel_rows()), flow.schema, flow.operators if level == 0 else [])
            places = [place for place, _ in wave]
            largest = max(bytes_of(c) for _, c in wave)
            splits = self._can_split(level, whole, largest)
            with self._attempt(last=not splits and len(wave) == 1) as attempt:
                groups = self._in_tables(step, "groups", rows, make, full_at=self.spill.share(TABLE, len(wave)) if splits else None)
            if not attempt.failed:
                self._into(step, groups, output, store, lists, places)
            elif splits:
                split(rows, places, level + 1)
            else:
                for one in wave:
                    aggregate([one], level, whole)

        if isinstance(flow.data, ChunkData) and shards > self.threads and not any(o.by_shard for o in flow.operators):
            # Many shards are partitions already.
            work([(place, chunks) for place, chunks in enumerate(flow.data.chunks) if chunks], 0)
        else:
            split(flow, list(range(shards)), 1)
        return Flow(ChunkData(tuple(c.source() for c in output), lists, self.spill.morsel_rows()), step.schema)

    def _into(self, step: Step, groups: Flow, output: tuple[OutputColumn, ...], store: Store, lists: list[list[AnyChunk]], places: list[int]) -> None:
        """Collect groups and free their tables."""
        collected = self._collect(step, groups, output, "collected groups", store=store)
        for place, chunks in zip(places, collected, strict=True):
            lists[place] += chunks
        for context in groups.data.states:
            self.states.pop(id(context), None)


def needed_columns(schema: Schema, expressions: list[Expr] | None) -> tuple[OutputColumn, ...]:
    """The columns that expressions use, to be written (None: all)."""
    used: Any = None if expressions is None else {c for e in expressions for c in e.columns()}
    return tuple(OutputColumn(f.name, Column(f.name, f.type, f.nullable)) for f in schema if used is None or f.name in used)
