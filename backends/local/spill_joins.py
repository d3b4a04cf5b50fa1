"""Joins whose built side may be larger than memory: both sides are placed in partitions by their keys, and joined one by one.

In: a join whose inputs are there. Out: its rows, in the shards in which the rows of the probing side were.

The table gets a share of memory. If it takes more (`Full`), it is freed and both sides are read (the built side again) into
partitions by the hash of their keys. A partition of the built side that would still be too large is split again, with its
partner, by other bits of the hash. Then each shard works its partitions off: it builds the table of one, looks the rows of its
partner up, and frees it. For most kinds of join this happens while the next pipeline reads (`PartitionData`): a kernel finds
the table through a record whose words the host changes between two parts. Where entries are marked (a full join, or one
that builds its left side) the result of each partition is collected.

What cannot be split (rows of one key, a join without keys) is built in blocks, and all rows of the other side are looked up in
each. The rows of pairs are those of all blocks. Whether a row has a partner is known behind the last one: it is
kept beside the row until then, as true, false or NULL, and ORed. A `single` join in blocks is refused: a row with
partners in two of them would be an error anyway.

Cost: both sides are written and read once for each level of splitting; with blocks, the probing side is read once per block.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from tsql.backends.local.dataset import BlockData, ChunkData, CoalescedData, Dataset, Part, SourceData, free_state, table_chunks
from tsql.backends.local.host import Context, allocate_zeroed, free, read_i64
from tsql.backends.local.joins import Join, JoinRunner, JoinTable
from tsql.backends.local.runner import Flow
from tsql.backends.local.spill import TABLE, AnyChunk, bytes_of
from tsql.backends.local.spill_groups import PartitionRunner
from tsql.kernels.errors import OutOfMemoryError
from tsql.kernels.expr import Column, Expr
from tsql.kernels.operators.collect import OutputColumn
from tsql.kernels.operators.join import Build, Probe, TableKind
from tsql.kernels.pipeline import ColumnarScan
from tsql.kernels.runtime.join_table import RECORD_BYTES
from tsql.kernels.schema import Field, Schema

ENTRY_BYTES = 40
"""What a row takes in a table besides its columns: links, hashes, and its part of the directory."""


@dataclass
class Side:
    """One side of a join as it is written: its columns, among them the keys."""

    columns: tuple[OutputColumn, ...]
    keys: tuple[Column, ...]
    schema: Schema

    @staticmethod
    def of(flow: Flow, keys: tuple[Expr, ...], names: set[str] | None) -> Side:
        """The wanted columns (None: all) and the keys, which become columns if they are none."""
        wanted = None if names is None else names | {k.name for k in keys if isinstance(k, Column)}
        columns = [OutputColumn(f.name, Column(f.name, f.type, f.nullable)) for f in flow.schema if wanted is None or f.name in wanted]
        known: list[Column] = []
        for number, key in enumerate(keys):
            name = key.name if isinstance(key, Column) else f"#joined{number}"
            if not isinstance(key, Column):
                columns.append(OutputColumn(name, key))
            known.append(Column(name, key.type))
        return Side(tuple(columns), tuple(known), Schema(tuple(Field(c.name, c.type) for c in columns)))

    def data(self, shards: list[list[AnyChunk]], batch_rows: int) -> ChunkData:
        return ChunkData(tuple(c.source() for c in self.columns), shards, batch_rows, stable=False)


@dataclass
class Pair:
    """A partition of the built side, in blocks of which each fits memory, and its partner."""

    blocks: list[list[AnyChunk]]
    probed: list[AnyChunk]


class PartitionData(Dataset):
    """The probing side, partition by partition. While the rows of one are read, the record of the shard is that of its table."""

    def __init__(self, runner: SpillingJoinRunner, join: Join, side: Side, pairs: list[list[Pair]], records: list[ctypes.Array]):
        self.runner, self.join, self.side, self.pairs, self.records = runner, join, side, pairs, records
        self.shards = len(pairs)
        self.rows = sum(c.rows * len(p.blocks) for of_shard in pairs for p in of_shard for c in p.probed)

    def empty_source(self) -> ColumnarScan:
        return self.side.data([[]], 0).empty_source()

    def feed(self, shard: int) -> Iterator[Part]:
        number = 0
        for pair in self.pairs[shard]:
            for block in pair.blocks:
                with self.runner._partition_table(self.join, block, self.records[shard]):
                    for part in self.side.data([pair.probed], self.runner.spill.morsel_rows()).feed(0):
                        yield Part(part.source, part.morsels, (shard, number))
                        number += 1


class SpillingJoinRunner(JoinRunner, PartitionRunner):
    """Runs `hash_join` steps within the memory that there is."""

    def _joined(self, join: Join) -> Flow:
        share = self.spill.share(TABLE, join.built.data.shards)
        if share is None or self.dry:
            return super()._joined(join)
        try:
            with self._attempt():
                table = self._built(join, share)
        except OutOfMemoryError:
            self._forget(join.step.name)
            return self._by_parts(join)
        return self._probed(join, table)

    def _forget(self, name: str) -> None:
        table = self.tables.pop(name, None)
        if table is not None:
            table.release()

    def _by_parts(self, join: Join) -> Flow:
        step, shards = join.step, join.probed.data.shards
        built = Side.of(join.built, join.build_keys, {n for n, _ in join.columns})
        probed = Side.of(join.probed, join.probe_keys, None)
        spread = join.is_shared and (step.marks or isinstance(join.probed.data, BlockData | SourceData | CoalescedData))
        left = self._parts_of(join, join.built, join.build_keys, built, "build side")
        right = self._parts_of(join, join.probed, join.probe_keys, probed, "probe side")
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
        if not step.marks and (step.probe_kind == "inner" or all(len(p.blocks) == 1 for of_shard in pairs for p in of_shard)):
            return self._lazily(inside, built, probed, pairs)
        return self._one_by_one(inside, built, probed, pairs)

    def _parts_of(self, join: Join, flow: Flow, keys: tuple[Expr, ...], side: Side, role: str) -> list[list[list[AnyChunk]]]:
        if keys:
            return self._partitions(join.step, role, flow, keys, side.columns, 1)
        lists = self._collect(join.step, replace(flow, data=flow.data.again()), side.columns, role)
        return [[chunks] for chunks in lists]

    def _pairs(self, join: Join, built: Side, probed: Side, rows: list[AnyChunk], partners: list[AnyChunk], level: int, whole: int) -> list[Pair]:
        """The pairs of partitions that a pair becomes: itself, if the table will fit."""
        kind = join.step.probe_kind
        if not partners and not join.step.marks or not rows and kind in ("inner", "semi"):
            return []
        share = self.spill.share(TABLE, self.threads) or 0
        if _table_bytes(rows) <= share or (self.spill.forced and join.step.keys):
            return [Pair([rows], partners)]
        if not join.step.keys or not self._can_split(level, whole, bytes_of(rows)):
            return [Pair(list(self._blocks(rows, share)), partners)]
        sides = []
        for side, keys, chunks, role in ((built, join.build_keys, rows, "build side"), (probed, join.probe_keys, partners, "probe side")):
            flow = Flow(side.data([chunks], self.spill.morsel_rows()), side.schema)
            sides.append(self._partitions(join.step, role, flow, keys, side.columns, level + 1)[0])
        return [p for a, b in zip(*sides, strict=True) for p in self._pairs(join, built, probed, a, b, level + 1, bytes_of(rows))]

    def _blocks(self, rows: list[AnyChunk], share: int) -> Iterator[list[AnyChunk]]:
        if self.spill.forced:
            # Enough of them to see that blocks work; a chunk each would be very many.
            middle = len(rows) // 2
            yield from (part for part in (rows[:middle], rows[middle:]) if part)
            return
        block: list[AnyChunk] = []
        for chunk in rows:
            if block and _table_bytes([*block, chunk]) > share:
                yield block
                block = []
            block.append(chunk)
        yield block

    def _lazily(self, join: Join, built: Side, probed: Side, pairs: list[list[Pair]]) -> Flow:
        """The probing side as a flow that changes the table as it is read."""
        step = join.step
        inside = replace(join, built=Flow(built.data([[]], 0), built.schema))
        pipeline, _ = self._kernel(step, "build partition", inside.built, inside.built.data.empty_source(), join.sink(self.run.settings.equal_hashes))
        nulls = self._nulls(join, built, pairs) if step.kind == "mark" else 0
        rows = sum({id(b): sum(c.rows for c in b) for of_shard in pairs for p in of_shard for b in p.blocks}.values())
        records = [(ctypes.c_int64 * (RECORD_BYTES // 8))(0, 0, 0, rows - nulls, nulls) for _ in pairs]
        sink: Build = pipeline.sink
        self.tables[step.name] = JoinTable(self.shared, sink, [], records)
        kind = TableKind(sink, False, True, False)
        probe = Probe(kind, step.name, step.probe_kind, join.probe_keys, step.condition, step.mark, False, step.position, step.early)
        return Flow(PartitionData(self, inside, probed, pairs, records), step.schema, [probe], join.probed.key)

    @contextmanager
    def _partition_table(self, join: Join, chunks: list[AnyChunk], record: ctypes.Array) -> Iterator[None]:
        """The table of one partition, in the record while this is open. Runs in the thread of a shard."""
        flow = Flow(ChunkData(join.built.data.columns, [chunks], self.spill.morsel_rows(), stable=False), join.built.schema)
        sink, context = self._run_shard(join.step, "build partition", flow, join.sink(self.run.settings.equal_hashes), 0)
        count = read_i64(context.state_address + 16)
        size = 1 << max(6, (count * 3 // 2).bit_length())
        directory = 0
        try:
            self.shared.reserve(size * 8)
            directory = allocate_zeroed(size * 8)
            plan = (ctypes.c_int64 * 7)(directory, size - 1, 0, sink.entry_bytes, sink.mode, sink.marks, 0)
            self._file(plan, list(table_chunks(context.state_address)))
            record[0], record[1] = directory, size - 1
            yield
        finally:
            record[0] = record[1] = 0
            if directory:
                free(directory)
                self.shared.release(size * 8)
            self._free(sink, context)

    def _free(self, sink: Build, context: Context) -> None:
        self.states.pop(id(context), None)
        free_state(sink, context, self.shared)

    def _nulls(self, join: Join, built: Side, pairs: list[list[Pair]]) -> int:
        """How many rows of the built side have no partner because a key is NULL."""
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

    def _one_by_one(self, join: Join, built: Side, probed: Side, pairs: list[list[Pair]]) -> Flow:
        """The rows of each pair collected before the next is joined."""
        step = join.step
        if any(len(p.blocks) > 1 for of_shard in pairs for p in of_shard) and (step.kind not in ("inner", "semi", "anti", "left") or not step.marks or step.kind == "full"):
            raise self.shared.out_of_memory()
        columns = self._output_columns(step.schema)
        store = self.spill.store(f"{step.name} pairs")
        lists: list[list[AnyChunk]] = [[] for _ in pairs]
        for shard, of_shard in enumerate(pairs):
            for pair in of_shard:
                for block in pair.blocks:
                    lists[shard] += self._pair(join, built, probed, block, pair.probed, columns, store)
        return Flow(ChunkData(tuple(c.source() for c in columns), lists, self.spill.morsel_rows()), step.schema)

    def _pair(self, join: Join, built: Side, probed: Side, block: list[AnyChunk], partners: list[AnyChunk], columns: tuple[OutputColumn, ...], store: object) -> list[AnyChunk]:
        """The rows of one partition, by all threads."""
        before = set(self.states)
        size = self.spill.morsel_rows()
        sides = [Flow(side.data(_dealt(chunks, self.threads), size), side.schema) for side, chunks in ((built, block), (probed, partners))]
        inside = replace(join, built=sides[0], probed=sides[1], is_shared=True)
        flow = self._probed(inside, self._built(inside))
        rows = [c for one in self._collect(join.step, flow, columns, "partition", store=store) for c in one]
        self._forget(join.step.name)
        for key in [k for k in self.states if k not in before]:
            free_state(*self.states.pop(key), self.shared)
        return rows


def _dealt(chunks: list[AnyChunk], shards: int) -> list[list[AnyChunk]]:
    return [chunks[i::shards] for i in range(shards)]


def _table_bytes(chunks: list[AnyChunk]) -> int:
    """About how much memory the table of these rows takes."""
    return bytes_of(chunks) + ENTRY_BYTES * sum(c.rows for c in chunks)
