"""What a query costs before it runs: cold (empty caches), from the disk cache, and dispatch of one that is cached in
memory.

`measure` starts this module in fresh processes; each prints one line of JSON. The difference between a first and a warm
run of the same query over the same small table is parsing, planning and compiling; imports are not counted. The warm
runs of this project are full executions, like the first run: `.arrow()` would repeat the calls of a recorded run, which
is faster."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SCALE = 0.01
"""Small data, so that the noise of running does not hide the cost of preparation."""


def in_process(engine_name: str, path: Path, sql: str) -> dict[str, float]:
    """First and warm times of a query over a Parquet file loaded as `lineitem`, in this process, in milliseconds."""
    from tsql.tpch.engines import ENGINES, Tsql

    engine = ENGINES[engine_name](threads=2)
    engine.load("lineitem", path)
    times = [_milliseconds(lambda: engine.run(sql))]
    run_again = (
        (lambda: list(engine.session.sql(sql).batches())) if isinstance(engine, Tsql) else lambda: engine.run(sql)
    )
    times.extend(_milliseconds(run_again) for _ in range(30))
    warm = statistics.median(times[6:])
    engine.execute("CREATE TABLE one AS SELECT 1 AS x")
    dispatch = [_milliseconds(lambda: engine.run("SELECT x + 1 AS y FROM one WHERE x > 0")) for _ in range(300)]
    return {"first": times[0], "warm": warm, "before": times[0] - warm, "dispatch": statistics.median(dispatch[20:])}


def _milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def measure(engine_name: str, path: Path, sql: str, repeats: int) -> dict[str, list[dict[str, float]]]:
    """`cold` and `disk` measurements, each `repeats` times: a process with an empty cache folder, then one with a
    filled folder."""
    found: dict[str, list[dict[str, float]]] = {"cold": [], "disk": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="tsql-cold-") as cache:
            for kind in found:
                environment = os.environ | {"XDG_CACHE_HOME": cache}
                command = [sys.executable, "-m", "bench.cold", engine_name, str(path)]
                done = subprocess.run(
                    command,
                    input=sql,
                    env=environment,
                    cwd=Path(__file__).parent.parent,
                    capture_output=True,
                    text=True,
                )
                if done.returncode:
                    raise RuntimeError(f"the {kind} run of {engine_name} failed:\n{done.stderr}")
                found[kind].append(json.loads(done.stdout))
    return found


if __name__ == "__main__":
    print(json.dumps(in_process(sys.argv[1], Path(sys.argv[2]), sys.stdin.read())))
