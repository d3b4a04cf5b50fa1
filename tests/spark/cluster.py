"""A stand-in for a Spark cluster that runs the tasks of the Spark backend in this process, one after the other.

It moves rows exactly as Spark is asked to (`Transport`), so much of the corpus can run through the cutting, the wire
and the tasks in seconds. `test_cluster.py` runs a part of the corpus on a real cluster."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

from tsql.backends.spark.failures import placed
from tsql.backends.spark.task import Task
from tsql.backends.spark.transport.transport import TaskWork, Transport
from tsql.backends.spark.wire import Row, header, unpack

Partitions = Callable[[], list[list[Row]]]


class Moved:
    """Rows in partitions, computed at most once."""

    def __init__(self, compute: Partitions):
        self._compute, self._found = compute, None

    def __call__(self) -> list[list[Row]]:
        if self._found is None:
            self._found = self._compute()
        return self._found


class Kept(Moved):
    """Rows that stay; `lose` makes the next user compute them again."""

    def __init__(self, rows: Moved):
        super().__init__(rows)
        self.rows, self.forgotten, self.times = rows, False, 0

    def __call__(self) -> list[list[Row]]:
        self.times += self._found is None
        return super().__call__()

    def lose(self) -> None:
        self._found = self.rows._found = None


class Shared:
    """A broadcast value."""

    def __init__(self, value: Any):
        self.value, self.destroyed = value, False

    def destroy(self) -> None:
        self.destroyed = True


class InProcess(Transport):
    """A cluster that runs `parallelism` tasks at a time, in this process. A task has `cpus` threads."""

    def __init__(self, parallelism: int = 3, cpus: int = 1):
        self.parallelism, self.cpus = parallelism, cpus
        self.jobs: list[list[int]] = []
        self.freed = 0

    @property
    def cores(self) -> int:
        return self.parallelism

    @property
    def executors(self) -> int:
        return 1

    def given(self, tasks: list[list[Row]]) -> Moved:
        return Moved(lambda: tasks)

    def frame(self, frame: Any) -> Moved:
        raise NotImplementedError("there are no DataFrames without Spark")

    def computed(self, parts: Moved, work: TaskWork) -> Moved:
        shipped = pickle.dumps((work.part, work.given, work.shared))

        def compute() -> list[list[Row]]:
            found = []
            for number, mine in enumerate(parts()):
                part, given, shared = pickle.loads(shipped)
                if work.function is not None:
                    rows = work.function((part, given, shared), {}, number, iter(mine))
                    found.append([_travelled(row) for row in rows])
                    continue
                task = Task(part, number, given.get(number, []), shared, self.cpus)
                found.append([_travelled(row) for row in placed(task.where, task.run(iter(mine)))])
            return found

        return Moved(compute)

    def written(self, inputs: list[Moved], shards: int, group: str) -> int | None:
        return sum(len(row[3]) for one in inputs for part in one() for row in part)

    def placed(self, inputs: list[Moved], shards: int, tasks: int | None = None) -> Moved:
        tasks = tasks or shards

        def compute() -> list[list[Row]]:
            # Spark promises no order of what arrives.
            rows = [row for one in reversed(inputs) for part in reversed(one()) for row in part]
            # Nor which shards a task gets.
            return [[row for row in rows if row[0] % tasks == target] for target in range(tasks)]

        return Moved(compute)

    def together(self, several: list[Moved]) -> Moved:
        return Moved(lambda: [part for one in several for part in one()])

    def partitions(self, rows: Moved) -> int:
        return len(rows())

    def share(self, blobs: list[Any]) -> Any:
        return Shared(blobs)

    def collect(self, rows: Moved, partitions: list[int], group: str) -> Iterator[Row]:
        self.jobs.append(partitions)
        found = rows()
        for number in partitions:
            yield from found[number]

    def cancel(self, group: str) -> None:
        pass

    def kept(self, rows: Moved) -> Kept:
        return Kept(rows)

    def again(self, kept: Kept) -> Kept:
        return kept

    def forget(self, kept: Kept) -> None:
        kept.forgotten = True

    def free(self, rows: list[Moved]) -> None:
        self.freed += len(rows)


def _travelled(row: Row) -> Row:
    """A row as it comes out at the other end."""
    shard, name, place, blob = row
    return unpack(header(shard, name, place) + bytes(blob))
