"""Runs jobs in processes that can be killed: `python -m tests.live.sinks.worker` reads a line of JSON for each.

It forks a process for every line, so that none has to import anything, prints its number, waits for its end, and prints
how it ended. The first process calls nothing of the libraries: their threads would not survive a fork."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.live.sinks.jobs import CheckpointFile, output, run
from tests.live.sinks.targets import TARGETS
from tsql.backends.live.sinks.connectors import CONNECTORS

ROOT = Path(__file__).resolve().parents[3]


# pyarrow imports pandas, if it is there, to make an array.
LIBRARIES = ("pandas", "pyarrow.parquet", "pyarrow.compute", "deltalake", "psycopg")


Work = Callable[[dict[str, Any]], None]


def serve(work: Work) -> None:
    """Carry out what the lines of the standard input say, each in a process of its own."""
    for library in LIBRARIES:
        importlib.import_module(library)
    for connector in CONNECTORS.values():
        connector.load()
    for line in sys.stdin:
        about = json.loads(line)
        child = os.fork()
        if not child:
            _end_with(work, about)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def write_epochs(about: dict[str, Any]) -> None:
    folder = Path(about["folder"])
    sink = TARGETS[about["kind"]](folder, about["url"]).sink()
    run(sink, CheckpointFile(folder / "checkpoint"), about["epochs"], output(), is_ahead=about["is_ahead"])


def _end_with(work: Work, about: dict[str, Any]) -> None:
    code = 1
    try:
        work(about)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class Worker:
    """The process above, for a test. module: what it runs; it calls `serve`."""

    module = __name__

    def __enter__(self) -> Worker:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.stdout.close()  # type: ignore[union-attr]
        self._process.wait()

    def start(self, about: dict[str, Any]) -> int:
        """Begin a job. Returns the number of its process."""
        self._process.stdin.write(json.dumps(about) + "\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        return int(self._process.stdout.readline())  # type: ignore[union-attr]

    def kill(self, process: int) -> int:
        """End the job as SIGKILL does. Returns how it ended."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(process, signal.SIGKILL)
        return self.ended()

    def ended(self) -> int:
        return int(self._process.stdout.readline())  # type: ignore[union-attr]


if __name__ == "__main__":
    serve(write_epochs)
