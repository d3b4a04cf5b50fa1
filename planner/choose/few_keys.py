"""Whether a step has few keys. A sample of few keys says little: of 1,000 keys a ripple over 1/64 has some 16. So the
rows of a scan make the progress instead, if they can; if not, the keys do, and bounds come with the last ripples."""

from __future__ import annotations

from collections.abc import Iterable

from tsql.kernels.expr.nodes import Expr, substitute
from tsql.planner.physical.estimate import Estimate
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.operators.aggregate import Aggregate, partial_of
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.step import Step
from tsql.planner.progressive.dealing import Keys
from tsql.planner.progressive.driven_keys import Grouped, Parted, dealing_of

FEW_KEYS = 10_000
"""Fewer keys than so many are few, where their number can be estimated."""


def few_keys(step: Parted, estimator: Estimator) -> int | None:
    """How many keys a step has, if these are few; None if they are many, or if nothing is known of them."""
    if isinstance(step, HashJoin):
        sides = [[key.left for key in step.keys], [key.right for key in step.keys]]
        rows_of = [estimator.of(one) for one in step.inputs]
        found = [number_of(keys_of_side, rows) for keys_of_side, rows in zip(sides, rows_of, strict=True)]
        # Of other joins all left keys stay in the result.
        known = [one for one in (found if step.kind in ("inner", "semi") else found[:1]) if one is not None]
        keys = min(known, default=None)
    else:
        below, keys_below = _rows_below(step)
        keys = number_of(keys_below, estimator.of(below))
    return None if keys is None or keys >= FEW_KEYS else round(keys)


def _rows_below(step: Grouped) -> tuple[Step, Keys]:
    """The rows that a step groups, and its keys over these."""
    keys, below = dealing_of(step).keys, step.inputs[0]
    if not isinstance(step, Aggregate):
        return below, keys
    first = partial_of(below) if step.absorbs else step
    assert first is not None
    return first.inputs[0], tuple(substitute(key, dict(first.by)) for key in keys)


def number_of(keys: Iterable[Expr], given: Estimate) -> float | None:
    """How many different keys some rows have, at most."""
    product = 1.0
    for key in keys:
        known = given.distinct(key)
        if known is None:
            return None
        product *= max(1.0, known)
    return min(product, max(1.0, given.rows))
