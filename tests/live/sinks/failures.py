"""A process that is killed at its n-th call of the file system: `Disk` stands for `os` in the sinks' staging.py."""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest

from tsql.backends.live.sinks import staging


class Killed(BaseException):
    """The process ends here. Nothing catches it, as nothing catches SIGKILL."""


class Disk:
    """`os`, whose n-th call that changes files fails, and all calls after it. A write that fails writes half of its
    bytes."""

    COUNTED = ("open", "write", "fsync", "replace", "unlink", "mkdir", "ftruncate")

    def __init__(self, fail_at: int | None, error: type[BaseException] = Killed):
        self.calls: list[str] = []
        self._fail_at, self._error = fail_at, error

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self.COUNTED:
            return real

        def call(*args: Any, **named: Any) -> Any:
            self.step(name)
            return real(*args, **named)

        return call

    def write(self, descriptor: int, data: Any) -> int:
        try:
            self.step("write")
        except BaseException:
            if len(self.calls) == self._fail_at:
                os.write(descriptor, memoryview(data)[: memoryview(data).nbytes // 2])
            raise
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        """What a process has written survives its end: only a crash of the machine would tell."""
        self.step("fsync")

    def step(self, name: str) -> None:
        """Count a call. Also what is not of the file system is a step in which a process may be killed."""
        self.calls.append(name)
        if self._fail_at is not None and len(self.calls) >= self._fail_at:
            raise OSError(28, "No space left on device") if self._error is OSError else self._error()

    def server(self, patch: pytest.MonkeyPatch) -> None:
        """Count the statements that are sent to PostgreSQL, too."""
        real = psycopg.Connection.execute

        def execute(connection: Any, *args: Any, **named: Any) -> Any:
            self.step("execute")
            return real(connection, *args, **named)

        patch.setattr(psycopg.Connection, "execute", execute)

    def use(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(staging, "os", self)

    def revive(self) -> None:
        """What objects of the dead process do when they are collected happens to nobody."""
        self._fail_at = None


class SyncedDisk(Disk):
    """Knows which files and folders would lose something if the machine crashed now."""

    def __init__(self) -> None:
        super().__init__(None)
        self.unsynced: set[str] = set()

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):
            self.unsynced |= {os.path.dirname(path), os.fspath(path)}
        return os.open(path, flags, mode)

    def write(self, descriptor: int, data: Any) -> int:
        self.unsynced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        return os.write(descriptor, data)

    def ftruncate(self, descriptor: int, size: int) -> None:
        self.unsynced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        os.ftruncate(descriptor, size)

    def fsync(self, descriptor: int) -> None:
        self.unsynced.discard(os.readlink(f"/proc/self/fd/{descriptor}"))

    def mkdir(self, path: Any) -> None:
        os.mkdir(path)
        self.unsynced.add(os.path.dirname(path))

    def replace(self, source: Any, target: Any) -> None:
        assert os.fspath(source) not in self.unsynced, f"{source} gets its name before its bytes are durable"
        os.replace(source, target)
        self.unsynced |= {os.path.dirname(source), os.path.dirname(target)}

    def unlink(self, path: Any) -> None:
        """A file that comes back is found by the next recovery."""
        os.unlink(path)
        self.unsynced.discard(os.fspath(path))
