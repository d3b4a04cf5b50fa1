"""Joins whose build side may be larger than memory: both sides are partitioned by their keys, and the partitions are
joined one by one.

In: a join whose inputs are available. Out: its rows, in the shards of the probe side.

The table gets a share of memory. If it takes more (`Full`), it is freed and both sides are read (the build side again)
into partitions by the hash of their keys. If the table of a partition would still be too large, the partition is split
again, together with its counterpart, by other bits of the hash. Then each shard processes its partitions: it builds the
table of one, probes it with the rows of the counterpart, and frees it. For most kinds of join this happens while the
next pipeline reads (`PartitionData`): a kernel finds the table through a record whose words the host changes between
two parts. If entries are marked (a full join, or one that builds its left side), the result of each partition is
collected. The partitions of a nearest join are sorted tables. Their rows carry their input positions, and all rows of a
key must fit in memory.

What cannot be split (rows of one key, a join without keys) is built in blocks, and all rows of the other side probe
each block. An inner join reads them again for each block; other kinds are in `block_joins.py`.

Cost: both sides are written and read once per level of splitting. With blocks, the probe side is read once per
block."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tsql.backends.local.join.probing import Joins
from tsql.backends.local.join.ready import ReadyJoin
from tsql.backends.local.join.tables import JoinTable, JoinTables
from tsql.backends.local.lower.graph import Lowering, Pipe
from tsql.backends.local.run.dataset import (
    BlockData,
    ChunkData,
    CoalescedData,
    Dataset,
    Part,
    SourceData,
    table_chunks,
)
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Context, allocate_zeroed, free, read_i64
from tsql.backends.local.run.pipelines import Task
from tsql.backends.local.run.spill import TABLE, AnyChunk, bytes_of
from tsql.backends.local.sort.sorted_tables import SECOND_BYTES, EntrySorter, working_bytes
from tsql.backends.local.sort.sorting import SERIAL
from tsql.backends.local.spill.block_joins import BlockJoins, OpenEnds
from tsql.backends.local.spill.partitions import Partitions
from tsql.backends.local.spill.sides import Pair, Side, table_bytes
from tsql.kernels.emit.pipeline import ColumnarScan
from tsql.kernels.emit.rows import POSITION
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.operators.collect import columns_of
from tsql.kernels.operators.join.hash_join import Build, TableKind
from tsql.kernels.operators.join.sorted_join import SortedBuild
from tsql.kernels.operators.project import Project
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.runtime.join_table import RECORD_BYTES
from tsql.planner.logical.predicates import JoinKey, conjunction, conjuncts
from tsql.planner.physical.operators.asof_join import AsofJoin
from tsql.planner.physical.operators.join import HashJoin

if TYPE_CHECKING:
    from tsql.backends.local.run.execution import Execution

PLACE = "#place"


def join_pipes(step: HashJoin, about: Lowering, built: int) -> tuple[Pipe, ...]:
    """The pipelines of a join whose table exceeds memory. `built`: the number of the build-side input."""
    if not about.spills:
        return ()
    full = "the table outgrows its share of memory_limit"
    by_keys = (
        Pipe("build side * of *", "partition rows by the hash of their keys", built, when=full),
        Pipe("probe side * of *", "partition rows by the hash of their keys", 1 - built, when=full),
    )
    whole = (
        Pipe("build side", "collect", built, when=full),
        Pipe("probe side", "collect", 1 - built, when=full),
    )
    # If NULLs leave the answer of a mark join open, its keys become conditions.
    sides = (*(by_keys if step.keys else ()), *(whole if not step.keys or step.keeps_nulls else ()))
    blocks = "rows of one key outgrow it"
    return (
        *sides,
        Pipe("build partition", f"build {step.name}", None, "a partition of the build side", when=full),
        Pipe("build", f"build {step.name}", None, "a block of a partition", when=blocks),
        Pipe("block", "collect", None, f"a partition of the probe side, probe {step.name}", when=blocks),
    )


class PartitionData(Dataset):
    """The probe side, partition by partition. While the rows of one are read, the shard's record points to its
    table."""

    def __init__(
        self,
        joins: PartitionJoins,
        join: ReadyJoin,
        side: Side,
        pairs: list[list[Pair]],
        records: list[ctypes.Array],
    ):
        self.joins, self.join, self.side, self.pairs, self.records = joins, join, side, pairs, records
        self.shards = len(pairs)
        self.rows = sum(c.rows * len(p.blocks) for of_shard in pairs for p in of_shard for c in p.probed)

    def empty_source(self) -> ColumnarScan:
        return self.side.data([[]], 0).empty_source()

    def feed(self, shard: int) -> Iterator[Part]:
        number = 0
        position = sum(c.rows for of_shard in self.pairs[:shard] for p in of_shard for c in p.probed)
        for pair in self.pairs[shard]:
            data = self.side.data([pair.probed], self.joins.x.spill.morsel_rows())
            data.first = position
            for block in pair.blocks:
                with self.joins.table(self.join, block, self.records[shard]):
                    for part in data.feed(0):
                        yield Part(part.source, part.morsels, (shard, number))
                        number += 1
            position += sum(c.rows for c in pair.probed)


class PartitionJoins:
    """Runs joins within the available memory."""

    def __init__(self, x: Execution):
        self.x = x

    def joined(self, join: ReadyJoin) -> Flow:
        share = self.x.spill.share(TABLE, join.built.data.shards)
        if share is None or self.x.dry:
            return self.x.part(Joins).joined(join)
        with self.x.states.attempt() as attempt:
            table = self.x.part(JoinTables).built(join, share)
        if not attempt.failed:
            return self.x.part(Joins).probed(join, table)
        self.x.states.forget_table(join.step.name)
        if isinstance(join.step, AsofJoin):
            # Without keys there is nothing to split by: the table fits, or the query fails.
            return (
                self._by_parts(_placed(join))
                if join.step.keys
                else self.x.part(Joins).joined(replace(join, built=replace(join.built, data=join.built.data.again())))
            )
        if join.apart:
            return self._by_parts(self._pair_by_pair(join))
        return self._by_parts(join)

    def _pair_by_pair(self, join: ReadyJoin) -> ReadyJoin:
        """The same mark join without keys. If NULLs leave answers open, a row depends on rows of all partitions."""
        known = self.x.kernels.variants
        step = known.get((id(join.step), "pairs"))
        if step is None:
            keys = [
                JoinKey(*sides, key.null_safe).expr
                for *sides, key in zip(join.probe_keys, join.build_keys, join.step.keys, strict=True)
            ]
            step = known[id(join.step), "pairs"] = replace(
                join.step, keys=(), condition=conjunction([*keys, *conjuncts(join.step.condition)])
            )
        needed = {c for key in join.build_keys for c in key.columns()} - {name for name, _ in join.columns}
        columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in join.built.schema if f.name in needed)
        return replace(join, step=step, build_keys=(), probe_keys=(), columns=(*join.columns, *columns), apart=False)

    def _by_parts(self, join: ReadyJoin) -> Flow:
        step, shards = join.step, join.probed.data.shards
        built = Side.of(join.built, join.build_keys, {n for n, _ in join.columns} | join.sorted_by)
        probed = Side.of(join.probed, join.probe_keys, None)
        spread = join.is_shared and (step.marks or isinstance(join.probed.data, BlockData | SourceData | CoalescedData))
        number = self.x.part(Partitions).number(
            join.built.data, built.columns, self.x.spill.share(TABLE, self.x.threads) or 0
        )
        left = self._parts_of(join, join.built, join.build_keys, built, "build side", number)
        right = self._parts_of(join, join.probed, join.probe_keys, probed, "probe side", number)
        if join.is_shared:
            whole = [[c for of_shard in left for c in of_shard[p]] for p in range(len(left[0]))]
            left = [whole] * shards
        if spread:
            right = [[[c for of_shard in right for c in of_shard[p]] for p in range(len(right[0]))]]
        pairs: list[list[Pair]] = [[] for _ in range(shards)]
        inside = replace(join, build_keys=built.keys, probe_keys=probed.keys)
        for place, of_shard in enumerate(right):
            size = sum(bytes_of(b) for b in left[place])
            for number, rows in enumerate(of_shard):
                target = number % shards if spread else place
                pairs[target] += self._pairs(inside, built, probed, left[place][number], rows, 1, size)
        if not step.marks and (
            step.probe_kind == "inner" or all(len(p.blocks) == 1 for of_shard in pairs for p in of_shard)
        ):
            return self._lazily(inside, built, probed, pairs)
        return self._one_by_one(inside, built, probed, pairs)

    def _parts_of(
        self, join: ReadyJoin, flow: Flow, keys: tuple[Expr, ...], side: Side, role: str, number: int
    ) -> list[list[list[AnyChunk]]]:
        if keys:
            return self.x.part(Partitions).of(join.step, role, flow, keys, side.columns, 1, number)
        lists = self.x.rows.collect(join.step, replace(flow, data=flow.data.again()), side.columns, role)
        return [[chunks] for chunks in lists]

    def _pairs(
        self,
        join: ReadyJoin,
        built: Side,
        probed: Side,
        rows: list[AnyChunk],
        partners: list[AnyChunk],
        level: int,
        whole: int,
    ) -> list[Pair]:
        """The pairs of partitions that a pair is split into: only itself if its table will fit."""
        kind = join.step.probe_kind
        # The open answers of a mark join depend on the rows of all partitions.
        if (not partners and not join.step.marks and kind != "mark") or (not rows and kind in ("inner", "semi")):
            return []
        share = self.x.spill.share(TABLE, self.x.threads) or 0
        whole_only = isinstance(join.step, AsofJoin) and not self.x.part(Partitions).can_split(
            level, whole, bytes_of(rows)
        )
        if table_bytes(rows) <= share or (self.x.spill.forced and join.step.keys) or whole_only:
            return [Pair([rows], partners)]
        if not join.step.keys or not self.x.part(Partitions).can_split(level, whole, bytes_of(rows)):
            return [Pair(list(self._blocks(rows, share)), partners)]
        sides = []
        number = self.x.part(Partitions).number(built.data([rows], 0), built.columns, share)
        for side, keys, chunks, role in (
            (built, join.build_keys, rows, "build side"),
            (probed, join.probe_keys, partners, "probe side"),
        ):
            flow = Flow(side.data([chunks], self.x.spill.morsel_rows()), side.schema)
            sides.append(self.x.part(Partitions).of(join.step, role, flow, keys, side.columns, level + 1, number)[0])
        return [
            p
            for a, b in zip(*sides, strict=True)
            for p in self._pairs(join, built, probed, a, b, level + 1, bytes_of(rows))
        ]

    def _blocks(self, rows: list[AnyChunk], share: int) -> Iterator[list[AnyChunk]]:
        """Blocks of rows whose tables fit in memory."""
        if self.x.spill.forced:
            # A few blocks are enough to test them; one per chunk would be too many.
            yield from (part for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]) if part)
            return
        block: list[AnyChunk] = []
        bytes = 0
        for chunk in rows:
            if block and bytes + table_bytes([chunk]) > share:
                yield block
                block, bytes = [], 0
            block.append(chunk)
            bytes += table_bytes([chunk])
        yield block

    def _lazily(self, join: ReadyJoin, built: Side, probed: Side, pairs: list[list[Pair]]) -> Flow:
        """The probe side as a flow that switches tables as it is read."""
        step = join.step
        inside = replace(
            join, built=Flow(built.data([[]], 0), built.schema), probed=Flow(probed.data([[]], 0), probed.schema)
        )
        pipeline, _ = self.x.finder.find(
            step,
            "build partition",
            inside.built,
            inside.built.data.empty_source(),
            join.sink(self.x.run.settings.equal_hashes),
        )
        nulls = self._nulls(join, built, pairs) if step.kind == "mark" else 0
        rows = _rows(pairs)
        records = [(ctypes.c_int64 * (RECORD_BYTES // 8))(0, 0, 0, rows - nulls, nulls) for _ in pairs]
        sink: Build = pipeline.sink
        self.x.states.tables[step.name] = JoinTable(self.x.shared, sink, [], records)
        reach = None if join.reach is None else join.reach[1]
        probe = join.probe(TableKind(sink, False, True, False, join.bounds[1], reach), False)
        return Flow(PartitionData(self, inside, probed, pairs, records), step.schema, [probe])

    @contextmanager
    def table(self, join: ReadyJoin, chunks: list[AnyChunk], record: ctypes.Array) -> Iterator[None]:
        """Build the table of one partition. It is in the record while this is open. Runs in the thread of a shard."""
        flow = Flow(
            ChunkData(join.built.data.columns, [chunks], self.x.spill.morsel_rows(), stable=False), join.built.schema
        )
        sink, context = Task(
            self.x.pipelines, join.step, "build partition", flow, join.sink(self.x.run.settings.equal_hashes), 0
        ).run()
        if isinstance(sink, SortedBuild):
            yield from self._sorted_partition(join, sink, context, record)
            return
        count = read_i64(context.state_address + 16)
        size = 1 << max(6, (count * 3 // 2).bit_length())
        directory = 0
        try:
            self.x.shared.reserve(size * 8)
            directory = allocate_zeroed(size * 8)
            plan = (ctypes.c_int64 * 8)(directory, size - 1, 0, sink.entry_bytes, sink.mode, sink.marking, 0, size)
            self.x.part(JoinTables).file(plan, list(table_chunks(context.state_address)))
            record[0], record[1] = directory, size - 1
            yield
        finally:
            record[0] = record[1] = 0
            if directory:
                free(directory)
                self.x.shared.release(size * 8)
            self.x.states.free(sink, context)

    def _sorted_partition(
        self, join: ReadyJoin, sink: SortedBuild, context: Context, record: ctypes.Array
    ) -> Iterator[None]:
        bytes = 0
        try:
            chunks = list(table_chunks(context.state_address))
            rows = sum(rows for _, rows in chunks)
            ends = 2 * SECOND_BYTES if sink.second_at >= 0 else 0
            needed = rows * (working_bytes(sink) + 8 + sink.row_words * 8 + ends)
            self.x.shared.reserve(needed)
            bytes = needed
            found = EntrySorter(SERIAL, self.x.interpret).sort(sink, [chunks], join.step.last_first)
            record[:] = found.record(0)[:]
            yield
        finally:
            record[:] = (0,) * len(record)
            self.x.shared.release(bytes)
            self.x.states.free(sink, context)

    def _nulls(self, join: ReadyJoin, built: Side, pairs: list[list[Pair]]) -> int:
        """How many build-side rows have no match because a key is NULL."""
        names = [c.name for c in built.columns]
        places = [names.index(k.name) for k, key in zip(built.keys, join.step.keys, strict=True) if not key.null_safe]
        count = 0
        seen: set[int] = set()
        for block in (b for of_shard in pairs for p in of_shard for b in p.blocks):
            if id(block) in seen:
                continue
            seen.add(id(block))
            for chunk in block:
                arrays, missing = chunk.arrays, None
                for place in places:
                    null = arrays[place].is_null()
                    missing = null if missing is None else pc.or_(missing, null)
                count += 0 if missing is None else pc.sum(missing).as_py() or 0
        return count

    def _one_by_one(self, join: ReadyJoin, built: Side, probed: Side, pairs: list[list[Pair]]) -> Flow:
        """Join pair by pair. The rows of each are collected before the next is joined."""
        columns = columns_of(join.step.schema)
        store = self.x.spill.store(f"{join.step.name} pairs")
        open_ends = None
        if join.step.kind == "mark" and join.step.keys:
            unsafe = [k.name for k, key in zip(probed.keys, join.step.keys, strict=True) if not key.null_safe]
            open_ends = OpenEnds(_rows(pairs), self._nulls(join, built, pairs), unsafe)
        lists = [
            [
                c
                for pair in of_shard
                for c in self.x.part(BlockJoins).pair_rows(join, built, probed, pair, store, open_ends)
            ]
            for of_shard in pairs
        ]
        return Flow(ChunkData(tuple(c.source() for c in columns), lists, self.x.spill.morsel_rows()), join.step.schema)


def _placed(join: ReadyJoin) -> ReadyJoin:
    """A nearest join whose right rows carry their input positions."""
    place = Column(PLACE, BIGINT, False)
    columns = (
        *((f.name, Column(f.name, f.type, f.nullable)) for f in join.built.schema),
        (PLACE, Column(POSITION, BIGINT, False)),
    )
    schema = Schema((*join.built.schema, Field(PLACE, BIGINT, False)))
    return replace(join, built=join.built.then(Project(columns), schema), place=place)


def _rows(pairs: list[list[Pair]]) -> int:
    """The number of build-side rows. Shards may share their partitions."""
    return sum({id(b): sum(c.rows for c in b) for of_shard in pairs for p in of_shard for b in p.blocks}.values())
