"""Spilling: rows beyond a query's share of memory go to unnamed files, and are read back in parts.

**What spills.** Everything between pipelines is a list of chunks per shard. A `Store` keeps the chunks of one step: up
to its budget in memory, the rest as `SpilledChunk`s. These have the same interface (`order`, `rows`, `arrays`) and read
their columns from the file on request. So movement, unions, limits and shared steps spill without knowing it. A sink
that collects rows calls the host in the middle of a pipeline (`make_room`) when it holds much, so it does not matter
how many rows one input row becomes. Tables cannot be written like this. An aggregation or the build side of a join that
takes more than its share is abandoned (`Full`). Its input is read again into partitions by the hash of the keys, which
are processed one after the other. A partition that is still too large is split again (`groups.py`,
`partition_joins.py`). A sort makes sorted runs and merges them (`sorts.py`).

**Memory.** One word counts the bytes in use (host.py). An operator gets a share of the memory that is free when it
starts: a quarter for waiting rows, half for a table. Shares of shares leave room for later operators. A query that
still needs more than `memory_limit` is refused. Data that is read back counts until its last array is gone.

**Files.** One per store, in `temp_directory` (default: the system's). Files have no name and mode 0600, so nobody else
can open them. The system removes them when their descriptor is closed: at the end of the run, after a failure or a
cancellation, or when the process dies. A chunk is its buffers, one after the other; their offsets are only in memory.

**Errors.** A full disk, or a folder that cannot be written to, is one ExecutionError with the folder's name.

**Cost.** Without a limit, one comparison per chunk of rows. With a limit, every spilled row is written and read once
(rows of a partition that is split again: twice)."""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
import weakref
from typing import Any

import pyarrow as pa

from tsql.backends import Run, Settings
from tsql.backends.local.run.host import Chunk, ChunkMemory, Shared
from tsql.kernels.codegen.memory import allocate
from tsql.kernels.emit.batch import Morsels, all_ones
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.operators.collect import CHUNK_ROWS, OutputColumn

WAITING, TABLE = 0.25, 0.5
"""The shares of free memory for rows between pipelines and for a table."""

LEAST = 1 << 16
"""The smallest share, whatever is free."""

BUFFERS = 1 / 16
"""The part of the limit that open chunks may take together."""

FORCED_ROWS = 32
"""Rows per chunk when everything spills, in tests: small tables should have several chunks."""

MOST_ROOM = 8 << 20
IOV_MAX = 512
ALIGNMENT = 8
_PADDING = bytes(ALIGNMENT)


class SpillFile:
    """An unnamed file, written by many threads."""

    def __init__(self, folder: str):
        self.folder, self.end, self.lock = folder, 0, threading.Lock()
        self.descriptor = _nameless(folder)

    def write(self, buffers: list[Any]) -> int:
        """Write the buffers one after the other. Returns the offset of the first."""
        bytes = sum(len(b) for b in buffers)
        with self.lock:
            start, self.end = self.end, self.end + bytes
        at = start
        try:
            for first in range(0, len(buffers), IOV_MAX):
                group = buffers[first : first + IOV_MAX]
                size, written = sum(len(b) for b in group), 0
                while written < size:
                    written += os.pwritev(
                        self.descriptor, group if written == 0 else [b"".join(group)[written:]], at + written
                    )
                at += size
        except OSError as error:
            raise _failure("write to", self.folder, error) from error
        return start

    def read(self, start: int, bytes: int, address: int) -> None:
        """Read bytes into memory."""
        target = memoryview((ctypes.c_uint8 * bytes).from_address(address)).cast("B")
        done = 0
        try:
            while done < bytes:
                count = os.preadv(self.descriptor, [target[done:]], start + done)
                if count == 0:
                    raise ExecutionError(f"a temporary file in {self.folder} is shorter than what was written to it")
                done += count
        except OSError as error:
            raise _failure("read from", self.folder, error) from error

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        if getattr(self, "descriptor", -1) >= 0:
            self.close()


def _nameless(folder: str) -> int:
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        try:
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except (OSError, AttributeError):
            # Not every file system supports this.
            descriptor, path = tempfile.mkstemp(prefix="tsql-", dir=folder)
            os.unlink(path)
            return descriptor
    except OSError as error:
        raise _failure("make a file in", folder, error) from error


def _failure(action: str, folder: str, error: OSError) -> ExecutionError:
    reason = (error.strerror or str(error)).lower()
    return ExecutionError(
        (
            f"the query has more rows than memory_limit allows, and cannot {action} the temporary directory "
            f"{folder}: {reason}"
        ),
        hint="raise memory_limit, or set temp_directory to a folder with more space",
    )


def can_spill(settings: Settings) -> bool:
    """Whether rows may have to leave memory under these settings."""
    return settings.memory_limit is not None or settings.spill_after > 0


class SpilledChunk:
    """A chunk in a file. Its columns are read each time they are requested, and belong to the caller."""

    __slots__ = ("_places", "_shared", "_start", "_types", "bytes", "file", "order", "rows")

    def __init__(
        self,
        chunk: Chunk,
        file: SpillFile,
        start: int,
        bytes: int,
        places: list[list[tuple[int, int] | None]],
        shared: Shared,
    ):
        self.order, self.rows, self.file, self.bytes = chunk.order, chunk.rows, file, bytes
        self._start, self._places, self._types, self._shared = start, places, [a.type for a in chunk.arrays], shared

    def load(self) -> tuple[int, ChunkMemory]:
        """Load the chunk into memory: its address, and its owner."""
        size = self.bytes + 64
        self._shared.reserve(size)
        address = allocate(size)
        owner = ChunkMemory([address], size, self._shared)
        self.file.read(self._start, self.bytes, address)
        return address, owner

    def add_to(self, morsels: Morsels, position: int) -> None:
        """Add the rows as one morsel, without Arrow: most chunks of partitions are small."""
        address, owner = self.load()
        ones = all_ones(self.rows)
        columns = []
        for places in self._places:
            validity, values, text = (*places, None)[:3]
            columns.append(
                (
                    0 if values is None else address + values[0],
                    0 if text is None else address + text[0],
                    ones.address if validity is None else address + validity[0],
                    0,
                )
            )
        morsels.add(self.rows, position, columns)
        morsels.keep.append((owner, ones))

    @property
    def arrays(self) -> list[pa.Array]:
        address, owner = self.load()
        arrays = []
        for t, places in zip(self._types, self._places, strict=True):
            buffers = [None if p is None else pa.foreign_buffer(address + p[0], p[1], owner) for p in places]
            arrays.append(pa.Array.from_buffers(t, self.rows, buffers, null_count=0 if buffers[0] is None else -1))
        return arrays


AnyChunk = Chunk | SpilledChunk


class Spill:
    """The spilling of a run: how much may stay in memory, and the files."""

    def __init__(self, run: Run, shared: Shared, threads: int):
        self.run, self.shared, self.threads = run, shared, threads
        self.files: weakref.WeakSet[SpillFile] = weakref.WeakSet()
        """The files in use. A file that nobody can read any more is closed, which frees its disk space."""
        self.written: dict[str, int] = {}
        self.lock = threading.Lock()

    @property
    def limit(self) -> int | None:
        return self.run.settings.memory_limit

    @property
    def active(self) -> bool:
        """Whether anything may have to spill."""
        return can_spill(self.run.settings)

    @property
    def forced(self) -> bool:
        """For tests: everything that holds a few bytes spills."""
        return self.run.settings.spill_after > 0

    def share(self, part: float, tasks: int = 1) -> int | None:
        """How many bytes of the free memory each of `tasks` tasks may take; None: no limit."""
        if self.forced:
            return self.run.settings.spill_after
        if self.limit is None:
            return None
        return max(LEAST, int((self.limit - self.shared.memory) * part) // tasks)

    def room(self) -> int | None:
        """A worker that collects rows hands them over when they take this many bytes."""
        if self.forced:
            return self.run.settings.spill_after
        return None if self.limit is None else max(LEAST, min(MOST_ROOM, self.limit // 32 // self.threads))

    def chunk_rows(self, columns: tuple[OutputColumn, ...], writers: int = 1) -> int:
        """Rows per chunk if each worker has `writers` chunks open. A power of two that depends only on the settings, as
        it is part of the kernel."""
        if self.forced:
            return FORCED_ROWS
        if self.limit is None:
            return CHUNK_ROWS
        width = sum(16 if c.type.is_string else c.value_bytes for c in columns) + 1
        rows = int(self.limit * BUFFERS) // (self.threads * writers * width)
        return max(32, min(CHUNK_ROWS, 1 << max(0, rows.bit_length() - 1)))

    def morsel_rows(self) -> int:
        """The most rows per morsel: workers check their memory between morsels."""
        given = self.run.settings.batch_rows
        return given if given or self.limit is None or self.limit >= 1 << 30 else 8192

    def store(self, name: str, part: float = WAITING) -> Store:
        """A store that may keep this share of the free memory."""
        return Store(self, name, self.share(part) if part or not self.active else 0)

    def file(self) -> SpillFile:
        file = SpillFile(self.run.settings.temp_directory or tempfile.gettempdir())
        with self.lock:
            self.files.add(file)
        return file

    def count(self, name: str, bytes: int) -> None:
        with self.lock:
            self.written[name] = self.written.get(name, 0) + bytes

    def close(self) -> None:
        """Close the files, which removes them."""
        for file in list(self.files):
            file.close()


class Store:
    """The rows that one step has collected. Up to `budget` bytes stay in memory (None: all)."""

    def __init__(self, spill: Spill, name: str, budget: int | None):
        self.spill, self.name, self.budget = spill, name, budget
        self.resident = 0
        self._file: SpillFile | None = None
        self._lock = threading.Lock()

    def keep(self, chunks: list[Chunk]) -> list[AnyChunk]:
        """The chunks as they are kept. Written chunks leave memory when the caller drops them."""
        if self.budget is None:
            return list(chunks)
        stay: list[bool] = []
        with self._lock:
            for chunk in chunks:
                stay.append(self.resident + chunk.bytes <= self.budget)
                self.resident += chunk.bytes if stay[-1] else 0
        written = iter(self.write([c for c, stays in zip(chunks, stay, strict=True) if not stays]))
        return [chunk if stays else next(written) for chunk, stays in zip(chunks, stay, strict=True)]

    def write(self, chunks: list[Chunk]) -> list[SpilledChunk]:
        """Write chunks regardless of the budget, with as few system calls as possible."""
        if not chunks:
            return []
        self.spill.run.check()
        with self._lock:
            if self._file is None:
                self._file = self.spill.file()
        buffers: list[Any] = []
        layouts: list[tuple[int, list[list[tuple[int, int] | None]]]] = []
        for chunk in chunks:
            at = 0
            places: list[list[tuple[int, int] | None]] = []
            for array in chunk.arrays:
                of_array: list[tuple[int, int] | None] = []
                for buffer in _plain(array).buffers():
                    if buffer is None:
                        of_array.append(None)
                        continue
                    size = buffer.size
                    of_array.append((at, size))
                    if size:
                        buffers.append(memoryview(buffer))
                    if size % ALIGNMENT:
                        buffers.append(_PADDING[: -size % ALIGNMENT])
                    at += size + -size % ALIGNMENT
                places.append(of_array)
            layouts.append((at, places))
        start = self._file.write(buffers)
        spilled = []
        for chunk, (bytes, places) in zip(chunks, layouts, strict=True):
            spilled.append(SpilledChunk(chunk, self._file, start, bytes, places, self.spill.shared))
            start += bytes
        self.spill.count(self.name, sum(bytes for bytes, _ in layouts))
        return spilled


def _plain(array: pa.Array) -> pa.Array:
    """The array with buffers that hold only its own rows."""
    return array if array.offset == 0 else pa.concat_arrays([array, array.slice(0, 0)])


def bytes_of(chunks: list[AnyChunk]) -> int:
    return sum(c.bytes for c in chunks)


def in_memory(chunks: list[AnyChunk]) -> bool:
    return all(isinstance(c, Chunk) for c in chunks)
