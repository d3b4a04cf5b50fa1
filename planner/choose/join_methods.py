"""Join methods that a hint can ask for. `METHODS` has a function for each: from the join with its keys to the step.

A method that cannot do a join raises `CannotJoin` with the reason. To add a method, add an entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tsql.kernels.expr.nodes import Call, Expr, Literal
from tsql.kernels.expr.types import BOOLEAN, TIMESTAMP, TIMESTAMPTZ
from tsql.planner.logical.predicates import conjunction, conjuncts
from tsql.planner.physical.join_ranges import bound, is_number, moved
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.merge_join import MergeJoin, refusal
from tsql.planner.physical.step import Step


class CannotJoin(Exception):
    """A join that a method cannot do; the message is the reason."""


def by_hash(joined: HashJoin) -> HashJoin:
    """Builds a hash table of one side by the keys."""
    if not joined.keys:
        raise CannotJoin("a hash join needs an equality of the two sides")
    return joined


def by_merge(joined: HashJoin) -> HashJoin:
    """Merges two sides that are in the order of the key."""
    reason = refusal(joined)
    if reason is not None:
        raise CannotJoin(reason)
    return MergeJoin(
        joined.inputs,
        joined.kind,
        joined.keys,
        joined.condition,
        joined.build,
        position=joined.position,
        rows=joined.rows,
    )


def by_loop(joined: HashJoin) -> HashJoin:
    """Compares every pair of rows."""
    return replace(joined, keys=(), condition=_everything(joined), range=(), overlap=None, early=False)


def by_range(joined: HashJoin) -> HashJoin:
    """Builds a sorted table of one side; rows of the other look up the bounds of their partners."""
    if joined.kind == "mark":
        raise CannotJoin("a range join does not tell false from NULL, as a subquery's mark needs it")
    found = ranged(joined)
    if not found.range:
        raise CannotJoin("a range join needs a comparison of a number of one side with the other")
    return found


def ranged(joined: HashJoin) -> HashJoin:
    """A join by binary search in a sorted table, within each key. Applies if the condition bounds a number of the built
    side: from both ends if there is such a number; else from above, while a second number is bounded from below, as
    for intervals that overlap; else from one end."""
    built = joined.inputs[0 if joined.build == "left" else 1].schema
    groups: dict[Expr, dict[str, list[Call]]] = {}
    for part in (comparison for part in conjuncts(joined.condition) if (comparison := closed(part)) is not None):
        found = bound(part, built)
        if found is not None and is_number(found[0].type):
            ends = groups.setdefault(moved(found[0])[0], {})
            ends.setdefault(found[1].op[0], []).append(part)
    if not groups:
        return joined
    chosen = max(groups.values(), key=len)
    parts, overlap = [part for ends in chosen.values() for part in ends], None
    pair = _intervals(groups) if len(chosen) < 2 else None
    if pair is not None:
        parts, overlap = pair
    rest = [p for p in conjuncts(joined.condition) if p not in parts and p != overlap]
    return replace(joined, range=tuple(parts), overlap=overlap, condition=conjunction(rest))


def _intervals(groups: dict[Expr, dict[str, list[Call]]]) -> tuple[list[Call], Call] | None:
    """Of numbers that are bounded from above and others that are bounded from below: the two most likely to be the
    starts and ends of intervals. These are times, or at least of one type, and the overlap of lifetimes comes after the
    conditions that a query states."""
    pairs = [
        (start, end)
        for start, ends in groups.items()
        for end, others in groups.items()
        if "<" in ends and ">" in others
    ]
    if not pairs:
        return None

    def rank(place: int) -> tuple[bool, bool, int]:
        start, end = pairs[place]
        return start.type == end.type and start.type in (TIMESTAMP, TIMESTAMPTZ), start.type == end.type, place

    start, end = pairs[max(range(len(pairs)), key=rank)]
    return groups[start]["<"], groups[end][">"][0]


def closed(part: Expr) -> Call | None:
    """The comparison that a condition implies. A comparison implies itself. `e IS NULL OR x < e`, the end of a period
    that may be open, implies `x <= coalesce(e, the greatest)`; the condition then stays in the join as well."""
    match part:
        case Call("or", (Call("is_null", (end,)), Call("<" | "<=", (x, other)))) if other == end and is_number(
            end.type
        ):
            greatest = Literal(end.type.bounds[1], end.type)
            return Call("<=", (x, Call("coalesce", (end, greatest), end.type)), BOOLEAN)
        case Call("<" | "<=" | ">" | ">=") as comparison:
            return comparison
    return None


def _everything(joined: HashJoin) -> Expr | None:
    """The whole condition that a pair must satisfy."""
    return conjunction([*(key.expr for key in joined.keys), *joined.times, *conjuncts(joined.condition)])


METHODS: dict[str, Callable[[HashJoin], Step]] = {
    "hash": by_hash,
    "loop": by_loop,
    "merge": by_merge,
    "range": by_range,
}
