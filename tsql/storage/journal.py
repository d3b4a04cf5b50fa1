"""The journal: commits one after the other in a file that only grows; a commit is there once its record is whole.

A record is its length, its checksum, and the payload: a JSON text followed by blobs that it refers to by number. A process
that dies while it writes leaves a record that is cut short, which is not a commit and is cut off when the journal is next
opened for writing. Anything else that does not read as a record is damage, and an error: what is cut off is lost for good,
together with the files that only it refers to, so a record is given up only if it can be shown never to have been whole.
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
_SECTOR_BYTES = 512
"""Disks write this many bytes, or a multiple, at once: where a write stopped, the zeros begin at such a place."""

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
    if version < 1:
        raise StorageError(f"{path.name} is damaged: there is no format {version}", hint="restore the database from a copy")
    if version > VERSION:
        raise StorageError(f"the database was written by a newer version of tsql (format {version}; this one reads up to {VERSION})")
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
            raise StorageError(f"{name} is damaged: the {differs} of a commit differs (at byte {at})", hint="restore the database from a copy")
        yield _decode(payload), end
        at = end


def _is_torn(payload: bytes, length: int, start: int) -> bool:
    """Whether a record is the last one and was never written to its end. `payload` is all of the journal behind the record's
    length and checksum, from the byte `start` of the file on; `length` is what the payload should have.

    A write that stopped leaves the beginning of a record, up to the end of the file or up to zeros (a file that was made longer,
    but not written, when the machine stopped). A length that is too large by damage looks the same at first, and would cost this
    commit and all behind it. The lengths of the parts tell them apart: they must add up to the length of the record.
    """
    written = payload.rstrip(b"\0")
    if not written:
        return True
    if len(payload) >= length and not _ends_unwritten(start + len(written), start + length):
        return False
    stated = _stated_length(written)
    if stated is None:
        # A write that stopped among the lengths has no text yet; the end of a commit is a sign that they are damaged.
        return _END not in written
    return stated == length


def _ends_unwritten(written_end: int, end: int) -> bool:
    """Whether the zeros between two places, the second being a record's end, were never written: they are no byte of the record's
    last four that was damaged, but all of these, or a sector on."""
    zeros = end - written_end
    return zeros >= len(_END) or -written_end % _SECTOR_BYTES < zeros


def _stated_length(written: bytes) -> int | None:
    """The length of a payload by the lengths of its parts; None unless all of these are there, and something behind them."""
    if len(written) < _COUNT.size:
        return None
    (count,) = _COUNT.unpack_from(written)
    head = _COUNT.size + 8 * count
    if len(written) <= head:
        return None
    return head + sum(struct.unpack_from(f"<{count}Q", written, _COUNT.size)) + len(_END)


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
