"""Object code, programs and plans on disk, by key: one process makes them, the next loads them.

Entries are executed, so the folder must be the user's own (`kernels/process/private_folder.py`), and each entry has a
tag that only this user's key can make (`sealed.py`). If others could write to the folder, a temporary one replaces it,
and a note says so once. An entry that is damaged, or was made for another name, counts as missing and is rewritten. A
full or read-only disk only costs the next process a compilation. Any number of processes may read, write and trim at
the same time.

The folder is kept small: one write in `TRIM_EVERY` checks all entries and removes the least recently used.

A query does not wait for the disk: `write_later` hands an entry to a thread, which writes once no new entry has come
for a moment. An entry is found even before it is written. The rest is written at the end of the process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tsql.kernels.codegen.sealed import key_of, seal, unseal
from tsql.kernels.process import forks
from tsql.kernels.process.private_folder import NotPrivate, open_private

FORMAT = "1"
"""Part of what the tags cover: raise it when entries are written differently."""
MOST_FILES = 20_000
MOST_BYTES = 512 << 20
LARGEST_BYTES = 64 << 20
"""Larger entries are not ours."""
TRIM_EVERY = 1000
PAUSE_SECONDS, MOST_PAUSES = 0.05, 20
"""Entries are written once none has come for this long; if they keep coming, after this many pauses."""
KEPT = 0.75
"""The share of the maximum files and bytes that trimming leaves."""

UNUSABLE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ImportError,
    ArithmeticError,
    RuntimeError,
    AssertionError,
)
"""Exceptions that decoding the content of an entry may raise (RecursionError and linker errors are RuntimeErrors).
Readers catch these and treat the entry as missing."""


def cache_directory() -> Path | None:
    """Where entries are kept: TSQL_CACHE, else the user's cache directory; None if TSQL_CACHE is empty."""
    given = os.environ.get("TSQL_CACHE")
    if given is not None:
        return Path(given) if given else None
    home = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "tsql" / "kernels"
    except RuntimeError:  # a user without a home
        return None


class Folder:
    """An open cache folder: its descriptor, and the key of its entries."""

    def __init__(self, path: Path, descriptor: int):
        self.path, self.descriptor = path, descriptor
        self.key = key_of(descriptor)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # modules may be gone when this is called
        close(self.descriptor)

    @property
    def is_gone(self) -> bool:
        """Whether the folder was removed since it was opened."""
        return os.fstat(self.descriptor).st_nlink == 0

    def read(self, kind: str, key: str, made_by: str) -> bytes | None:
        """The content of an entry. Marks it as just used."""
        try:
            descriptor = os.open(
                key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.descriptor
            )
        except OSError:
            return None
        try:
            known = os.fstat(descriptor)
            if not stat.S_ISREG(known.st_mode) or known.st_size > LARGEST_BYTES:
                return None
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                content = unseal(self.key, (FORMAT, kind, key, made_by), file.read())
            if content is not None:
                with contextlib.suppress(OSError):
                    os.utime(descriptor)
            return content
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def write(self, kind: str, key: str, made_by: str, content: bytes) -> None:
        """Make or replace an entry atomically: a reader finds the whole old or the whole new one. Raises OSError."""
        partial = f".{key[:16]}.{os.urandom(8).hex()}"
        descriptor = os.open(
            partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.descriptor
        )
        try:
            with open(descriptor, "wb") as file:
                file.write(seal(self.key, (FORMAT, kind, key, made_by), content))
            os.replace(partial, key, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except OSError:
            os.unlink(partial, dir_fd=self.descriptor)
            raise
        if int(key[:8], 16) % TRIM_EVERY == 0:
            trim(self.descriptor)


_opening = forks.lock()
_opened: tuple[tuple[Path, int], Folder | None] | None = None
"""The last folder that was opened, by its path and user."""
_temporary: tuple[int, Path] | None = None
"""The folder that replaces one that is not private, and the process that removes it."""
_notes: list[str] = []


def take_notes() -> list[str]:
    """Messages about the cache for the user; each is given once."""
    if not _notes:
        return []
    taken, _notes[:] = _notes[:], []
    return taken


def _folder(again: bool = False) -> Folder | None:
    """The current folder; None if there is none. `again`: open it again, since it was removed."""
    global _opened
    path = cache_directory()
    if path is None:
        return None
    asked = (path, os.geteuid())
    known = _opened
    if known is not None and known[0] == asked and not again:
        return known[1]
    with _opening:
        if again or _opened is None or _opened[0] != asked:
            _opened = (asked, _open(path))
        return _opened[1]


def _open(path: Path) -> Folder | None:
    try:
        return Folder(path, open_private(os.fspath(path)))
    except NotPrivate as reason:
        with contextlib.suppress(OSError, NotPrivate):
            return _stand_in(path, str(reason))
        return None
    except OSError:
        return None


def _stand_in(path: Path, reason: str) -> Folder:
    """A private folder for this process. Others can write to the usual one, and its content would be executed."""
    global _temporary
    if _temporary is None or not _temporary[1].exists():
        import tempfile

        _temporary = (os.getpid(), Path(tempfile.mkdtemp(prefix="tsql-cache-")))
        _notes.append(
            f"compiled code is not kept in {path}: {reason} (make it a folder that only you can write to, "
            "or name another with TSQL_CACHE)"
        )
    return Folder(_temporary[1], open_private(os.fspath(_temporary[1])))


def read_entry(kind: str, key: str, made_by: str = "") -> bytes | None:
    """The content of an entry. `kind` says what it is, `made_by` which code made it for which machine. An entry written
    with another kind, key or `made_by` is not found."""
    folder = _folder()
    if folder is None:
        return None
    waiting = _waiting.get((folder.path, kind, key))
    if waiting is not None:
        return waiting[1]()
    return folder.read(kind, key, made_by)


_waiting: dict[tuple[Path, str, str], tuple[Folder, Callable[[], bytes | None], str]] = {}
"""Entries that are not written yet."""
_arrived = threading.Event()
_writing = forks.lock()
_writer: threading.Thread | None = None


def write_later(kind: str, key: str, make: Callable[[], bytes | None], made_by: str = "") -> None:
    """Make or replace an entry when the process is idle. `make` gives the content, possibly in another thread; None
    means no entry."""
    global _writer
    folder = _folder()
    if folder is None:
        return
    _waiting[folder.path, kind, key] = (folder, make, made_by)
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
    """Write all waiting entries."""
    with _writing:
        for place, waiting in list(_waiting.items()):
            folder, make, made_by = waiting
            content = make()
            if content is not None:
                _write(folder, place[1], place[2], made_by, content)
            if _waiting.get(place) is waiting:  # and not one that has come since
                del _waiting[place]


def _write(folder: Folder, kind: str, key: str, made_by: str, content: bytes) -> None:
    """Write an entry; failures of the disk are ignored."""
    with contextlib.suppress(OSError):
        try:
            folder.write(kind, key, made_by, content)
        except FileNotFoundError:
            found = _folder(again=True) if folder.is_gone else None
            if found is not None:
                found.write(kind, key, made_by, content)


def _leave() -> None:
    """At the end of the process: write waiting entries, and remove the temporary folder."""
    flush()
    if _temporary is not None and _temporary[0] == os.getpid():
        shutil.rmtree(_temporary[1], ignore_errors=True)


atexit.register(_leave)


def _after_fork() -> None:
    """The child of a fork has no writer thread. Waiting entries are the parent's to write."""
    global _writer, _arrived
    _writer, _arrived = None, threading.Event()
    _waiting.clear()


forks.in_child(_after_fork)


_OWN_NAME = re.compile(r"[0-9a-f]{8,64}|\.[0-9a-f]{16}\.[0-9a-f]{16}")
"""Names of entries and of entries being written. Other files in the folder are not ours to remove."""


def trim(folder: int) -> None:
    """Remove the least recently used entries of an open folder until there are few enough."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if _OWN_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    known = entry.stat(follow_symlinks=False)
                    found.append((known.st_mtime, known.st_size, entry.name))
    size = sum(bytes for _, bytes, _ in found)
    if len(found) <= MOST_FILES and size <= MOST_BYTES:
        return
    left = len(found)
    for _, bytes, name in sorted(found):
        if left <= MOST_FILES * KEPT and size <= MOST_BYTES * KEPT:
            break
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        left, size = left - 1, size - bytes
