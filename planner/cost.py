"""The only constants of the planner: what work costs, and what is assumed where statistics are silent."""

from __future__ import annotations

FILTER_SELECTIVITY = 0.3
EQUALITY_SELECTIVITY = 0.05
NULL_PART = 0.1
GROUPS_OF_UNKNOWN_KEYS = 0.1
"""Groups per row where nothing is known of the keys."""

SELECT_WORTH = 0.4
"""A filter above a scan that lets less than this part of the rows through decides runs of rows at once."""

GATHER_GROUPS = 20_000
"""Up to so many groups per shard, merging all partial groups on one shard beats placing them by key."""

PARTIAL_WORTH = 0.5
"""Above so many groups per row, partial aggregation hashes nearly every row twice and one phase is cheaper."""

CACHED_GROUPS = 100_000
"""Tables of more groups do not fit a core's cache: each row would wait for memory. Rows are then placed into shards whose
tables do fit, and aggregated in one phase."""

GROUPS_PER_SHARD = 32_768
MOST_SHARDS = 256

MARKING_WORTH = 1.5
"""A left, semi or anti join builds its left side, and marks what finds a partner, if the right one has so many times its rows."""

BROADCAST_ROWS = 1_000_000
"""Up to so many rows are sent to every machine; beyond, both sides of a join are placed by their keys."""

BUILD_ROW, JOINED_ROW, PAIR = 4.0, 0.5, 0.3
"""What it costs to put a row into the table of a join, to pass a pair on, to compare a pair of a product."""


def probe_row(table_rows: float) -> float:
    """What it costs to look a row up: tables that leave the caches make it wait for memory."""
    return 1.0 if table_rows <= 16_384 else 2.0 if table_rows <= 1_000_000 else 4.0


EARLY_WORTH = 0.7
"""If no more than this part of the rows finds a partner, they are looked for where the rows are scanned."""
