"""The journal: a file that only grows, with one record per commit. A commit exists once its record is complete.

A record is its length, its checksum, and the payload: a JSON text followed by blobs that it refers to by number. A
process that dies while writing leaves a truncated record. That is not a commit, and it is cut off when the journal is
next opened for writing. Anything else that is not a valid record is damage, and an error. A record that is cut off is
lost for good, together with the files that only it refers to, so it is given up only if it provably was never
complete."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tsql.kernels.expr.errors import StorageError
from tsql.storage.disk import DISK, Disk
from tsql.storage.owner import unlock

MAGIC = b"TSQLJRN1"
VERSION = 1
_HEADER = struct.Struct("<8sI")
_RECORD = struct.Struct("<QI")
_COUNT = struct.Struct("<I")
_SECTOR_BYTES = 512
"""Disks write this many bytes, or a multiple, at once: after an interrupted write, zeros begin at such a boundary."""

_END = b"done"
"""The last bytes of a record. They are not zero, so that an unwritten part of a file can be distinguished from
damage."""

Record = tuple[dict[str, Any], list[bytes]]


def encode_record(data: dict[str, Any], blobs: list[bytes]) -> bytes:
    """A record as bytes."""
    text = json.dumps(data).encode()
    parts = [
        _COUNT.pack(1 + len(blobs)),
        *(struct.pack("<Q", len(part)) for part in (text, *blobs)),
        text,
        *blobs,
        _END,
    ]
    payload = b"".join(parts)
    return _RECORD.pack(len(payload), zlib.crc32(payload)) + payload


def _decode(payload: memoryview) -> Record:
    (count,) = _COUNT.unpack_from(payload)
    lengths = struct.unpack_from(f"<{count}Q", payload, _COUNT.size)
    at = _COUNT.size + 8 * count
    parts = []
    for length in lengths:
        parts.append(bytes(payload[at : at + length]))
        at += length
    return json.loads(parts[0]), parts[1:]


def read_journal(path: Path) -> tuple[list[Record], int]:
    """The commits of a journal, and the number of bytes that hold them."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(
            f"cannot read {path.name}: {error.strerror or error}",
            hint="the database is damaged: its journal is missing",
        ) from error
    if len(content) < _HEADER.size:
        raise StorageError(f"{path.name} is damaged: its header is missing")
    magic, version = _HEADER.unpack_from(content)
    if magic != MAGIC:
        raise StorageError(f"{path.name} is no journal of a tsql database")
    if version < 1:
        raise StorageError(
            f"{path.name} is damaged: there is no format {version}", hint="restore the database from a copy"
        )
    if version > VERSION:
        raise StorageError(
            f"the database was written by a newer version of tsql (format {version}; this one reads up to {VERSION})"
        )
    records = list(_records(memoryview(content), path.name))
    return [record for record, _ in records], records[-1][1] if records else _HEADER.size


def _records(content: memoryview, name: str) -> Iterator[tuple[Record, int]]:
    at = _HEADER.size
    while len(content) - at >= _RECORD.size:
        length, checksum = _RECORD.unpack_from(content, at)
        end = at + _RECORD.size + length
        payload = content[at + _RECORD.size : end]
        if not length or end > len(content) or zlib.crc32(payload) != checksum:
            if _is_torn(bytes(content[at + _RECORD.size :]), length, at + _RECORD.size):
                return
            differs = "length" if end > len(content) else "checksum"
            raise StorageError(
                f"{name} is damaged: the {differs} of a commit differs (at byte {at})",
                hint="restore the database from a copy",
            )
        yield _decode(payload), end
        at = end


def _is_torn(payload: bytes, length: int, start: int) -> bool:
    """Whether a record is the last one and was never written completely. `payload` is all of the journal after the
    record's length and checksum, from byte `start` of the file on; `length` is the expected length of the payload.

    An interrupted write leaves the beginning of a record, up to the end of the file or up to zeros (if the file was
    extended but not written when the machine stopped). A length that is too large because of damage looks the same at
    first, and cutting it off would lose this commit and all after it. The lengths of the parts decide: they must add up
    to the length of the record."""
    written = payload.rstrip(b"\0")
    if not written:
        return True
    if len(payload) >= length and not _ends_unwritten(start + len(written), start + length):
        return False
    stated = _stated_length(written)
    if stated is None:
        # A write interrupted among the lengths has no text yet; the end of a commit after them shows that they are
        # damaged.
        return _END not in written
    return stated == length


def _ends_unwritten(written_end: int, end: int) -> bool:
    """Whether the zeros between two offsets, the second being a record's end, were never written: they cover all of the
    record's last four bytes, or a sector begins among them. Otherwise one of the last bytes is damaged."""
    zeros = end - written_end
    return zeros >= len(_END) or -written_end % _SECTOR_BYTES < zeros


def _stated_length(written: bytes) -> int | None:
    """The length of a payload, computed from the lengths of its parts; None unless all of them are there, and something
    after them."""
    if len(written) < _COUNT.size:
        return None
    (count,) = _COUNT.unpack_from(written)
    head = _COUNT.size + 8 * count
    if len(written) <= head:
        return None
    return head + sum(struct.unpack_from(f"<{count}Q", written, _COUNT.size)) + len(_END)


class JournalWriter:
    """Appends commits; when `append` returns, the commit is on disk.

    A record that could not be written is cut off again. If that fails too, the rest is not a commit unless all of it is
    there: then `doubtful` is True, because nobody knows which state a later process will find. The journal cannot be
    used any more."""

    def __init__(self, path: Path, bytes: int | None = None, disk: Disk = DISK):
        """Open a journal behind its last commit, or make a new one."""
        self.path, self._disk = path, disk
        self.doubtful = False
        self._handle = disk.create(path) if bytes is None else disk.open(path)
        try:
            self._lock()
            self.bytes = 0 if bytes is None else bytes
            self._has_rest = os.fstat(self._handle).st_size > self.bytes
            if bytes is None:
                self._write(_HEADER.pack(MAGIC, VERSION))
                disk.sync(self._handle)
            else:
                self._cut_rest()
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        """Ensures that two writers never share a journal, even if somebody has removed the lock file of the
        database."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StorageError(
                f"{self.path.name} is being written by another process", hint="close the database there"
            ) from error

    def _write(self, record: bytes) -> None:
        """Write behind the last commit, without counting it as one yet."""
        view = memoryview(record)
        at = self.bytes
        self._has_rest = True  # a write that fails may have written all the same
        while view:
            written = self._disk.write(self._handle, view, at)
            at, view = at + written, view[written:]
        self.bytes = at
        self._has_rest = False

    def _cut_rest(self) -> None:
        if self._has_rest:
            self._disk.truncate(self._handle, self.bytes)
            self._has_rest = False

    def append(self, record: bytes) -> None:
        """Commit a record. If this raises, it is not committed, unless the journal is `doubtful`."""
        before = self.bytes
        try:
            self._cut_rest()
            self._write(record)
            self._disk.sync(self._handle)
        except BaseException as error:
            hint = self._undo(before, before + len(record))
            if isinstance(error, OSError):
                raise StorageError(f"cannot write {self.path.name}: {error.strerror or error}", hint=hint) from error
            raise

    def _undo(self, before: int, end: int) -> str:
        """Cut off what was written of a record, and say what is known of it then."""
        self.bytes = before
        try:
            self._has_rest = self._has_rest or os.fstat(self._handle).st_size > before
            self._cut_rest()
        except OSError:
            self.doubtful = self._may_hold(end)
            return "the statement was undone"
        try:
            self._disk.sync(self._handle)
        except OSError:
            return "the statement was undone; it may come back if the machine stops before the next commit"
        return "the statement was undone"

    def _may_hold(self, end: int) -> bool:
        """Whether the file may contain all bytes up to an offset. Readers do not count a record that is shorter than it
        says as a commit."""
        try:
            return os.fstat(self._handle).st_size >= end
        except OSError:
            return True

    def is_untouched(self) -> bool:
        """Whether the file is the one that was opened, and as long as this writer has made it."""
        found = os.fstat(self._handle)
        return found.st_nlink > 0 and (found.st_size == self.bytes or self._has_rest and found.st_size > self.bytes)

    def close(self, *, is_forked: bool = False) -> None:
        """Close the file; more than once is fine. A forked child closes its copy and leaves the lock to its parent."""
        if self._handle >= 0:
            if not is_forked:
                unlock(self._handle)
            os.close(self._handle)
            self._handle = -1
