"""Measures the driver's own work for a scan of very many files, without a cluster: the real source, the real `Stages`,
and a transport that only weighs what it is given.

The files are links to one file, so that many of them need no room. Times are processor time of this process."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tsql.analyze.statements import analyze
from tsql.backends import Run, Settings
from tsql.backends.io import Split
from tsql.backends.io.open import from_description, open_source
from tsql.backends.io.parquet.table import with_files
from tsql.backends.spark.cut import Cut
from tsql.backends.spark.jobs import Jobs
from tsql.backends.spark.splits import dealt
from tsql.backends.spark.stages import Stages
from tsql.backends.spark.transport.transport import TaskWork, Transport
from tsql.backends.spark.wire import Row
from tsql.catalog.catalog import fingerprint
from tsql.planner import make_plan
from tsql.session import Session

COLUMNS, GROUPS, GROUP_ROWS = 16, 10, 1000
SQL = "SELECT c0, sum(c1) AS s FROM files WHERE c2 >= 0 GROUP BY c0"


class Weighing(Transport):
    """Takes what a run would send, and counts its bytes."""

    def __init__(self, slots: int):
        self.slots = slots
        self.sent: dict[str, int] = {"tasks": 0, "rows of tasks": 0, "function": 0}

    @property
    def cores(self) -> int:
        return self.slots

    @property
    def executors(self) -> int:
        return max(1, self.slots // 4)

    def given(self, tasks: list[list[Row]]) -> int:
        # As `parallelize` does it.
        self.sent["tasks"] += len(tasks)
        self.sent["rows of tasks"] += sum(len(pickle.dumps(rows)) for rows in tasks)
        return len(tasks)

    def frame(self, frame: Any) -> int:
        return self.slots

    def computed(self, rows: int, work: TaskWork) -> int:
        self.sent["function"] += len(pickle.dumps((work.part, work.given)))
        return rows

    def placed(self, inputs: list[int], shards: int, tasks: int | None = None) -> int:
        return tasks or shards

    def together(self, several: list[int]) -> int:
        return sum(several)

    def kept(self, rows: int) -> int:
        return rows

    def again(self, kept: int) -> int:
        return kept

    def forget(self, kept: int) -> None: ...

    def partitions(self, rows: int) -> int:
        return rows

    def share(self, blobs: list[Any]) -> Any:
        raise NotImplementedError

    def collect(self, rows: int, partitions: list[int], group: str) -> Iterator[Row]:
        return iter(())

    def cancel(self, group: str) -> None: ...

    def free(self, rows: list[Any]) -> None: ...


@contextmanager
def many_files(files: int) -> Iterator[str]:
    """A folder with links to one Parquet file of some row groups."""
    rows = GROUPS * GROUP_ROWS
    table = pa.table({f"c{number}": pa.array(range(rows), pa.int64()) for number in range(COLUMNS)})
    with tempfile.TemporaryDirectory(prefix="tsql-scale-") as folder:
        one = Path(folder) / "one"
        pq.write_table(table, one, row_group_size=GROUP_ROWS)
        for number in range(files):
            place = Path(folder) / f"day={number // 1000:04d}"
            place.mkdir(exist_ok=True)
            os.link(one, place / f"part-{number:07d}.parquet")
        yield folder


class Clock:
    """Processor seconds and memory of steps, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.bytes: dict[str, int] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        begun, held = time.process_time(), _held()
        yield
        self.seconds[name], self.bytes[name] = time.process_time() - begun, _held() - held


def _held() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(files: int, slots: int) -> tuple[Clock, dict[str, int]]:
    """What the driver does for one query over so many files, and what it sends."""
    clock, transport = Clock(), Weighing(slots)
    with many_files(files) as folder, Session("local") as db:
        with clock.step("list the files"):
            source: Any = open_source(folder)
            source.read_in_tasks()
        with clock.step("read footers"):
            source.statistics()
        with clock.step("bounds of columns"):
            for name in ("c0", "c1", "c2"):
                source.statistics().columns.get(name)
        with clock.step("see whether they have changed"):
            fingerprint(folder)
        db.catalog.add("files", source)
        with clock.step("plan"):
            (statement,) = analyze(SQL, db.catalog)
            plan = make_plan(statement.plan, Settings(), SQL, "spark", slots, statement.hints)
        with clock.step("stages"):
            run = Run(settings=Settings())
            stages = Stages(transport, Cut(plan), run, Jobs(transport, run))
            stages.driver.collected(stages.cut.entries(plan.root, on_driver=True))
        mine = source.splits(("c0",), None)[: max(1, files // slots)]
        with clock.step("open in a worker, its files"):
            from_description(with_files(source.describe_some(), mine))
    return clock, transport.sent


def deal(splits: int, tasks: int) -> float:
    """Seconds to deal so many splits to so many tasks."""
    rows = [Split(number, "data/part.parquet", 100_000 + number % 7, number % 10) for number in range(splits)]
    begun = time.process_time()
    dealt(rows, tasks)
    return time.process_time() - begun
