"""When groups are counted out in an array by their keys, without hashing: what the kernels do and the planner
expects."""

from __future__ import annotations

DENSE_GROUPS = 1 << 12
"""Keys with so few possible values always are."""

LARGEST_DENSE = 1 << 22
"""Keys with so many are, where many of their values are expected to occur: one in KEYS_PER_GROUP."""

KEYS_PER_GROUP = 4
