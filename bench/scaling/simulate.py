"""Simulates the stages of a job on a cluster: a driver, executors with cores, their disks and their network.

It is a simulation of events. The driver does one thing at a time: it starts a task, or it hears of the end of one. A
core runs one task at a time. A disk and a network card of an executor serve one task after the other. A task reads
while it computes, so it takes as long as the slower of both. Speeds are parameters (`Cluster`), measured or stated in
docs/scale.md."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cluster:
    """The machines, and what work costs on them."""

    executors: int
    cores: int = 4
    """Of each executor."""
    disk_bytes_s: float = 1e9
    network_bytes_s: float = 1.25e9
    seek_us: float = 50.0
    """Finding a block of a shuffle on a disk."""
    launch_us: float = 840.0
    """The driver's work to start a task and to hear of its end."""
    task_us: float = 20_000.0
    stage_us: float = 35_000.0

    @property
    def slots(self) -> int:
        return self.executors * self.cores


@dataclass(frozen=True)
class Stage:
    """Tasks that do the same. Bytes and blocks are of one task."""

    name: str
    tasks: int
    stored_bytes: float = 0.0
    """Read from storage over the network."""
    fetched_bytes: float = 0.0
    """Read from the disks of other executors, and over the network."""
    fetched_blocks: float = 0.0
    written_bytes: float = 0.0
    """Written to the own disk for the next stage."""
    cpu_s: float = 0.0
    result_bytes: float = 0.0


@dataclass
class Ran:
    """What a stage took. `busy` are (core, begin, end) of its tasks."""

    name: str
    seconds: float = 0.0
    driver_s: float = 0.0
    core_s: float = 0.0
    read_bytes: float = 0.0
    moved_bytes: float = 0.0
    result_bytes: float = 0.0
    waited_s: float = 0.0
    """The time that cores waited for the driver."""
    busy: list[tuple[int, float, float]] = field(default_factory=list)


class _Executor:
    """A disk and a network card: the time from which each is free."""

    def __init__(self) -> None:
        self.disk = self.network = 0.0

    def read(self, cluster: Cluster, stage: Stage, begin: float) -> float:
        """When the bytes of a task that begins then are there."""
        incoming = (stage.stored_bytes + stage.fetched_bytes) / cluster.network_bytes_s
        self.network = max(self.network, begin) + incoming
        # Each executor's disk serves as many blocks as its own tasks fetch: shards are spread evenly.
        disk = (stage.fetched_bytes + stage.written_bytes) / cluster.disk_bytes_s
        self.disk = max(self.disk, begin) + disk + stage.fetched_blocks * cluster.seek_us * 1e-6
        return max(self.network if incoming else begin, self.disk if disk or stage.fetched_blocks else begin)


def run_stage(cluster: Cluster, stage: Stage, trace: bool = False) -> Ran:
    """One stage from its first task to its last."""
    ran = Ran(stage.name)
    executors = [_Executor() for _ in range(cluster.executors)]
    # Executors take turns, as in Spark's scheduler.
    events = [
        (0.0, slot % cluster.executors * cluster.cores + slot // cluster.executors) for slot in range(cluster.slots)
    ]
    heapq.heapify(events)
    driver = 0.0
    for _ in range(stage.tasks):
        free, core = heapq.heappop(events)
        driver = max(driver, free) + cluster.launch_us * 1e-6
        ran.driver_s += cluster.launch_us * 1e-6
        ran.waited_s += driver - free
        computed = driver + cluster.task_us * 1e-6 + stage.cpu_s
        end = max(computed, executors[core // cluster.cores].read(cluster, stage, driver))
        heapq.heappush(events, (end, core))
        ran.core_s += end - driver
        ran.read_bytes += stage.stored_bytes + stage.fetched_bytes
        ran.moved_bytes += stage.written_bytes
        ran.result_bytes += stage.result_bytes
        ran.seconds = max(ran.seconds, end)
        if trace:
            ran.busy.append((core, driver, end))
    # Results of tasks pass through the network card of the driver.
    ran.seconds = max(ran.seconds, ran.result_bytes / cluster.network_bytes_s) + cluster.stage_us * 1e-6
    return ran


def run_job(cluster: Cluster, stages: list[Stage]) -> list[Ran]:
    """Stages one after the other."""
    return [run_stage(cluster, stage) for stage in stages]
