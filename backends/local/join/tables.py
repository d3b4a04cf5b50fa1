"""Join tables: built by all threads, linked by all threads, freed when the run ends.

A side that every shard has in full (`broadcast`, scope=local) is built into one table that all shards share: on one
machine, copies would only cost time. Otherwise each shard has its own table."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from copy import copy
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from tsql.backends.local.join.ready import ReadyJoin
from tsql.backends.local.lower.graph import Way
from tsql.backends.local.run.dataset import Dataset, Part, table_chunks
from tsql.backends.local.run.host import Context, Full, Reserved, Shared, allocate_zeroed, free, read_i64
from tsql.backends.local.run.workers import parallel
from tsql.backends.local.sort.sorted_tables import EntrySorter, SortedEntries, working_bytes
from tsql.backends.local.sort.sorting import Workers
from tsql.kernels.codegen.llvm import compiler
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.operators.join.hash_join import (
    BY_KEY,
    DENSE,
    GREATEST_AT,
    LEAST_AT,
    NULLS_AT,
    SORTED,
    Build,
    EntryScan,
)
from tsql.kernels.operators.join.sorted_join import SortedBuild
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.join_table import RECORD_BYTES, link_module
from tsql.planner.physical.operators.join import HashJoin

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution

DENSE_KEYS_PER_ROW = 5
SMALL_DOMAIN = 1 << 14
"""At most this many possible keys: always dense (a directory with one word per possible key). Above it, dense up to
`DENSE_KEYS_PER_ROW` possible keys per row."""

BITMAP_KEYS_PER_ROW = 1024
"""Up to this many possible keys per row, a bitmap records which keys occur."""

CHUNKS_PER_TASK = 8

LARGE_BYTES = 1 << 19
"""Tables larger than this do not fit in a core's cache (512 KiB or more), so their entries are prefetched."""

PLACES, DIRECTORY = 3, 5
"""Words in the record of a sorted table: the remembered positions (dense tables) and the directory of groups."""

MOST_SLOTS = 1 << 30
"""Groups of a sorted table are numbered with 32 bits."""

OWN_SLOTS = 1 << 16
"""Up to this many groups, each worker remembers its own positions."""

Cursors = tuple[int, np.ndarray]
"""The index of a word in the record, and the array it points to."""

BY_ARRAY = Way(
    "an array by key",
    f"the keys are integers with at most {DENSE_KEYS_PER_ROW} possible values per row, or {SMALL_DOMAIN:,} in all",
)
WITH_BITMAP = Way(
    "a hash table with a bitmap of its keys",
    f"the keys are integers with at most {BITMAP_KEYS_PER_ROW:,} possible values per row",
)
HASHED = Way("a hash table")
IN_ORDER = Way("a table sorted within equal keys")
OF_INTERVALS = Way(
    "a table of intervals, sorted by their starts within equal keys, with the greatest ends of its blocks"
)


@dataclass
class JoinTable:
    """The hash tables of one join: a single table that all shards share, or one per shard."""

    shared: Shared
    sink: Build
    contexts: list[Context]
    records: list[Any] = field(default_factory=list)
    directories: list[tuple[int, int]] = field(default_factory=list)
    dense: bool = False
    has_bitmap: bool = False
    large: bool = False
    kept: list[Any] = field(default_factory=list)
    lent: list[Any] = field(default_factory=list)
    origin: Dataset | None = None
    """The rows it was built from: entries may point to their strings."""

    cursors: list[Cursors | None] = field(default_factory=list)
    """For sorted tables whose searches remember where the last one ended: the array of positions. None: all workers
    share one."""

    def allocate(self, bytes: int) -> int:
        address = allocate_zeroed(bytes)
        self.directories.append((address, bytes))
        self.shared.release(-bytes)
        return address

    def record(self, shard: int) -> int:
        at = shard if len(self.records) > 1 else 0
        if not self.cursors or self.cursors[at] is None:
            return ctypes.addressof(self.records[at])
        # Each worker remembers its own positions: words written by two cores would bounce between their caches.
        word, words = self.cursors[at]
        own, words = copy(self.records[at]), words.copy()
        own[word] = words.ctypes.data
        self.lent += [own, words]
        return ctypes.addressof(own)

    def release(self) -> None:
        for address, bytes in self.directories:
            free(address)
            self.shared.release(bytes)
        self.shared.release(sum(array.nbytes for array in self.kept))
        self.directories, self.kept, self.lent = [], [], []

    @property
    def way(self) -> Way:
        """How entries are found."""
        if self.sink.mode == SORTED:
            return IN_ORDER if self.sink.second is None else OF_INTERVALS
        return BY_ARRAY if self.dense else WITH_BITMAP if self.has_bitmap else HASHED


class EntryData(Dataset):
    """The entries of the tables as rows, in as many shards as the probe side had."""

    ready = True

    def __init__(self, build: Build, groups: list[list[tuple[int, int]]], wanted: int | None):
        self.build, self.groups, self.wanted = build, groups, wanted
        self.shards = len(groups)
        self.rows = sum(rows for group in groups for _, rows in group)

    def empty_source(self) -> EntryScan:
        return EntryScan(self.build, self.wanted)

    def feed(self, shard: int) -> Iterator[Part]:
        morsels = Morsels(1)
        position = sum(rows for group in self.groups[:shard] for _, rows in group)
        for address, rows in self.groups[shard]:
            morsels.add(rows, position, [(address, 0, 0, 0)])
            position += rows
        yield Part(self.empty_source(), morsels, (shard,))


class JoinTables:
    """Builds join tables."""

    def __init__(self, x: Execution):
        self.x = x

    def built(self, join: ReadyJoin, full_at: int | None = None) -> JoinTable:
        """The table of the build side. Raises `Full` if a worker takes more than `full_at` bytes for it; the build side
        can be read again then."""
        sink = join.sink(self.x.run.settings.equal_hashes)
        may_fail = full_at is not None
        states = self.x.pipelines.run(join.step, "build", join.built, sink, full_at=full_at, releases=not may_fail)
        contexts = [c for _, c in states]
        table = self._link(join.step, states[0][0], [contexts] if join.is_shared else [[c] for c in contexts], full_at)
        if may_fail:
            join.built.data.release()
        table.origin = join.built.data
        self.x.run.chose(join.step.name, table.way.name)
        return table

    def _link(self, step: HashJoin, sink: Build, groups: list[list[Context]], full_at: int | None = None) -> JoinTable:
        """Make the directories. All threads share the entries of each table."""
        if step.name in self.x.states.tables:
            self.x.states.tables[step.name].release()
        table = self.x.states.tables[step.name] = JoinTable(self.x.shared, sink, [c for group in groups for c in group])
        if sink.mode == SORTED:
            self._sort_tables(table, step, sink, groups)
            return table
        sizes = [sum(read_i64(c.state_address + 16) for c in group) for group in groups]
        bounds = [_bounds(group) if sink.mode == BY_KEY else None for group in groups]
        keys = [0 if b is None else b[1] - b[0] + 1 for b in bounds]
        by_key = sink.mode == BY_KEY and any(sizes) and not self.x.dry
        table.dense = by_key and all(
            k <= max(SMALL_DOMAIN, n * DENSE_KEYS_PER_ROW) for k, n in zip(keys, sizes, strict=True)
        )
        table.has_bitmap = (
            by_key
            and not table.dense
            and all(k <= n * BITMAP_KEYS_PER_ROW for k, n in zip(keys, sizes, strict=True) if n)
        )
        words = sum(k if table.dense else n * 3 + k // 64 for k, n in zip(keys, sizes, strict=True))
        if full_at is not None and words * 8 > full_at * len(table.contexts):
            raise Full(str(self.x.shared.out_of_memory()))
        table.large = not self.x.dry and words * 8 + sum(sizes) * sink.entry_bytes > LARGE_BYTES
        for group, count, domain, bound in zip(groups, sizes, keys, bounds, strict=True):
            least = bound[0] if bound is not None else 0
            size = max(1, domain) if table.dense else 1 << max(6, (count * 3 // 2).bit_length())
            directory = table.allocate(size * 8 + 8)
            bitmap = table.allocate((domain + 63) // 64 * 8 + 8) if table.has_bitmap else 0
            mask = domain if table.dense else size - 1
            nulls = sum(read_i64(c.state_address + NULLS_AT) for c in group)
            table.records.append(
                (ctypes.c_int64 * (RECORD_BYTES // 8))(directory, mask, least, count, nulls, bitmap, domain, size)
            )
            plan = (ctypes.c_int64 * 8)(
                directory,
                mask,
                least,
                sink.entry_bytes,
                DENSE if table.dense else sink.mode,
                sink.marking,
                bitmap,
                size,
            )
            self.file(plan, [chunk for c in group for chunk in chunks_of(c)])
        return table

    def _sort_tables(self, table: JoinTable, join: HashJoin, sink: SortedBuild, groups: list[list[Context]]) -> None:
        """Sort the entries of each table. The directories are dense if all of them can be."""
        sizes = [sum(read_i64(c.state_address + 16) for c in group) for group in groups]
        bounds = [(_bounds(group) if sink.is_by_number else None) or (0, 0) for group in groups]
        table.dense = sink.is_by_number and any(sizes) and not self.x.dry
        table.dense = table.dense and all(
            high - low < min(MOST_SLOTS, max(SMALL_DOMAIN, rows * DENSE_KEYS_PER_ROW))
            for (low, high), rows in zip(bounds, sizes, strict=True)
        )
        for group, bound in zip(groups, bounds, strict=True):
            self._sort_entries(table, join, sink, group, bound if table.dense else None)
        table.large = not self.x.dry and sum(array.nbytes for array in table.kept) > LARGE_BYTES

    def _sort_entries(
        self, table: JoinTable, join: HashJoin, sink: SortedBuild, group: list[Context], dense: tuple[int, int] | None
    ) -> None:
        """Sort the entries of a table by number within each group. Entries that have no place in that order are left
        out."""
        workers = Workers(self.x.threads, lambda work, tasks: parallel(work, tasks, self.x.threads, self.x.run))
        contexts = [list(chunks_of(c)) for c in group]
        working = Reserved(working_bytes(sink) * sum(rows for one in contexts for _, rows in one), self.x.shared)
        found = EntrySorter(workers, self.x.interpret).sort(sink, contexts, join.last_first, dense)
        del working
        self.x.shared.reserve(found.bytes)
        table.kept += found.kept
        table.lent.append(found.greatest)
        table.records.append(found.record(sum(read_i64(c.state_address + NULLS_AT) for c in group)))
        if join.walks and sink.keys:
            table.cursors.append(self._cursors(table, found))

    def _cursors(self, table: JoinTable, found: SortedEntries) -> Cursors | None:
        """Where searches remember positions, if each worker gets its own copy; None if there are too many for that."""
        at, words = (
            (DIRECTORY, found.directory) if found.least is None else (PLACES, np.zeros(len(found.directory), np.int64))
        )
        if len(words) <= OWN_SLOTS:
            return at, words
        if at == PLACES:
            self.x.shared.reserve(words.nbytes)
            table.kept.append(words)
            table.records[-1][PLACES] = words.ctypes.data
        return None

    def file(self, plan: Any, chunks: list[tuple[int, int]]) -> None:
        """Insert the entries of a table into its directory."""
        link = None if self.x.interpret else compiler().routine(link_module, rows=sum(rows for _, rows in chunks))
        if link is None:
            from tsql.kernels.codegen.interp import Interpreter

            interpreter = Interpreter(link_module())
            for address, rows in chunks:
                interpreter("main", ctypes.addressof(plan), address, rows)
            return
        tasks = [chunks[i : i + CHUNKS_PER_TASK] for i in range(0, len(chunks), CHUNKS_PER_TASK)]

        def work(number: int) -> None:
            self.x.run.check()
            for address, rows in tasks[number]:
                link(ctypes.addressof(plan), address, rows)

        parallel(work, len(tasks), self.x.threads, self.x.run)


def _bounds(group: list[Context]) -> tuple[int, int] | None:
    """The minimum and maximum key of a table."""
    states = [c.state_address for c in group if read_i64(c.state_address + 16)]
    found = [(read_i64(s + LEAST_AT), read_i64(s + GREATEST_AT)) for s in states]
    bounds = (min(low for low, _ in found), max(high for _, high in found)) if found else None
    return bounds if bounds is not None and bounds[0] <= bounds[1] else None


def chunks_of(context: Context) -> Iterator[tuple[int, int]]:
    return table_chunks(context.state_address)


def dealt(items: list[Any], shards: int) -> list[list[Any]]:
    """Split items into `shards` lists, in order."""
    dealt: list[list[Any]] = [[] for _ in range(shards)]
    for number, item in enumerate(items):
        dealt[number * shards // len(items)].append(item)
    return dealt
