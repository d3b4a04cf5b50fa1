"""The journal: commits one after the other in a file that only grows; a commit is there once its record is whole.

A record is its length, its checksum, and the payload: a JSON text followed by blobs that it refers to by number. A process
that dies while it writes leaves a record that is cut short, which is not a commit and is cut off when the journal is next
opened for writing. Anything else that does not read as a record is damage, and an error.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tsql.kernels.errors import StorageError

MAGIC = b"TSQLJRN1"
VERSION = 1
_HEADER = struct.Struct("<8sI")
_RECORD = struct.Struct("<QI")
_COUNT = struct.Struct("<I")

_END = b"done"
"""The last bytes of a record: not zero, so that a part of a file that was never written is told from damage."""

Record = tuple[dict[str, Any], list[bytes]]


def encode_record(data: dict[str, Any], blobs: list[bytes]) -> bytes:
    """A record as bytes."""
    text = json.dumps(data).encode()
    parts = [_COUNT.pack(1 + len(blobs)), *(struct.pack("<Q", len(part)) for part in (text, *blobs)), text, *blobs, _END]
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
        raise StorageError(f"cannot read {path.name}: {error.strerror or error}", hint="the database is damaged: its journal is missing") from error
    if len(content) < _HEADER.size:
        raise StorageError(f"{path.name} is damaged: its header is missing")
    magic, version = _HEADER.unpack_from(content)
    if magic != MAGIC:
        raise StorageError(f"{path.name} is no journal of a tsql database")
    if version > VERSION:
        raise StorageError(f"the database was written by a newer version of tsql (format {version}; this one reads up to {VERSION})")
    records = list(_records(memoryview(content), path.name))
    return [record for record, _ in records], records[-1][1] if records else _HEADER.size


def _records(content: memoryview, name: str) -> Iterator[tuple[Record, int]]:
    at = _HEADER.size
    while len(content) - at >= _RECORD.size:
        length, checksum = _RECORD.unpack_from(content, at)
        end = at + _RECORD.size + length
        if end > len(content):
            return
        payload = content[at + _RECORD.size : end]
        if not length or zlib.crc32(payload) != checksum:
            if end == len(content) and payload[-1:] in (b"", b"\0"):
                return  # a file that was made longer, but not written, when the machine stopped
            raise StorageError(f"{name} is damaged: the checksum of a commit differs (at byte {at})", hint="restore the database from a copy")
        yield _decode(payload), end
        at = end


class JournalWriter:
    """Appends commits; each is on disk when `append` returns."""

    def __init__(self, path: Path, bytes: int | None = None):
        """Open a journal behind its last commit, or make a new one."""
        self.path = path
        if bytes is None:
            self._stream = open(path, "wb", buffering=0)
            self._stream.write(_HEADER.pack(MAGIC, VERSION))
            self.bytes = _HEADER.size
            os.fsync(self._stream.fileno())
        else:
            self._stream = open(path, "r+b", buffering=0)
            self._stream.truncate(bytes)
            self._stream.seek(bytes)
            self.bytes = bytes

    def append(self, record: bytes) -> None:
        try:
            view = memoryview(record)
            while view:
                view = view[self._stream.write(view) :]
            os.fsync(self._stream.fileno())
        except OSError as error:
            self._stream.truncate(self.bytes)
            self._stream.seek(self.bytes)
            raise StorageError(f"cannot write {self.path.name}: {error.strerror or error}", hint="the statement was undone") from error
        self.bytes += len(record)

    def close(self) -> None:
        self._stream.close()


def sync_folder(folder: Path) -> None:
    """Let the names in a folder be on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
