"""Processor time of this process and of all that it has started, by what they do for Spark: read from /proc."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
EXECUTOR = b"CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Seconds:
    """User and system time of each kind of process. In local mode the executor is a part of the driver's JVM."""

    driver: float = 0.0
    driver_jvm: float = 0.0
    executors: float = 0.0
    workers: float = 0.0

    def __sub__(self, before: Seconds) -> Seconds:
        return Seconds(*(a - b for a, b in zip(astuple(self), astuple(before))))

    @classmethod
    def mean(cls, runs: Sequence[Seconds]) -> Seconds:
        return cls(*(sum(kind) / len(runs) for kind in zip(*map(astuple, runs))))

    @property
    def total(self) -> float:
        return sum(astuple(self))

    def __str__(self) -> str:
        return (
            f"{self.total:.2f} (driver {self.driver:.2f}, its JVM {self.driver_jvm:.2f}, "
            f"executors {self.executors:.2f}, workers {self.workers:.2f})"
        )


@dataclass(frozen=True)
class Process:
    """A line of /proc: its parent, its own time, and the time of children that have ended."""

    parent: int
    command: bytes
    own_s: float
    ended_s: float


def processor_seconds(root: int | None = None) -> Seconds:
    """The processor time of a process (this one unless named) and of those below it, since they started.

    The time of a Python worker that has ended is with its parent, the daemon, or with the executor's JVM."""
    found = _processes()
    root = os.getpid() if root is None else root
    spent = {"driver": 0.0, "driver_jvm": 0.0, "executors": 0.0, "workers": 0.0}
    for number, process in found.items():
        if not _is_below(number, root, found):
            continue
        if number == root:
            spent["driver"] += process.own_s
        elif process.command.split(b"\0")[0].endswith(b"java"):
            spent["executors" if EXECUTOR in process.command else "driver_jvm"] += process.own_s
            spent["workers"] += process.ended_s
        else:
            spent["workers"] += process.own_s + process.ended_s
    return Seconds(**spent)


def _processes() -> dict[int, Process]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name of the program may hold spaces and parentheses.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        user, system, ended_user, ended_system = (int(field) / TICKS for field in fields[11:15])
        found[int(folder.name)] = Process(int(fields[1]), command, user + system, ended_user + ended_system)
    return found


def _is_below(number: int, root: int, found: dict[int, Process]) -> bool:
    while number in found:
        if number == root:
            return True
        number = found[number].parent
    return False
