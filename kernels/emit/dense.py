"""Limits of dense grouping: an array indexed by the keys, without hashing. Shared by the kernels and the planner."""

from __future__ import annotations

DENSE_GROUPS = 1 << 12
"""At most this many possible keys: always dense."""

LARGEST_DENSE = 1 << 22
"""At most this many possible keys: dense if at least one in KEYS_PER_GROUP is expected to occur."""

KEYS_PER_GROUP = 4
