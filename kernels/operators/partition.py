"""Partition: writes each row to the shard that its key hashes to; the sink of `redistribute`.

State: an array of chunk writers, one per shard, so the kernel is the same for any number of shards.
All datasets use the same hash, which depends on nothing but the values, so that equal keys meet.
"""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import SINK, PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.expressions import emit
from tsql.kernels.emit.keys import KeyField
from tsql.kernels.emit.pipeline import Sink
from tsql.kernels.emit.rows import CachedRow
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.operators.collect import CHUNK_ROWS, ChunkWriter, OutputColumn
from tsql.kernels.runtime.text.strings import mix64, str_hash


def placement_hash(k: PipelineKernel, data: list[Datum]) -> Val:
    """A hash of values that does not depend on layouts, bounds or dictionaries."""
    h = k.i64(0x2545F491)
    for d in data:
        f = KeyField("", d.type, d.valid is not None)
        if d.type.is_string:
            word = str_hash(k, d.ptr, d.len)
        elif f.exact:
            wide = number(d).value
            word = wide if wide.type == "i64" else wide.to("i64") ^ _high_word(k, wide)
        else:
            word = f.hash_words(k, f._words(k, d))[0]
        if d.valid is not None:
            word = k.select(d.valid, word, k.i64(0x7F4A7C15))
        h = mix64(k, (h * -0x61C8864680B583EB) ^ word)
    return h


def _high_word(k: PipelineKernel, wide: Val) -> Val:
    """The upper half of an i128, or zero if the value fits an i64, so that both registers of a number hash alike."""
    low = wide.to("i64")
    return k.select(low.to("i128") == wide, k.i64(0), (wide >> 64).to("i64"))


class Partition(Sink):
    """Rows to shards by the hash of their key.

    With `keep_order` chunks end with their morsel, so the rows of a shard can be put into input order. Without it
    chunks are filled across morsels, which makes far fewer of them. `expected`: a guess of the rows per shard and
    worker. `leaves_open`: the last chunks stay open after a call, and the next call of the same kernel fills them; the
    host ends them (`end_chunks`). `level`: above 0, rows are placed by other bits than those that chose their shard.
    `most`: rows of the largest chunk. `compact`: the lowest bits of an integer key, mixed with the others, choose the
    shard. So the keys of a shard differ in their upper bits, and are close together if all keys are."""

    def __init__(
        self, columns: tuple[OutputColumn, ...], key: tuple[Expr, ...], shards: int, equal_hashes: bool = False,
        keep_order: bool = True, expected: int | None = None, level: int = 0, most: int = CHUNK_ROWS,
        leaves_open: bool = False, compact: bool = False,
    ):  # fmt: skip
        self.columns, self.key, self.shards, self.equal_hashes, self.keep_order = (
            columns,
            key,
            shards,
            equal_hashes,
            keep_order,
        )
        # Rounded to a power of two, so that a growing table does not change the kernel with every row.
        self.chunk_rows = 4096 if expected is None else 1 << max(8, min(16, (expected + expected // 8).bit_length()))
        self.level, self.most, self.leaves_open, self.compact = level, most, leaves_open, compact
        self.writer = ChunkWriter(columns)
        self.shard_bytes = self.writer.writer_bytes
        self.state_bytes = self.shard_bytes * shards

    @property
    def shift(self) -> int:
        """How many bits of the key the shard determines; 0 if a hash chose it."""
        return self.shards.bit_length() - 1 if self.compact else 0

    def begin(self, k: PipelineKernel) -> None:
        self.state = k.load("ptr", k.offset(k.ctx, SINK))
        self.number, self.expected = k.var(k.i64(0)), k.var(k.i64(min(self.most, self.chunk_rows)))

    def begin_morsel(self, k: PipelineKernel, number: Val, rows: Val) -> None:
        self.number.set(number)
        if self.keep_order:
            self.expected.set(k.min(rows.udiv(self.shards) + rows.udiv(self.shards * 4) + 16, k.i64(self.most)))

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        shard = k.i64(0)
        if self.compact:
            shard = compact_shard(k, emit(k, self.key[0], row), self.shards)
        elif self.shards > 1 and not self.equal_hashes:
            hash = placement_hash(k, [emit(k, e, row) for e in self.key])
            shard = shard_number(k, mix64(k, hash + self.level) if self.level else hash, self.shards)
        self.writer.append(
            k, k.offset(self.state, shard * self.shard_bytes), row, self.number.value, self.expected.value
        )

    def _flush_all(self, k: PipelineKernel, number: Val) -> None:
        with k.range(k.i64(self.shards)) as shard:
            self.writer.flush(k, k.offset(self.state, shard * self.shard_bytes), number)

    def end_morsel(self, k: PipelineKernel, number: Val) -> None:
        if self.keep_order:
            self._flush_all(k, number)

    def end(self, k: PipelineKernel) -> None:
        if not self.keep_order and not self.leaves_open:
            self._flush_all(k, self.number.value)

    def describe(self) -> str:
        return f"partition by ({', '.join(map(str, self.key))}) into {self.shards} shards"


def compact_shard(k: PipelineKernel, d: Datum, shards: int) -> Val:
    """The shard of an integer; `shards` is a power of two. Of `shards` consecutive integers each goes to another
    shard."""
    bits = shards.bit_length() - 1
    value = number(d).value.to("i64")
    mixed = ((value >> bits) * -0x61C8864680B583EB).ushr(64 - bits)
    shard = (value ^ mixed) & (shards - 1)
    return shard if d.valid is None else k.select(d.valid, shard, k.i64(0))


def shard_number(k: PipelineKernel, hash: Val, shards: int) -> Val:
    """The shard of a hash, from bits that the shards' hash tables do not use for their slots."""
    if shards & (shards - 1) == 0:
        return hash.ushr(40) & (shards - 1)
    return hash.ushr(40).urem(shards)
