"""Rows of the wire as DataFrames: for lazy results (`to_spark`), and for sessions whose driver is elsewhere (Spark
Connect).

The plans of these DataFrames are `mapInArrow` over `repartitionById`. Everything that a stage has to tell travels in
rows, so nothing needs the SparkContext."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark import RDD, StorageLevel
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from tsql.backends.spark.failures import placed
from tsql.backends.spark.frame import spark_schema
from tsql.backends.spark.task import Task
from tsql.backends.spark.transport.transport import Rows, TaskWork, Transport
from tsql.backends.spark.wire import Row, wire_batch, wire_rows, wire_table
from tsql.kernels.expr.nodes import Column, SortKey
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.step import PhysicalPlan

WIRE = StructType([
    StructField("shard", IntegerType()),
    StructField("input", StringType()),
    StructField("place", LongType()),
    StructField("blob", BinaryType()),
])  # fmt: skip
"""The columns of a row of the wire. (Spark Connect would ask its server what a text means.)"""

NOTHING = b"{}"
"""The blob of a row that is about the run and says nothing."""


@dataclass
class Read:
    """A DataFrame that tasks read: of the wire, or (`of_user`) of a user. `first`: no other tasks run before them."""

    frame: Any
    partitions: int
    of_user: bool = False
    first: bool = False


@dataclass
class Computed:
    """A DataFrame of the wire that tasks compute."""

    rows: Read
    work: TaskWork

    @property
    def partitions(self) -> int:
        return self.rows.partitions

    @property
    def frame(self) -> Any:
        return self.of(None)

    def of(self, partitions: list[int] | None) -> Any:
        """The rows that some of the tasks compute; the others do nothing."""
        function = run_batches if self.rows.of_user else run_wire
        work = self.work
        only = None if partitions is None else frozenset(partitions)
        return self.rows.frame.mapInArrow(partial(function, work.part, work.given, work.shared, only), WIRE)


@dataclass
class Together:
    """The rows of several stages in one DataFrame."""

    several: list[Computed]

    @property
    def frame(self) -> Any:
        return _union([rows.frame for rows in self.several])


def run_wire(
    part: str,
    given: dict[int, list[Row]],
    shared: dict[str, Any],
    only: frozenset[int] | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The function of a task over rows of the wire. `only`: the tasks that are to run."""
    if only is not None and _number() not in only:
        return iter(())
    task = _task(part, given, shared)
    return map(wire_batch, placed(task.where, task.run(row for batch in batches for row in wire_rows(batch))))


def run_batches(
    part: str,
    given: dict[int, list[Row]],
    shared: dict[str, Any],
    only: frozenset[int] | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The function of a task over a DataFrame of a user."""
    if only is not None and _number() not in only:
        return iter(())
    task = _task(part, given, shared)
    return map(wire_batch, placed(task.where, task.run_batches(batches)))


def result_of_wire(
    part: str, given: dict[int, list[Row]], shared: dict[str, Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function of a task that makes rows of the result."""
    task = _task(part, given, shared)
    found = placed(task.where, task.run(row for batch in batches for row in wire_rows(batch)))
    # What earlier tasks have counted has no place in the result.
    return (row[3] for row in found if isinstance(row[3], pa.RecordBatch))


def result_of_batches(
    part: str, given: dict[int, list[Row]], shared: dict[str, Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The same over a DataFrame of a user."""
    task = _task(part, given, shared)
    return (row[3] for row in placed(task.where, task.run_batches(batches)))


def _number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


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
        # A DataFrame of few rows has partitions of Spark's choice: the rows are placed like others. A task without
        # rows gets one that says nothing, so that the DataFrame is never empty: Spark would leave its tasks out.
        rows = [row for number, mine in enumerate(tasks) for row in _stamped(mine, number)]
        frame = self.session.createDataFrame(wire_table(rows), WIRE)
        return Read(frame.repartitionById(len(tasks), "shard"), len(tasks), first=True)

    def frame(self, frame: Any) -> Read:
        return Read(frame, 0, of_user=True)

    def computed(self, rows: Read, work: TaskWork) -> Computed:
        return Computed(rows, work)

    def placed(self, inputs: list[Any], shards: int, tasks: int | None = None) -> Read:
        return Read(_union([rows.frame for rows in inputs]).repartitionById(shards, "shard"), shards)

    def arranged(self, rows: Rows, work: TaskWork, plan: PhysicalPlan, keys: tuple[SortKey, ...], shards: int) -> Read:
        frame = self.result(rows, work, plan)
        names = dict(zip(plan.columns, frame.columns, strict=True))
        columns = []
        for key in keys:
            assert isinstance(key.expr, Column)
            order = f"{'desc' if key.descending else 'asc'}_nulls_{'first' if key.nulls_first else 'last'}"
            columns.append(getattr(frame[f"`{names[key.expr.name].replace('`', '``')}`"], order)())
        return Read(frame.repartitionByRange(shards, *columns), shards, of_user=True)

    def together(self, several: list[Computed]) -> Together:
        return Together(several)

    def partitions(self, rows: Computed | Together) -> int:
        # What lies behind a shuffle would be computed again for each wave of partitions: it is one.
        return rows.rows.partitions if isinstance(rows, Computed) and rows.rows.first else 1

    def share(self, blobs: list[Any]) -> Any:
        return SentBlobs(blobs)

    def collect(self, rows: Computed | Together, partitions: list[int], group: str) -> Iterator[Row]:
        for batch in self.chosen(rows, partitions).toArrow().to_batches():
            yield from wire_rows(batch)

    def chosen(self, rows: Computed | Together, partitions: list[int]) -> Any:
        """The DataFrame of these partitions."""
        if isinstance(rows, Together) or partitions == list(range(self.partitions(rows))):
            return rows.frame
        return rows.of(partitions)

    def cancel(self, group: str) -> None:
        self.session.sparkContext.cancelJobGroup(group)

    def kept(self, rows: Computed) -> Read:
        return Read(rows.frame.persist(StorageLevel.MEMORY_AND_DISK), rows.partitions)

    def again(self, kept: Any) -> Read:
        """Rows that were kept as an RDD become a DataFrame."""
        if isinstance(kept, Read):
            return kept
        rdd: Any = RDD(kept.jrdd, self.session.sparkContext, kept.deserializer).map(_plain_row)
        return Read(self.session.createDataFrame(rdd, WIRE, verifySchema=False), kept.partitions)

    def forget(self, kept: Read) -> None:
        kept.frame.unpersist()

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


def _union(frames: list[Any]) -> Any:
    return reduce(lambda left, right: left.unionAll(right), frames)


def _plain_row(row: Row) -> tuple[int, str | None, int, bytes]:
    return row[0], row[1], row[2], bytes(row[3])


def _stamped(rows: list[Row], number: int) -> Iterator[Row]:
    """The rows of a task with the number of its partition. Spark starts no task without rows, so each has one that
    says nothing."""
    yield number, None, 0, NOTHING
    yield from ((number, name, place, blob) for _, name, place, blob in rows)
