"""The peak memory of a query in a process of its own, without and with snapshots. Called by `bench/progressive.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.snapshots.cases import Asked
from tsql.tpch import worker
from tsql.tpch.engines import Tsql

ENGINE = "snapshots"


class Showing(Tsql):
    """Our engine, which looks at each snapshot of a progressive query."""

    name = ENGINE

    def run(self, sql: str) -> pa.Table:
        if "PROGRESSIVE" not in sql:
            return super().run(sql)
        with self.session.sql(sql).snapshots() as snapshots:
            return snapshots.finish().table


class Process(worker.Worker):
    """A fresh process with this engine. `cache`: the folder of compiled code."""

    def __init__(self, threads: int, cache: Path):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.snapshots.memory", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        )
        try:
            self._reply()
        except BaseException:
            self.close()
            raise


@dataclass(frozen=True)
class Peak:
    """Bytes of the loaded tables and all else that is there before, and the most beyond them while a query ran."""

    before: int
    beyond: int


def peaks(asked: Asked, clause: str, paths: dict[str, Path], how: str, threads: int) -> tuple[Peak, Peak]:
    """The peaks of the plain query and of one with snapshots. Code is compiled before, by processes of their own: the
    compiler takes memory too, once."""
    with tempfile.TemporaryDirectory(prefix="tsql-peak-") as cache:
        texts = (asked.sql, f"{asked.sql}\n{clause}")
        for sql in texts:
            _peak(sql, paths, how, threads, Path(cache))
        plain, shown = (_peak(sql, paths, how, threads, Path(cache)) for sql in texts)
    return plain, shown


def _peak(sql: str, paths: dict[str, Path], how: str, threads: int, cache: Path) -> Peak:
    with Process(threads, cache) as process:
        process.load(paths, how)
        before = process.memory()
        process.run(0, sql, 1)
        peak = process.peak()
        process.memory()
        return Peak(before, peak - before)


if __name__ == "__main__":
    worker.ALL[ENGINE] = Showing
    worker.main(ENGINE, int(sys.argv[1]))
