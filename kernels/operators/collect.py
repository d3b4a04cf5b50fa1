"""Collect: writes rows into columns in Arrow's layout, chunk by chunk; the sink of results and of movement.

State: (chunk records, count, capacity). A chunk record is `morsel number, rows, bytes` and, per column, four words: values,
validity, string bytes, length of these. All buffers are malloc'ed here and belong to the host once a chunk is recorded.
The rows of a chunk come from one morsel, so that the host can put chunks back into input order.
"""

from __future__ import annotations

from dataclasses import dataclass

from tsql.kernels.batch import Layout, SourceColumn
from tsql.kernels.codegen.kir import BYTES
from tsql.kernels.codegen.lang import Kernel, Val, Var, routine
from tsql.kernels.context import LIMIT, MEMORY, SINK, PipelineKernel
from tsql.kernels.datum import Datum
from tsql.kernels.emit import emit
from tsql.kernels.expr import Expr
from tsql.kernels.pipeline import Sink
from tsql.kernels.rows import CachedRow
from tsql.kernels.types import Type

CHUNK_ROWS = 1 << 16
STATE_BYTES = 24
RECORD_HEADER = 24


@dataclass(frozen=True)
class OutputColumn:
    """A column to write. `arrow`: decimals are written in Arrow's 128 bits rather than in the kernel's own width."""

    name: str
    expr: Expr
    nullable: bool = True
    arrow: bool = False

    @property
    def type(self) -> Type:
        return self.expr.type

    @property
    def machine(self) -> str:
        """The KIR type of one stored value."""
        if self.type.is_decimal and self.arrow:
            return "i128"
        return "i8" if self.type.name == "BOOLEAN" else self.type.parts[0]

    @property
    def value_bytes(self) -> int:
        return 16 if self.type.name == "INTERVAL" else BYTES[self.machine]

    def layout(self) -> Layout:
        """How a later pipeline reads the column."""
        kind = {"BOOLEAN": "bits", "INTERVAL": "interval"}.get(self.type.name, "offsets" if self.type.is_string else "fixed")
        machine = "i32" if kind == "offsets" else self.machine
        return Layout(kind, machine, self.nullable, self.type.is_unsigned)

    def source(self) -> SourceColumn:
        return SourceColumn(self.name, self.type, self.layout())


@dataclass
class Builder:
    """The open buffers of one column, in variables of the kernel."""

    column: OutputColumn
    values: Var
    validity: Var
    text: Var
    text_used: Var
    text_capacity: Var

    @staticmethod
    def make(k: PipelineKernel, column: OutputColumn) -> Builder:
        pointers = [k.var(k.null) for _ in range(3)]
        return Builder(column, pointers[0], pointers[1], pointers[2], k.var(k.i64(0)), k.var(k.i64(0)))

    def open(self, k: PipelineKernel, capacity: Val) -> Val:
        """Allocate for `capacity` rows; returns the bytes taken."""
        t = self.column.type
        bytes = k.i64(0)
        bits = capacity.ushr(3) + 8
        if t.is_string:
            size = (capacity + 1) * 4
            self.values.set(k.call("malloc", size))
            k.store(self.values.value, k.i32(0))
            self.text.set(k.call("malloc", capacity * 8 + 64))
            self.text_used.set(0)
            self.text_capacity.set(capacity * 8 + 64)
            bytes = bytes + size + capacity * 8
        elif t.name == "BOOLEAN":
            self.values.set(k.call("calloc", bits, 1))
            bytes = bytes + bits
        else:
            size = capacity * self.column.value_bytes
            self.values.set(k.call("malloc", size + 16))
            bytes = bytes + size
        if self.column.nullable:
            self.validity.set(k.call("calloc", bits, 1))
            bytes = bytes + bits
        return bytes

    def append(self, k: PipelineKernel, at: Val, datum: Datum, bytes: Var) -> None:
        t, column = datum.type, self.column
        if t.is_string:
            self._append_string(k, at, datum, bytes)
        elif t.name == "BOOLEAN":
            set_bit(k, self.values.value, at, datum.value)
        elif t.name == "INTERVAL":
            slot = k.offset(self.values.value, at * 16)
            k.store(slot, datum.parts[0])
            k.store(slot, datum.parts[1], 1)
            k.store(slot, datum.parts[2] * 1000, 1)
        else:
            value = datum.value
            if value.type != column.machine:
                value = value.uto(column.machine) if t.is_unsigned and datum.range is None else value.to(column.machine)
            k.store(self.values.value, value, at)
        if column.nullable:
            set_bit(k, self.validity.value, at, k.true if datum.valid is None else datum.valid)

    def _append_string(self, k: PipelineKernel, at: Val, datum: Datum, bytes: Var) -> None:
        length = datum.len if datum.valid is None else k.select(datum.valid, datum.len, k.i64(0))
        used = self.text_used.value
        with k.when(used + length > self.text_capacity.value):
            grown = k.max(self.text_capacity.value * 2, (used + length) * 2)
            self.text.set(k.call("realloc", self.text.value, grown))
            k.atomic_add(k.load("ptr", k.offset(k.ctx, MEMORY)), grown - self.text_capacity.value)
            bytes.set(bytes.value + grown - self.text_capacity.value)
            self.text_capacity.set(grown)
        copy_bytes(k, self.text.value + used, datum.ptr, length)
        self.text_used.set(used + length)
        # Offsets are 32 bits: a chunk whose strings pass 2 GiB cannot be represented.
        k.fail(used + length > 0x7FFFFFFF, "a batch of strings is larger than 2 GiB")
        k.store(self.values.value, (used + length).to("i32"), at + 1)


def set_bit(k: PipelineKernel, bitmap: Val, at: Val, bit: Val) -> None:
    """Or a bit into a zeroed bitmap."""
    byte = k.offset(bitmap, at.ushr(3))
    shifted = bit.uto("i8") << (at & 7).to("i8")
    k.store(byte, k.load("i8", byte) | shifted)


@routine("copy_bytes", ("ptr", "ptr", "i64"), None)
def copy_bytes(k: Kernel, target: Val, source: Val, length: Val) -> None:
    """memcpy that is quick for the short strings that most are."""
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
    """Open buffers for one destination: rows are appended, full chunks are recorded in the state at `state`."""

    def __init__(self, columns: tuple[OutputColumn, ...], limit: int | None = None):
        self.columns, self.limit = columns, limit
        self.record_bytes = RECORD_HEADER + 32 * len(columns)

    def begin(self, k: PipelineKernel, state: Val) -> None:
        self.state = state
        self.builders = [Builder.make(k, c) for c in self.columns]
        self.used, self.capacity, self.bytes = k.var(k.i64(0)), k.var(k.i64(0)), k.var(k.i64(0))

    def append(self, k: PipelineKernel, row: CachedRow, number: Val, morsel_rows: Val) -> None:
        """Write one row; `number` is the morsel's, `morsel_rows` a guess of how many rows will follow."""
        with k.when(self.used.value == self.capacity.value):
            self.flush(k, number)
            self._open(k, morsel_rows)
        at = self.used.value
        for builder in self.builders:
            builder.append(k, at, emit(k, builder.column.expr, row), self.bytes)
        self.used.set(at + 1)

    def _open(self, k: PipelineKernel, morsel_rows: Val) -> None:
        capacity = k.max(k.min(morsel_rows, k.i64(CHUNK_ROWS)), k.i64(16))
        if self.limit is not None:
            capacity = k.min(capacity, k.i64(max(self.limit, 1)))
        self.capacity.set(capacity)
        bytes = k.i64(self.record_bytes)
        for builder in self.builders:
            bytes = bytes + builder.open(k, capacity)
        self.bytes.set(bytes)
        k.atomic_add(k.load("ptr", k.offset(k.ctx, MEMORY)), bytes)

    def flush(self, k: PipelineKernel, number: Val) -> None:
        """Record the open chunk, if it has rows."""
        with k.when(self.used.value > 0):
            record = append_record(k, self.state, k.i64(self.record_bytes))
            k.store(record, number)
            k.store(record, self.used.value, 1)
            k.store(record, self.bytes.value, 2)
            for index, builder in enumerate(self.builders):
                at = k.offset(record, RECORD_HEADER + 32 * index)
                k.store(at, builder.values.value)
                k.store(at, builder.validity.value, 1)
                k.store(at, builder.text.value, 2)
                k.store(at, builder.text_used.value, 3)
            self.used.set(0)
        self.capacity.set(0)


class Collect(Sink):
    """Writes the given columns. With `limit`, a morsel gives at most that many rows, and no morsel is started once the
    morsels before it hold enough: these are a prefix of the input, so the first `limit` rows are among theirs."""

    state_bytes = STATE_BYTES

    def __init__(self, columns: tuple[OutputColumn, ...], limit: int | None = None):
        self.columns = columns
        self.limit = limit
        self.writer = ChunkWriter(columns, limit)

    def begin(self, k: PipelineKernel) -> None:
        self.writer.begin(k, k.load("ptr", k.offset(k.ctx, SINK)))
        self.number, self.morsel_rows, self.taken = k.var(k.i64(0)), k.var(k.i64(0)), k.var(k.i64(0))
        self.collected = k.load("ptr", k.offset(k.ctx, LIMIT))

    def begin_morsel(self, k: PipelineKernel, number: Val, rows: Val) -> None:
        self.number.set(number)
        self.morsel_rows.set(rows)
        self.taken.set(0)

    def should_stop(self, k: PipelineKernel) -> Val | None:
        return None if self.limit is None else k.load("i64", self.collected) >= self.limit

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        if self.limit is None:
            self.writer.append(k, row, self.number.value, self.morsel_rows.value)
            return
        with k.when(self.taken.value < self.limit):
            self.writer.append(k, row, self.number.value, self.morsel_rows.value)
            self.taken.set(self.taken.value + 1)

    def end_morsel(self, k: PipelineKernel, number: Val) -> None:
        self.writer.flush(k, number)
        if self.limit is not None:
            k.atomic_add(self.collected, self.taken.value)

    def describe(self) -> str:
        return f"collect ({', '.join(c.name for c in self.columns)})" + (f" limit {self.limit}" if self.limit is not None else "")
