"""A daemon of Python workers in which tasks fail on request: `tests/spark/faults.py` names it in its clusters.

A fault is a file of JSON in the folder `$TSQL_FAULTS`: which tasks it is about (`stage` and `shard` as in `StagePart`,
or null for any), when (`at`: begin, middle or end of the task's rows), what happens (`do`), and how many `times`. Each
time is claimed by creating a file, so that it happens once on the whole cluster."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tsql.backends.spark.daemon import warm
from tsql.backends.spark.task import Task

HELD_SECONDS = 300.0


def folder() -> Path:
    return Path(os.environ["TSQL_FAULTS"])


def hit(task: Task, at: str) -> None:
    """Do what the faults ask for at this point of a task."""
    for path in sorted(folder().glob("fault*.json")):
        fault = json.loads(path.read_text())
        wanted = (fault["stage"], fault["shard"])
        if fault["at"] != at or any(
            w not in (None, is_) for w, is_ in zip(wanted, (task.part.stage, task.number), strict=True)
        ):
            continue
        for number in range(fault["times"]):
            claim = folder() / f"claim-{path.stem}-{number}"
            try:
                with claim.open("x") as file:
                    file.write(json.dumps({"stage": task.part.stage, "shard": task.number, "pid": os.getpid()}))
            except FileExistsError:
                continue
            DO[fault["do"]](task)
            break


def executor() -> int:
    """The process of the executor: the parent of this worker's daemon."""
    found = int(Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(")", 1)[1].split()[1])
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{found}/cmdline").read_bytes()
    return found


def kill_executor(task: Task) -> None:
    os.kill(executor(), signal.SIGKILL)
    time.sleep(HELD_SECONDS)  # the daemon ends with the executor, and with it this worker


def kill_worker(task: Task) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(task: Task) -> None:
    raise RuntimeError("a disk was pulled out")


def run_out_of_memory(task: Task) -> None:
    raise MemoryError


def lose_files(task: Task) -> None:
    """Delete the files of all shuffles, as a cleaner of temporary files would."""
    for path in (folder() / "local").rglob("shuffle_*"):
        path.unlink(missing_ok=True)


def hold(task: Task) -> None:
    """Wait until the test says `go`."""
    wait_for("go")


def wait_for_copy(task: Task) -> None:
    """Wait until another attempt of this task has come to its end: both then end at the same time."""
    wait_for(f"ended-{task.part.stage}-{task.number}-*")


def wait_for(pattern: str) -> None:
    begun = time.monotonic()
    while not any(folder().glob(pattern)) and time.monotonic() < begun + HELD_SECONDS:
        time.sleep(0.01)


DO = {
    "kill executor": kill_executor,
    "kill worker": kill_worker,
    "fail": fail,
    "run out of memory": run_out_of_memory,
    "lose files": lose_files,
    "hold": hold,
    "wait for copy": wait_for_copy,
}


def faulty(run: Any) -> Any:
    def wrapped(self: Task, rows: Any) -> Iterator[Any]:
        number = f"{self.part.stage}-{self.number}-{time.time_ns()}"
        (folder() / f"ran-{number}").touch()
        hit(self, "begin")
        for place, row in enumerate(run(self, rows)):
            yield row
            if place == 0:
                hit(self, "middle")
        hit(self, "end")
        (folder() / f"ended-{number}").touch()

    return wrapped


if __name__ == "__main__":
    from pyspark.daemon import manager

    warm()
    Task.run, Task.run_batches = faulty(Task.run), faulty(Task.run_batches)  # type: ignore[method-assign]
    manager()
