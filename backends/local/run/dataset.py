"""Datasets between pipelines: where the rows of each shard are, and how a kernel reads them.

A dataset has one feed per shard. A feed yields `Part`s: a source (which determines the kernel) and its morsels."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import field
from itertools import accumulate
from typing import Any

import pyarrow as pa

from tsql.backends.io import tell_lost
from tsql.backends.local.run.host import Chunk, Context, Shared, allocate_zeroed, free, read_i64, read_u64, take_chunks
from tsql.backends.local.run.positions import check_count, check_rows, first_position
from tsql.kernels.aggregates.base import field_offsets
from tsql.kernels.codegen.llvm import QUICK, compiler
from tsql.kernels.emit.batch import Morsels, SourceColumn, arrow_layout, joined_morsels, round_range
from tsql.kernels.emit.pipeline import ColumnarScan, Sink
from tsql.kernels.emit.rows import POSITION
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.types import Type
from tsql.kernels.operators.aggregate.groups import AggregateSink, DenseAggregate, GroupScan, HashAggregate
from tsql.kernels.operators.collect import Collect, end_chunk_module
from tsql.kernels.operators.join.hash_join import Build
from tsql.kernels.operators.partition import Partition
from tsql.kernels.operators.top import Top, TopScan
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.group_table import BYTES_TAKEN, CHUNKS, STRING_CHAIN, TABLE_BYTES
from tsql.kernels.runtime.release import release_module

WAVE_BLOCKS = 64
WAVE_SPLITS = 2
"""How much of a scan is collected at a time when its rows go straight to the result: blocks, and splits per thread.
With a memory limit it is one block or split per thread."""


@dataclass
class Part:
    """Morsels of one layout. In the output order, `order` precedes the morsel's number. `counter` is shared by the
    workers that take morsels from the same part."""

    source: Any
    morsels: Morsels
    order: tuple[int, ...] = ()
    counter: ctypes.c_int64 | None = None


class Dataset:
    """Base class. `shards` is the number of feeds, `empty_source` the layout of a dataset without rows, `rows` an upper
    bound on the rows."""

    shards: int
    rows: int | None = None
    expected: int | None = None
    """The estimated rows, where there is no bound."""

    ready = False
    """Whether all rows are in memory, so that getting a part takes no time."""

    positioned = False
    """Whether the position of a row identifies it among all rows of the input."""

    numbered = False
    """Whether positions are those in the whole input, of which a task of a cluster has a part. They must go along with
    rows that are written elsewhere."""

    by_morsel = False
    """Whether workers take morsels in turn and the output follows the order of the morsels."""

    def empty_source(self) -> Any:
        raise NotImplementedError

    def feed(self, shard: int) -> Iterator[Part]:
        raise NotImplementedError

    def release(self) -> None:
        """Free what the dataset owns. Called when its consumer has run."""

    def again(self) -> Dataset:
        """The same rows, read again from the start."""
        return self

    def spread(self, tasks: int) -> Dataset:
        """The same rows in the best number of tasks, at most `tasks`, for pipelines that do not care which shard a row
        is in."""
        return CoalescedData(self, tasks) if self.shards > tasks else self


PART_BYTES = 1 << 18
"""Spilled chunks are read back in parts of about this many bytes, unless a dataset overrides it."""


class ChunkData(Dataset):
    """Rows that a pipeline has collected in columns. Some or all of them may be in a file (`spill.py`)."""

    positioned = True
    shift = 0
    """If not 0, the shards were chosen by this many low bits of an integer key (`Partition`, compact)."""
    first = 0
    """The position of the first row."""

    def __init__(
        self, columns: tuple[SourceColumn, ...], shards: list[list[Any]], batch_rows: int = 0, stable: bool = True
    ):
        self.columns, self.chunks, self.batch_rows = columns, shards, batch_rows
        self.shards = len(shards)
        self.starts = running_sums([sum(c.rows for c in s) for s in shards])
        self.rows = self.starts[-1]
        self.part_bytes = PART_BYTES
        self.numbered = any(c.name == POSITION for c in columns)
        self.stable = self.ready = stable and all(isinstance(c, Chunk) for s in shards for c in s)

    def empty_source(self) -> ColumnarScan:
        return ColumnarScan(self.columns, stable=self.stable)

    def feed(self, shard: int) -> Iterator[Part]:
        if not self.stable:
            yield from self._parts(shard)
            return
        morsels = Morsels(len(self.columns))
        position = self.first + self.starts[shard]
        for chunk in self.chunks[shard]:
            self._add(morsels, chunk, position)
            position += chunk.rows
        yield Part(self.empty_source(), morsels, (shard,))

    def _add(self, morsels: Morsels, chunk: Any, position: int) -> None:
        if not isinstance(chunk, Chunk) and not 0 < self.batch_rows < chunk.rows:
            chunk.add_to(morsels, position)
            return
        for start, rows, arrays in slices(chunk.arrays, chunk.rows, self.batch_rows):
            morsels.add_arrays(arrays, position + start, rows)

    def _parts(self, shard: int) -> Iterator[Part]:
        """A few chunks at a time: each batch is freed before the next is read."""
        position = self.first + self.starts[shard]
        number, at, chunks = 0, 0, self.chunks[shard]
        while at < len(chunks) or number == 0:
            morsels, bytes = Morsels(len(self.columns)), 0
            while at < len(chunks) and (bytes == 0 or bytes + chunks[at].bytes <= self.part_bytes):
                self._add(morsels, chunks[at], position)
                position += chunks[at].rows
                bytes += chunks[at].bytes + 1
                at += 1
            part = Part(self.empty_source(), morsels, (shard, number))
            del morsels
            yield part
            del part
            number += 1


def running_sums(counts: list[int]) -> list[int]:
    """0, then the sum of the first, the first two, .. counts."""
    return [0, *accumulate(counts)]


def slices(arrays: list[pa.Array], rows: int, batch_rows: int) -> Iterator[tuple[int, int, list[pa.Array]]]:
    """(start, rows, arrays) pieces of at most `batch_rows` rows (0: one piece)."""
    if not batch_rows or rows <= batch_rows:
        yield 0, rows, arrays
        return
    for start in range(0, rows, batch_rows):
        count = min(batch_rows, rows - start)
        yield start, count, [a.slice(start, count) for a in arrays]


class CoalescedData(Dataset):
    """Many shards read by a few tasks, for pipelines that do not care which shard a row is in. Shards that are fully in
    memory are combined beforehand, one part per task; others are taken in turn."""

    def __init__(self, data: Dataset, tasks: int):
        self.data, self.shards, self.rows, self.ready = data, tasks, data.rows, data.ready
        self.expected = data.expected
        self._next = 0
        self._lock = threading.Lock()

    def empty_source(self) -> Any:
        return self.data.empty_source()

    def again(self) -> Dataset:
        return CoalescedData(self.data.again(), self.shards)

    def _take(self) -> int | None:
        with self._lock:
            self._next += 1
            return self._next - 1 if self._next <= self.data.shards else None

    def feed(self, shard: int) -> Iterator[Part]:
        if self.ready:
            mine = range(self.data.shards * shard // self.shards, self.data.shards * (shard + 1) // self.shards)
            parts = [part for number in mine for part in self.data.feed(number)]
            if parts:
                yield Part(parts[0].source, joined_morsels([p.morsels for p in parts]), (shard,))
            return
        while (number := self._take()) is not None:
            yield from self.data.feed(number)

    def release(self) -> None:
        self.data.release()


class BlockData(Dataset):
    """A table in memory. All workers take blocks from one counter."""

    ready = True
    positioned = True
    by_morsel = True

    def __init__(self, table: Any, columns: tuple[str, ...], where: Expr | None, shards: int, batch_rows: int):
        self.shards = shards
        self.rows = table.rows
        parts = table.parts(columns, where, batch_rows)
        # Codes and plain strings differ in what "stable" means for the sink. The kernels of all layouts share its
        # state.
        self.parts = [
            (ColumnarScan(sources, stable=len(parts) == 1), morsels, ctypes.c_int64(0)) for sources, morsels in parts
        ]

    def empty_source(self) -> ColumnarScan:
        return self.parts[0][0]

    def feed(self, shard: int) -> Iterator[Part]:
        for number, (source, morsels, counter) in enumerate(self.parts):
            yield Part(source, morsels, (number,), counter)

    def again(self) -> Dataset:
        fresh = copy(self)
        fresh.parts = [(source, morsels, ctypes.c_int64(0)) for source, morsels, _ in self.parts]
        return fresh

    def spread(self, tasks: int) -> Dataset:
        """Use fewer tasks if there is little to do. All tasks take from the same counter."""
        if tasks >= self.shards:
            return self
        fewer = copy(self)
        fewer.shards = tasks
        return fewer

    def waves(self, threads: int, small: bool = False) -> Iterator[BlockData]:
        """The same rows as several datasets, one after the other."""
        size = threads if small else WAVE_BLOCKS
        for source, morsels, _ in self.parts:
            for start in range(0, max(1, morsels.count), size):
                wave = copy(self)
                wave.parts = [(source, morsels.part(start, size), ctypes.c_int64(0))]
                yield wave


class SourceData(Dataset):
    """A file or another source, read split by split. Workers take splits in order from a shared list. `late`: columns
    that the head of the pipeline does not read may be decoded only for the rows that pass it
    (`planner/choose/late_decoding.py`)."""

    positioned = numbered = True

    def __init__(
        self,
        source: Any,
        columns: tuple[str, ...],
        where: Expr | None,
        shards: int,
        batch_rows: int,
        shared: Shared,
        late: bool = False,
    ):
        self.late = late
        self.source, self.columns, self.batch_rows, self.shared = source, columns, batch_rows, shared
        self.shards = shards
        self.splits, self.where = source.splits(columns, where), where
        check_count(len(self.splits), source)
        self.statistics = source.statistics()
        self.count()
        if self.rows is None and self.expected is None:
            self.rows = self.statistics.rows
        self._start()
        self._columns: dict[tuple[str, pa.DataType], SourceColumn] = {}

    def count(self) -> None:
        """Find out how many rows the splits have, or may have."""
        known = [split.rows for split in self.splits]
        self.rows = None if None in known else sum(known)
        likely = [split.expected if split.rows is None else split.rows for split in self.splits]
        self.expected = None if self.rows is not None or None in likely else sum(likely)

    def _start(self) -> None:
        """Begin with the first split."""
        self._next = 0
        self._opened: deque[Any] = deque()
        self._lock = threading.Lock()

    def _column(self, name: str, arrow: pa.DataType) -> SourceColumn:
        found = self._columns.get((name, arrow))
        if found is None:
            found = self._columns[name, arrow] = self._made_column(name, arrow)
        return found

    def _made_column(self, name: str, arrow: pa.DataType) -> SourceColumn:
        t: Type = self.source.schema[name].type
        known = self.statistics.columns.get(name)
        nullable = known is None or known.nulls is None or known.nulls > 0
        bounds = None
        if (
            known is not None
            and known.exact
            and (t.is_integer or t.is_decimal or t.is_temporal)
            and isinstance(known.minimum, int)
            and isinstance(known.maximum, int)
        ):
            bounds = round_range(known.minimum, known.maximum)
        return SourceColumn(name, t, arrow_layout(t, arrow, nullable), bounds)

    def empty_source(self) -> ColumnarScan:
        return ColumnarScan(tuple(self._column(c, self.source.schema[c].type.to_arrow()) for c in self.columns))

    def scan_of(self, batch: pa.RecordBatch) -> ColumnarScan:
        """The layout of a batch of the source."""
        return ColumnarScan(tuple(self._column(n, a.type) for n, a in zip(self.columns, batch.columns, strict=True)))

    def again(self) -> Dataset:
        fresh = copy(self)
        fresh._start()
        return fresh

    def spread(self, tasks: int) -> Dataset:
        return self

    def waves(self, threads: int, small: bool = False) -> Iterator[SourceData]:
        """The same rows as several datasets, one after the other: a few splits per thread in each."""
        size = threads if small else threads * WAVE_SPLITS
        for start in range(0, max(1, len(self.splits)), size):
            wave = copy(self)
            wave.splits = self.splits[start : start + size]
            wave._start()
            yield wave

    def _take(self) -> Any:
        """The next split to read; None at the end. What is only a part of a file is opened first."""
        opened = getattr(self.source, "opened", None)
        while True:
            with self._lock:
                if self._opened:
                    return self._opened.popleft()
                if self._next >= len(self.splits):
                    return None
                split = self.splits[self._next]
                self._next += 1
            if opened is None or split.rows is not None:
                return split
            found = opened(split, self.columns, self.where)
            with self._lock:
                self._opened.extend(found)

    def feed(self, shard: int) -> Iterator[Part]:
        while (split := self._take()) is not None:
            position = first_position(split)
            for number, batch in enumerate(self.source.read(split, self.columns)):
                self.shared.run.check()
                arrays, source = list(batch.columns), self.scan_of(batch)
                morsels = Morsels(len(arrays))
                for start, rows, pieces in slices(arrays, batch.num_rows, self.batch_rows):
                    morsels.add_arrays(pieces, position + start, rows)
                position += batch.num_rows
                # A batch of an in-memory table is a view of existing data.
                bytes = 0 if getattr(self.source, "in_memory", False) else batch.nbytes
                self.shared.reserve(bytes)
                try:
                    yield Part(source, morsels, (split.order, split.first + number))
                finally:
                    self.shared.release(bytes)
            check_rows(split, position)
            tell_lost(self.source, self.columns, self.shared.run)


@dataclass
class GroupData(Dataset):
    """The groups of an aggregation, one state per shard. `merged` reads all of them as one shard. Keys may point into
    the strings of `origin`, which must live as long."""

    sink: AggregateSink
    states: list[Context]
    shared: Shared
    origin: Dataset | None = None
    merged: bool = False
    rows: int | None = field(default=None)
    ready = True

    def __post_init__(self) -> None:
        self.shards = 1 if self.merged else len(self.states)
        self.starts = running_sums([self._groups(s) for s in self.states])
        self.rows = self.starts[-1]

    def _groups(self, state: Context) -> int:
        return sum(rows for _, rows in group_runs(self.sink, state.state_address))

    def empty_source(self) -> GroupScan:
        return GroupScan(self.sink)

    def feed(self, shard: int) -> Iterator[Part]:
        morsels = Morsels(1)
        for number in range(len(self.states)) if self.merged else (shard,):
            position = self.starts[number]
            for address, rows in group_runs(self.sink, self.states[number].state_address):
                morsels.add(rows, position, [(address, 0, 0, 0)])
                position += rows
        yield Part(self.empty_source(), morsels, (shard,))

    def release(self) -> None:
        for state in self.states:
            free_state(self.sink, state, self.shared)


def group_runs(sink: AggregateSink, state: int) -> Iterator[tuple[int, int]]:
    """(address of entries, count) of each run of entries in an aggregation's state."""
    if isinstance(sink, HashAggregate):
        yield from table_chunks(state)
    else:
        yield state, sink.groups if isinstance(sink, DenseAggregate) else 1


def free_state(sink: Sink, context: Context, shared: Shared) -> None:
    """Free a context and everything that its sink's state points to, whether or not the run completed."""
    if context.closed or context.kept:
        return
    if context.owns_state:
        match sink:
            case AggregateSink():
                _free_groups(sink, context.state_address)
                shared.release(context.taken)
            case Top():
                _free_top(sink, context.state_address)
                shared.release(context.taken)
            case Build():
                shared.release(free_table(context.state_address))
            case Collect():
                take_chunks(context.state_address, sink.columns, shared)
            case Partition():
                end_chunks(sink, context)
                for shard in range(sink.shards):
                    take_chunks(context.state_address + shard * sink.shard_bytes, sink.columns, shared)
    context.close()


def end_chunks(sink: Partition, context: Context) -> None:
    """Record the chunks that a partition has left open."""
    if sink.leaves_open:
        plan = (ctypes.c_int64 * 2)(sink.shard_bytes, len(sink.columns))
        compiler().routine(end_chunk_module, QUICK)(context.state_address, ctypes.addressof(plan), sink.shards)


def owns_memory(sink: AggregateSink) -> bool:
    """Whether its groups point to memory outside of their state."""
    return isinstance(sink, HashAggregate) or any(
        i.distinct is not None or i.body.release() for i in sink.grouping.items
    )


def _free_groups(sink: AggregateSink, state: int) -> None:
    items = sink.grouping.items
    owned = [field_offsets(i.body.fields, i.offset)[f] for i in items for f in i.body.release()]
    _free_fields(owned, sink.entry_bytes, not isinstance(sink, HashAggregate), group_runs(sink, state))
    tables = [i.distinct_table for i in items if i.distinct is not None] + [0] * isinstance(sink, HashAggregate)
    for at in tables:
        free_table(state + at)


def _free_top(sink: Top, state: int) -> None:
    _free_fields(sink.text_fields(), sink.entry_bytes, False, [(state + sink.entries_at, read_i64(state))])


def _free_fields(offsets: list[int], entry_bytes: int, occupied_only: bool, runs: Iterable[tuple[int, int]]) -> None:
    """Free the memory that entries point to at these offsets."""
    if not offsets:
        return
    plan = (ctypes.c_int64 * (3 + len(offsets)))(entry_bytes, occupied_only, len(offsets), *offsets)
    release = compiler().routine(release_module, QUICK)
    for address, rows in runs:
        release(ctypes.addressof(plan), address, rows)


def presize_table(context: Context, groups: int, shared: Shared) -> None:
    """Give an empty group table a directory for `groups` groups, which avoids most of its growth."""
    table, size = context.state_address, 2048
    while size < groups * 2 and size < 1 << 26:
        size *= 2
    ctypes.c_uint64.from_address(table).value = allocate_zeroed(size * 8)
    ctypes.c_int64.from_address(table + 8).value = size - 1
    ctypes.c_int64.from_address(table + 24).value = size // 2
    ctypes.c_int64.from_address(table + BYTES_TAKEN).value = size * 8
    context.add_taken(size * 8)
    shared.release(-size * 8)


def table_chunks(table: int) -> Iterator[tuple[int, int]]:
    """The chunks of a group table's entries."""
    data, count = read_u64(table + CHUNKS), read_i64(table + CHUNKS + 8)
    for index in range(count):
        yield read_u64(data + 16 * index), read_i64(data + 16 * index + 8)


def free_table(table: int) -> int:
    """Free a group table, and return how many bytes it used."""
    for address, _ in table_chunks(table):
        free(address)
    link = read_u64(table + STRING_CHAIN)
    while link:
        following = read_u64(link)
        free(link)
        link = following
    free(read_u64(table + CHUNKS))
    free(read_u64(table))
    taken = read_i64(table + BYTES_TAKEN)
    ctypes.memset(table, 0, TABLE_BYTES)
    return taken


class TopData(Dataset):
    """The rows kept by a Top sink, one state per shard."""

    ready = True

    def __init__(self, sink: Top, states: list[Context], shared: Shared):
        self.sink, self.states, self.shared, self.shards = sink, states, shared, len(states)
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
            free_state(self.sink, context, self.shared)
