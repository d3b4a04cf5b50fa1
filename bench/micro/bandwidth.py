"""How fast this machine reads memory: what a scan is measured against. `python -m bench.micro.bandwidth
[MEGABYTES]`."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tsql.tpch.measure import interleaved


def main(arguments: list[str] | None = None) -> int:
    """Print GB/s for one thread and for one thread per core."""
    megabytes = int((arguments or sys.argv[1:] or ["512"])[0])
    values = np.arange(megabytes * 131_072, dtype=np.int64)
    expected = len(values) * (len(values) - 1) // 2
    cores = len(os.sched_getaffinity(0))
    parts = np.array_split(values, cores)
    with ThreadPoolExecutor(cores) as pool:
        # Sums of many elements run without the interpreter's lock.
        work = {
            "1 thread": lambda: int(values.sum()),
            f"{cores} threads": lambda: sum(int(s) for s in pool.map(np.sum, parts)),
        }
        for name, call in work.items():
            if call() != expected:
                sys.exit(f"{name}: wrong sum")
        for name, times in interleaved(work, runs=9).items():
            print(f"{name}: {values.nbytes / 1e6 / times.median:.1f} GB/s, {times} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
