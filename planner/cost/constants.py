"""The only constants of the planner: what work costs, and what is assumed where statistics are silent.

`Costs` are of a machine: the defaults are those of a two-core server, `tsql calibrate` measures them where it runs, and
`Step.estimate` of `planner/physical/` turns them into the cost of a plan. The other constants are the same everywhere.
"""

from __future__ import annotations

from dataclasses import fields

from tsql.kernels.process.quick_dataclass import dataclass

UNKNOWN_ROWS = 1e6
"""Of a source that does not know how many it has."""

SERIES_ROWS = 1e3
"""Of a series whose bounds are not known before the query runs."""

ROUNDS = 10.0
"""How many times the rows that a recursion starts with come out of it."""

MATCHED = 0.2
"""Matches of a row pattern, of the rows."""

WORKING_ROWS = 1e7
"""Of the working table of a recursion. So large that joins build their tables of the other side, which is done once and
not in each round."""

FILTER_SELECTIVITY = 0.3
EQUALITY_SELECTIVITY = 0.05
LIKE_SELECTIVITY = 0.05
LEAST_RANGE = 0.001
NULL_PART = 0.1
GROUPS_OF_UNKNOWN_KEYS = 0.1
"""Groups per row where nothing is known of the keys."""

SEMI_SELECTIVITY = 0.5
"""The part of rows that have a partner in a semi join of which nothing is known."""

LEAST_ANTI_PART = 0.05
"""An anti join is taken to leave so much: that all rows have a partner is a guess."""

SELECT_WORTH, SELECT_WORTH_OF_FEW, FEW_SCANNED = 0.9, 0.4, 10_000
"""A filter above a scan that lets less than this part of the rows through decides runs of rows at once. To gather the
numbers of rows costs a nanosecond, however many pass; a branch that nobody can foretell costs more, and a join behind
the filter can look for partners early only if the filter is decided so too. A scan of few rows has less to gain, and
the kernel is larger."""

PANES_WORTH = 0.5
"""With more panes than this part of the rows, windows are made of rows: a state for each would cost more than it
saves."""

CACHED_GROUPS = 100_000
"""Tables of more groups do not fit a core's cache: each row waits for memory. Rows are then placed into shards whose
tables do fit, and aggregated in one phase."""

GROUPS_PER_SHARD = 32_768
MOST_SHARDS = 256

MERGED_ROWS = 100_000
MERGED_DISTANCE = 1024
"""Sides in the order of their keys are merged if the built one has so many rows, and its keys are so far apart on
average: smaller tables fit a cache, and keys that are closer are places in an array or in a bitmap."""

BAND_ROWS, BAND_OTHER_ROWS = 4.0, 16.0
"""From so many rows of equal keys on, those that are within a range are searched for in order, instead of being looked
at one by one; the second where the larger side has to be built for it."""

MARKING_WORTH, OUTER_MARKING_WORTH = 1.5, 20.0
"""A semi or anti join builds its left side, and marks what finds a partner, if the right one has so many times its
rows; a left join, whose pairs must then be kept until the last row is known, if it has so many more."""

BROADCAST_ROWS = 1_000_000
"""Up to so many rows are sent to every machine; beyond, both sides of a join are placed by their keys."""

BUILD_ROW, JOINED_ROW, PAIR = 4.0, 0.5, 0.3
"""What it costs to put a row into the table of a join, to pass a pair on, to compare a pair of a product."""

REDUCTION_WORTH = 8.0
"""The input of an aggregate is reduced by the keys that a join will ask for if there are so many times more groups."""

EARLY_GROUPS = 4.0
"""A side of a join is aggregated by its keys before it is joined if it has so many rows for each."""

EARLY_WORTH = 0.7
"""If no more than this part of the rows finds a partner, they are looked for where the rows are scanned."""

LATE_WORTH = 0.6
"""If no more than this part of a file's rows pass the filters above its scan, columns that these do not look at are
decoded behind them."""

VARCHAR_BYTES = 24
"""What a text takes when it moves: its length, its place, and a few characters."""


@dataclass(frozen=True)
class Costs:
    """Nanoseconds of one core, except `pipeline_us`: what a further pipeline costs before its first row."""

    scan_byte_ns: float = 0.15
    """Reading a byte of a column."""
    row_ns: float = 2.0
    """A comparison or an expression, for each row."""
    group_ns: float = 8.0
    """Finding the group of a row and adding to it, in a table that fits the cache."""
    miss_ns: float = 60.0
    """The same in a table that does not."""
    merge_ns: float = 25.0
    """Merging the state of a group into another."""
    move_ns: float = 10.0
    """Hashing a row and writing it to its shard, between the cores of a machine."""
    sort_ns: float = 6.0
    """A row and a level of sorting: n rows have log2(n) levels."""
    global_byte_ns: float = 10.0
    """Moving a byte between machines."""
    pipeline_us: float = 300.0


DEFAULT = Costs()
NAMES = tuple(field.name for field in fields(Costs))


def probe_row(table_rows: float) -> float:
    """What it costs to look a row up: tables that leave the caches make it wait for memory."""
    return 1.0 if table_rows <= 16_384 else 2.0 if table_rows <= 1_000_000 else 4.0


SORTED_ROWS = 2_000_000
"""About so many rows of a shard are sorted together where a step may choose: their keys and numbers are some 32 MB,
beyond which allocations are fresh pages of the system."""
MOST_SORTED_SHARDS = 256
"""At most so many shards are made for that."""

WALKED_ROWS = 1 << 18
"""Rows that are windows of their own are sorted and walked so many at a time, at most: fewer to a shard would fit a
core's cache, but then there are more shards than can be written to at the same time, and each has its own cost."""

PROGRESS_BYTES = 1 << 28
"""Groups that have a time among their keys, and take more than this, are given and forgotten as the time passes, where
files are in its order; a quarter of memory_limit, if that is less."""
PROGRESS_ROWS = 1_000_000
"""About so many rows are read between two punctuations: fewer make more of them, more hold more."""
PROGRESS_PARTS = 8
"""The files have at least so many parts for that, and their times overlap no more than so many times on average."""
PROGRESS_OVERLAP = 3
