"""The only constants of the planner: the costs of work, and the assumptions where there are no statistics.

`Costs` depend on the machine: the defaults are for a two-core server, and `tsql calibrate` measures them where it runs.
`Step.estimate` of `planner/physical/` turns them into the cost of a plan. The other constants are the same everywhere.
"""

from __future__ import annotations

from dataclasses import fields

from tsql.kernels.process.quick_dataclass import dataclass

UNKNOWN_ROWS = 1e6
"""Rows of a source that does not know its row count."""

SERIES_ROWS = 1e3
"""Rows of a series whose bounds are not known before the query runs."""

ROUNDS = 10.0
"""A recursion yields this many times the rows that it starts with."""

MATCHED = 0.2
"""Matches of a row pattern per row."""

WORKING_ROWS = 1e7
"""Rows of a recursion's working table. The number is large so that joins build their table from the other side: that
table is built once instead of in each round."""

FILTER_SELECTIVITY = 0.3
EQUALITY_SELECTIVITY = 0.05
LIKE_SELECTIVITY = 0.05
LEAST_RANGE = 0.001
NULL_PART = 0.1
GROUPS_OF_UNKNOWN_KEYS = 0.1
"""Groups per row when nothing is known about the keys."""

SEMI_SELECTIVITY = 0.5
"""The fraction of rows with a partner in a semi join with no statistics."""

LEAST_ANTI_PART = 0.05
"""An anti join keeps at least this fraction: that all rows have a partner is only a guess."""

SELECT_WORTH, SELECT_WORTH_OF_FEW, FEW_SCANNED = 0.9, 0.4, 10_000
"""A filter above a scan selects runs of rows at once if it passes less than this fraction. Collecting row numbers costs
a nanosecond however many rows pass; a mispredicted branch costs more. A join above the filter can probe early only if
the filter selects runs. The second value is for scans of few rows: they gain less, and the kernel is larger."""

PANES_WORTH = 0.5
"""With more panes than this fraction of the rows, windows are computed from rows: a state per pane would cost more than
it saves."""

CACHED_GROUPS = 100_000
"""A table of more groups does not fit a core's cache, so each row waits for memory. Rows are then placed into shards
whose tables fit, and aggregated in one phase."""

GROUPS_PER_SHARD = 32_768
MOST_SHARDS = 256

GROUPS_OF_SAMPLES = 1_000
"""With at most so many groups, a progressive query keeps the states of each batch of a sample rather than its rows."""

MERGED_ROWS = 100_000
MERGED_DISTANCE = 1024
"""Sides sorted by their keys are merged if the built side has at least this many rows and its keys are this far apart
on average. A smaller table fits a cache; closer keys index an array or a bitmap."""

BAND_ROWS, BAND_OTHER_ROWS = 4.0, 16.0
"""From this many rows per key on, a range is found by binary search instead of testing each row. The second value
applies where the larger side has to be built for it."""

BAND_OVER_OVERLAP = 4.0
"""A side with a band on its start times is built instead of one whose intervals are searched by both ends, if it has at
most this many times the rows."""

MARKING_WORTH, OUTER_MARKING_WORTH = 1.5, 20.0
"""A semi or anti join builds its left side, and marks the rows with a partner, if the right side has this many times
its rows. The second value is for a left join, which must keep its pairs until the last row is known."""

BROADCAST_BYTES = 512 << 20
"""Up to this many bytes of a join's side are held by every machine; beyond, both sides are placed by their keys. A
cluster whose memory is known has its own limit (`Costs.broadcast_bytes`)."""

SKEW_BYTES = 4 << 30
"""The larger side of a join of so many bytes is looked through for keys that many rows share."""

UNIQUE = 0.9
"""A key with so many values per row has no value that many rows share."""

SHARD_BYTES = 128 << 20
"""A shard that rows are moved to should have about so many bytes."""

MANY_SHARDS, LARGE_SHARD_BYTES = 2000, 2 << 30
"""More shards are made only of so large ones: each task has a block for each shard, and small blocks cost a search on a
disk. Spark, too, keeps the sizes of blocks for so many shards at most."""

DECODING = 4.0
"""Columns of files take so many times as long to read as columns in memory. It matters between machines: each of
several machines may read a file, or each a part of it."""

TEXT_DECODING = 12.0
"""The same for texts: they are decompressed and decoded, and mostly searched, byte by byte."""

HELD_BYTE = 1.0
"""Nanoseconds for each byte of the rows that a machine computes for itself and keeps: they are written to memory that
its tasks share."""

DRIVER_BYTES = 1 << 30
"""More rows than this are not brought to the driver of a cluster to be sorted there."""

BUILD_ROW, JOINED_ROW, PAIR = 4.0, 0.5, 0.3
"""The cost of inserting a row into a join's table, of passing on a pair, and of comparing a pair of a product."""

REDUCTION_WORTH = 8.0
"""The input of an aggregate is reduced by the keys of a join above if there are this many times more groups than
rows of the other side."""

EARLY_GROUPS = 4.0
"""A side of a join is aggregated by its keys before the join if it has this many rows per key."""

EARLY_WORTH = 0.7
"""If at most this fraction of the rows finds a partner, the scan looks for partners already."""

LATE_WORTH = 0.6
"""If at most this fraction of a file's rows passes the filters above its scan, columns that the filters do not use are
decoded after them."""

VARCHAR_BYTES = 24
"""Bytes of a text when it moves: its length, its position, and a few characters."""


@dataclass(frozen=True)
class Costs:
    """Nanoseconds of one core, except `pipeline_us`: the cost of another pipeline before its first row.

    Those in `SPARK_NAMES` are of a cluster: `tsql calibrate --backend spark` measures them."""

    scan_byte_ns: float = 0.15
    """Reading a byte of a column."""
    row_ns: float = 2.0
    """Computing a comparison or an expression for a row."""
    group_ns: float = 8.0
    """Finding the group of a row and adding to it, in a table that fits the cache."""
    miss_ns: float = 60.0
    """The same in a table that does not."""
    merge_ns: float = 25.0
    """Merging the state of a group into another."""
    move_ns: float = 10.0
    """Hashing a row and writing it to its shard, between the cores of a machine."""
    sort_ns: float = 6.0
    """Sorting, per row and level: n rows have log2(n) levels."""
    pipeline_us: float = 300.0
    global_byte_ns: float = 7.0
    """Moving a byte between machines: one core on each side writes and reads it."""
    broadcast_byte_ns: float = 11.0
    """Collecting a byte and sending it to every machine. Machines pass it on, so their number hardly matters."""
    stage_us: float = 60_000.0
    """Another stage of a Spark job, with a task on each core."""
    task_us: float = 20_000.0
    """Another task of a stage, for the core that runs it."""
    job_us: float = 60_000.0
    """Another Spark job, beside the stage that it has."""
    broadcast_bytes: float | None = None
    """`BROADCAST_BYTES` of a cluster whose memory is known. Not measured."""


DEFAULT = Costs()
SPARK_NAMES = ("global_byte_ns", "broadcast_byte_ns", "stage_us", "task_us", "job_us")
LOCAL_NAMES = tuple(field.name for field in fields(Costs) if field.name not in (*SPARK_NAMES, "broadcast_bytes"))
NAMES = (*LOCAL_NAMES, *SPARK_NAMES)


def probe_row(table_rows: float) -> float:
    """The cost of looking up a row: a table that exceeds the caches makes it wait for memory."""
    return 1.0 if table_rows <= 16_384 else 2.0 if table_rows <= 1_000_000 else 4.0


SORTED_ROWS = 2_000_000
"""About this many rows of a shard are sorted together where a step may choose. Their keys and row numbers take some 32
MB; larger allocations are fresh pages of the system."""
MOST_SORTED_SHARDS = 256
"""At most this many shards are made for sorting."""

WALKED_ROWS = 1 << 18
"""Rows that are windows of their own are sorted and walked at most this many at a time. Fewer rows per shard would fit
a core's cache, but would need more shards than can be written at once, and each shard has a fixed cost."""

PROGRESS_BYTES = 1 << 28
"""Groups with a time key that take more memory than this are emitted and freed as the time passes, if files are in its
order. The limit is a quarter of memory_limit if that is less."""
PROGRESS_ROWS = 1_000_000
"""About this many rows are read between two punctuations: fewer rows mean more punctuations, more rows mean more
memory."""
PROGRESS_PARTS = 8
"""Files need at least this many parts for that, and their times overlap at most this many times on average."""
PROGRESS_OVERLAP = 3
