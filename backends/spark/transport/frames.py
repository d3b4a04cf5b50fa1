"""Rows of the wire as DataFrames: for lazy results (`to_spark`), and for sessions whose driver is elsewhere (Spark
Connect).

The plans of these DataFrames are `mapInArrow` over `repartitionById`. Everything that a stage has to tell travels in
rows, so nothing needs the SparkContext."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from typing import Any

import pyarrow as pa

from tsql.backends.spark.failures import placed
from tsql.backends.spark.frame import spark_schema
from tsql.backends.spark.task import Task
from tsql.backends.spark.transport.transport import Rows, TaskWork, Transport
from tsql.backends.spark.wire import WIRE, Row, wire_batch, wire_rows, wire_table
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.step import PhysicalPlan


@dataclass
class Read:
    """A DataFrame that tasks read: of the wire, or (`of_user`) of a user."""

    frame: Any
    partitions: int
    of_user: bool = False


@dataclass
class Computed:
    """A DataFrame of the wire that tasks compute."""

    frame: Any
    partitions: int


def run_wire(
    part: str, given: dict[int, list[Row]], shared: dict[str, Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function of a task over rows of the wire."""
    task = _task(part, given, shared)
    return map(wire_batch, placed(task.where, task.run(row for batch in batches for row in wire_rows(batch))))


def run_batches(
    part: str, given: dict[int, list[Row]], shared: dict[str, Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function of a task over a DataFrame of a user."""
    task = _task(part, given, shared)
    return map(wire_batch, placed(task.where, task.run_batches(batches)))


def result_of_wire(
    part: str, given: dict[int, list[Row]], shared: dict[str, Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function of a task that makes rows of the result."""
    task = _task(part, given, shared)
    return (row[3] for row in placed(task.where, task.run(row for batch in batches for row in wire_rows(batch))))


def result_of_batches(
    part: str, given: dict[int, list[Row]], shared: dict[str, Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The same over a DataFrame of a user."""
    task = _task(part, given, shared)
    return (row[3] for row in placed(task.where, task.run_batches(batches)))


def _task(part: str, given: dict[int, list[Row]], shared: dict[str, Any]) -> Task:
    from pyspark import TaskContext

    context = TaskContext.get()
    number, cpus = (context.partitionId(), context.cpus()) if context is not None else (0, 1)
    return Task(part, number, given.get(number, []), shared, cpus)


class FrameTransport(Transport):
    """Moves rows with DataFrames of a session."""

    def __init__(self, session: Any):
        self.session = session

    @property
    def cores(self) -> int:
        return max(1, self.session.sparkContext.defaultParallelism)

    @property
    def executors(self) -> int:
        return 1

    def given(self, tasks: list[list[Row]]) -> Read:
        # A DataFrame of few rows has partitions of Spark's choice: the rows are placed like others.
        rows = [row for number, mine in enumerate(tasks) for row in _stamped(mine, number)]
        frame = self.session.createDataFrame(wire_table(rows), WIRE)
        return Read(frame.repartitionById(len(tasks), "shard"), len(tasks))

    def frame(self, frame: Any) -> Read:
        return Read(frame, 0, of_user=True)

    def computed(self, rows: Read, work: TaskWork) -> Computed:
        function = partial(run_batches if rows.of_user else run_wire, work.part, work.given, work.shared)
        return Computed(rows.frame.mapInArrow(function, WIRE), rows.partitions)

    def placed(self, inputs: list[Computed], shards: int) -> Read:
        frame = reduce(lambda left, right: left.unionAll(right), [rows.frame for rows in inputs])
        return Read(frame.repartitionById(shards, "shard"), shards)

    def partitions(self, rows: Computed) -> int:
        return max(1, rows.partitions)

    def share(self, blobs: list[Any]) -> Any:
        return SentBlobs(blobs)

    def collect(self, rows: Computed, partitions: list[int], group: str) -> Iterator[Row]:
        for batch in rows.frame.toArrow().to_batches():
            yield from wire_rows(batch)

    def cancel(self, group: str) -> None:
        self.session.sparkContext.cancelJobGroup(group)

    def free(self, rows: list[Rows]) -> None:
        """Nothing is kept."""

    def result(self, rows: Read, work: TaskWork, plan: PhysicalPlan) -> Any:
        """The DataFrame of a result."""
        function = partial(result_of_batches if rows.of_user else result_of_wire, work.part, work.given, work.shared)
        return rows.frame.mapInArrow(function, spark_schema(plan))


@dataclass
class SentBlobs:
    """Blobs that go with the function of a task."""

    value: list[Any]

    def destroy(self) -> None:
        """Nothing is kept."""


def _stamped(rows: list[Row], number: int) -> Iterator[Row]:
    """The rows of a task with the number of its partition. A task without rows is still started."""
    yield from ((number, name, place, blob) for _, name, place, blob in rows)
