"""Object code on disk, by key: what one process has compiled the next one loads.

An entry is a file with a digest and the code; a damaged one counts as missing and is written again. The folder is kept small:
one write in `TRIM_EVERY` looks at all entries, and the ones that were used longest ago go. Any number of processes may read,
write and trim at the same time. A disk that is full or read-only costs the next process a compilation and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

MOST_FILES = 20_000
MOST_BYTES = 512 << 20
TRIM_EVERY = 200
KEPT = 0.75
"""The part of the most files and bytes that trimming leaves."""


def cache_directory() -> Path | None:
    """Where object code is kept: TSQL_CACHE, else the user's cache directory; None if TSQL_CACHE is empty."""
    given = os.environ.get("TSQL_CACHE")
    if given is not None:
        return Path(given) if given else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tsql" / "kernels"


def read_code(key: str) -> bytes | None:
    """The code of an entry; the entry counts as used now."""
    directory = cache_directory()
    if directory is None:
        return None
    path = directory / key
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, code = data[:32], data[32:]
    if hashlib.sha256(code).digest() != digest:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return code


def write_code(key: str, code: bytes) -> None:
    """Make or replace an entry."""
    directory = cache_directory()
    if directory is None:
        return
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, path = tempfile.mkstemp(dir=directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(path, directory / key)
        except OSError:
            os.unlink(path)
        if int(key[:8], 16) % TRIM_EVERY == 0:
            trim(directory)


def trim(directory: Path) -> None:
    """Remove the entries that were used longest ago, until there are not too many."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    known = entry.stat(follow_symlinks=False)
                    found.append((known.st_mtime, known.st_size, entry.path))
    size = sum(bytes for _, bytes, _ in found)
    if len(found) <= MOST_FILES and size <= MOST_BYTES:
        return
    left = len(found)
    for _, bytes, path in sorted(found):
        if left <= MOST_FILES * KEPT and size <= MOST_BYTES * KEPT:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        left, size = left - 1, size - bytes
