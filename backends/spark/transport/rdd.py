"""Rows of the wire as RDDs of bytes: for sessions whose driver is this process.

Blobs pass through Spark as plain byte arrays: no plan of Catalyst, no rows of Spark's, no pickle. A shuffle of 256 MB
takes 0.4 to 0.8 of the time that it takes as DataFrames, and a job starts 30 ms earlier. A movement is one shuffle
dependency, so Spark computes its rows once, however many stages and jobs read them."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from pyspark import Broadcast, StorageLevel, TaskContext
from pyspark.core.rdd import _wrap_function
from pyspark.serializers import FramedSerializer, write_int
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _load_from_socket

from tsql.backends.spark.failures import placed
from tsql.backends.spark.task import Task
from tsql.backends.spark.transport.cluster import alive, executors_of, slots_of
from tsql.backends.spark.transport.transport import Activity, Rows, TaskWork, Transport
from tsql.backends.spark.travel.check import is_this_python, make_ready
from tsql.backends.spark.travel.look import looked_rows
from tsql.backends.spark.wire import Row, header, unpack
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.process.quick_dataclass import dataclass

REST_SECONDS, REST_STEP_SECONDS = 60.0, 0.05
"""How long tasks of a cancelled run are waited for, and how often they are looked at."""

PARTITIONER = 0x7473716C
"""Equal partitioners let Spark join several shuffles partition by partition. This number stands for "by shard"."""


MOST_GIVEN_BYTES = 64 << 10
"""A task unpickles this much in a millisecond, and a shuffle takes some 40."""

PIECE_BYTES = 1 << 20
"""Rows of the driver are sent by tasks of about this size: Spark's scheduler keeps the bytes of each."""

LARGE_BYTES = 1 << 19
"""A function of a task with more data than this is a broadcast of ours, which is removed when the run ends. Beyond 1 MB
PySpark makes one by itself, whose file is there as long as the session."""

LEAST_OVERHEAD_MB = 384
"""Spark gives an executor at least this much outside of its heap."""


class RowSerializer(FramedSerializer):
    """Rows of the wire as length and bytes. `moves`: the shard stands before each of them, for a shuffle."""

    def __init__(self, moves: bool = False):
        self.moves = moves

    def dump_stream(self, iterator: Iterable[Row], stream: Any) -> None:
        for shard, name, place, blob in iterator:
            if self.moves:
                write_int(8, stream)
                stream.write(struct.pack(">q", shard))
            head = header(shard, name, place)
            write_int(len(head) + len(blob), stream)
            stream.write(head)
            stream.write(blob)

    def loads(self, obj: bytes) -> Row:
        return unpack(obj)


class BatchSerializer(FramedSerializer):
    """Arrow batches of a DataFrame, as Spark sends them: without their schema."""

    def __init__(self, schema: bytes):
        self.schema = schema

    def load_stream(self, stream: Any) -> Iterator[pa.RecordBatch]:
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        for blob in super().load_stream(stream):
            yield pa.ipc.read_record_batch(pa.py_buffer(blob), schema)

    def loads(self, obj: bytes) -> bytes:
        return obj


@dataclass
class Read:
    """An RDD that tasks read: of the JVM, and what turns its bytes into Python objects."""

    jrdd: Any
    deserializer: Any
    partitions: int

    @property
    def plain(self) -> Any:
        """The RDD, for `collect`."""
        return self.jrdd


class GivenRows(Read):
    """Rows of the driver, a partition per list."""

    def __init__(self, context: Any, tasks: list[list[Row]]):
        self.context, self.tasks = context, tasks
        self.partitions = len(tasks)
        self.shuffles: dict[int, Any] = {}

    @cached_property
    def _rdd(self) -> Any:
        return self.context.parallelize(self.tasks, len(self.tasks))

    @property
    def jrdd(self) -> Any:
        return self._rdd._jrdd

    @property
    def deserializer(self) -> Any:
        return self._rdd._jrdd_deserializer

    def shuffled(self, shards: int) -> Any:
        """(shard, bytes) pairs, each in the partition of its shard, for tasks that also read other rows. The stage that
        sends them has no Python in it."""
        if shards not in self.shuffles:
            gateway, jvm = self.context._gateway, self.context._jvm
            pieces = [self._piece(rows) for rows in _pieces(row for task in self.tasks for row in task)]
            array = gateway.new_array(gateway.jvm.org.apache.spark.api.java.JavaRDD, len(pieces))
            for number, piece in enumerate(pieces):
                array[number] = piece
            pairs = jvm.PairwiseRDD(self.context._jsc.union(array).rdd()).asJavaPairRDD()
            self.shuffles[shards] = pairs.partitionBy(jvm.PythonPartitioner(shards, PARTITIONER))
        return self.shuffles[shards]

    def _piece(self, rows: list[Row]) -> Any:
        """An RDD with one partition."""
        jvm, java = self.context._jvm, self.context._jsc
        return self.context._serialize_to_jvm(
            rows,
            RowSerializer(moves=True),
            lambda name: jvm.PythonRDD.readRDDFromFile(java, name, 1),
            lambda: jvm.PythonParallelizeServer(java.sc(), 1),
        )


def _pieces(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows in lists of about `PIECE_BYTES`."""
    found: list[Row] = []
    bytes = 0
    for row in rows:
        found.append(row)
        bytes += len(row[3])
        if bytes >= PIECE_BYTES:
            yield found
            found, bytes = [], 0
    if found:
        yield found


class Computed:
    """What tasks make of an RDD. The same tasks can be asked for rows in shards (`shuffled`) and for plain rows."""

    def __init__(self, context: Any, rows: Read, work: TaskWork):
        self.context, self.rows, self.work = context, rows, work
        self.partitions = rows.partitions
        self.shuffles: dict[int, Any] = {}
        self._plain: Any = None
        self._data: Any = None

    @property
    def plain(self) -> Any:
        if self._plain is None:
            self._plain = self._mapped(RowSerializer())
        return self._plain

    def shuffled(self, shards: int) -> Any:
        """(shard, bytes) pairs, each in the partition of its shard."""
        if shards not in self.shuffles:
            jvm = self.context._jvm
            # Reports of failures name the stage by where its RDD was made.
            self.context._jsc.setCallSite(self.work.name)
            try:
                pairs = jvm.PairwiseRDD(self._mapped(RowSerializer(moves=True)).rdd()).asJavaPairRDD()
            finally:
                self.context._jsc.clearCallSite()
            self.shuffles[shards] = pairs.partitionBy(jvm.PythonPartitioner(shards, PARTITIONER))
        return self.shuffles[shards]

    def _mapped(self, serializer: RowSerializer) -> Any:
        broadcasts = {name: found for name, found in self.work.shared.items() if not isinstance(found, list)}
        work = partial(self.work.function or run_partition, self._sent(), broadcasts)
        function = _wrap_function(self.context, work, self.rows.deserializer, serializer)
        return self.context._jvm.PythonRDD(self.rows.jrdd.rdd(), function, False, False).asJavaRDD()

    def _sent(self) -> Any:
        """The part, the rows of each task, and the blobs for all of them: as they are, or in a broadcast."""
        if self._data is None:
            work = self.work
            blobs = {name: found for name, found in work.shared.items() if isinstance(found, list)}
            self._data = (work.part, work.given, blobs)
            sizes = [len(work.part), *(len(row[3]) for rows in work.given.values() for row in rows)]
            if sum(sizes) + sum(len(blob) for found in blobs.values() for blob in found) > LARGE_BYTES:
                self._data = self.context.broadcast(self._data)
        return self._data

    def free(self) -> None:
        """Remove the broadcast. No task runs again."""
        if isinstance(self._data, Broadcast):
            self._data.destroy()


@dataclass
class Together:
    """The rows of several stages in one RDD."""

    plain: Any
    partitions: int


def run_partition(sent: Any, broadcasts: dict[str, Any], number: int, items: Any) -> Any:
    """The function of a task. sent: what `Computed._sent` gives."""
    context = TaskContext.get()
    part, given, blobs = sent if isinstance(sent, tuple) else sent.value
    task = Task(part, number, given.get(number, []), blobs | broadcasts, 1 if context is None else context.cpus())
    is_frame = task.part.entries and task.part.entries[0].kind == "frame"
    return placed(task.where, task.run_batches(items) if is_frame else task.run(_rows(items)))


def _rows(items: Iterable[Any]) -> Iterator[Row]:
    """Rows that came from other tasks one by one, or from the driver in lists."""
    for item in items:
        if isinstance(item, list):
            yield from item
        else:
            yield item


class RddTransport(Transport):
    """Moves rows with the SparkContext of a session."""

    most_given_bytes = MOST_GIVEN_BYTES

    def __init__(self, session: SparkSession):
        self.session, self._context = session, session.sparkContext

    @property
    def context(self) -> Any:
        return alive(self._context)

    takes_streams = True

    @property
    def is_one_machine(self) -> bool:
        return bool(self.context.master.startswith("local"))

    @property
    def cores(self) -> int:
        return slots_of(self.context)

    @property
    def executors(self) -> int:
        return executors_of(self.context)

    def prepare(self) -> None:
        if not (self.context.master.startswith("local") and is_this_python(self.context.pythonExec)):
            make_ready(self.context.applicationId, self._look, self.context.addPyFile)

    def _look(self, names: tuple[str, ...]) -> list[str]:
        return self.context.parallelize(range(self.cores), self.cores).mapPartitions(looked_rows(names)).collect()

    @property
    def executor_bytes(self) -> int | None:
        scala, conf = self.context._jsc.sc(), self.context.getConf()
        if scala.isLocal():
            # Tasks run in the driver, whose memory other things use too.
            return None
        heap = scala.executorMemory()
        asked = conf.get("spark.executor.memoryOverhead")
        factor = float(conf.get("spark.executor.memoryOverheadFactor", "0.1"))
        to_mb = self.context._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb
        overhead = max(LEAST_OVERHEAD_MB, int(heap * factor)) if asked is None else to_mb(asked)
        return (heap + overhead) << 20

    def given(self, tasks: list[list[Row]]) -> GivenRows:
        return GivenRows(self.context, tasks)

    def frame(self, frame: Any) -> Read:
        if not hasattr(frame, "_jdf"):
            raise CatalogError(
                "a DataFrame of Spark Connect cannot be read by a Spark session of this process",
                hint="connect to its session: tsql.connect(spark=frame.sparkSession)",
            )
        large = self.session.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
        schema = to_arrow_schema(frame.schema, timezone="UTC", prefers_large_types=large)
        jrdd = frame._jdf.toArrowBatchRdd().toJavaRDD()
        return Read(jrdd, BatchSerializer(schema.serialize().to_pybytes()), jrdd.getNumPartitions())

    def computed(self, rows: Read, work: TaskWork) -> Computed:
        return Computed(self.context, rows, work)

    def of_caller(self) -> Any:
        return self.context._jsc.sc().getLocalProperties().clone()

    def as_caller(self, found: Any) -> None:
        self.context._jsc.sc().setLocalProperties(found)

    def _begin(self, group: str) -> None:
        """The jobs of this thread belong to a group. Without the interrupt, a cancelled task would continue in its
        Python worker and keep its core busy."""
        description = self.context.getLocalProperty("spark.job.description") or "tsql"
        self.context.setJobGroup(group, description, interruptOnCancel=True)

    def written(self, inputs: list[Computed | GivenRows], shards: int, group: str) -> int | None:
        self._begin(group)
        scala = self.context._jvm.scala.concurrent
        java = self.context._jsc.sc()
        # All of them run side by side, then each is awaited. The job that follows finds their files. Spark refuses to
        # submit what has no partitions (an empty DataFrame).
        stages = [rows.shuffled(shards).rdd().dependencies().head() for rows in inputs if rows.partitions]
        waiting = [java.submitMapStage(stage) for stage in stages]
        found = [scala.Await.result(one, scala.duration.Duration.Inf()) for one in waiting]
        return sum(sum(one.bytesByPartitionId()) for one in found)

    def placed(self, inputs: list[Computed | GivenRows], shards: int, tasks: int | None = None) -> Read:
        pairs = [rows.shuffled(shards) for rows in inputs]
        if len(pairs) > 1:
            gateway = self.context._gateway
            array = gateway.new_array(gateway.jvm.org.apache.spark.api.java.JavaPairRDD, len(pairs))
            for number, one in enumerate(pairs):
                array[number] = one
            pairs = [self.context._jsc.union(array)]
        rows = self.context._jvm.PythonRDD.valueOfPair(pairs[0])
        if tasks is not None and tasks < shards:
            return Read(rows.coalesce(tasks), RowSerializer(), tasks)
        return Read(rows, RowSerializer(), shards)

    def together(self, several: list[Computed]) -> Together:
        gateway = self.context._gateway
        array = gateway.new_array(gateway.jvm.org.apache.spark.api.java.JavaRDD, len(several))
        for number, rows in enumerate(several):
            array[number] = rows.plain
        return Together(self.context._jsc.union(array), sum(rows.partitions for rows in several))

    def partitions(self, rows: Computed | Together | Read) -> int:
        return rows.partitions

    def share(self, blobs: list[Any]) -> Any:
        return self.context.broadcast(blobs)

    def collect(self, rows: Computed | Together | Read, partitions: list[int], group: str) -> Iterator[Row]:
        self._begin(group)
        self.context._jsc.setCallSite(rows.work.name if isinstance(rows, Computed) else "tsql")
        sockets = self.context._jvm.PythonRDD.runJob(self.context._jsc.sc(), rows.plain, partitions)
        with _load_from_socket(sockets, RowSerializer()) as stream:
            yield from stream

    @contextmanager
    def in_group(self, group: str) -> Iterator[None]:
        self._begin(group)
        yield

    def activity(self, group: str) -> Activity | None:
        tracker = self.context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        numbers = {number for job in jobs if job is not None for number in job.stageIds}
        stages = [stage for number in numbers if (stage := tracker.getStageInfo(number)) is not None]
        if not stages:
            return None
        done = sum(stage.numCompletedTasks >= stage.numTasks for stage in stages)
        tasks = sum(stage.numTasks for stage in stages)
        return Activity(len(stages), done, tasks, sum(stage.numCompletedTasks for stage in stages))

    def cancel(self, group: str) -> None:
        if self._is_stopped:
            return
        # Also what starts after this: a thread may be about to start its job.
        self.context._jsc.sc().cancelJobGroupAndFutureJobs(group)

    def rest(self, group: str) -> None:
        if self._is_stopped:
            return
        tracker, until = self.context.statusTracker(), time.monotonic() + REST_SECONDS
        while time.monotonic() < until:
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
            if not any(stage is not None and stage.numActiveTasks for stage in stages):
                return
            time.sleep(REST_STEP_SECONDS)

    def name_of(self, stage: int) -> str | None:
        info = self.context.statusTracker().getStageInfo(stage)
        return None if info is None else info.name

    @property
    def cluster(self) -> Any:
        return self._context

    def kept(self, rows: Computed) -> Read:
        level = self.context._getJavaStorageLevel(StorageLevel.MEMORY_AND_DISK)
        return Read(rows.plain.persist(level), RowSerializer(), rows.partitions)

    def again(self, kept: Read) -> Read:
        return kept

    def forget(self, kept: Read) -> None:
        kept.jrdd.unpersist(False)

    @property
    def _is_stopped(self) -> bool:
        """Whether there is no cluster any more, and nothing to cancel or to free."""
        return self._context._jsc is None

    def free(self, rows: list[Rows]) -> None:
        if self._is_stopped:
            return
        for one in rows:
            if isinstance(one, Computed):
                one.free()
        cleaner = self.context._jsc.sc().cleaner()
        if cleaner.isEmpty():
            return
        for one in rows:
            for pairs in one.shuffles.values():
                number = pairs.rdd().dependencies().head().shuffleId()
                cleaner.get().doCleanupShuffle(number, False)
