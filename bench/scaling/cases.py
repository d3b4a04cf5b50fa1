"""Three queries over very large tables, as stages for the simulation: what docs/scale.md reasons about.

`data` is what the query reads, decoded. Rows have 32 bytes. Files hold a third of the bytes (Parquet)."""

from __future__ import annotations

from dataclasses import dataclass

from bench.scaling.simulate import Cluster, Stage
from tsql.backends.spark.splits import TASK_BYTES, tasks_for
from tsql.backends.spark.stages.stages import ADAPTED, MANY_SHARDS
from tsql.backends.spark.wire import BLOB_BYTES
from tsql.planner.choose.shard_sizes import shards_for

ROW_BYTES = 32
COMPRESSION = 3
FILE_BYTES = 128e6
"""Decoded bytes of a row group: one split."""
SCAN_BYTE_NS = 0.5
"""Decoding a byte and filtering its row."""
MOVE_BYTE_NS = 7.0
"""`global_byte_ns`: half of it where rows are written, half where they are read."""
GROUP_ROW_NS = 60.0
"""`miss_ns`."""
JOIN_ROW_NS = 80.0
RESULT_BYTES = 2000.0
MOST_SIZES = 2000
"""Spark keeps a byte for each shard of a map task up to so many shards; beyond, a bit, and a few large sizes."""


@dataclass(frozen=True)
class Shuffle:
    """What a movement asks of Spark, with `moved` bytes from so many tasks to so many shards."""

    maps: int
    shards: int
    moved: float
    tasks: int = 0
    """That read the shards."""

    @property
    def blocks(self) -> int:
        return self.maps * self.shards

    @property
    def block_bytes(self) -> float:
        return self.moved / self.blocks

    @property
    def blob_bytes(self) -> float:
        """Rows leave in blobs of this size."""
        return min(BLOB_BYTES, self.block_bytes)

    @property
    def shard_bytes(self) -> float:
        return self.moved / self.shards

    @property
    def status_bytes(self) -> float:
        """What the driver keeps of the sizes of all blocks."""
        return self.maps * (64 + (self.shards if self.shards <= MOST_SIZES else self.shards / 8 + 100))


def tasks_of(cluster: Cluster, data: float) -> int:
    """The tasks of a scan."""
    return tasks_for(data, int(max(1, data // FILE_BYTES)), cluster.slots)


def shuffle_of(cluster: Cluster, data: float, moved: float) -> Shuffle:
    """A movement to as many shards as the planner chooses, and to as many tasks as the driver starts for them."""
    shards = shards_for(moved, cluster.slots)
    adapts = shards >= min(ADAPTED * cluster.slots, MANY_SHARDS)
    return Shuffle(
        tasks_of(cluster, data), shards, moved, tasks_for(moved, shards, cluster.slots) if adapts else shards
    )


def scan(cluster: Cluster, data: float) -> tuple[list[Stage], list[Shuffle]]:
    """A scan with a filter whose groups are few: nothing moves."""
    tasks = tasks_of(cluster, data)
    each = data / tasks
    read = Stage("scan", tasks, each / COMPRESSION, cpu_s=each * SCAN_BYTE_NS * 1e-9, result_bytes=RESULT_BYTES)
    return [read], []


def group(cluster: Cluster, data: float) -> tuple[list[Stage], list[Shuffle]]:
    """A GROUP BY with so many groups that rows are moved and not reduced before: half of the bytes."""
    return _moved(cluster, data, data / 2, GROUP_ROW_NS)


def join(cluster: Cluster, data: float) -> tuple[list[Stage], list[Shuffle]]:
    """A join of two tables of half the bytes each, both placed by their keys."""
    return _moved(cluster, data, data, JOIN_ROW_NS)


def _moved(cluster: Cluster, data: float, moved: float, row_ns: float) -> tuple[list[Stage], list[Shuffle]]:
    shuffle = shuffle_of(cluster, data, moved)
    each, sent = data / shuffle.maps, moved / shuffle.maps
    half = MOVE_BYTE_NS / 2 * 1e-9
    written = Stage(
        "scan and send",
        shuffle.maps,
        each / COMPRESSION,
        written_bytes=sent,
        cpu_s=each * SCAN_BYTE_NS * 1e-9 + sent * half,
    )
    got = moved / shuffle.tasks
    rows = data / ROW_BYTES / shuffle.tasks
    read = Stage(
        "receive",
        shuffle.tasks,
        fetched_bytes=got,
        fetched_blocks=shuffle.blocks / shuffle.tasks,
        cpu_s=got * half + rows * row_ns * 1e-9,
        result_bytes=RESULT_BYTES,
    )
    return [written, read], [shuffle]


QUERIES = {"scan and filter": scan, "group by, many groups": group, "join of two tables": join}

__all__ = ["QUERIES", "TASK_BYTES", "Shuffle", "group", "join", "scan", "shuffle_of", "tasks_of"]
