"""`Disk`: all file system calls by which a database changes its folder. They are in one place so that a test can make
any of them fail."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path


class Disk:
    """The file system. Every method raises OSError if it fails; files are handles of the operating system."""

    def make_folder(self, path: Path) -> None:
        os.mkdir(path)

    def create(self, path: Path) -> int:
        """A new, empty file, open for writing; one of that name is emptied."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def open(self, path: Path) -> int:
        """A file that is there, open for writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, handle: int, data: memoryview, offset: int) -> int:
        """Write at a place; as `os.pwrite`, it may write less than there is and returns how much."""
        return os.pwrite(handle, data, offset)

    def sync(self, handle: int) -> None:
        """Let what was written to a file be on the disk."""
        os.fsync(handle)

    def truncate(self, handle: int, bytes: int) -> None:
        os.ftruncate(handle, bytes)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name; one of that name is replaced."""
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        """Let the names in a folder be on the disk."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def new_file(self, path: Path) -> Iterator[io.BufferedWriter]:
        """A stream into a new file, which is on the disk when the block ends."""
        handle = self.create(path)
        raw = _Raw(self, handle)
        try:
            stream = io.BufferedWriter(raw, 1 << 20)
            yield stream
            stream.flush()
            self.sync(handle)
        finally:
            # A stream with bytes in its buffer writes them when it is freed; by then the handle may belong to another
            # file.
            raw.close()
            os.close(handle)


class _Raw(io.RawIOBase):
    """The bytes of a file as Python's buffered streams write them."""

    def __init__(self, disk: Disk, handle: int):
        self._disk, self._handle, self._at = disk, handle, 0

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._at

    def write(self, data: object) -> int:
        if self.closed:
            raise ValueError("write to a closed file")
        written = self._disk.write(self._handle, memoryview(data).cast("B"), self._at)  # type: ignore[arg-type]
        self._at += written
        return written


DISK = Disk()
