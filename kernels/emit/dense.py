"""When groups are counted out in an array by their keys, without hashing: what the kernels do and the planner
expects."""

from __future__ import annotations

DENSE_GROUPS = 1 << 12
"""At most this many keys: always dense."""

LARGEST_DENSE = 1 << 22
"""At most this many keys: dense if one in KEYS_PER_GROUP is expected to occur."""

KEYS_PER_GROUP = 4
