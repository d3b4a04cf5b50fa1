"""Band joins: the condition bounds a number of one side by expressions of the other, as in `b.ts BETWEEN a.ts AND a.ts
+ d`.

The side with the bounded number is built and sorted by it within each key. A row then finds its partners by binary
search, so the cost of a join does not grow with the rows per key. Lifetimes that overlap are such a join where those of
the built side have one length; others are found by both of their ends. `join_methods.ranged` finds the bounds for a
given built side."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from tsql.kernels.expr.nodes import Call, Column, Expr, Literal, rewrite
from tsql.kernels.expr.types import INTERVAL, TIMESTAMP, TIMESTAMPTZ
from tsql.planner.choose.join_methods import ranged
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.cost.stats import combinations
from tsql.planner.logical import facts
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.lengths import length
from tsql.planner.logical.predicates import conjunction, conjuncts
from tsql.planner.physical.join_ranges import bound
from tsql.planner.physical.operators.join import HashJoin


def banded(joined: HashJoin, node: logical.Join, is_fixed: bool) -> HashJoin:
    """The join as a range join if it has a range that pays off; otherwise the join itself. A side with a number that is
    bounded from both ends is built, unless a hint fixes the built side (`is_fixed`)."""
    found = _bounded(joined, node)
    if not _is_band(found) and not is_fixed and joined.kind != "single":
        other = _bounded(replace(joined, build="left" if joined.build == "right" else "right"), node)
        if _is_band(other) and _is_worth_turning(found, other, node):
            found = other
    if not found.range:
        return joined
    if _is_band(found) or found.overlap is not None:
        # Bounded from both ends: one key with many rows costs more than all that a hash table could save.
        return joined if found.keys and _is_unique(found, node) else found
    return joined if found.keys and rows_per_key(joined, node) < cost.BAND_ROWS else found


def _bounded(joined: HashJoin, node: logical.Join) -> HashJoin:
    """The join with its range, if it has one. An end of the built side that is a constant time after its start is
    written as the start and that time, so that both bound one number."""
    if joined.condition is None:
        return joined
    built = node.left if joined.build == "left" else node.right
    known: dict[Expr, Expr] = {}
    for start, end in permutations(_times(joined, built), 2):
        us = length(built, start.name, end.name)
        if us is not None and us > 0 and start not in known:
            known.setdefault(end, Call("+", (start, Literal((0, 0, us), INTERVAL)), end.type))
    if not known:
        return ranged(joined)
    parts = [
        part if bound(part, built.schema) is None else rewrite(part, lambda e: known.get(e, e))
        for part in conjuncts(joined.condition)
    ]
    found = ranged(replace(joined, condition=conjunction(parts)))
    return found if _is_band(found) else ranged(joined)


def _times(joined: HashJoin, built: logical.Node) -> list[Column]:
    """The columns of times of a side that its comparisons with the other side consist of."""
    found = (bound(part, built.schema) for part in conjuncts(joined.condition))
    numbers = dict.fromkeys(one[0] for one in found if one is not None)
    return [n for n in numbers if isinstance(n, Column) and n.type in (TIMESTAMP, TIMESTAMPTZ)]


def _is_band(joined: HashJoin) -> bool:
    """Whether one number of the built side is bounded from both ends."""
    if not joined.range:
        return False
    _, ends = joined.bounds(0 if joined.build == "left" else 1)
    return len({one.op[0] for one in ends}) == 2


def _is_worth_turning(found: HashJoin, other: HashJoin, node: logical.Join) -> bool:
    """Whether to build the other side, which has a band. An overlap is found nearly as fast as a band."""
    if found.overlap is not None:
        sizes = stats.rows(node.left), stats.rows(node.right)
        return max(sizes) <= cost.BAND_OVER_OVERLAP * min(sizes)
    return not found.keys or rows_per_key(found, node) >= cost.BAND_OTHER_ROWS


def _is_unique(joined: HashJoin, node: logical.Join) -> bool:
    """Whether no two rows of the built side have the same keys. Statistics do not tell: one value may be that of half
    of the rows."""
    built = node.left if joined.build == "left" else node.right
    sides = [key.left if joined.build == "left" else key.right for key in joined.keys]
    names = {side.name for side in sides if isinstance(side, Column)}
    return any(key <= names for key in facts.keys(built))


def rows_per_key(joined: HashJoin, node: logical.Join) -> float:
    """How many rows of the built side are expected to have the same keys."""
    built = node.left if joined.build == "left" else node.right
    keys = [key.left if joined.build == "left" else key.right for key in joined.keys]
    values, _ = combinations(keys, built)
    return stats.rows(built) / max(1.0, min(values, stats.rows(built)))
