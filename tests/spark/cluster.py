"""A stand-in for a Spark session that runs the tasks of the Spark backend in this process, one after the other.

It moves rows exactly as Spark is asked to (`mapInArrow`, `repartitionById`, `unionAll`), so much of the corpus can run
through the cutting, the wire and the tasks in seconds. `test_cluster.py` runs a part of the corpus on a real cluster.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa

from tsql.backends.spark.wire import SCHEMA


class Frame:
    """A DataFrame of the wire as a list of partitions."""

    def __init__(self, compute: Callable[[], list[pa.Table]]):
        self.compute = compute

    def mapInArrow(self, function: Any, schema: Any) -> Frame:
        shipped = pickle.dumps(function)

        def compute() -> list[pa.Table]:
            return [self._run(pickle.loads(shipped), partition) for partition in self.compute()]

        return Frame(compute)

    def _run(
        self, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], partition: pa.Table
    ) -> pa.Table:
        return pa.Table.from_batches(list(function(iter(partition.to_batches(max_chunksize=2)))), SCHEMA)

    def repartitionById(self, partitions: int, column: str) -> Frame:
        def compute() -> list[pa.Table]:
            rows = pa.concat_tables([SCHEMA.empty_table(), *reversed(self.compute())])
            shards = rows.column(column).to_pylist()
            return [
                rows.filter(pa.array([shard % partitions == target for shard in shards], pa.bool_()))
                for target in range(partitions)
            ]

        return Frame(compute)

    def unionAll(self, other: Frame) -> Frame:
        return Frame(lambda: [*self.compute(), *other.compute()])

    def persist(self) -> Frame:
        found = self.compute()
        return Frame(lambda: found)

    def unpersist(self) -> None:
        pass

    def toArrow(self) -> pa.Table:
        return pa.concat_tables([SCHEMA.empty_table(), *self.compute()])


class Shared:
    """A broadcast value."""

    def __init__(self, value: Any):
        self.value = value

    def unpersist(self) -> None:
        pass


class Accumulator:
    """An accumulator: copies of it in tasks find the value of the driver's by its number."""

    _values: ClassVar[list[Any]] = []

    def __init__(self, value: Any, param: Any):
        self.number, self.param = len(self._values), param
        self._values.append(param.zero(value))

    def add(self, term: Any) -> None:
        self._values[self.number] = self.param.addInPlace(self._values[self.number], pickle.loads(pickle.dumps(term)))

    @property
    def value(self) -> Any:
        return self._values[self.number]


class InProcess:
    """What the Spark backend uses of a session."""

    def __init__(self, parallelism: int = 3):
        self.sparkContext = SimpleNamespace(
            defaultParallelism=parallelism,
            broadcast=Shared,
            accumulator=Accumulator,
            setJobGroup=lambda *_, **__: None,
            cancelJobGroup=lambda _: None,
        )

    def createDataFrame(self, table: pa.Table, schema: Any) -> Frame:
        return Frame(lambda: [table.slice(i, 1) for i in range(table.num_rows)])
