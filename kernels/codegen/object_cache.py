"""Object code on disk, by key: what one process has compiled the next one loads.

An entry is a file with a digest and the code; a damaged one counts as missing and is written again. The folder is kept small:
one write in `TRIM_EVERY` looks at all entries, and the ones that were used longest ago go. Any number of processes may read,
write and trim at the same time. A disk that is full or read-only costs the next process a compilation and nothing else.

A query does not wait for the disk: `write_later` leaves an entry to a thread, which waits until nothing new has come for a moment. Until it is
written the entry is found all the same. What is left at the end of the process is written then.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

MOST_FILES = 20_000
MOST_BYTES = 512 << 20
TRIM_EVERY = 1000
PAUSE_SECONDS, MOST_PAUSES = 0.05, 20
"""Entries are written once no other has come for so long; where others never cease to come, after so many times that long."""
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
    waiting = _waiting.get((directory, key))
    if waiting is not None:
        return waiting()
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


def _write(directory: Path, key: str, code: bytes) -> None:
    """Make or replace an entry."""
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


_waiting: dict[tuple[Path, str], Callable[[], bytes | None]] = {}
"""Entries that are not written yet."""
_arrived = threading.Event()
_writing = threading.Lock()
_writer: threading.Thread | None = None


def write_later(key: str, make: Callable[[], bytes | None]) -> None:
    """Make or replace an entry once the process has a moment. `make` gives its content, in another thread perhaps, or None if there is to be
    no entry."""
    global _writer
    directory = cache_directory()
    if directory is None:
        return
    _waiting[directory, key] = make
    if _writer is None or not _writer.is_alive():
        writer = threading.Thread(target=_serve, name="tsql-cache", daemon=True)
        try:
            writer.start()
        except RuntimeError:
            return  # The system has no thread left: the entry is written at the end, if not before.
        _writer = writer
    _arrived.set()


def _serve() -> None:
    while True:
        _arrived.wait()
        pauses = 0
        while _arrived.is_set() and pauses < MOST_PAUSES:
            _arrived.clear()
            time.sleep(PAUSE_SECONDS)
            pauses += 1
        flush()


def flush() -> None:
    """Write what waits to be written."""
    with _writing:
        for (directory, key), make in list(_waiting.items()):
            content = make()
            if content is not None:
                _write(directory, key, content)
            if _waiting.get((directory, key)) is make:  # and not one that has come since
                del _waiting[directory, key]


atexit.register(flush)


def _after_fork() -> None:
    """The child of a fork has no writer, and what waits is its parent's to write."""
    global _writing, _writer, _arrived
    _writing, _writer, _arrived = threading.Lock(), None, threading.Event()
    _waiting.clear()


os.register_at_fork(after_in_child=_after_fork)


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
