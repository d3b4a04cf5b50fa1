"""What `tsql jobs` shows: each process with jobs keeps a file with their progress, as long as they run.

The files are in `$XDG_STATE_HOME/tsql/jobs` (`~/.local/state` by default), readable by their user alone. A file whose
process is gone is removed by whoever looks."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tsql.kernels.process import forks

REPORT_SECONDS = 1.0


def folder() -> Path:
    """Where the files are."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".local" / "state") / "tsql" / "jobs"


class Reporter:
    """Writes what a function tells into the file of this session, once a second while there is something to tell."""

    def __init__(self, tell: Callable[[], list[dict[str, Any]]]):
        self._tell = tell
        self._thread: threading.Thread | None = None
        self._lock = forks.lock()

    def begin(self) -> None:
        """Report from now on, if nobody does yet."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._report, name="tsql-job-status", daemon=True)
                self._thread.start()

    def _report(self) -> None:
        try:
            path = folder() / f"{os.getpid()}-{id(self):x}.json"
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (OSError, RuntimeError):
            return  # no home: nobody can look
        ended = threading.Event()
        try:
            while jobs := self._tell():
                staged = path.with_suffix(".staged")
                staged.write_text(json.dumps({"pid": os.getpid(), "begun": _begun(os.getpid()), "jobs": jobs}))
                os.replace(staged, path)
                ended.wait(REPORT_SECONDS)
        except OSError:
            return  # a full disk stops the report, not the jobs
        finally:
            path.unlink(missing_ok=True)


def running() -> list[dict[str, Any]]:
    """The jobs of this user's processes, as `JobProgress` tells them, with the `pid` of each."""
    found = []
    try:
        paths = sorted(folder().glob("*.json"))
    except (OSError, RuntimeError):
        return []
    for path in paths:
        try:
            data = json.loads(path.read_text())
            pid, jobs = int(data["pid"]), list(data["jobs"])
            is_there = _begun(pid) == data["begun"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if not is_there:
            path.unlink(missing_ok=True)
            continue
        found += [{"pid": pid, **job} for job in jobs]
    return found


def _begun(pid: int) -> str | None:
    """When a process has begun, in ticks of the machine: another process of the same number has another time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None
