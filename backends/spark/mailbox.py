"""`Mailbox`: the blobs that a task receives, by shard and entry. What exceeds its share of memory waits in a file.

Blobs in the file are mapped, so their columns are read from the page cache, which the system can take back. The file
has no name: it is gone when its last column is."""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tsql.backends.local.run.spill import SpillFile

Letter = tuple[int, Any]
"""(place, blob)"""


class Mailbox:
    """Blobs by (shard, name of the entry). `most_bytes` of them stay in memory."""

    def __init__(self, most_bytes: int, folder: str):
        self.most_bytes, self.folder = most_bytes, folder
        self.bytes = 0
        self.bytes_of: Counter[int] = Counter()
        """The bytes of each shard, in memory and in the file."""
        self._letters: dict[tuple[int, str], list[Letter]] = {}
        self._waiting: list[tuple[tuple[int, str], int, int, int]] = []
        self._file: SpillFile | None = None

    def put(self, shard: int, name: str, place: int, blob: Any) -> None:
        self.bytes += len(blob)
        self.bytes_of[shard] += len(blob)
        if self.bytes <= self.most_bytes or len(blob) == 0:
            self._letters.setdefault((shard, name), []).append((place, blob))
            return
        if self._file is None:
            self._file = SpillFile(self.folder)
        # A blob must start where Arrow expects its buffers.
        padding = bytes(-len(blob) % 64)
        start = self._file.write([blob, padding])
        self._waiting.append(((shard, name), place, start, len(blob)))

    @property
    def spilled_bytes(self) -> int:
        return sum(size for _, _, _, size in self._waiting)

    def close(self) -> None:
        """All blobs are here."""
        if self._file is None:
            return
        mapped = mmap.mmap(self._file.descriptor, self._file.end, prot=mmap.PROT_READ)
        whole = pa.py_buffer(mapped)
        if hasattr(os, "posix_fadvise"):  # macOS has none
            os.posix_fadvise(self._file.descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        self._file.close()
        for key, place, start, size in self._waiting:
            self._letters.setdefault(key, []).append((place, whole.slice(start, size)))

    def of(self, shard: int, name: str) -> list[Letter]:
        """The blobs of an entry in the order of their places."""
        return sorted(self._letters.get((shard, name), ()), key=lambda letter: letter[0])

    def shards(self) -> Iterator[int]:
        """The shards that have blobs."""
        yield from sorted({shard for shard, _ in self._letters})
