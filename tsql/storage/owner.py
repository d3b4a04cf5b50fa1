"""`Owner`: who may write to a database. Only the process that holds its lock may write, not a child that it forks.

The lock is `flock` on a file of the folder. Such a lock belongs to an open file, which a forked child shares, so the
claim includes the process. The child gives up the inherited lock and holds the readers' lock instead, which protects
the files that it may read from removal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from tsql.kernels.expr.errors import StorageError

LOCK, READERS = "lock", "readers"

_owners: weakref.WeakSet[Owner] = weakref.WeakSet()
_registering = threading.Lock()


class Owner:
    """A claim on a database, for writing or for reading only, until `close`."""

    def __init__(self, folder: Path, *, read_only: bool):
        self.folder, self.read_only = folder, read_only
        self._process = os.getpid()
        self._handle: int | None = None
        self._for_child: int | None = None
        self._forking = False
        self.on_fork: weakref.WeakMethod[Callable[[], None]] | None = None
        """What is called in a forked child."""
        with _registering:
            _owners.add(self)
        if read_only:
            self._handle = self._locked(READERS, fcntl.LOCK_SH)
        else:
            self._handle = self._locked(LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _locked(self, name: str, how: int) -> int | None:
        try:
            handle = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if not self.read_only:
                raise StorageError(
                    f"cannot write in {self.folder}: {error.strerror or error}", hint="connect(path, read_only=True)"
                ) from error
            return None  # a folder that nobody can write to needs no protection from writers
        try:
            fcntl.flock(handle, how)
        except OSError:
            os.close(handle)
            raise StorageError(
                f"the database {self.folder} is open for writing in another process, or in another session of this one",
                hint="close it there, or connect(path, read_only=True)",
            ) from None
        return handle

    @property
    def is_mine(self) -> bool:
        """Whether the claim was made in this process."""
        return self._process == os.getpid()

    def check(self) -> None:
        """Refuse to write if the claim does not hold any more."""
        if not self.is_mine:
            raise StorageError(
                (
                    f"the database {self.folder} was opened by process {self._process}, of which this one "
                    f"({os.getpid()}) is a fork"
                ),
                hint="a forked process may read; to write, close the database in the other process and connect here",
            )
        if self._handle is None or not self._is_in_place(self._handle):
            raise StorageError(
                f"the lock file of the database {self.folder} was removed or replaced while the database was open",
                hint="nothing more is written through this connection; close it and open the database again",
            )

    def _is_in_place(self, handle: int) -> bool:
        """Whether the file that is locked is still the one that others would lock."""
        try:
            there = os.stat(self.folder / LOCK)
        except OSError:
            return False
        held = os.fstat(handle)
        return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)

    @contextlib.contextmanager
    def without_readers(self) -> Iterator[bool]:
        """A block in which no other process reads the database; its value is False if one does."""
        handle = None
        try:
            handle = os.open(self.folder / READERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except OSError:
            alone = False
        try:
            yield alone
        finally:
            if handle is not None:
                os.close(handle)

    def close(self) -> None:
        """Give up the claim."""
        if self._handle is not None:
            if self.is_mine and not self.read_only:
                unlock(self._handle)
            os.close(self._handle)
            self._handle = None

    def before_fork(self) -> None:
        """Take the readers' lock for the child. It inherits the open file, and with it the lock."""
        self._forking = self._handle is not None and not self.read_only and self.is_mine
        if self._forking:
            with contextlib.suppress(OSError):
                self._for_child = os.open(self.folder / READERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                fcntl.flock(self._for_child, fcntl.LOCK_SH)

    def after_fork(self, *, is_child: bool) -> None:
        if not self._forking:
            return
        unneeded, self._for_child, self._forking = self._for_child, None, False
        if is_child:
            # The parent's lock must not live on in the child when the parent has closed the database.
            self._handle, unneeded = unneeded, self._handle
            forked = self.on_fork and self.on_fork()
            if forked:
                forked()
        if unneeded is not None:
            os.close(unneeded)


def unlock(handle: int) -> None:
    """Release the lock of an open file even if a child that was just forked has not closed its copy yet."""
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)


def _before_fork() -> None:
    _registering.acquire()
    for owner in list(_owners):
        owner.before_fork()


def _after_fork(is_child: bool) -> None:
    for owner in list(_owners):
        owner.after_fork(is_child=is_child)
    _registering.release()


os.register_at_fork(
    before=_before_fork, after_in_parent=lambda: _after_fork(False), after_in_child=lambda: _after_fork(True)
)
