"""The host side of a kernel: context records, parameter slots, failures as exceptions, chunks as Arrow arrays.

Owns the context, the scratch memory, the slots and what they point to. Chunks left by a Collect sink are wrapped
without copying; their memory is freed with the last Arrow buffer over it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends import Run
from tsql.kernels.codegen.host_symbols import rooms
from tsql.kernels.codegen.interp import Interpreter
from tsql.kernels.codegen.levels import settled
from tsql.kernels.codegen.llvm import FULL, QUICK, TIERED, Compiled, compiler
from tsql.kernels.codegen.memory import allocate_zeroed, free
from tsql.kernels.codegen.promote import promoter
from tsql.kernels.emit.batch import Dictionary, Morsels, source_columns
from tsql.kernels.emit.context import (
    CANCEL,
    COUNTER,
    DETAIL,
    FIRST_SITE,
    FULL_AT,
    LIMIT,
    MEMORY,
    MEMORY_LIMIT,
    ROOM_AT,
    ROWS_DONE,
    SCRATCH,
    SINK,
    SLOT_BYTES,
    SLOTS,
    STATUS,
    STATUS_CANCELLED,
    STATUS_FULL,
    STATUS_OUT_OF_MEMORY,
    TAKEN,
    Program,
    Slot,
)
from tsql.kernels.emit.dictionary import code_bound
from tsql.kernels.emit.pipeline import ColumnarScan, Pipeline
from tsql.kernels.expr.errors import CancelledError, ExecutionError, OutOfMemoryError
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.types import Type
from tsql.kernels.operators.collect import RECORD_HEADER, STATE_BYTES, Collect, OutputColumn
from tsql.kernels.operators.join.string_hashes import string_hashes
from tsql.kernels.process.quick_dataclass import dataclass


def read_i64(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def read_u64(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


NO_LIMIT = 2**63 - 1

MACHINE_SHARE = 0.8
"""The share of the machine's memory that a query may use if memory_limit is not set."""


@cache
def machine_limit() -> int:
    """How many bytes a query may use of this machine, or of the process's control group. A query that needs more ends
    with an error; otherwise the system would kill the process."""
    bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):
        bytes = min(bytes, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return int(bytes * MACHINE_SHARE)


class Full(OutOfMemoryError):
    """A worker has used more than its share of memory: the work has to be split into smaller parts."""


class Shared:
    """Counters shared by the workers of a query: cancellation, memory in use, rows done, rows collected."""

    def __init__(self, run: Run):
        self.limit = machine_limit() if run.settings.memory_limit is None else run.settings.memory_limit
        self.words = (ctypes.c_int64 * 5)(0, 0, 0, 0, self.limit)
        self._host_bytes = 0
        self._passed_over = 0
        self.peak = 0
        self._lock = threading.Lock()
        self.address = ctypes.addressof(self.words)
        self.run: Run | None = run
        run.on_cancel(self.cancel)

    def restart(self, run: Run) -> None:
        """Reset the counters, for another run with the same settings. Nothing that was counted is in use any more."""
        self.words[:] = (0, 0, 0, 0, self.limit)
        self._host_bytes = self._passed_over = self.peak = 0
        self.run = run
        run.on_cancel(lambda: self.cancel() if self.run is run else None)

    def cancel(self) -> None:
        self.words[0] = 1

    @property
    def memory(self) -> int:
        """Bytes that the query uses now."""
        return self.words[1] + self._host_bytes

    def release(self, bytes: int) -> None:
        """Count memory that the host has freed (negative: taken). Kernels may be updating the bytes in use at the same
        time, so the host moves the limit instead."""
        with self._lock:
            self.peak = max(self.peak, self.words[1] + self._host_bytes)
            self._host_bytes -= bytes
            self.words[4] = self.limit - self._host_bytes

    def go_on(self) -> None:
        """Continue after a failure that stopped all workers, but that the query recovers from."""
        self.words[0] = 0
        self.run.check()

    def reserve(self, bytes: int) -> None:
        """Take memory for work of the host. Raises if the query may not have that much. `release` gives it back."""
        if self.memory + bytes > self.limit:
            raise self.out_of_memory()
        self.release(-bytes)

    def out_of_memory(self) -> OutOfMemoryError:
        allowed = f"({self.limit / 2**20:.0f} MiB)"
        if self.run.settings.memory_limit is None:
            return OutOfMemoryError(
                f"the query needs more memory than it may take of this machine {allowed}",
                hint="set memory_limit, so that what does not fit goes to disk, or select fewer rows or columns",
            )
        return OutOfMemoryError(
            f"the query needs more memory than memory_limit allows {allowed}",
            hint="raise memory_limit, or select fewer rows or columns",
        )

    @property
    def rows_done(self) -> int:
        return self.words[2] + self._passed_over

    def pass_over(self, rows: int) -> None:
        """Count rows that were done before they reached the counting kernel (negative: rows counted twice)."""
        with self._lock:
            self._passed_over += rows


def slot_bytes(type: Type | None, value: Any, keep: list[Any]) -> bytes:
    """The 16 bytes of a literal or parameter in stored form. NULL is all zeros."""
    if value is None:
        return bytes(SLOT_BYTES)
    if type.is_string:
        data = value.encode() if isinstance(value, str) else bytes(value)
        buffer = pa.py_buffer(data + b"\0")
        keep.append(buffer)
        return struct.pack("<Qq", buffer.address, len(data))
    if type.name == "INTERVAL":
        return struct.pack("<iiq", *value)
    if type.is_float:
        return struct.pack("<dq", float(value), 0)
    return int(value).to_bytes(16, "little", signed=True)


def dictionary_table(dictionary: Dictionary, name: str, predicate: Expr) -> pa.Buffer:
    """One byte per string of a dictionary: whether the predicate is true for it. Cached with the dictionary."""
    known = dictionary.tables
    if predicate not in known:
        columns = source_columns((name,), (predicate_column(predicate).type,), [dictionary.values])
        sink = Collect((OutputColumn("hit", predicate),))
        program = Pipeline(ColumnarScan(columns), [], sink).emit()
        shared = Shared(Run())
        context = Context(program, shared, sink.state_bytes)
        morsels = Morsels(1)
        morsels.add_arrays([dictionary.values], 0)
        try:
            Code(program, opt=QUICK).run(context, morsels)
            hits = [c.arrays[0] for c in take_chunks(context.state_address, sink.columns, shared)]
        finally:
            context.close()
        flat = pa.chunked_array(hits, pa.bool_()).fill_null(False).cast(pa.uint8())
        known[predicate] = pa.py_buffer(flat.to_numpy().tobytes())
    return known[predicate]


def predicate_column(predicate: Expr) -> Column:
    return next(e for e in predicate.walk() if isinstance(e, Column))


class State:
    """Zeroed memory for the state of a sink."""

    def __init__(self, bytes: int):
        self.address = allocate_zeroed(max(8, bytes))

    def __del__(self) -> None:
        free(self.address)


_HEADER = struct.Struct(f"<{SLOTS // 8}Q")


class Context:
    """The context record of one worker."""

    def __init__(
        self,
        program: Program,
        shared: Shared,
        state_bytes: int,
        state: Any = None,
        fill: Callable[[Slot, list[Any]], bytes] | None = None,
    ):
        size = SLOTS + SLOT_BYTES * len(program.slots)
        self.buffer = (ctypes.c_uint8 * size)()
        self.address = ctypes.addressof(self.buffer)
        self.owns_state = state is None
        if state is None:
            shared.reserve(state_bytes)
            state = State(state_bytes)
        self.state = state
        self.state_bytes = state_bytes
        self.closed = False
        self.kept = False
        """Whether it is kept after its run, for the next one (`repeat.py`)."""
        self.state_address = state.address
        self.counter = ctypes.c_int64(0)
        self.keep: list[Any] = []
        self.words: list[tuple[Any, ctypes.c_int64]] = []
        """Its counters, by what they count."""
        self.shared = shared
        self.program = program
        self.taken_chunks = 0
        self.failure: BaseException | None = None
        words = [0] * (SLOTS // 8)
        words[FULL_AT // 8] = words[ROOM_AT // 8] = NO_LIMIT
        words[CANCEL // 8], words[COUNTER // 8], words[SINK // 8] = (
            shared.address,
            ctypes.addressof(self.counter),
            self.state_address,
        )
        words[MEMORY // 8], words[ROWS_DONE // 8], words[LIMIT // 8], words[MEMORY_LIMIT // 8] = (
            shared.address + 8 * word for word in (1, 2, 3, 4)
        )
        _HEADER.pack_into(self.buffer, 0, *words)
        for index, slot in enumerate(program.slots):
            data = self.slot_data(slot, self.keep, fill)
            ctypes.memmove(self.address + SLOTS + SLOT_BYTES * index, data, len(data))

    def store(self, offset: int, word: int) -> None:
        ctypes.c_uint64.from_address(self.address + offset).value = word

    def slot_data(self, slot: Slot, keep: list[Any], fill: Callable[[Slot, list[Any]], bytes] | None = None) -> bytes:
        """The content of a slot in this run. Objects it points to are added to `keep`."""
        parameters = self.shared.run.parameters
        match slot.kind:
            case "literal":
                return slot_bytes(slot.type, slot.payload.value, keep)
            case "parameter":
                return slot_bytes(slot.type, parameters[slot.payload], keep)
            case "parameter_valid":
                return struct.pack("<qq", parameters[slot.payload] is not None, 0)
            case "static":
                buffer = pa.py_buffer(slot.payload)
                keep.append(buffer)
                return struct.pack("<Qq", buffer.address, len(slot.payload))
            case "dictionary":
                keep.append(slot.payload)
                return struct.pack("<Qq", slot.payload.record.address, len(slot.payload))
            case "code_bound":
                dictionary, op, literal = slot.payload
                return struct.pack("<qq", code_bound(dictionary, op, literal.value), 0)
            case "dictionary_table":
                table = dictionary_table(*slot.payload)
                keep.append(table)
                return struct.pack("<Qq", table.address, table.size)
            case "dictionary_hashes":
                hashes = string_hashes(slot.payload)
                keep.append(hashes)
                return struct.pack("<Qq", hashes.ctypes.data, len(hashes))
            case "buffer":
                memory = (ctypes.c_uint8 * slot.payload[0])()
                keep.append(memory)
                return struct.pack("<Qq", ctypes.addressof(memory), slot.payload[0])
            case "now":
                return struct.pack("<qq", int(self.shared.run.wall_clock * 1_000_000), 0)
        if fill is None:
            raise TypeError(f"nothing fills a slot of kind {slot.kind}")
        return fill(slot, keep)

    def limit(self, full_at: int | None, room_at: int | None, make_room: Callable[[], None] | None) -> None:
        """Stop above `full_at` bytes; call `make_room` above `room_at` bytes."""
        if full_at is not None:
            self.store(FULL_AT, full_at)
        if room_at is None or make_room is None:
            return
        self.store(ROOM_AT, room_at)

        def room() -> None:
            try:
                make_room()
            except BaseException as error:
                self.failure = self.failure or error
                self.shared.cancel()
            self.store(TAKEN, 0)

        rooms[self.address] = room

    def let_go(self) -> None:
        """Drop the `make_room` callback: it refers to a part that has been read."""
        rooms.pop(self.address, None)

    @property
    def taken(self) -> int:
        """Bytes that the sink's state uses."""
        return read_i64(self.address + TAKEN) - read_i64(self.address + SCRATCH + 16)

    @property
    def has_scratch(self) -> bool:
        """Whether the kernel has allocated scratch memory for intermediate values."""
        return read_u64(self.address + SCRATCH) != 0

    def add_taken(self, bytes: int) -> None:
        """Count memory that the host has taken for the sink's state."""
        self.store(TAKEN, read_i64(self.address + TAKEN) + bytes)

    def share_counter(self, counter: ctypes.c_int64) -> None:
        """Take morsels from a counter that other workers use too."""
        self.counter = counter
        self.store(COUNTER, ctypes.addressof(counter))

    def raise_status(self) -> None:
        """Raise the error that the kernel reported, if any."""
        status = read_i64(self.address + STATUS)
        if self.failure is not None:
            raise self.failure
        if status == 0:
            return
        if status == STATUS_CANCELLED:
            raise CancelledError("the query was cancelled" if self.shared.run is None else self.shared.run.reason)
        if status == STATUS_OUT_OF_MEMORY:
            raise self.shared.out_of_memory()
        if status == STATUS_FULL:
            raise Full(str(self.shared.out_of_memory()))
        site = self.program.sites[status - FIRST_SITE]
        detail, length = read_u64(self.address + DETAIL), read_i64(self.address + DETAIL + 8)
        text = ctypes.string_at(detail, length).decode("utf-8", "replace") if detail else ""
        raise ExecutionError(site.message.replace("{detail}", text), position=site.position)

    def close(self) -> None:
        """Free scratch memory, the detail text and the state. What the state points to is freed by `free_state`."""
        if self.closed or self.kept:
            return
        self.closed = True
        self.let_go()
        self.shared.release(read_i64(self.address + SCRATCH + 16) + self.owns_state * self.state_bytes)
        self.state = None
        for offset in (SCRATCH, DETAIL):
            free(read_u64(self.address + offset))
            self.store(offset, 0)


class Code:
    """A program made executable, by LLVM or by the interpreter."""

    def __init__(
        self, program: Program, interpret: bool = False, opt: int = FULL, check: Callable[[], None] = lambda: None
    ):
        self.program = program
        self.milliseconds = 0.0
        self.origin = "interpreter"
        self.can_improve = False
        if interpret:
            interpreter = Interpreter(program.module)
            self.call = lambda ctx, morsels, count: interpreter(program.module.main, ctx, morsels, count)
        else:
            opt = settled(program.module, opt)
            compiled = compiler().known(program.module, FULL) if opt == TIERED else None
            self.can_improve = opt == TIERED and compiled is None
            if compiled is None:
                compiled = compiler().compile(program.module, QUICK if opt == TIERED else opt, check)
            self.milliseconds, self.origin = compiled.milliseconds, compiled.origin
            self.call = compiled.function

    def improve(self) -> None:
        """Recompile quickly compiled code with full optimization, for the next runs."""
        if self.can_improve:
            self.can_improve = False
            promoter.add(self.program.module, self._take)

    def _take(self, compiled: Compiled) -> None:
        self.call = compiled.function

    def run(self, context: Context, morsels: Morsels) -> None:
        """Run one worker over the morsels; raises what the kernel reports."""
        # Morsels are passed by their first byte, which keeps all of them alive: an array would be a new ctypes type
        # for each length.
        data = ctypes.c_char.from_buffer(morsels.data or bytearray(1))
        self.call(context.address, ctypes.addressof(data), morsels.count)
        context.raise_status()


class ChunkMemory:
    """Owns the buffers of one chunk. They are freed when the last Arrow buffer that refers to it is gone."""

    def __init__(self, addresses: list[int], bytes: int, shared: Shared):
        self.addresses, self.bytes, self.shared = addresses, bytes, shared

    def __del__(self) -> None:
        for address in self.addresses:
            free(address)
        self.shared.release(self.bytes)


@dataclass
class Chunk:
    """A run of rows in columns. `order` sorts the chunks of a dataset into input order, `bytes` is its memory, and
    `owner` must live as long as the chunk."""

    order: tuple[int, ...]
    rows: int
    arrays: list[pa.Array]
    bytes: int = 0
    owner: Any = None


class Reserved:
    """Memory taken by a library. It is counted as long as this object lives."""

    def __init__(self, bytes: int, shared: Shared):
        shared.reserve(bytes)
        self.bytes, self.shared = bytes, shared

    def __del__(self) -> None:
        if hasattr(self, "bytes"):
            self.shared.release(self.bytes)


def library_chunk(order: tuple[int, ...], arrays: list[pa.Array], rows: int, shared: Shared) -> Chunk:
    """A chunk of arrays that a library has made."""
    bytes = sum(a.nbytes for a in arrays)
    return Chunk(order, rows, arrays, bytes, Reserved(bytes, shared))


def take_chunks(state: int, columns: tuple[OutputColumn, ...], shared: Shared, taken: int = 0) -> list[Chunk]:
    """The chunks of a Collect state, ordered by morsel. The state is empty afterwards. `taken`: how many chunks were
    taken before."""
    data, count = read_u64(state), read_i64(state + 8)
    record_bytes = RECORD_HEADER + 32 * len(columns)
    chunks = []
    for index in range(count):
        at = data + index * record_bytes
        number, rows, size = read_i64(at), read_i64(at + 8), read_i64(at + 16)
        words = [[read_u64(at + RECORD_HEADER + 32 * c + 8 * w) for w in range(4)] for c in range(len(columns))]
        owner = ChunkMemory([a for w in words for a in w[:3] if a], size, shared)
        chunks.append(
            Chunk(
                (number, taken + index),
                rows,
                [_array(c, rows, w, owner) for c, w in zip(columns, words, strict=True)],
                size,
            )
        )
    free(data)
    ctypes.memset(state, 0, STATE_BYTES)
    return chunks


def chunk_type(column: OutputColumn) -> pa.DataType:
    """The Arrow type of a collected column. Narrow decimals stay integers unless they are part of a result."""
    t = column.type
    if t.is_decimal and column.machine == "i64":
        return pa.int64()
    return t.to_arrow()


def result_array(array: pa.Array, type: Type) -> pa.Array:
    """A collected column as part of a result: decimals have Arrow's 128 bits, narrow ones sign-extended."""
    if not (type.is_decimal and array.type == pa.int64()):
        return array
    low = np.frombuffer(array.buffers()[1] or b"", np.int64)[array.offset : array.offset + len(array)]
    words = np.empty((len(array), 2), np.int64)
    words[:, 0], words[:, 1] = low, low >> 63
    valid = pa.py_buffer(np.packbits(np.asarray(array.is_valid()), bitorder="little")) if array.null_count else None
    return pa.Array.from_buffers(type.to_arrow(), len(array), [valid, pa.py_buffer(words)])


def _array(column: OutputColumn, rows: int, words: list[int], owner: ChunkMemory) -> pa.Array:
    values, validity, text, text_bytes = words
    bits = None if not validity else pa.foreign_buffer(validity, (rows + 7) // 8, owner)
    t = column.type
    if t.is_string:
        buffers = [bits, pa.foreign_buffer(values, (rows + 1) * 4, owner), pa.foreign_buffer(text, text_bytes, owner)]
    else:
        size = (rows + 7) // 8 if t.name == "BOOLEAN" else rows * column.value_bytes
        buffers = [bits, pa.foreign_buffer(values, size, owner)]
    return pa.Array.from_buffers(chunk_type(column), rows, buffers, null_count=0 if bits is None else -1)
