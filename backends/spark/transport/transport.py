"""`Transport`: what the stages of a run need of Spark. RDDs and DataFrames offer it, and tests do it in one process.

A `Transport` belongs to a session and serves any number of runs. `Rows` is whatever it moves: rows of the wire in
partitions, not computed before `collect`. Nothing here knows what a plan is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from tsql.backends.spark.wire import Row
from tsql.kernels.process.quick_dataclass import dataclass

Rows = Any
Given = dict[int, list[Row]]
"""Rows that the driver gives to the tasks of a stage, by the number of the task."""


@dataclass(frozen=True)
class TaskWork:
    """What the tasks of a stage run: the text of a `StagePart`, rows that come with the task, by the number of the
    task, and blobs for all of them, by the name of their entry."""

    part: str
    given: Given
    shared: dict[str, Any]
    name: str = ""
    """What the stage is called in Spark's reports, and in its user interface."""


class Transport(ABC):
    """Moves rows between tasks, and to the driver."""

    @property
    @abstractmethod
    def cores(self) -> int:
        """The number of tasks that the cluster runs at a time."""
        ...

    @property
    @abstractmethod
    def executors(self) -> int:
        """The number of executors, at least 1."""
        ...

    @abstractmethod
    def given(self, tasks: list[list[Row]]) -> Rows:
        """Rows of the driver, a partition per list."""
        ...

    @abstractmethod
    def frame(self, frame: Any) -> Rows:
        """The Arrow batches of a DataFrame, in Spark's own partitions. Only `computed` reads them."""
        ...

    @abstractmethod
    def computed(self, rows: Rows, work: TaskWork) -> Rows:
        """What the tasks make of the rows of each partition."""
        ...

    @abstractmethod
    def placed(self, inputs: list[Rows], shards: int) -> Rows:
        """The rows of all inputs, each in the partition of its shard."""
        ...

    @abstractmethod
    def partitions(self, rows: Rows) -> int:
        """The number of partitions."""
        ...

    @abstractmethod
    def share(self, blobs: list[Any]) -> Any:
        """Blobs that tasks find under `.value`; `.destroy()` frees them."""
        ...

    @abstractmethod
    def collect(self, rows: Rows, partitions: list[int], group: str) -> Iterator[Row]:
        """The rows of these partitions, in their order. The jobs belong to a group that `cancel` ends."""
        ...

    @abstractmethod
    def cancel(self, group: str) -> None:
        """End the jobs of a group."""
        ...

    def rest(self, group: str) -> None:
        """Return when no task of a cancelled group runs any more."""
        return

    def name_of(self, stage: int) -> str | None:
        """What a stage of Spark's was called when it was built, if that is known."""
        return None

    @abstractmethod
    def free(self, rows: list[Rows]) -> None:
        """Remove what the cluster keeps of rows that nobody reads again."""
        ...
