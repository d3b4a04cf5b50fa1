"""The rows of a step that walks sorted rows, as a dataset of jobs that are sorted when they are read.

A shard is sorted when its task starts, and its memory is freed when the task ends. If there are fewer shards than
threads, or one shard has most of the rows, and the consumer does not care which shard a row is in, `spread` makes all
threads sort each shard together and walk parts of it (kernels/operators/window_parts.py)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tsql.backends.local.run.dataset import BlockData, Dataset, Part
from tsql.backends.local.run.host import Reserved, Shared
from tsql.backends.local.run.spill import AnyChunk, in_memory
from tsql.backends.local.run.workers import parallel
from tsql.backends.local.sort.sorting import Workers
from tsql.backends.local.sort.window_rows import CollectedRows, WindowShape
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.operators.collect import OutputColumn
from tsql.kernels.operators.window import WindowScan
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.backends.local.spill.windows import Job

UNEVEN = 1.25
"""A shard with more than this many times a thread's share of the rows is walked by several threads."""


class WindowData(Dataset):
    """The rows of a window step: a list of jobs per shard, each sorted when it is read."""

    most_results = 1
    """At most this many rows come out for each row of a job."""

    def __init__(self, step: Step, shape: WindowShape, jobs: list[list[Job]], shared: Shared, keeps: bool):
        self.step, self.shape, self.jobs, self.shared, self.keeps = step, shape, jobs, shared, keeps
        self.shards = len(jobs)
        self.rows = self.most_results * sum(job.rows for one in jobs for job in one)

    def empty_source(self) -> WindowScan:
        return self.shape.whole

    def feed(self, shard: int) -> Iterator[Part]:
        jobs = list(reversed(self.jobs[shard]))
        if not self.keeps:
            self.jobs[shard] = []
        number, position = 0, 0
        while jobs:
            job = jobs.pop()
            yield from job.parts(self.shared, (shard, number), position)
            number, position = number + 1, position + self.most_results * job.rows

    def spread(self, tasks: int) -> Dataset:
        """The same rows, walked by `tasks` tasks if that is faster."""
        most = max((job.rows for one in self.jobs for job in one), default=0)
        collected = all(isinstance(job, CollectedRows) and in_memory(job.chunks) for one in self.jobs for job in one)
        # Without sort keys there is little to share: if all rows are peers, a walk adds all of them first.
        if (
            tasks <= 1
            or not self.shape.keys
            or self.rows <= self.shared.run.settings.small_rows
            or not collected
            or most * tasks < self.rows * UNEVEN
        ):
            return super().spread(tasks)
        return SpreadWindow(self, tasks)

    def release(self) -> None:
        self.jobs = [[] for _ in self.jobs]


class SpreadWindow(BlockData):
    """The sorted rows of a window step in parts, which all workers take from one counter."""

    def __init__(self, data: WindowData, tasks: int):
        self.shards, self.rows, self.shared = tasks, data.rows, data.shared
        shape, run = data.shape, data.shared.run
        workers = Workers(tasks, lambda work, count: parallel(work, count, tasks, run))
        morsels = Morsels(len(shape.part.columns))
        self.reserved: list[Reserved] = []
        for jobs in data.jobs:
            for job in jobs:
                if job.rows:
                    self.reserved.append(
                        job.split(data.shared, morsels, max(1, round(tasks * job.rows / data.rows)), workers)
                    )
        self.parts = [(shape.part, morsels, ctypes.c_int64(0))]
        data.release()

    def release(self) -> None:
        self.parts = [(source, Morsels(len(source.columns)), counter) for source, _, counter in self.parts]
        self.reserved = []


def refuse_nulls(
    step: Step,
    names: Iterable[str],
    columns: tuple[OutputColumn, ...],
    nullable: tuple[bool, ...],
    lists: list[list[AnyChunk]],
) -> None:
    """Raise an error if a column has NULLs although the plan relies on it having none. Plans made from queries filter
    them. Rows in files are not checked."""
    if not in_memory([c for one in lists for c in one]):
        return
    for column, has_nulls in zip(columns, nullable, strict=True):
        if has_nulls and column.name in names and any(c.rows for one in lists for c in one):
            raise ExecutionError(
                (
                    f"step {step.name}: the time {column.name} is NULL in a row, which is alive at no time and "
                    "in no window"
                ),
                hint=f"filter {column.name} IS NOT NULL before it",
            )


def nullable_columns(lists: list[list[AnyChunk]], columns: int) -> tuple[bool, ...]:
    """Which columns have NULLs. All may have some if rows are in files, or if there are no rows to look at."""
    chunks = [c for one in lists for c in one]
    if not chunks or not in_memory(chunks):
        return (True,) * columns
    return tuple(any(c.arrays[i].null_count for c in chunks) for i in range(columns))
