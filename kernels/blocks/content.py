"""The bytes of a column file: read into memory, so that nobody can change them, or mapped if there are too many.

If another process truncates a mapped file, this one ends with SIGBUS; if it overwrites the file, the values no longer
match the checksum. So files are read, up to `HELD` bytes in the whole process. Above that limit they are mapped, and
each query first checks whether a file of its tables has changed (`check`)."""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path

import pyarrow as pa

from tsql.kernels.expr.errors import StorageError
from tsql.kernels.process import forks


class Held:
    """Counts the bytes that were read from files and are still in memory. `most` is a quarter of the machine's
    memory."""

    def __init__(self, most: int):
        self.most, self.bytes = most, 0
        self._lock = forks.rlock()

    def take(self, bytes: int) -> bool:
        """Count this many more bytes, unless that exceeds the limit."""
        with self._lock:
            fits = self.bytes + bytes <= self.most
            self.bytes += bytes if fits else 0
            return fits

    def release(self, bytes: int) -> None:
        with self._lock:
            self.bytes -= bytes


HELD = Held(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)


class Content:
    """An open file. Its content stays readable after the file is removed."""

    def __init__(self, path: Path):
        self.name = path.name
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._handle)
        self._print = self._look()
        self._memory: pa.Buffer | None = None

    def _look(self) -> tuple[int, int]:
        found = os.fstat(self._handle)
        return found.st_size, found.st_mtime_ns

    @property
    def is_mapped(self) -> bool:
        return self._memory is not None

    def read(self, offset: int, length: int) -> pa.Buffer:
        """Some bytes; a negative offset counts from the end. EOFError if they are not all there."""
        size = self._print[0]
        start = size + offset if offset < 0 else offset
        if start < 0 or start + length > size:
            raise EOFError
        if self._memory is None and HELD.take(length):
            return self._copy(start, length)
        return self._map().slice(start, length)

    def _copy(self, start: int, length: int) -> pa.Buffer:
        try:
            found = pa.allocate_buffer(length)
        except BaseException:
            HELD.release(length)
            raise
        weakref.finalize(found, HELD.release, length)
        view = memoryview(found).cast("B")
        at = 0
        while at < length:
            read = os.preadv(self._handle, [view[at:]], start + at)
            if not read:
                raise EOFError
            at += read
        return found

    def _map(self) -> pa.Buffer:
        if self._memory is None:
            self._memory = pa.py_buffer(mmap.mmap(self._handle, self._print[0], access=mmap.ACCESS_READ))
            _mapped.add(self)
        return self._memory

    def check(self) -> None:
        """Raise if the file has changed since it was opened."""
        if self._look() != self._print:
            raise StorageError(
                f"{self.name} was changed while the database was open", hint="restore the database from a copy"
            )


_mapped: weakref.WeakSet[Content] = weakref.WeakSet()


def any_is_mapped() -> bool:
    """Whether the read limit was ever reached, so that `check` has files to check."""
    return bool(_mapped)
