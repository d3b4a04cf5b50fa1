"""A text file that grows → the rows of a stream, a row a line of NDJSON or CSV. Connector `tail`.

Only whole lines are taken: a last line without its line break is left until it has one. The offset of the one partition
is the file (device and inode), the bytes of it that were taken, and a checksum of the last of these.

A file may be rotated: renamed, and a new one begun under its name. The old file is then read to its end, and its last
line needs no line break. After a restart it is looked for among the files in its folder whose names begin with its old
name (`log.1`, `log-20260101`, not compressed); files that were rotated in between are read in the order of their times.
Files that were rotated before the reader first saw one under the name are not read.

A file that became shorter, or whose bytes before the offset are others, is an error: so is log rotation that copies and
truncates, for which no reader can know what it has missed."""

from __future__ import annotations

import os
import stat
import threading
import time
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from tsql.backends.live.formats.format import LineFormat, format_of
from tsql.backends.live.sources.columns import empty_batch
from tsql.backends.live.sources.line_buffer import LineBuffer
from tsql.backends.live.sources.notices import Notices
from tsql.backends.live.sources.reader import Arrival, Offset
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process import forks

PARTITION = "lines"
PART_BYTES = 1 << 20
MARK_BYTES = 64
"""So many bytes before the offset are checked to be what they were."""
KEPT_FILES = 16
COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
FileId = tuple[int, int]


class TailReader:
    """Reads lines as they are appended."""

    replays = True

    def __init__(self, options: Mapping[str, Any], schema: Schema, name: str) -> None:
        self.schema, self.name, self.notices = schema, name, Notices()
        self._path = os.path.abspath(options["path"])
        self._follow: bool = options["follow"]
        self._latest: bool = options["start"] == "latest"
        self._header: bool = options["header"]
        self._interval: float = options["poll_interval"]
        self._format: LineFormat = format_of(options, schema, self.notices)
        self._finished: deque[FileId] = deque(maxlen=KEPT_FILES)
        self._file: _TailedFile | None = None
        self._is_rotated = self._told = False
        self._behind = 0
        self._closing = threading.Event()
        self._busy = forks.lock()

    def open(self, offsets: Mapping[str, Offset]) -> None:
        offset = offsets.get(PARTITION)
        if offset is None:
            if self._begin() and self._latest and self._file is not None:
                self._file.go_to_end()
            return
        try:
            place = {name: int(offset[name]) for name in ("device", "inode", "at", "line", "mark")}
        except (KeyError, TypeError, ValueError):
            raise SourceError(f"the offset of {self.name} in the checkpoint is damaged") from None
        if not place["inode"]:
            return  # there was no file yet
        wanted = (place["device"], place["inode"])
        while self._file is None:
            found = next((path for path, status in self._candidates() if _id(status) == wanted), None)
            if found is None:
                raise SourceError(
                    f"{self._path}: the file that was read up to byte {place['at']} is not there any more",
                    hint="keep rotated files, uncompressed, until they are in a checkpoint",
                )
            self._file = _opened(found, wanted)
        self._file.go_to(place["at"], place["line"], place["mark"])

    def poll(self, rows: int, seconds: float) -> Sequence[Arrival] | None:
        deadline = time.monotonic() + seconds
        with self._busy:
            while not self._closing.is_set():
                if not self._told:
                    self._told = True
                    return [Arrival(PARTITION, empty_batch(self.schema), self._offset())]
                file = self._file
                if file is None:
                    if not self._begin():
                        if not self._follow:
                            raise SourceError(f"{self._path}: no such file")
                        if not self._wait(deadline):
                            return []
                    continue
                if file.lines.has_lines:
                    return [self._arrival(file, rows)]
                if file.read():
                    continue
                # At the end of the file, as it is now.
                if not self._follow and self._next(file) is None:
                    if not file.finish():
                        return None
                elif self._next(file) is None:
                    self._is_rotated = False
                    if not self._wait(deadline):
                        return []
                elif not self._is_rotated:
                    self._is_rotated = True  # lines may have come before it was renamed: look once more
                elif not file.finish():
                    self._turn(file)
        return []

    def behind(self) -> int | None:
        """Bytes of the file behind the lines that were taken."""
        return self._behind

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        """Lines stay where they are: nothing to do."""

    def close(self) -> None:
        self._closing.set()
        with self._busy:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _wait(self, deadline: float) -> bool:
        """Wait for the next look; False if the time is over."""
        left = deadline - time.monotonic()
        if left > 0:
            self._closing.wait(min(left, self._interval))
        return left > 0

    def _arrival(self, file: _TailedFile, rows: int) -> Arrival:
        block, first = file.take(rows)
        if first == 1:
            block = block.removeprefix(b"\xef\xbb\xbf")
            if self._header:
                block = block[block.find(b"\n") + 1 :]
        shift = first + (first == 1 and self._header)
        batch = self._format.decode_lines(block, lambda i: f"{file.path}: line {shift + i}")
        self._behind = file.behind()
        return Arrival(PARTITION, batch, self._offset())

    def _offset(self) -> Offset:
        file = self._file
        if file is None:
            return {"device": 0, "inode": 0, "at": 0, "line": 1, "mark": 0}
        return {
            "device": file.id[0],
            "inode": file.id[1],
            "at": file.at,
            "line": file.lines.line,
            "mark": zlib.crc32(file.mark),
        }

    def _begin(self) -> bool:
        """Open the file under the name, if there is one."""
        try:
            self._file = _TailedFile(self._path)
        except FileNotFoundError:
            return False
        return True

    def _turn(self, file: _TailedFile) -> None:
        """Go from a file that is finished to the next one."""
        found = self._next(file)
        following = None if found is None else _opened(*found)
        if following is not None:
            self._finished.append(file.id)
            self._is_rotated = False
            file.close()
            self._file = following

    def _next(self, file: _TailedFile) -> tuple[str, FileId] | None:
        """The file that was begun after this one; None if this one still has the name, or nothing has it yet."""
        candidates = [(path, status) for path, status in self._candidates() if _id(status) != file.id]
        named = next(((path, _id(status)) for path, status in candidates if path == self._path), None)
        if named is None:
            return None
        changed = file.status().st_mtime_ns
        between = [
            (status.st_mtime_ns, path, _id(status))
            for path, status in candidates
            if path != self._path and status.st_mtime_ns >= changed and _id(status) not in self._finished
        ]
        return min(between)[1:] if between else named

    def _candidates(self) -> list[tuple[str, os.stat_result]]:
        """The file under the name, and those with names that begin with it. A listing may lack a file that is being
        renamed: two in a row must be equal."""
        found, again = None, self._listed()
        while found is None or [(path, _id(status)) for path, status in found] != [
            (path, _id(status)) for path, status in again
        ]:
            found, again = again, self._listed()
        return again

    def _listed(self) -> list[tuple[str, os.stat_result]]:
        folder, name = os.path.split(self._path)
        found = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(name) and not entry.name.endswith(COMPRESSED):
                        status = _status(entry.path)
                        if status is not None and stat.S_ISREG(status.st_mode):
                            found.append((entry.path, status))
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda one: one[0])


class _TailedFile:
    """An open file, of which `at` bytes were taken as lines."""

    def __init__(self, path: str) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            raise SourceError(f"{path}: permission denied") from None
        self.path = path
        self.id = _id(self.status())
        self.at = 0
        self.lines = LineBuffer(path)
        self.mark = b""
        """The last bytes that were taken."""

    def go_to(self, at: int, line: int, mark: int) -> None:
        """Begin at a byte, before which are bytes with this checksum."""
        self.at, self.lines = at, LineBuffer(self.path, line)
        self.mark = os.pread(self._descriptor, min(at, MARK_BYTES), max(0, at - MARK_BYTES))
        if self.status().st_size < at or zlib.crc32(self.mark) != mark:
            raise self._replaced()

    def go_to_end(self) -> None:
        """Begin behind the last whole line."""
        while self.read():
            while self.lines.has_lines:
                self.take(1 << 30)

    def status(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def behind(self) -> int:
        return max(0, self.status().st_size - self.at)

    def read(self) -> bool:
        """Read on; False at the end."""
        start = self.at + self.lines.size
        if self.status().st_size < start:
            raise self._replaced()
        data = os.pread(self._descriptor, PART_BYTES, start)
        if not data:
            return False
        if os.pread(self._descriptor, len(self.mark), self.at - len(self.mark)) != self.mark:
            raise self._replaced()
        self.lines.feed(data)
        return True

    def finish(self) -> bool:
        """Make a line of what has no line break; whether there is one."""
        self._is_finished = True
        self.lines.finish()
        return self.lines.has_lines

    _is_finished = False

    def take(self, rows: int) -> tuple[bytes, int]:
        block, first = self.lines.take(rows)
        self.at += len(block)
        if self._is_finished:
            self.at = min(self.at, self.status().st_size)
        self.mark = os.pread(self._descriptor, min(self.at, MARK_BYTES), max(0, self.at - MARK_BYTES))
        return block, first

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _replaced(self) -> SourceError:
        return SourceError(
            f"{self.path}: the file was truncated or written anew after {self.at} bytes of it were read",
            hint="rotate it by renaming it (logrotate without copytruncate)",
        )


def _opened(path: str, id: FileId) -> _TailedFile | None:
    """A file that was found under a path; None if it was renamed in the meantime."""
    try:
        file = _TailedFile(path)
    except FileNotFoundError:
        return None
    if file.id == id:
        return file
    file.close()
    return None


def _id(status: os.stat_result) -> FileId:
    return status.st_dev, status.st_ino


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
