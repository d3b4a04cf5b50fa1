"""Files that survive a crash: the rows of epochs that nobody sees yet, and small records that are replaced whole.

Used by the sinks that write files. `Staging` keeps one file for each epoch of a job. A file is prepared once it is
synced, and its name is the same before and after: an epoch up to that of a checkpoint was prepared, or there would be
no such checkpoint, and a later one is removed by `recover`. All calls that change files are in this module, so that the
tests can fail each of them."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from tsql.kernels.expr.errors import SourceError

BUFFER_BYTES = 1 << 20


@contextmanager
def writing(target: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of the system as errors of the target."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"cannot write {os.fspath(target)}: {error.strerror or error}") from error


def check_ahead(target: object, job: str, last: int, epoch: int) -> None:
    """Refuse to go on from a checkpoint that is older than the results: its rows would be seen twice."""
    if last > epoch:
        raise SourceError(
            f"{target} has the results of job {job} up to epoch {last}, and the checkpoint is at epoch {epoch}",
            hint="go on from the checkpoint that belongs to these results, or begin with another target",
        )


def rows_gone(target: object, epoch: int) -> SourceError:
    return SourceError(
        f"cannot go on with {target}: the rows of epoch {epoch} were written before the checkpoint, and are gone",
        hint="somebody removed the staged files of this job, or moved the target; begin with another checkpoint",
    )


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make a file that another library has written durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise
    sync_folder(folder.parent)


def rename(source: Path, target: Path) -> None:
    """Give a file its name, durably."""
    os.replace(source, target)
    sync_folder(target.parent)


def replace_json(path: Path, value: Any) -> None:
    """Write a small file: readers, and a process that starts after a crash, find the old text or the new one."""
    new = path.with_name(f".{path.name}.new")
    with SyncedFile(new) as file:
        file.write(json.dumps(value).encode())
        file.sync()
    rename(new, path)


def read_json(path: Path) -> dict[str, Any]:
    """What `replace_json` wrote; empty if there is no such file."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise SourceError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise SourceError(f"{path} is damaged: it is no object")
    return found


def common_bytes(path: Path, start: int, other: Path) -> int:
    """How many bytes of `other` the file has from `start` on."""
    common = 0
    with open(path, "rb") as file, open(other, "rb") as like:
        file.seek(start)
        while wanted := like.read(BUFFER_BYTES):
            found = file.read(len(wanted))
            if found == wanted:
                common += len(wanted)
                continue
            return common + len(os.path.commonprefix([found, wanted]))
    return common


def append(path: Path, size: int, source: Path, begin: int) -> None:
    """Cut a file to a size and append the bytes of `source` from `begin` on, durably."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size != size:
            os.ftruncate(descriptor, size)
        with open(source, "rb") as lines:
            lines.seek(begin)
            while block := lines.read(BUFFER_BYTES):
                rest = memoryview(block)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class SyncedFile(io.RawIOBase):
    """A new file to write. `sync` makes it durable; after `discard`, writing does nothing."""

    def __init__(self, path: Path):
        super().__init__()
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._is_discarded = False
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._is_discarded:
            return memoryview(data).nbytes
        size = os.write(self._descriptor, data)
        self.size += size
        return size

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def discard(self) -> None:
        self._is_discarded = True

    def close(self) -> None:
        super().close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Staging:
    """The files `<before><job>-<epoch><after>` in a folder, one for each epoch of a job."""

    def __init__(self, folder: Path, job: str, before: str, after: str):
        self.folder = folder
        self._before, self._after = f"{before}{job}-", after
        self._pattern = re.compile(re.escape(self._before) + r"(\d{12,})" + re.escape(after))
        self._raw: SyncedFile | None = None
        self._open: tuple[int, BinaryIO] | None = None

    def path(self, epoch: int) -> Path:
        return self.folder / f"{self._before}{epoch:012}{self._after}"

    def stream(self, epoch: int) -> BinaryIO:
        """The file of the open epoch; a new one on the first call."""
        if self._open is None:
            self._raw = SyncedFile(self.path(epoch))
            self._open = (epoch, io.BufferedWriter(self._raw, BUFFER_BYTES))
        return self._open[1]

    @property
    def has_rows(self) -> bool:
        """Whether the open epoch has a file."""
        return self._open is not None

    def seal(self) -> int:
        """Make the file of the open epoch durable. Returns its bytes."""
        assert self._open is not None and self._raw is not None, "no epoch is open"
        _, stream = self._open
        stream.flush()
        self._raw.sync()
        size = self._raw.size
        stream.close()
        self._open = self._raw = None
        sync_folder(self.folder)
        return size

    def discard(self) -> None:
        """What is written to the open epoch from here on goes nowhere."""
        if self._raw is not None:
            self._raw.discard()

    def drop(self) -> None:
        """Remove the file of the open epoch."""
        self.discard()
        if self._open is not None:
            epoch, stream = self._open
            self._open = self._raw = None
            stream.close()
            self.remove(epoch)

    def epochs(self) -> list[int]:
        """The epochs that have a file, in order."""
        found = (self._pattern.fullmatch(name) for name in os.listdir(self.folder))
        return sorted(int(match[1]) for match in found if match)

    def remove(self, epoch: int) -> None:
        """Remove the file of an epoch, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(self.path(epoch))

    def remove_after(self, epoch: int) -> None:
        """Remove the files of later epochs: they have no checkpoint."""
        for later in self.epochs():
            if later > epoch:
                self.remove(later)
