"""An engine in a separate process, driven line by line: for cold times, peak memory, and thread counts that are fixed
per process.

The parent uses `Worker`; the child runs this module. Requests and replies are JSON objects, one per line."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from tsql.tpch.engines import Engine
from tsql.tpch.peers import ALL, reason


class WorkerError(RuntimeError):
    """The engine refused, or its process ended."""


class Worker:
    """A fresh process with one engine. `cache` is the folder for data that engines keep between processes."""

    def __init__(self, engine: str, threads: int, cache: Path | None = None):
        environment = os.environ | {"POLARS_MAX_THREADS": str(threads)}
        if cache is not None:
            environment["XDG_CACHE_HOME"] = str(cache)
        command = [sys.executable, "-m", "tsql.tpch.worker", engine, str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        try:
            self._reply()
        except BaseException:
            self.close()
            raise

    def load(self, paths: dict[str, Path], how: str = "memory") -> None:
        """Give the engine its tables."""
        self._ask(do="load", paths={table: str(path) for table, path in paths.items()}, how=how)

    def run(self, number: int, sql: str, scale: float) -> float:
        """Run a TPC-H query and return its time in milliseconds."""
        return self._ask(do="run", number=number, sql=sql, scale=scale)["ms"]

    def memory(self) -> int:
        """The bytes in memory now, with background work stopped and idle memory returned. The peak is measured from
        here on."""
        return self._ask(do="memory")["bytes"]

    def peak(self) -> int:
        """The peak memory in bytes since `memory`."""
        return self._ask(do="peak")["bytes"]

    def close(self) -> None:
        """End the process."""
        if self.process.stdin is not None:
            try:
                self.process.stdin.close()
            except BrokenPipeError:  # it has ended before
                pass
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # the reply says that it has ended
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise WorkerError(f"the process ended with exit code {self.process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply


def serve(engine: Engine, requests: IO[str], answer: Callable[[dict[str, Any]], None]) -> None:
    """Serve requests until there are no more. An error is sent as a reply."""
    for line in requests:
        request = json.loads(line)
        try:
            answer(_follow(engine, request))
        except Exception as error:
            answer({"error": reason(error)})


def _follow(engine: Engine, request: dict[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "load":
            for table, path in request["paths"].items():
                (engine.load if request["how"] == "memory" else engine.view)(table, Path(path))
            return {}
        case "run":
            start = time.perf_counter()
            engine.tpch(request["number"], request["sql"], request["scale"])()
            return {"ms": (time.perf_counter() - start) * 1000}
        case "memory":
            engine.rest()
            _give_back()
            return {"bytes": reset_peak(engine.process_id())}
        case "peak":
            return {"bytes": status(engine.process_id(), "VmHWM")}
        case other:
            raise ValueError(f"unknown request {other}")


def _give_back() -> None:
    """Return free memory to the system, so that memory left from loading does not hide what a query needs."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return  # another C library


def reset_peak(process: int) -> int:
    """Reset the peak memory of a process, and return its current bytes."""
    Path(f"/proc/{process}/clear_refs").write_text("5")
    return status(process, "VmRSS")


def status(process: int, field: str) -> int:
    """A size of /proc/PID/status in bytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {process} has no {field}")


def main(name: str, threads: int) -> None:
    """Open the engine and serve. Replies go to the original stdout; everything else that is printed goes to stderr."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(reply: dict[str, Any]) -> None:
        print(json.dumps(reply), file=replies, flush=True)

    try:
        engine = ALL[name](threads)
    except Exception as error:
        answer({"error": reason(error)})
        return
    answer({})
    try:
        serve(engine, sys.stdin, answer)
    finally:
        engine.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
