"""Partitions: the rows of a flow in lists by the hash of a key, possibly in files. Aggregations and joins spill to
them.

`Partitions.of` serves every step that can process some keys at a time (including window functions): equal keys of a
shard are in one partition. Rows need not be in input order there: steps that depend on it write the positions too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tsql.backends.local.run.dataset import ChunkData, Dataset, GroupData, Part
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Context
from tsql.backends.local.run.spill import AnyChunk, bytes_of
from tsql.kernels.aggregates.bodies import plain_body
from tsql.kernels.emit.pipeline import Sink
from tsql.kernels.emit.rows import POSITION
from tsql.kernels.expr.nodes import Aggregate as Call
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.operators.aggregate.groups import AggregateSink
from tsql.kernels.operators.collect import OutputColumn
from tsql.kernels.operators.partition import Partition
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution

ENTRY_BYTES = 40
"""What a row takes in a table besides its columns: links, hashes, and its share of the directory."""

PARTITIONS = 32
FORCED_PARTITIONS = 3
LEVELS = 5
LEAST_PARTITION = 1 << 13
"""Smaller partitions are not split: the table of a part would be as large. If it does not fit, there is no memory
left."""
BUFFERED = 0.125
"""The share of memory that partitions may keep of the rows they collect."""


class Partitions:
    """Places rows in partitions, possibly in files."""

    def __init__(self, x: Execution):
        self.x = x

    def number(self, data: Dataset, columns: tuple[OutputColumn, ...], share: int) -> int:
        """How many partitions to split a dataset into, if the table of each may take `share` bytes."""
        if self.x.spill.forced:
            return FORCED_PARTITIONS
        if data.rows is None:
            return PARTITIONS
        if isinstance(data, ChunkData):
            bytes = max(bytes_of(c) for c in data.chunks) + ENTRY_BYTES * data.rows // data.shards
        else:
            width = sum(24 if c.type.is_string else c.value_bytes for c in columns)
            bytes = data.rows * (width + ENTRY_BYTES)
        return min(2 * PARTITIONS, max(4, 1 << (2 * bytes // max(1, share)).bit_length()))

    def of(
        self,
        step: Step,
        role: str,
        flow: Flow,
        key: tuple[Expr, ...],
        columns: tuple[OutputColumn, ...],
        level: int,
        number: int,
    ) -> list[list[list[AnyChunk]]]:
        """The rows of each shard in partitions by the hash of `key`. Each level, counted from 1, uses other bits."""
        flow = replace(flow, data=flow.data.again())
        lists: list[list[list[AnyChunk]]] = [[[] for _ in range(number)] for _ in range(flow.data.shards)]
        lock = threading.Lock()
        name = f"{role} {level} of {number}"
        # Partitions of a partition do not stay in memory: there may be many.
        store, most = (
            self.x.spill.store(f"{step.name} {name}", BUFFERED if level == 1 else 0),
            self.x.spill.chunk_rows(columns, number),
        )

        def take(sink: Sink, context: Context, part: Part, shard: int) -> None:
            taken = self.x.rows.taken(context, columns, part, store, number, sink.shard_bytes)
            with lock:
                for target, chunks in zip(lists[shard], taken, strict=True):
                    target += chunks

        def make() -> Partition:
            return Partition(columns, key, number, self.x.run.settings.equal_hashes, False, level=level, most=most)

        with self.x.states.attempt() as attempt:
            for _, context in self.x.pipelines.run(step, name, flow, make, take):
                self.x.states.close(context)
        if attempt.failed:
            # Two workers may each wait for memory that the other holds: a single worker has all of it.
            for target in (one for shard in lists for one in shard):
                target.clear()
            threads, self.x.pipelines.threads = self.x.threads, 1
            try:
                for _, context in self.x.pipelines.run(step, name, replace(flow, data=flow.data.again()), make, take):
                    self.x.states.close(context)
            finally:
                self.x.pipelines.threads = threads
        for of_shard in lists:
            for chunks in of_shard:
                chunks.sort(key=lambda c: c.order)
        return lists

    def can_split(self, level: int, whole: int, part: int) -> bool:
        """Whether it helps to split a partition of `part` bytes again that came from one of `whole` bytes."""
        return (
            not self.x.spill.forced
            and level <= LEVELS
            and part >= LEAST_PARTITION
            and part * 10 <= whole * 9
            and not self.x.run.settings.equal_hashes
        )

    def in_tables(
        self,
        step: Aggregate,
        role: str,
        flow: Flow,
        make: Callable[..., AggregateSink],
        expected: int = 0,
        full_at: int | None = None,
    ) -> Flow:
        states = self.x.pipelines.run(step, role, flow, make, expected=expected, full_at=full_at)
        return Flow(GroupData(states[0][0], [c for _, c in states], self.x.shared, flow.data), step.schema)

    def forget_states(self, groups: Flow) -> None:
        """Drop the states of groups: they were freed when the groups were collected."""
        for context in groups.data.states:
            self.x.states.open.pop(id(context), None)


def needed_columns(
    schema: Schema, by: tuple[tuple[str, Expr], ...], calls: tuple[tuple[str, Call], ...], absorbs: bool = False
) -> tuple[OutputColumn, ...]:
    """The columns that an aggregation uses, to be written. If it depends on order, rows carry their positions: those in
    the partitions would say nothing about the rows of other partitions and tasks."""
    if absorbs:
        return tuple(OutputColumn(f.name, Column(f.name, f.type, f.nullable)) for f in schema)
    expressions = [*(e for _, e in by), *(e for _, c in calls for e in c.expressions())]
    used = {c for e in expressions for c in e.columns()}
    columns = tuple(OutputColumn(f.name, Column(f.name, f.type, f.nullable)) for f in schema if f.name in used)
    placed = any(plain_body(c).wants_position for _, c in calls)
    return (*columns, OutputColumn(POSITION, Column(POSITION, BIGINT, False), False)) if placed else columns
