"""Band joins: the condition bounds a number of one side by expressions of the other, as in `b.ts BETWEEN a.ts AND a.ts
+ d`.

The side with the bounded number is built and sorted by it within each key. A row then finds its partners by binary
search, so the cost of a join does not grow with the rows per key. `join_methods.ranged` finds the bounds for a given
built side."""

from __future__ import annotations

from dataclasses import replace

from tsql.planner.choose.join_methods import ranged
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.cost.stats import combinations
from tsql.planner.logical import nodes as logical
from tsql.planner.physical.operators.join import HashJoin


def banded(joined: HashJoin, node: logical.Join, is_fixed: bool) -> HashJoin:
    """The join as a range join if it has a range that pays off; otherwise the join itself. A side that is bounded from
    both ends is built, unless a hint fixes the built side (`is_fixed`)."""
    found = _bounded(joined)
    if _ends(found) < 2 and not is_fixed and joined.kind != "single":
        other = _bounded(replace(joined, build="left" if joined.build == "right" else "right"))
        if _ends(other) == 2 and (not joined.keys or rows_per_key(joined, node) >= cost.BAND_OTHER_ROWS):
            found = other
    if not found.range or (found.keys and rows_per_key(joined, node) < cost.BAND_ROWS):
        return joined
    return found


def _bounded(joined: HashJoin) -> HashJoin:
    return ranged(joined) if joined.condition is not None else joined


def _ends(joined: HashJoin) -> int:
    """From how many ends the number of the built side is bounded."""
    if not joined.range:
        return 0
    _, bounds = joined.bounds(0 if joined.build == "left" else 1)
    return len({op[0] for op, _ in bounds})


def rows_per_key(joined: HashJoin, node: logical.Join) -> float:
    """How many rows of the built side are expected to have the same keys."""
    built = node.left if joined.build == "left" else node.right
    keys = [key.left if joined.build == "left" else key.right for key in joined.keys]
    values, _ = combinations(keys, built)
    return stats.rows(built) / max(1.0, min(values, stats.rows(built)))
