"""`Transport`: what the stages of a run need of Spark. RDDs and DataFrames offer it, and tests do it in one process.

A `Transport` belongs to a session and serves any number of runs. `Rows` is whatever it moves: rows of the wire in
partitions, not computed before `collect`. Nothing here knows what a plan is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tsql.backends.spark.wire import Row
from tsql.kernels.expr.nodes import SortKey
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.step import PhysicalPlan

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

    function: Any = None
    """What runs in a task with (part, given, shared), broadcasts, its number and the rows; None: `Task`."""


@dataclass(frozen=True)
class Activity:
    """How far jobs have come."""

    stages: int
    done_stages: int
    tasks: int
    done_tasks: int

    def __str__(self) -> str:
        stage = min(self.stages, self.done_stages + 1)
        return f"stage {stage} of {self.stages}, {self.done_tasks:,} of {self.tasks:,} tasks"


class Transport(ABC):
    """Moves rows between tasks, and to the driver."""

    most_sent_bytes: int | None = None
    """Blobs of the driver go with the tasks up to this size; more of them are moved like the rows of tasks. Rows that a
    broadcast would collect are then moved as well: the driver is far away. None: it is near."""

    most_given_bytes: int | None = None
    """Rows that the driver gives to tasks that also read placed rows go with the function up to this size. Each task
    gets those of all others with it, so more of them are placed. None: any size."""

    streams = False
    """Whether `collect` gives the rows of all partitions as they are computed, in their order."""

    takes_streams = False
    """Whether jobs over streams run on it."""

    @property
    def is_one_machine(self) -> bool:
        """Whether all tasks run on the machine of the driver."""
        return True

    def prepare(self) -> None:  # noqa: B027 - a cluster that is this process needs nothing
        """Make sure that tasks can run there: each finds this package, in this version. Called before each run."""

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

    @property
    def executor_bytes(self) -> int | None:
        """The memory of an executor, with what is outside of its heap; None if that is not known."""
        return None

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
    def placed(self, inputs: list[Rows], shards: int, tasks: int | None = None) -> Rows:
        """The rows of all inputs, each in the partition of its shard. With fewer `tasks` than shards, a partition has
        several shards, whichever Spark likes: those whose rows are near."""
        ...

    def written(self, inputs: list[Rows], shards: int, group: str) -> int | None:
        """The bytes that the inputs of `placed` send: runs the tasks that compute them. None if nobody knows."""
        return None

    def arranged(self, rows: Rows, work: TaskWork, plan: PhysicalPlan, keys: tuple[SortKey, ...], shards: int) -> Rows:
        """The rows of a plan as a DataFrame that Spark places by ranges of keys. For lazy stages only."""
        raise NotImplementedError

    @abstractmethod
    def together(self, several: list[Rows]) -> Rows:
        """The rows of several stages: the partitions of the first, then those of the second, and so on."""
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

    def of_caller(self) -> Any:
        """What the calling thread has set for its jobs, such as a pool of the scheduler. `as_caller` takes it."""
        return None

    def as_caller(self, found: Any) -> None:
        """The jobs that this thread starts have it, too."""
        return

    @contextmanager
    def in_group(self, group: str) -> Iterator[None]:
        """The actions that the calling thread starts inside belong to a group that `cancel` ends."""
        yield

    def activity(self, group: str) -> Activity | None:
        """How far the jobs of a group have come; None if nobody knows."""
        return None

    @abstractmethod
    def cancel(self, group: str) -> None:
        """End the jobs of a group."""
        ...

    @property
    def cluster(self) -> Any:
        """What all transports of one cluster share: datasets are found by it."""
        return self

    @abstractmethod
    def kept(self, rows: Rows) -> Rows:
        """The same rows, which the cluster keeps from the first time on that they are computed."""
        ...

    @abstractmethod
    def again(self, kept: Rows) -> Rows:
        """Rows that this or another transport of the cluster keeps, for `computed`."""
        ...

    @abstractmethod
    def forget(self, kept: Rows) -> None:
        """Free rows that the cluster keeps."""
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
