"""Joins on the threads of one process: the table is built by all of them, linked by all of them, and probed in
pipelines.

A side that every shard has in full (`broadcast`, scope=local) is built into one table that all shards share: between
the cores of one machine a copy would only cost. Otherwise each shard has a table of its own. Tables live until the run
ends."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tsql.backends.local.run.dataset import ChunkData, Dataset, Part, table_chunks
from tsql.backends.local.run.host import Context, Full, Reserved, Shared, allocate_zeroed, free, read_i64
from tsql.backends.local.run.host_calls import innermost
from tsql.backends.local.run.runner import Flow
from tsql.backends.local.run.workers import parallel
from tsql.backends.local.sort.sorted_tables import WORKING_BYTES, EntrySorter, SortedEntries
from tsql.backends.local.sort.sorting import Workers
from tsql.backends.local.spill.spill import AnyChunk
from tsql.backends.local.steps.movement import MovementRunner, one_copy
from tsql.kernels.codegen.llvm import compiler
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Column, Expr, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.operators import project as kernel_project
from tsql.kernels.operators.collect import columns_of
from tsql.kernels.operators.join.hash_join import (
    BY_KEY,
    DENSE,
    GREATEST_AT,
    LEAST_AT,
    NULLS_AT,
    SORTED,
    Build,
    Drain,
    EntryScan,
    Probe,
    TableKind,
)
from tsql.kernels.operators.join.sorted_join import AsofProbe, SortedBuild
from tsql.kernels.runtime.join_table import FREE, MATCHED, RECORD_BYTES, link_module
from tsql.planner.physical.movement import Broadcast
from tsql.planner.physical.operators.asof_join import AsofJoin
from tsql.planner.physical.operators.join import HashJoin

DENSE_KEYS_PER_ROW = 5
SMALL_DOMAIN = 1 << 14
"""A directory with a word for each possible key is used for up to so many keys per row, or so many in all."""

BITMAP_KEYS_PER_ROW = 1024
"""Up to so many possible keys per row there is a bitmap of those that occur."""

CHUNKS_PER_TASK = 8

LARGE_BYTES = 1 << 19
"""Tables larger than this outgrow the cache of a core (of 512 KiB or more): their entries are prefetched."""

PLACES, DIRECTORY = 3, 5
"""The words of the record of a sorted table that lead to the places which a dense one remembers, and to its groups."""

MOST_SLOTS = 1 << 30
"""Groups of a sorted table are numbered by 32 bits."""

OWN_SLOTS = 1 << 16
"""Each worker remembers places by itself if there are no more groups."""

Cursors = tuple[int, np.ndarray]
"""The word of a record, and what it leads to."""


@dataclass
class ReadyJoin:
    """A hash join whose inputs are there. `columns` are those of the built side that its table holds, `schema` has all
    of them."""

    step: HashJoin
    built: Flow
    probed: Flow
    build_keys: tuple[Expr, ...]
    probe_keys: tuple[Expr, ...]
    columns: tuple[tuple[str, Expr], ...]
    is_shared: bool
    schema: Schema
    apart: bool = False
    """Rows of the built side with a NULL among their keys are kept, in a chain of their own."""

    place: Expr | bool = False
    """Of a nearest join: what tells the place of a row of the built side in the input; True: its position."""

    @property
    def sorted_by(self) -> set[str]:
        """The columns of the built side that its order needs besides those that the table holds."""
        order = self.bounds[0]
        places = self.place.columns() if isinstance(self.place, Expr) else ()
        return set() if order is None else {*order.columns(), *places}

    def sink(self, equal_hashes: bool) -> Callable[[], Build]:
        safe = tuple(key.null_safe for key in self.step.keys)
        order = self.bounds[0]
        if order is not None:
            return lambda: SortedBuild(
                self.columns, self.build_keys, safe, order, self.step.marks, equal_hashes, self.place
            )
        return lambda: Build(self.columns, self.build_keys, safe, self.step.marks, equal_hashes, apart=self.apart)

    def probe(self, kind: TableKind, touches: bool) -> Probe:
        """The operator that looks rows of the other side up."""
        step = self.step
        if isinstance(step, AsofJoin):
            return AsofProbe(kind, step.name, step.kind, self.probe_keys, step.condition, step.distance, step.position)
        return Probe(
            kind,
            step.name,
            step.probe_kind,
            self.probe_keys,
            step.condition,
            step.mark,
            touches,
            step.position,
            step.early,
        )

    @property
    def bounds(self) -> tuple[Expr | None, tuple[tuple[str, Expr], ...]]:
        """Of a join on a range: the number that the table is sorted by, and what it is compared with."""
        return self.step.bounds(0 if self.step.build == "left" else 1) if self.step.range else (None, ())


@dataclass
class JoinTable:
    """The tables of one join: one that all shards share, or one for each."""

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
    """The rows from which it was built: entries may point to their strings."""

    cursors: list[Cursors | None] = field(default_factory=list)
    """Of sorted tables in which searches remember where the last one ended: where; None: all workers share it."""

    def allocate(self, bytes: int) -> int:
        address = allocate_zeroed(bytes)
        self.directories.append((address, bytes))
        self.shared.release(-bytes)
        return address

    def record(self, shard: int) -> int:
        at = shard if len(self.records) > 1 else 0
        if not self.cursors or self.cursors[at] is None:
            return ctypes.addressof(self.records[at])
        # Each worker remembers places of its own: words that two cores write would travel between them.
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


class EntryData(Dataset):
    """The entries of tables as rows, in as many shards as the other side had."""

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


class JoinRunner(MovementRunner):
    """Runs `hash_join` steps."""

    kept_joins: dict[int, tuple[ReadyJoin, JoinTable] | None]
    """Joins whose table serves many runs of their probe, by id of the step; None until it is built."""

    kept_states: set[int]

    def _hash_join(self, step: HashJoin, shards: int) -> Flow:
        at = 0 if step.build == "left" else 1
        built_step, probed_step = step.inputs[at], step.inputs[1 - at]
        kept = self.kept_joins.get(id(step))
        if innermost((*step.range, *(() if step.condition is None else (step.condition,)))):
            raise ExecutionError(
                "a join condition over both sides cannot use this function",
                position=getattr(step.condition, "position", None),
            )
        if kept is not None:
            probed, probe_keys = self._host_calls(step, self.flow(probed_step, shards), step.sides(at)[1])
            return self._probed(replace(kept[0], probed=probed, probe_keys=probe_keys), kept[1])
        is_shared = isinstance(built_step, Broadcast) and built_step.scope == "local"
        built = self.flow(built_step.inputs[0] if is_shared else built_step, shards)
        build_keys, probe_keys = step.sides(at)
        built, build_keys = self._host_calls(step, built, build_keys)
        probed = self.flow(probed_step, shards)
        probed, probe_keys = self._host_calls(step, probed, probe_keys)
        is_shared = is_shared or built.replicated or (built.data.shards == 1 and probed.data.shards == 1)
        columns = tuple(
            (f.name, Column(f.name, f.type, f.nullable)) for f in built_step.schema if f.name in step.needed(at)
        )
        join = ReadyJoin(
            step,
            one_copy(built),
            probed,
            build_keys,
            probe_keys,
            columns,
            is_shared,
            built_step.schema,
            step.keeps_nulls,
            step.needs_places,
        )
        if id(step) in self.kept_joins:
            table = self._built(join)
            self.kept_joins[id(step)] = (join, table)
            self.kept_states.update(id(c) for c in table.contexts)
            return self._probed(join, table)
        return self._joined(join)

    def drop_joins(self, joins: list[int]) -> None:
        """Keep the tables of these joins no longer."""
        for step_id in joins:
            kept = self.kept_joins.pop(step_id, None)
            if kept is not None:
                self.kept_states.difference_update(id(c) for c in kept[1].contexts)

    def _joined(self, join: ReadyJoin) -> Flow:
        return self._probed(join, self._built(join))

    def _built(self, join: ReadyJoin, full_at: int | None = None) -> JoinTable:
        """The table of the built side; `Full` if a worker takes more than `full_at` bytes for it."""
        states = self._run(join.step, "build", join.built, join.sink(self.run.settings.equal_hashes), full_at=full_at)
        contexts = [c for _, c in states]
        table = self._link(join.step, states[0][0], [contexts] if join.is_shared else [[c] for c in contexts], full_at)
        table.origin = join.built.data
        return table

    def _probed(self, join: ReadyJoin, table: JoinTable) -> Flow:
        """The rows of the join; for most kinds they are made when the next pipeline runs."""
        step, sink, probed = join.step, table.sink, join.probed
        probe = join.probe(
            TableKind(sink, table.dense, not join.is_shared, table.has_bitmap, join.bounds[1], step.walks, table.large),
            step.marks,
        )
        if not step.marks:
            return probed.then(probe, step.schema)
        groups = [list(_chunks(c)) for c in table.contexts]
        if join.is_shared:
            groups = _dealt([chunk for group in groups for chunk in group], probed.data.shards)
        if step.probe_kind == "touch":
            self._run(step, "touch", probed.then(probe, probed.schema), Drain)
            return Flow(EntryData(sink, groups, MATCHED if step.kind == "semi" else FREE), step.schema)
        return self._with_unmatched(step, probed.then(probe, step.schema), EntryData(sink, groups, FREE), join.schema)

    def _with_unmatched(self, step: HashJoin, pairs: Flow, unmatched: EntryData, built: Schema) -> Flow:
        """The pairs, and behind them the rows of the table that have no partner, with NULLs for the other side."""
        columns = columns_of(step.schema)
        store = self.spill.store(step.name)
        lists = self._collect(step, pairs, columns, "pairs", store=store)
        nulls = tuple(
            (f.name, Column(f.name, f.type, f.nullable) if f.name in built else Literal(None, f.type))
            for f in step.schema
        )
        rest = Flow(unmatched, step.schema, [kernel_project.Project(nulls)])
        others = self._collect(step, rest, columns, "unmatched", store=store)
        shards = max(len(lists), len(others))
        merged: list[list[AnyChunk]] = [
            [*(lists[i] if i < len(lists) else []), *(others[i] if i < len(others) else [])] for i in range(shards)
        ]
        wanted = pairs.data.shards
        if len(merged) < wanted:
            merged = _dealt([c for one in merged for c in one], wanted)
        return Flow(ChunkData(tuple(c.source() for c in columns), merged, self.spill.morsel_rows()), step.schema)

    def _link(self, step: HashJoin, sink: Build, groups: list[list[Context]], full_at: int | None = None) -> JoinTable:
        """Make the directories; the threads share the entries of each table."""
        if step.name in self.tables:
            self.tables[step.name].release()
        table = self.tables[step.name] = JoinTable(self.shared, sink, [c for group in groups for c in group])
        if sink.mode == SORTED:
            self._sort_tables(table, step, sink, groups)
            return table
        sizes = [sum(read_i64(c.state_address + 16) for c in group) for group in groups]
        bounds = [_bounds(group) if sink.mode == BY_KEY else None for group in groups]
        keys = [0 if b is None else b[1] - b[0] + 1 for b in bounds]
        by_key = sink.mode == BY_KEY and any(sizes) and not self.dry
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
            raise Full(str(self.shared.out_of_memory()))
        table.large = not self.dry and words * 8 + sum(sizes) * sink.entry_bytes > LARGE_BYTES
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
            self._file(plan, [chunk for c in group for chunk in _chunks(c)])
        return table

    def _sort_tables(self, table: JoinTable, join: HashJoin, sink: SortedBuild, groups: list[list[Context]]) -> None:
        """Sort the entries of each table. Their directories are dense if those of all of them can be."""
        sizes = [sum(read_i64(c.state_address + 16) for c in group) for group in groups]
        bounds = [(_bounds(group) if sink.is_by_number else None) or (0, 0) for group in groups]
        table.dense = sink.is_by_number and any(sizes) and not self.dry
        table.dense = table.dense and all(
            high - low < min(MOST_SLOTS, max(SMALL_DOMAIN, rows * DENSE_KEYS_PER_ROW))
            for (low, high), rows in zip(bounds, sizes, strict=True)
        )
        for group, bound in zip(groups, bounds, strict=True):
            self._sort_entries(table, join, sink, group, bound if table.dense else None)
        table.large = not self.dry and sum(array.nbytes for array in table.kept) > LARGE_BYTES

    def _sort_entries(
        self, table: JoinTable, join: HashJoin, sink: SortedBuild, group: list[Context], dense: tuple[int, int] | None
    ) -> None:
        """Put the entries of a table in the order of their numbers within their groups; those that have no place in it
        stay out."""
        workers = Workers(self.threads, lambda work, tasks: parallel(work, tasks, self.threads, self.run))
        contexts = [list(_chunks(c)) for c in group]
        working = Reserved(WORKING_BYTES * sum(rows for one in contexts for _, rows in one), self.shared)
        found = EntrySorter(workers, self.interpret).sort(sink, contexts, join.last_first, dense)
        del working
        self.shared.reserve(found.bytes)
        table.kept += [found.orders, found.rows, found.directory]
        table.records.append(found.record(sum(read_i64(c.state_address + NULLS_AT) for c in group)))
        if join.walks and sink.keys:
            table.cursors.append(self._cursors(table, found))

    def _cursors(self, table: JoinTable, found: SortedEntries) -> Cursors | None:
        """Where searches remember places, if each worker has a copy of its own; None if there are too many for that."""
        at, words = (
            (DIRECTORY, found.directory) if found.least is None else (PLACES, np.zeros(len(found.directory), np.int64))
        )
        if len(words) <= OWN_SLOTS:
            return at, words
        if at == PLACES:
            self.shared.reserve(words.nbytes)
            table.kept.append(words)
            table.records[-1][PLACES] = words.ctypes.data
        return None

    def _file(self, plan: Any, chunks: list[tuple[int, int]]) -> None:
        """File the entries of a table in its directory."""
        link = None if self.interpret else compiler().routine(link_module, rows=sum(rows for _, rows in chunks))
        if link is None:
            from tsql.kernels.codegen.interp import Interpreter

            interpreter = Interpreter(link_module())
            for address, rows in chunks:
                interpreter("main", ctypes.addressof(plan), address, rows)
            return
        tasks = [chunks[i : i + CHUNKS_PER_TASK] for i in range(0, len(chunks), CHUNKS_PER_TASK)]

        def work(number: int) -> None:
            self.run.check()
            for address, rows in tasks[number]:
                link(ctypes.addressof(plan), address, rows)

        parallel(work, len(tasks), self.threads, self.run)


def _bounds(group: list[Context]) -> tuple[int, int] | None:
    """The least and the greatest key of a table."""
    states = [c.state_address for c in group if read_i64(c.state_address + 16)]
    found = [(read_i64(s + LEAST_AT), read_i64(s + GREATEST_AT)) for s in states]
    bounds = (min(low for low, _ in found), max(high for _, high in found)) if found else None
    return bounds if bounds is not None and bounds[0] <= bounds[1] else None


def _chunks(context: Context) -> Iterator[tuple[int, int]]:
    return table_chunks(context.state_address)


def _dealt(items: list[Any], shards: int) -> list[list[Any]]:
    """Items in as many lists, in order."""
    dealt: list[list[Any]] = [[] for _ in range(shards)]
    for number, item in enumerate(items):
        dealt[number * shards // len(items)].append(item)
    return dealt
