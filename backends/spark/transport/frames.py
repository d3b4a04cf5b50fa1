"""Rows of the wire as DataFrames: for lazy results (`to_spark`), and for sessions whose driver is elsewhere (Spark
Connect).

The plans of these DataFrames are `mapInArrow` over `repartitionById`. Everything that a stage has to tell travels in
rows, so nothing needs the SparkContext."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import RDD, StorageLevel, TaskContext
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from tsql.backends.spark.failures import placed
from tsql.backends.spark.frame import spark_schema
from tsql.backends.spark.task import Task
from tsql.backends.spark.transport.cluster import executors_of, slots_of
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

NUMBERS = (
    "cast(id as int) as shard",
    "cast(null as string) as input",
    "cast(0 as bigint) as place",
    "cast('{}' as binary) as blob",
)
"""Of a range: a row for each shard that says nothing but its number."""


@dataclass
class Read:
    """A DataFrame that tasks read: of the wire, or (`of_user`) of a user. `first`: no other tasks run before them.
    `numbered`: each partition has a row, whose shard is the number of its task. Spark's own number of a partition
    counts those of the DataFrames before it in a union, too."""

    frame: Any
    partitions: int
    of_user: bool = False
    first: bool = False
    numbered: bool = False


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
        only = None if partitions is None else frozenset(partitions)
        rows = self.rows
        return rows.frame.mapInArrow(partial(run, self.work, rows.of_user, rows.numbered, only), WIRE)


@dataclass
class Together:
    """The rows of several stages in one DataFrame."""

    several: list[Computed]

    @property
    def frame(self) -> Any:
        return _union([rows.frame for rows in self.several])


def run(
    work: TaskWork, of_user: bool, numbered: bool, only: frozenset[int] | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function of a task over rows of the wire, or (`of_user`) over a DataFrame of a user. `only`: the tasks that
    are to run."""
    return map(wire_batch, _found(work, of_user, numbered, batches, only))


def result(
    work: TaskWork, of_user: bool, numbered: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function of a task that makes rows of the result."""
    # What earlier tasks have counted has no place in the result.
    return (row[3] for row in _found(work, of_user, numbered, batches) if isinstance(row[3], pa.RecordBatch))


def _found(
    work: TaskWork,
    of_user: bool,
    numbered: bool,
    batches: Iterator[pa.RecordBatch],
    only: frozenset[int] | None = None,
) -> Iterator[Row]:
    """What a task makes of its rows."""
    context = TaskContext.get()
    number, cpus = (context.partitionId(), context.cpus()) if context is not None else (0, 1)
    rows = iter(()) if of_user else (row for batch in batches for row in wire_rows(batch))
    if numbered:
        first = next(rows)
        number, rows = first[0], chain((first,), rows)
    if only is not None and number not in only:
        return iter(())
    task = Task(work.part, number, work.given.get(number, []), work.shared, cpus)
    return placed(task.where, task.run_batches(batches) if of_user else task.run(rows))


class FrameTransport(Transport):
    """Moves rows with DataFrames of a session."""

    def __init__(self, session: Any):
        self.session = session

    @property
    def cores(self) -> int:
        return slots_of(self.session.sparkContext)

    @property
    def executors(self) -> int:
        return executors_of(self.session.sparkContext)

    def given(self, tasks: list[list[Row]]) -> Read:
        # A DataFrame of few rows has partitions of Spark's choice: the rows are placed like others. A task without
        # rows gets one that says nothing, so that the DataFrame is never empty: Spark would leave its tasks out.
        rows = [row for number, mine in enumerate(tasks) for row in _stamped(mine, number)]
        frame = self.session.createDataFrame(wire_table(rows), WIRE)
        return Read(frame.repartitionById(len(tasks), "shard"), len(tasks), first=True, numbered=True)

    def frame(self, frame: Any) -> Read:
        return Read(frame, 0, of_user=True)

    def computed(self, rows: Read, work: TaskWork) -> Computed:
        return Computed(rows, work)

    def placed(self, inputs: list[Any], shards: int, tasks: int | None = None) -> Read:
        numbers = self.session.range(0, shards, 1, 1).selectExpr(*NUMBERS)
        frame = _union([*(rows.frame for rows in inputs), numbers])
        return Read(frame.repartitionById(shards, "shard"), shards, numbered=True)

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
        return rows.frame.mapInArrow(partial(result, work, rows.of_user, rows.numbered), spark_schema(plan))


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
