"""Joins on the threads of one process: the table is built by all of them, linked by all of them, and probed in pipelines.

A side that every shard has in full (`broadcast`, scope=local) is built into one table that all shards share: between the
cores of one machine a copy would only cost. Otherwise each shard has a table of its own. Tables live until the run ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tsql.backends.local.dataset import ChunkData, Dataset, Part, table_chunks
from tsql.backends.local.host import Chunk, Context, Shared, allocate_zeroed, free, read_i64
from tsql.backends.local.hostcalls import innermost
from tsql.backends.local.moves import MovementRunner
from tsql.backends.local.runner import Flow
from tsql.backends.local.workers import parallel
from tsql.kernels.batch import Morsels
from tsql.kernels.codegen.llvm import FULL, compiler
from tsql.kernels.errors import ExecutionError
from tsql.kernels.expr import Column, Literal
from tsql.kernels.operators import project as kernel_project
from tsql.kernels.operators.join import BY_KEY, DENSE, GREATEST_AT, LEAST_AT, NULLS_AT, SORTED, Build, Drain, EntryScan, Probe, TableKind
from tsql.kernels.runtime.join_table import ALONE, FREE, MATCHED, RECORD_BYTES, link_module
from tsql.kernels.schema import Schema
from tsql.planner.movement import Broadcast
from tsql.planner.operators.join import HashJoin

DENSE_KEYS_PER_ROW = 5
SMALL_DOMAIN = 1 << 14
"""A directory with a word for each possible key is used for up to so many keys per row, or so many in all."""

BITMAP_KEYS_PER_ROW = 1024
"""Up to so many possible keys per row there is a bitmap of those that occur."""

CHUNKS_PER_TASK = 8


@dataclass
class JoinTable:
    """The tables of one join: one that all shards share, or one for each."""

    shared: Shared
    records: list[Any] = field(default_factory=list)
    directories: list[tuple[int, int]] = field(default_factory=list)
    dense: bool = False
    has_bitmap: bool = False
    kept: list[Any] = field(default_factory=list)

    def allocate(self, bytes: int) -> int:
        address = allocate_zeroed(bytes)
        self.directories.append((address, bytes))
        self.shared.release(-bytes)
        return address

    def record(self, shard: int) -> int:
        return ctypes.addressof(self.records[shard if len(self.records) > 1 else 0])

    def release(self) -> None:
        for address, bytes in self.directories:
            free(address)
            self.shared.release(bytes)
        self.directories = []


@dataclass
class Built:
    """One side of a join in its tables. `key` is the key that its rows were placed by."""

    sink: Build
    contexts: list[Context]
    table: JoinTable
    is_shared: bool
    key: tuple[str, ...] | None


class EntryData(Dataset):
    """The entries of tables as rows, in as many shards as the other side had."""

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

    kept_joins: dict[int, Built | None]
    """Joins whose table serves many runs of their probe, by id of the step; None until it is built."""

    kept_states: set[int]

    def _hash_join(self, step: HashJoin, shards: int) -> Flow:
        at = 0 if step.build == "left" else 1
        built_step, probed_step = step.inputs[at], step.inputs[1 - at]
        side = self.kept_joins.get(id(step)) or self._build(step, at, shards)
        if id(step) in self.kept_joins:
            self.kept_joins[id(step)] = side
            self.kept_states.update(id(c) for c in side.contexts)
        probed, probe_keys = self._host_calls(step, self.flow(probed_step, shards), step.sides(at)[1])
        if innermost((*step.range, *(() if step.condition is None else (step.condition,)))):
            raise ExecutionError("a join condition over both sides cannot use this function", position=getattr(step.condition, "position", None))
        sink, contexts, table = side.sink, side.contexts, side.table
        marks = step.marks
        probe = Probe(TableKind(sink, table.dense, not side.is_shared, table.has_bitmap, step.bounds(at)[1] if step.range else ()), step.name, step.probe_kind, probe_keys, step.condition, step.mark, marks, step.position, step.early)
        if not marks:
            return probed.then(probe, step.schema)
        groups = [list(_chunks(c)) for c in contexts]
        if side.is_shared:
            groups = _dealt([chunk for group in groups for chunk in group], probed.data.shards)
        if step.probe_kind == "touch":
            self._run(step, "touch", probed.then(probe, probed.schema), Drain)
            return Flow(EntryData(sink, groups, MATCHED if step.kind == "semi" else FREE), step.schema, [], side.key)
        return self._with_unmatched(step, probed.then(probe, step.schema), EntryData(sink, groups, FREE), built_step.schema)

    def _build(self, step: HashJoin, at: int, shards: int) -> Built:
        """The table of a join over the input `at`."""
        built_step = step.inputs[at]
        is_shared = isinstance(built_step, Broadcast) and built_step.scope == "local"
        built, keys = self._host_calls(step, self.flow(built_step.inputs[0] if is_shared else built_step, shards), step.sides(at)[0])
        probed = self.flow(step.inputs[1 - at], shards)
        is_shared = is_shared or built.replicated or (built.data.shards == 1 and probed.data.shards == 1)
        columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in built_step.schema if f.name in step.needed(at))
        safe = tuple(key.null_safe for key in step.keys)
        equal = self.run.settings.equal_hashes
        if built.replicated:
            built = replace(built, data=_first_shard(built.data), replicated=False)
        order = step.bounds(at)[0] if step.range else None
        states = self._run(step, "build", built, lambda: Build(columns, keys, safe, step.marks, equal, order))
        sink: Build = states[0][0]
        contexts = [c for _, c in states]
        return Built(sink, contexts, self._link(step, sink, [contexts] if is_shared else [[c] for c in contexts]), is_shared, built.key)

    def drop_joins(self, joins: list[int]) -> None:
        """Keep the tables of these joins no longer."""
        for step_id in joins:
            side = self.kept_joins.pop(step_id, None)
            if side is not None:
                self.kept_states.difference_update(id(c) for c in side.contexts)

    def _with_unmatched(self, step: HashJoin, pairs: Flow, unmatched: EntryData, built: Schema) -> Flow:
        """The pairs, and behind them the rows of the table that have no partner, with NULLs for the other side."""
        columns = self._output_columns(step.schema)
        lists = self._collect(step, pairs, columns, "pairs")
        nulls = tuple((f.name, Column(f.name, f.type, f.nullable) if f.name in built else Literal(None, f.type)) for f in step.schema)
        rest = Flow(unmatched, step.schema, [kernel_project.Project(nulls)])
        others = self._collect(step, rest, columns, "unmatched")
        shards = max(len(lists), len(others))
        merged: list[list[Chunk]] = [[*(lists[i] if i < len(lists) else []), *(others[i] if i < len(others) else [])] for i in range(shards)]
        wanted = pairs.data.shards
        if len(merged) < wanted:
            merged = _dealt([c for one in merged for c in one], wanted)
        return Flow(ChunkData(tuple(c.source() for c in columns), merged, self.run.settings.batch_rows), step.schema)

    def _link(self, step: HashJoin, sink: Build, groups: list[list[Context]]) -> JoinTable:
        """Make the directories; the threads share the entries of each table."""
        if step.name in self.tables:
            self.tables[step.name].release()
        table = self.tables[step.name] = JoinTable(self.shared)
        if sink.mode == SORTED:
            for group in groups:
                self._sort_entries(table, sink, group)
            return table
        sizes = [sum(read_i64(c.state_address + 16) for c in group) for group in groups]
        bounds = [_bounds(group) if sink.mode == BY_KEY else None for group in groups]
        keys = [0 if b is None else b[1] - b[0] + 1 for b in bounds]
        by_key = sink.mode == BY_KEY and any(sizes) and not self.dry
        table.dense = by_key and all(k <= max(SMALL_DOMAIN, n * DENSE_KEYS_PER_ROW) for k, n in zip(keys, sizes, strict=True))
        table.has_bitmap = by_key and not table.dense and all(k <= n * BITMAP_KEYS_PER_ROW for k, n in zip(keys, sizes, strict=True) if n)
        link = None if self.interpret else compiler().compile(link_module(), FULL).function
        for group, count, domain, bound in zip(groups, sizes, keys, bounds, strict=True):
            least = bound[0] if bound is not None else 0
            size = max(1, domain) if table.dense else 1 << max(6, (count * 3 // 2).bit_length())
            directory = table.allocate(size * 8)
            bitmap = table.allocate((domain + 63) // 64 * 8 + 8) if table.has_bitmap else 0
            mask = domain if table.dense else size - 1
            nulls = sum(read_i64(c.state_address + NULLS_AT) for c in group)
            table.records.append((ctypes.c_int64 * (RECORD_BYTES // 8))(directory, mask, least, count, nulls, bitmap, domain))
            plan = (ctypes.c_int64 * 7)(directory, mask, least, sink.entry_bytes, DENSE if table.dense else sink.mode, sink.marks, bitmap)
            self._file(link, plan, [chunk for c in group for chunk in _chunks(c)])
        return table

    def _sort_entries(self, table: JoinTable, sink: Build, group: list[Context]) -> None:
        """Put the entries of a table in the order of their first words; those that have no place in it stay out."""
        keys, addresses = [], []
        for address, rows in (chunk for c in group for chunk in _chunks(c)):
            words = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_int64)), (rows, sink.entry_bytes // 8))
            kept = np.flatnonzero(words[:, 1] != ALONE) if sink.marks else np.arange(rows)
            keys.append(words[kept, 0])
            addresses.append(address + kept * sink.entry_bytes)
        every = np.concatenate(keys) if keys else np.zeros(0, np.int64)
        order = np.argsort(every, kind="stable")
        sorted_keys = np.append(every[order], 0)
        places = np.append(np.concatenate(addresses)[order] if keys else np.zeros(0, np.int64), 0)
        self._reserve(sorted_keys.nbytes + places.nbytes)
        table.kept += [sorted_keys, places]
        nulls = sum(read_i64(c.state_address + NULLS_AT) for c in group)
        record = (sorted_keys.ctypes.data, len(every), places.ctypes.data, len(every), nulls)
        table.records.append((ctypes.c_int64 * (RECORD_BYTES // 8))(*record))

    def _file(self, link: Any, plan: Any, chunks: list[tuple[int, int]]) -> None:
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


def _first_shard(data: Dataset) -> Dataset:
    """One copy of a replicated dataset."""
    return ChunkData(data.columns, data.chunks[:1], data.batch_rows)
