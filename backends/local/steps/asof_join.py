"""Runs `asof_join`: a hash join over a table that is sorted within equal keys (`join/`)."""

from __future__ import annotations

from tsql.backends.local.lower.local_step import runs
from tsql.backends.local.steps.hash_join import HashJoinStep
from tsql.planner.physical.operators.asof_join import AsofJoin


@runs(AsofJoin)
class AsofJoinStep(HashJoinStep):
    """Finds the nearest entry by a search in the group of the key."""
