"""Collect: writes rows into columns in Arrow's layout, chunk by chunk; the sink of results and of movement.

State: (chunk records, count, capacity). A chunk record is `morsel number, rows, bytes` and four words per column:
values, validity, string bytes and their length. All buffers are malloc'ed here and belong to the host once a chunk is
recorded. The rows of a chunk come from one morsel, so the host can restore the input order. A kernel writes no bitmap
for a column that cannot be NULL, so two kernels never write to the same chunk.
"""

from __future__ import annotations

import struct
from functools import cache, cached_property, lru_cache

from tsql.kernels.codegen.kir import BYTES, Module
from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.batch import Layout, SourceColumn
from tsql.kernels.emit.context import (
    LIMIT,
    MEMORY,
    MEMORY_LIMIT,
    ROOM_AT,
    SINK,
    STATUS_OUT_OF_MEMORY,
    TAKEN,
    PipelineKernel,
    take_bytes,
)
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.expressions import emit
from tsql.kernels.emit.pipeline import Sink
from tsql.kernels.emit.rows import CachedRow
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import INTERVAL_RANGE, Type
from tsql.kernels.process.quick_dataclass import dataclass

CHUNK_ROWS = 1 << 16
FIRST_ROWS, NEXT_ROWS = 1 << 10, 1 << 14
"""Capacity of a chunk that is filled across morsels. The first is small, since most results have few rows, and a
touched page takes 2 MiB."""

STATE_BYTES = 24
RECORD_HEADER = 24


@dataclass(frozen=True)
class OutputColumn:
    """A column to write. `arrow`: decimals are written in Arrow's 128 bits rather than in the kernel's own width."""

    name: str
    expr: Expr
    nullable: bool = True
    arrow: bool = False

    @cached_property
    def type(self) -> Type:
        return self.expr.type

    @cached_property
    def machine(self) -> str:
        """The KIR type of one stored value."""
        if self.type.is_decimal and self.arrow:
            return "i128"
        return "i8" if self.type.name == "BOOLEAN" else self.type.parts[0]

    @cached_property
    def value_bytes(self) -> int:
        return 16 if self.type.name == "INTERVAL" else BYTES[self.machine]

    def layout(self) -> Layout:
        """How a later pipeline reads the column."""
        kind = {"BOOLEAN": "bits", "INTERVAL": "interval"}.get(
            self.type.name, "offsets" if self.type.is_string else "fixed"
        )
        machine = "i32" if kind == "offsets" else self.machine
        return Layout(kind, machine, self.nullable, self.type.is_unsigned)

    def source(self) -> SourceColumn:
        return self._source

    @cached_property
    def _source(self) -> SourceColumn:
        return SourceColumn(self.name, self.type, self.layout())


@lru_cache(maxsize=1024)
def columns_of(schema: Schema) -> tuple[OutputColumn, ...]:
    """All columns of a relation, unchanged. Cached: each run of a plan asks for the same ones."""
    return tuple(OutputColumn(f.name, Column(f.name, f.type, f.nullable)) for f in schema)


STRING, BITS, FIXED = 0, 1, 2
SPEC_BYTES = 24
"""A column's entry in the static table that the routines below read: kind, bytes per value, nullable."""

BUILDER_BYTES = 40
WRITER_HEADER = STATE_BYTES + 24
"""A writer's memory: the state (chunk records); rows used, capacity, bytes; then per column pointers to values,
validity and text, the text bytes used and the text capacity."""


def column_spec(columns: tuple[OutputColumn, ...], nullable: list[bool]) -> bytes:
    """The static table of the columns."""
    kinds = [STRING if c.type.is_string else BITS if c.type.name == "BOOLEAN" else FIXED for c in columns]
    return b"".join(
        struct.pack("<qqq", kind, c.value_bytes, flag) for kind, c, flag in zip(kinds, columns, nullable, strict=True)
    )


@routine("chunk_open", ("ptr", "ptr", "ptr", "i64", "i64"), None)
def chunk_open(k: Kernel, ctx: Val, writer: Val, spec: Val, columns: Val, capacity: Val) -> None:
    """Allocate the buffers of a chunk of `capacity` rows. Only bitmaps are zeroed. If much has been collected, the host
    first takes the recorded chunks, even if one input row became many rows."""
    with k.when(k.load("i64", k.offset(ctx, TAKEN)) > k.load("i64", k.offset(ctx, ROOM_AT))):
        k.call("make_room", ctx)
    bits = capacity.ushr(3) + 8
    bytes = k.var(columns * 32 + RECORD_HEADER)
    with k.range(columns) as c:
        about, builder = k.offset(spec, c * SPEC_BYTES), k.offset(writer, c * BUILDER_BYTES + WRITER_HEADER)
        kind = k.load("i64", about)
        with k.when(kind == STRING):
            text = capacity * 8 + 64
            k.store(builder, k.call("malloc", (capacity + 1) * 4))
            k.store(k.load("ptr", builder), k.i32(0))
            k.store(builder, k.call("malloc", text), 2)
            k.store(builder, k.i64(0), 3)
            k.store(builder, text, 4)
            bytes.set(bytes.value + capacity * 4 + text)
        with k.otherwise():
            k.store(builder, k.null, 2)
            with k.when(kind == BITS):
                k.store(builder, k.call("calloc", bits, 1))
                bytes.set(bytes.value + bits)
            with k.otherwise():
                size = capacity * k.load("i64", about, 1) + 16
                k.store(builder, k.call("malloc", size))
                bytes.set(bytes.value + size)
        k.store(builder, k.null, 1)
        with k.when(k.load("i64", about, 2) != 0):
            k.store(builder, k.call("calloc", bits, 1), 1)
            bytes.set(bytes.value + bits)
    k.store(writer, k.i64(0), 3)
    k.store(writer, capacity, 4)
    k.store(writer, bytes.value, 5)
    take_bytes(k, ctx, bytes.value)


@routine("chunk_flush", ("ptr", "i64", "i64"), None)
def chunk_flush(k: Kernel, writer: Val, columns: Val, number: Val) -> None:
    """Record the open chunk if it has rows. The next row opens a new one."""
    used = k.load("i64", writer, 3)
    with k.when(used > 0):
        record = append_record(k, writer, columns * 32 + RECORD_HEADER)
        k.store(record, number)
        k.store(record, used, 1)
        k.store(record, k.load("i64", writer, 5), 2)
        with k.range(columns) as c:
            target, builder = (
                k.offset(record, c * 32 + RECORD_HEADER),
                k.offset(writer, c * BUILDER_BYTES + WRITER_HEADER),
            )
            for word in range(4):
                k.store(target, k.load("i64", builder, word), word)
        k.store(writer, k.i64(0), 3)
        k.store(writer, k.i64(0), 4)


@cache
def end_chunk_module() -> Module:
    """`main(writers, plan, count)` records the open chunks of `count` writers, for the host, where a sink leaves chunks
    open. The plan is i64 words: bytes from one writer to the next, columns."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    writers, plan, count = k.params
    apart, columns = k.load("i64", plan), k.load("i64", plan, 1)
    with k.range(count) as number:
        chunk_flush(k, k.offset(writers, number * apart), columns, k.i64(0))
    k.ret()
    k.finish()
    return module


LARGE_TEXT = 1 << 30
"""A chunk with this many string bytes in a column takes no further row: its offsets are 32 bits wide."""


@routine("text_room", ("ptr", "ptr", "ptr", "i64"), "i64")
def text_room(k: Kernel, ctx: Val, writer: Val, builder: Val, needed: Val) -> None:
    """Make room for strings of `needed` bytes in total. Returns 0 and does nothing if the query's memory limit forbids
    it."""
    capacity = k.load("i64", builder, 4)
    grown = k.select(needed > LARGE_TEXT, needed, k.max(capacity * 2, needed * 2))
    used, limit = (
        k.load("i64", k.load("ptr", k.offset(ctx, MEMORY))),
        k.load("i64", k.load("ptr", k.offset(ctx, MEMORY_LIMIT))),
    )
    with k.when(used + (grown - capacity) > limit):
        k.ret(k.i64(0))
    with k.when(needed > LARGE_TEXT):
        k.store(writer, k.load("i64", writer, 3) + 1, 4)
    k.store(builder, k.call("realloc", k.load("ptr", builder, 2), grown), 2)
    k.store(builder, grown, 4)
    take_bytes(k, ctx, grown - capacity)
    k.store(writer, k.load("i64", writer, 5) + grown - capacity, 5)
    k.ret(k.i64(1))


def append_value(k: PipelineKernel, column: OutputColumn, writer: Val, index: int, at: Val, datum: Datum) -> None:
    """Write one value at row `at` of the open chunk."""
    builder = k.offset(writer, WRITER_HEADER + BUILDER_BYTES * index)
    t = datum.type
    values = k.load("ptr", builder)
    if t.is_string:
        _append_string(k, writer, builder, values, at, datum)
    elif t.name == "BOOLEAN":
        bit = datum.value if datum.valid is None else datum.value & datum.valid
        set_bit(k, values, at, bit)
    elif t.name == "INTERVAL":
        slot = k.offset(values, at * 16)
        # Arrow counts nanoseconds, which have room for 292 years.
        too_long = k.overflows("mul", datum.parts[2], k.i64(1000))
        k.fail(
            too_long if datum.valid is None else too_long & datum.valid,
            "Interval out of range: the time of an INTERVAL in a result is at most 2562047 hours",
        )
        k.store(slot, datum.parts[0])
        k.store(slot, datum.parts[1], 1)
        # Arrow has nanoseconds in 64 bits.
        large = k.overflows("mul", datum.parts[2], k.i64(1000))
        k.fail(large if datum.valid is None else large & datum.valid, INTERVAL_RANGE)
        k.store(slot, datum.parts[2] * 1000, 1)
    else:
        value = datum.value
        if value.type != column.machine:
            value = value.uto(column.machine) if t.is_unsigned and datum.range is None else value.to(column.machine)
        k.store(values, value, at)
    if has_validity(column, datum) and datum.valid is not None:
        set_bit(k, k.load("ptr", builder, 1), at, datum.valid)


def has_validity(column: OutputColumn, datum: Datum) -> bool:
    """Whether chunks have a bitmap for a column: not if its values cannot be NULL."""
    return column.nullable and datum.valid is not None


def _append_string(k: PipelineKernel, writer: Val, builder: Val, values: Val, at: Val, datum: Datum) -> None:
    length = datum.len if datum.valid is None else k.select(datum.valid, datum.len, k.i64(0))
    used = k.load("i64", builder, 3)
    k.fail(used + length > 0x7FFFFFFF, "a string is too long for a batch, whose strings may have 2 GiB together")
    room = k.load("i64", builder, 4)
    with k.when((used + length > room) & (used + length <= 0x7FFFFFFF)):
        with k.when((text_room(k, k.ctx, writer, builder, used + length) == 0) & (k.status.value == 0)):
            k.status.set(k.i64(STATUS_OUT_OF_MEMORY))
    length = k.select(used + length <= k.load("i64", builder, 4), length, k.i64(0))
    end = used + length
    copy_bytes(k, k.load("ptr", builder, 2) + used, datum.ptr, length)
    k.store(builder, end, 3)
    k.store(values, end.to("i32"), at + 1)


def set_bit(k: PipelineKernel, bitmap: Val, at: Val, bit: Val) -> None:
    """Or a bit into a zeroed bitmap."""
    byte = k.offset(bitmap, at.ushr(3))
    shifted = bit.uto("i8") << (at & 7).to("i8")
    k.store(byte, k.load("i8", byte) | shifted)


@routine("copy_bytes", ("ptr", "ptr", "i64"), None)
def copy_bytes(k: Kernel, target: Val, source: Val, length: Val) -> None:
    """memcpy that is fast for short strings, which are the most common."""
    with k.when(length <= 16):
        with k.when(length >= 8):
            head, tail = k.load("i64", source), k.load("i64", source + (length - 8))
            k.store(target, head)
            k.store(target + (length - 8), tail)
        with k.otherwise():
            with k.range(length) as i:
                k.store(target, k.load("i8", source, i), i)
    with k.otherwise():
        k.call("memcpy", target, source, length)


@routine("append_record", ("ptr", "i64"), "ptr")
def append_record(k: Kernel, state: Val, bytes: Val) -> None:
    """Room for one more record of `bytes` in the growable array at `state` (data, count, capacity)."""
    count, capacity = k.load("i64", state, 1), k.load("i64", state, 2)
    with k.when(count == capacity):
        grown = capacity * 2 + 16
        k.store(state, k.call("realloc", k.load("ptr", state), grown * bytes))
        k.store(state, grown, 2)
    k.store(state, count + 1, 1)
    k.ret(k.load("ptr", state) + count * bytes)


class ChunkWriter:
    """Appends rows to chunks. The open chunk lives in memory that the host zeroes (`writer_bytes`)."""

    def __init__(self, columns: tuple[OutputColumn, ...], limit: int | None = None, most: int = CHUNK_ROWS):
        self.columns, self.limit, self.most = columns, limit, most
        self.writer_bytes = WRITER_HEADER + BUILDER_BYTES * len(columns)

    def append(self, k: PipelineKernel, writer: Val, row: CachedRow, number: Val, expected: Val) -> None:
        """Write one row. `number`: the morsel's number. `expected`: a guess of the total rows."""
        data = [emit(k, column.expr, row) for column in self.columns]
        spec = k.static(
            column_spec(self.columns, [has_validity(*pair) for pair in zip(self.columns, data, strict=True)])
        )
        with k.when(k.load("i64", writer, 3) == k.load("i64", writer, 4)):
            self.flush(k, writer, number)
            capacity = k.max(k.min(expected, k.i64(self.most)), k.i64(16))
            if self.limit is not None:
                capacity = k.min(capacity, k.i64(max(min(self.limit, CHUNK_ROWS), 1)))
            chunk_open(k, k.ctx, writer, spec, k.i64(len(self.columns)), capacity)
        at = k.load("i64", writer, 3)
        for index, (column, datum) in enumerate(zip(self.columns, data, strict=True)):
            append_value(k, column, writer, index, at, datum)
        k.store(writer, at + 1, 3)

    def flush(self, k: PipelineKernel, writer: Val, number: Val) -> None:
        """Record the open chunk."""
        chunk_flush(k, writer, k.i64(len(self.columns)), number)


class Collect(Sink):
    """Writes the given columns. With `limit`, a morsel gives at most that many rows, and no morsel is started once the
    morsels before it hold enough: these are a prefix of the input, so they contain the first `limit` rows.

    With `by_morsel` a chunk ends with its morsel. So the chunks of workers that share morsels can be put back into
    input order. A worker with morsels of its own keeps the order anyway, and fills chunks across them. `most` is the
    number of rows of the largest chunk."""

    def __init__(
        self,
        columns: tuple[OutputColumn, ...],
        limit: int | None = None,
        by_morsel: bool = True,
        most: int = CHUNK_ROWS,
    ):
        self.columns = columns
        self.limit = limit
        self.by_morsel = by_morsel
        self.writer = ChunkWriter(columns, limit, most)
        self.state_bytes = self.writer.writer_bytes

    def begin(self, k: PipelineKernel) -> None:
        self.state = k.load("ptr", k.offset(k.ctx, SINK))
        self.number, self.morsel_rows, self.taken = k.var(k.i64(0)), k.var(k.i64(0)), k.var(k.i64(0))
        self.collected = k.load("ptr", k.offset(k.ctx, LIMIT))
        if self.limit is not None:
            k.enough = lambda: self.taken.value >= self.limit

    def begin_morsel(self, k: PipelineKernel, number: Val, rows: Val) -> None:
        self.number.set(number)
        if not self.by_morsel:
            rows = k.max(rows, k.select(k.load("i64", self.state, 1) == 0, k.i64(FIRST_ROWS), k.i64(NEXT_ROWS)))
        self.morsel_rows.set(rows)
        self.taken.set(0)

    def should_stop(self, k: PipelineKernel) -> Val | None:
        return None if self.limit is None else k.load("i64", self.collected) >= self.limit

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        if self.limit is None:
            self.writer.append(k, self.state, row, self.number.value, self.morsel_rows.value)
            return
        with k.when(self.taken.value < self.limit):
            self.writer.append(k, self.state, row, self.number.value, self.morsel_rows.value)
            self.taken.set(self.taken.value + 1)

    def end_morsel(self, k: PipelineKernel, number: Val) -> None:
        if self.by_morsel:
            self.writer.flush(k, self.state, number)
        if self.limit is not None:
            k.atomic_add(self.collected, self.taken.value)

    def end(self, k: PipelineKernel) -> None:
        if not self.by_morsel:
            self.writer.flush(k, self.state, self.number.value)

    def describe(self) -> str:
        return f"collect ({', '.join(c.name for c in self.columns)})" + (
            f" limit {self.limit}" if self.limit is not None else ""
        )
