"""Pipes as files: the bytes of a pipe are kept in an unnamed file, so that a query can read them any number of times.

A `Pipe` is filled only as far as it is read. `/dev/stdin` and `/dev/fd/N` are kept for the session, so every query that
names them sees the same rows. A FIFO has a new writer each time: it is read once per statement.

Waiting for a writer ends when the reading run is cancelled (`kernels/process/stopping.py`) or the session is closed
(`Pipes.close`). Both are checked ten times a second; Ctrl-C in the waiting thread is seen at once."""

from __future__ import annotations

import io
import os
import select
import stat
import threading
from contextlib import suppress
from typing import Any

from tsql.backends.io.descriptors import descriptor_of
from tsql.kernels.expr.errors import CancelledError
from tsql.kernels.process import forks, stopping
from tsql.kernels.process.stopping import Stoppable

PART_BYTES = 1 << 20
WAKE_MS = 100


def is_pipe(path: str) -> bool:
    """Whether the file at a path can be read only once."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


def is_fifo(path: str) -> bool:
    """Whether a path is a FIFO, which has a new writer each time."""
    return descriptor_of(path) is None and is_pipe(path)


class PipePath(str):
    """The path of a pipe, with its bytes."""

    pipe: Pipe


class Pipe:
    """The bytes that a pipe has delivered so far."""

    def __init__(self, path: str, closing: threading.Event):
        self.path, self._closing = path, closing
        self.bytes, self.ended = 0, False
        self._lock = forks.lock()
        import tempfile

        self._source = -1
        self._file = tempfile.TemporaryFile(prefix="tsql-", buffering=0)  # noqa: SIM115 it lives as long as the pipe
        number = descriptor_of(path)
        self._source = (
            os.dup(number) if number is not None else os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        )

    def read(self, at: int, size: int, run: Stoppable | None) -> bytes:
        """`size` bytes from an offset; fewer only at the end of the pipe."""
        while self.bytes < at + size and not self.ended:
            self._take(at + size, run)
        return os.pread(self._file.fileno(), max(0, min(size, self.bytes - at)), at)

    def stored_path(self) -> str:
        """A path under which all of its bytes are an ordinary file."""
        while not self.ended:
            self._take(self.bytes + 1, stopping.current())
        return f"/proc/self/fd/{self._file.fileno()}"

    def _take(self, wanted: int, run: Stoppable | None) -> None:
        """Wait for some bytes, or the end, unless another thread has read them by now."""
        while not self._lock.acquire(timeout=WAKE_MS / 1000):
            self._check(run)
        try:
            if self.bytes >= wanted or self.ended:
                return
            part = self._wait(run)
            if not part:
                self.ended = True
                self._let_go()
            while part:
                # Readers check the count without the lock, so it is updated after the bytes.
                written = os.pwrite(self._file.fileno(), part, self.bytes)
                self.bytes += written
                part = part[written:]
        finally:
            self._lock.release()

    def _wait(self, run: Stoppable | None) -> bytes:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        while True:
            self._check(run)
            # A FIFO without a writer yet is not at its end: nothing is ready then.
            if poll.poll(WAKE_MS):
                with suppress(BlockingIOError):
                    return os.read(self._source, PART_BYTES)

    def _check(self, run: Stoppable | None) -> None:
        if run is not None:
            run.check()
        if self._closing.is_set():
            raise CancelledError("the connection was closed while the query ran")

    def _let_go(self) -> None:
        if self._source >= 0:
            os.close(self._source)
            self._source = -1

    def __del__(self) -> None:
        self._let_go()


class PipeReader(io.RawIOBase):
    """One pass over a pipe, from its beginning."""

    def __init__(self, pipe: Pipe):
        super().__init__()
        self._pipe, self._at = pipe, 0
        # Looked up here, since pyarrow reads in its own threads.
        self._run = stopping.current()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(PART_BYTES), b""))
        part = self._pipe.read(self._at, size, self._run)
        self._at += len(part)
        return part

    def readinto(self, buffer: Any) -> int:
        part = self.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)


class Pipes:
    """The pipes of a session."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], Pipe] = {}
        self._lock = forks.lock()
        self._closing = threading.Event()

    def path(self, path: str, statement: dict[Any, Pipe] | None = None) -> str:
        """The path with its bytes if it is a pipe. `statement` has the FIFOs that this statement has opened."""
        if isinstance(path, PipePath) or not is_pipe(path):
            return path
        status = os.stat(path)
        opened = (statement if statement is not None else {}) if descriptor_of(path) is None else self._kept
        with self._lock:
            pipe = opened.get((status.st_dev, status.st_ino))
            if pipe is None:
                pipe = opened[status.st_dev, status.st_ino] = Pipe(path, self._closing)
        found = PipePath(path)
        found.pipe = pipe
        return found

    def close(self) -> None:
        """Release everyone who waits for a pipe."""
        self._closing.set()
        self._kept = {}
