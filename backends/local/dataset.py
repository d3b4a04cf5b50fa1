"""Datasets between pipelines: where the rows of each shard are, and how a kernel gets at them.

A dataset gives one feed per shard; a feed yields `Part`s, each a source (which decides the kernel) with its morsels.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tsql.backends.local.host import Chunk, Context, Shared, free, read_i64, read_u64
from tsql.kernels.aggregates.base import field_offsets
from tsql.kernels.batch import Morsels, SourceColumn, arrow_layout, round_range
from tsql.kernels.expr import Expr
from tsql.kernels.operators.aggregate import AggregateSink, DenseAggregate, GroupScan, HashAggregate, ScalarAggregate
from tsql.kernels.operators.top import Top, TopScan
from tsql.kernels.pipeline import ColumnarScan
from tsql.kernels.runtime.group_table import BYTES_TAKEN, CHUNKS, STRING_CHAIN, TABLE_BYTES
from tsql.kernels.types import Type


@dataclass
class Part:
    """Morsels of one layout. `order` comes before the morsel's number in the order of the output; `counter` is shared by
    the workers that take morsels from the same part."""

    source: Any
    morsels: Morsels
    order: tuple[int, ...] = ()
    counter: ctypes.c_int64 | None = None


class Dataset:
    """Base: `shards` feeds; `empty_source` is the layout of a dataset without rows; `rows` a bound on their number."""

    shards: int
    rows: int | None = None

    def empty_source(self) -> Any:
        raise NotImplementedError

    def feed(self, shard: int) -> Iterator[Part]:
        raise NotImplementedError

    def release(self) -> None:
        """Free what the dataset owns; called when its consumer has run."""


class ChunkData(Dataset):
    """Rows in columns that a pipeline has collected."""

    def __init__(self, columns: tuple[SourceColumn, ...], shards: list[list[Chunk]], batch_rows: int = 0):
        self.columns, self.chunks, self.batch_rows = columns, shards, batch_rows
        self.shards = len(shards)
        self.rows = sum(c.rows for s in shards for c in s)

    def empty_source(self) -> ColumnarScan:
        return ColumnarScan(self.columns)

    def feed(self, shard: int) -> Iterator[Part]:
        morsels = Morsels(len(self.columns))
        position = sum(c.rows for s in self.chunks[:shard] for c in s)
        for chunk in self.chunks[shard]:
            for start, rows, arrays in slices(chunk.arrays, chunk.rows, self.batch_rows):
                morsels.add_arrays(arrays, position + start, rows)
            position += chunk.rows
        yield Part(self.empty_source(), morsels, (shard,))


def slices(arrays: list[pa.Array], rows: int, batch_rows: int) -> Iterator[tuple[int, int, list[pa.Array]]]:
    """(start, rows, arrays) pieces of at most `batch_rows` rows (0: one piece)."""
    if not batch_rows or rows <= batch_rows:
        yield 0, rows, arrays
        return
    for start in range(0, rows, batch_rows):
        count = min(batch_rows, rows - start)
        yield start, count, [a.slice(start, count) for a in arrays]


class BlockData(Dataset):
    """A table in memory: all workers take blocks from one counter."""

    def __init__(self, table: Any, columns: tuple[str, ...], where: Expr | None, shards: int, batch_rows: int):
        self.shards = shards
        self.rows = table.rows
        self.source = ColumnarScan(table.source_columns(columns))
        self.morsels = table.morsels(columns, where, batch_rows)
        self.counter = ctypes.c_int64(0)

    def empty_source(self) -> ColumnarScan:
        return self.source

    def feed(self, shard: int) -> Iterator[Part]:
        yield Part(self.source, self.morsels, (0,), self.counter)


class SourceData(Dataset):
    """A file or another source that is read split by split; workers take splits in order from a shared list."""

    def __init__(self, source: Any, columns: tuple[str, ...], where: Expr | None, shards: int, batch_rows: int, run: Any):
        self.source, self.columns, self.batch_rows, self.run = source, columns, batch_rows, run
        self.shards = shards
        self.splits = source.splits(columns, where)
        self.statistics = source.statistics()
        known = [s.rows for s in self.splits]
        self.rows = sum(known) if all(r is not None for r in known) else self.statistics.rows
        self._next = 0
        self._lock = threading.Lock()

    def _column(self, name: str, arrow: pa.DataType) -> SourceColumn:
        t: Type = self.source.schema[name].type
        known = self.statistics.columns.get(name)
        nullable = known is None or known.nulls is None or known.nulls > 0
        bounds = None
        if known is not None and known.exact and (t.is_integer or t.is_decimal or t.is_temporal) and isinstance(known.minimum, int) and isinstance(known.maximum, int):
            bounds = round_range(known.minimum, known.maximum)
        return SourceColumn(name, t, arrow_layout(t, arrow, nullable), bounds)

    def empty_source(self) -> ColumnarScan:
        return ColumnarScan(tuple(self._column(c, self.source.schema[c].type.to_arrow()) for c in self.columns))

    def _take(self) -> Any:
        with self._lock:
            if self._next >= len(self.splits):
                return None
            self._next += 1
            return self.splits[self._next - 1]

    def feed(self, shard: int) -> Iterator[Part]:
        while (split := self._take()) is not None:
            position = split.order << 40
            for number, batch in enumerate(self.source.read(split, self.columns)):
                self.run.check()
                arrays = list(batch.columns)
                source = ColumnarScan(tuple(self._column(n, a.type) for n, a in zip(self.columns, arrays, strict=True)))
                morsels = Morsels(len(arrays))
                for start, rows, pieces in slices(arrays, batch.num_rows, self.batch_rows):
                    morsels.add_arrays(pieces, position + start, rows)
                position += batch.num_rows
                yield Part(source, morsels, (split.order, number))


@dataclass
class GroupData(Dataset):
    """Groups in the states of an aggregation, one state per shard; `merged` offers all of them as one shard."""

    sink: AggregateSink
    states: list[Context]
    shared: Shared
    merged: bool = False
    rows: int | None = field(default=None)

    def __post_init__(self) -> None:
        self.shards = 1 if self.merged else len(self.states)
        self.rows = sum(self._groups(s) for s in self.states)

    def _groups(self, state: Context) -> int:
        if isinstance(self.sink, ScalarAggregate):
            return 1
        if isinstance(self.sink, DenseAggregate):
            return self.sink.groups
        return read_i64(state.state_address + 16)

    def empty_source(self) -> GroupScan:
        return GroupScan(self.sink)

    def feed(self, shard: int) -> Iterator[Part]:
        morsels = Morsels(1)
        position = 0
        for number, state in enumerate(self.states):
            if self.merged or number == shard:
                for address, rows in self._runs(state):
                    morsels.add(rows, position, [(address, 0, 0, 0)])
                    position += rows
            else:
                position += self._groups(state)
        yield Part(self.empty_source(), morsels, (shard,))

    def _runs(self, state: Context) -> Iterator[tuple[int, int]]:
        """(address of entries, number) of each run of entries."""
        base = state.state_address
        if not isinstance(self.sink, HashAggregate):
            yield base, self._groups(state)
            return
        yield from table_chunks(base)

    def release(self) -> None:
        for state in self.states:
            self._free_pointers(state)
            base = state.state_address
            tables = [i.distinct_table for i in self.sink.grouping.items if i.distinct is not None]
            if isinstance(self.sink, HashAggregate):
                tables.append(0)
            for at in tables:
                free_table(base + at, self.shared)
            state.close()

    def _free_pointers(self, state: Context) -> None:
        """Memory that aggregate states own (kept strings, lists of values)."""
        owned = [field_offsets(i.body.fields, i.offset)[f] for i in self.sink.grouping.items for f in i.body.release()]
        if not owned:
            return
        for address, rows in self._runs(state):
            for row in range(rows):
                entry = address + row * self.sink.entry_bytes
                if isinstance(self.sink, HashAggregate) or read_i64(entry):
                    for offset in owned:
                        free(read_u64(entry + offset))


def table_chunks(table: int) -> Iterator[tuple[int, int]]:
    """The chunks of a group table's entries."""
    data, count = read_u64(table + CHUNKS), read_i64(table + CHUNKS + 8)
    for index in range(count):
        yield read_u64(data + 16 * index), read_i64(data + 16 * index + 8)


def free_table(table: int, shared: Shared) -> None:
    """Free a group table."""
    for address, _ in table_chunks(table):
        free(address)
    link = read_u64(table + STRING_CHAIN)
    while link:
        following = read_u64(link)
        free(link)
        link = following
    free(read_u64(table + CHUNKS))
    free(read_u64(table))
    shared.release(read_i64(table + BYTES_TAKEN))
    ctypes.memset(table, 0, TABLE_BYTES)


class TopData(Dataset):
    """The rows that a Top sink kept, one state per shard."""

    def __init__(self, sink: Top, states: list[Context]):
        self.sink, self.states, self.shards = sink, states, len(states)
        self.rows = sum(read_i64(s.state_address) for s in states)

    def empty_source(self) -> TopScan:
        return TopScan(self.sink)

    def feed(self, shard: int) -> Iterator[Part]:
        state = self.states[shard].state_address
        morsels = Morsels(1)
        morsels.add(read_i64(state), 0, [(state + self.sink.entries_at, 0, 0, 0)])
        yield Part(self.empty_source(), morsels, (shard,))

    def release(self) -> None:
        for context in self.states:
            state = context.state_address
            for row in range(read_i64(state)):
                for offset in self.sink.text_fields():
                    free(read_u64(state + self.sink.entries_at + row * self.sink.entry_bytes + offset))
            context.close()
