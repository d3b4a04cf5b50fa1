"""The only constants of the planner: what work costs, and what is assumed where statistics are silent."""

from __future__ import annotations

FILTER_SELECTIVITY = 0.3
EQUALITY_SELECTIVITY = 0.05
NULL_PART = 0.1
GROUPS_OF_UNKNOWN_KEYS = 0.1
"""Groups per row where nothing is known of the keys."""

SEMI_SELECTIVITY = 0.5
"""The part of rows that have a partner in a semi join of which nothing is known."""

LEAST_ANTI_PART = 0.05
"""An anti join is taken to leave so much: that all rows have a partner is a guess."""

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
