"""`DoneFiles`: the set of files that were read, small enough to be stored at each checkpoint. Used by `files`.

A file takes eight bytes: 48 bits of a hash of its path, 16 of one of its size and time. They are kept as text in blocks
of 1,024 files, so that one more file costs one block and not all of them: 100,000 files are 1.1 MB of JSON in 98 texts,
which the offsets share. A file that is not there any more is forgotten, so the set is never larger than the folder.

A high mark ("all files until this time") would be smaller and wrong: a file can be moved into the folder with the time
at which it was written. Two paths with the same hash would stop the job; among 100,000 files the chance of a pair is
one in 50,000."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

from tsql.kernels.expr.errors import SourceError

BLOCK_FILES = 1024
_BYTES = 8


def name_of(path: str) -> int:
    """The hash of a path."""
    return int.from_bytes(blake2b(path.encode("utf-8", "surrogateescape"), digest_size=6).digest(), "little")


def state_of(changed_ns: int, bytes: int) -> int:
    """The hash of a file's time and size."""
    return int.from_bytes(blake2b(f"{changed_ns} {bytes}".encode(), digest_size=2).digest(), "little")


class DoneFiles:
    """Hashes of paths, each with the hash of the state in which the file was read."""

    def __init__(self) -> None:
        self._states: dict[int, int] = {}
        self._blocks: list[str] = []
        self._open = bytearray()

    def __len__(self) -> int:
        return len(self._states)

    def add(self, path: str, state: int) -> None:
        name = name_of(path)
        self._states[name] = state
        self._open += (name << 16 | state).to_bytes(_BYTES, "little")
        if len(self._open) == BLOCK_FILES * _BYTES:
            self._blocks.append(_text(self._open))
            self._open = bytearray()

    def state(self, name: int) -> int | None:
        """The state in which the file with this hash was read; None if it was not read."""
        return self._states.get(name)

    def keep(self, names: Iterable[int]) -> None:
        """Forget all others."""
        names = set(names)
        if names.issuperset(self._states):
            return
        self._states = {name: state for name, state in self._states.items() if name in names}
        self._pack()

    def _pack(self) -> None:
        words = np.fromiter((name << 16 | state for name, state in self._states.items()), "<u8", len(self._states))
        whole = len(words) // BLOCK_FILES * BLOCK_FILES
        self._blocks = [_text(words[i : i + BLOCK_FILES].tobytes()) for i in range(0, whole, BLOCK_FILES)]
        self._open = bytearray(words[whole:].tobytes())

    def to_json(self) -> list[str]:
        return [*self._blocks, _text(self._open)] if self._open else list(self._blocks)

    @staticmethod
    def from_json(blocks: object) -> DoneFiles:
        """The set of a checkpoint; SourceError if it is none."""
        found = DoneFiles()
        try:
            if not isinstance(blocks, list):
                raise ValueError("not a list")
            stored = b"".join(base64.b64decode(block, validate=True) for block in blocks)
            words = np.frombuffer(stored, "<u8").tolist()
        except (ValueError, TypeError, binascii.Error) as error:
            raise SourceError(f"the offset of a folder in the checkpoint is damaged: {error}") from None
        found._states = {word >> 16: word & 0xFFFF for word in words}
        found._pack()
        return found


def _text(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode("ascii")
