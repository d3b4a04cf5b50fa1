"""Makes a recording: runs the parts of the workload, each in a forked process, and combines the results.

Each part has its own process: an object that is made once per process is then always attributed to the same query.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tests.replay.kernels import watch
from tests.replay.recording import Recording


class Failed(Exception):
    """A part of the workload could not be run."""


def record(jobs: int = 2, only: str = "") -> Recording:
    """A recording of the code as it is."""
    seen = watch()
    # The engine is loaded when its environment is set, and before the processes fork.
    from tests.replay.workload import Part, Recorder, parts

    waiting = sorted(parts(only), key=lambda part: part.cost)
    if not waiting:
        raise Failed(f"no part of the workload has a name like {only!r}")
    result = Recording()
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        # Costs that `tsql calibrate` has measured for this user are not those of others.
        os.environ["XDG_CONFIG_HOME"] = folder

        def run(part: Part, target: Path) -> None:
            recorder = Recorder(seen)
            part.run(recorder)
            target.write_bytes(pickle.dumps(recorder.recording))

        fork = multiprocessing.get_context("fork")
        running: dict[int, tuple[Any, Part, Path]] = {}
        while waiting or running:
            while waiting and len(running) < jobs:
                part, target = waiting.pop(), Path(folder, str(len(waiting)))
                process = fork.Process(target=run, args=(part, target), daemon=True)
                process.start()
                running[process.sentinel] = process, part, target
            for sentinel in wait(list(running)):
                process, part, target = running.pop(sentinel)
                process.join()
                if process.exitcode or not target.exists():
                    raise Failed(f"{part.name} ended with exit code {process.exitcode}")
                result.add(pickle.loads(target.read_bytes()))
                target.unlink()
    return result
