"""A process that is killed at its n-th call of the file system: `Disk` stands for `os` in the sinks' staging.py."""

from __future__ import annotations

import os
from typing import Any

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

    def use(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(staging, "os", self)

    def revive(self) -> None:
        """What objects of the dead process do when they are collected happens to nobody."""
        self._fail_at = None
