"""Plans that deal the rows of a sorted table to shards by ranges of its sort column, instead of moving them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tsql.planner.logical.sources import is_sorted
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import Step


def dealt_by_ranges(step: Step, column: str, shards: int, shared: Collection[int]) -> Step | None:
    """The step with its rows dealt to `shards` shards by ranges of a column. None if the rows do not come from a table
    sorted by it, or if a step has other users (`shared`, by id) that would compute its rows again."""
    if id(step) in shared:
        return None
    if isinstance(step, Scan):
        sorted_by = step.ranges is None and is_sorted(step.source, column)
        return replace(step, ranges=column, shards=shards) if sorted_by else None
    found = step.follows(column) or step.equated(column)
    if found is None:
        return None
    at, name = found
    dealt = dealt_by_ranges(step.inputs[at], name, shards, shared)
    if dealt is None:
        return None
    return step.with_inputs(tuple(dealt if place == at else below for place, below in enumerate(step.inputs)))


def is_in_order(step: Step, column: str) -> bool:
    """Whether every worker meets the rows of a step in the order of a column, because the table is sorted by it."""
    if isinstance(step, Scan):
        return is_sorted(step.source, column)
    found = step.follows(column)
    return found is not None and is_in_order(step.inputs[found[0]], found[1])
