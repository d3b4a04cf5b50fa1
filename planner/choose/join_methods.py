"""Join methods that a hint can ask for. `METHODS` has a function for each: from the join with its keys to the step.

A method that cannot do a join raises `CannotJoin` with the reason. To add a method, add an entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tsql.kernels.expr.nodes import Call, Expr, Literal
from tsql.kernels.expr.types import BOOLEAN
from tsql.planner.logical.predicates import conjunction, conjuncts
from tsql.planner.physical.operators.join import HashJoin, is_number, is_range
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
    return replace(joined, keys=(), condition=_everything(joined), range=(), early=False)


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
    side."""
    built = joined.inputs[0 if joined.build == "left" else 1].schema
    groups: dict[Expr, list[Call]] = {}
    for part in (bound for part in conjuncts(joined.condition) if (bound := closed(part)) is not None):
        if is_range((part,), built):
            inside = next(a for a in part.args if all(c in built for c in a.columns()))
            groups.setdefault(inside, []).append(part)
    if not groups:
        return joined
    chosen = max(
        groups.values(),
        key=lambda parts: len({(p.name[0] == "<") == (all(c in built for c in p.args[0].columns())) for p in parts}),
    )
    rest = [p for p in conjuncts(joined.condition) if p not in chosen]
    return replace(joined, range=tuple(chosen), condition=conjunction(rest))


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
    return conjunction([*(key.expr for key in joined.keys), *joined.range, *conjuncts(joined.condition)])


METHODS: dict[str, Callable[[HashJoin], Step]] = {
    "hash": by_hash,
    "loop": by_loop,
    "merge": by_merge,
    "range": by_range,
}
