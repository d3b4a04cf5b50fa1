"""Whether the keys of a step are too few for progress by keys: of 1,000 keys, the ripple over 1/64 has some 16.

Where keys are few, the rows of a scan make the progress instead, if they tell more. Of a join they do, since each row
of the scan has its pairs. Of groups that are grouped again they do if a small part of the rows has met all groups. If
no scan can make progress, the keys do, and bounds come with the last ripples."""

from __future__ import annotations

from collections.abc import Iterable

from tsql.kernels.expr.nodes import Expr, substitute
from tsql.planner.physical.estimate import Estimate
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.operators.aggregate import Aggregate, partial_of
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.step import Step
from tsql.planner.progressive.dealing import Keys
from tsql.planner.progressive.driven_keys import DrivenKeys, Grouped, dealing_of, keys_of

FEW_KEYS = 10_000
"""Fewer keys than so many are few, where their number can be estimated."""

ROWS_OF_KEY = 100
"""With so many rows for each key, a twentieth of the rows has met all keys, and knows the size of their groups well."""

FEW_VALUES = 1_000
"""Where the keys themselves are counted (distinct values), so few are few: a sample of rows has met them all. Of more
it may miss those that are rare, and cannot tell how many these are."""


def few_keys(found: DrivenKeys, estimator: Estimator) -> int | None:
    """How many keys there are, if these are few; None if they are many, or if nothing is known of them."""
    below = found.below
    if isinstance(below, HashJoin):
        sides = [key.left for key in below.keys], [key.right for key in below.keys]
        known = [number_of(keys, estimator.of(rows)) for keys, rows in zip(sides, below.inputs, strict=True)]
        # Of other joins all left keys stay in the result.
        number = min((one for one in known if one is not None), default=None) if below.kind == "inner" else known[0]
    else:
        rows, keys = _rows_below(below)
        number = number_of(keys, estimator.of(rows))
    return None if number is None or number >= FEW_KEYS else round(number)


def rows_tell_more(found: DrivenKeys, keys: int, estimator: Estimator) -> bool:
    """Whether the rows of a scan tell more than so few keys."""
    below = found.below
    if isinstance(below, HashJoin):
        return True
    names = {name for key in keys_of(below) for name in key.columns()}
    counted = {name for _, call in found.partial.calls for e in call.expressions() for name in e.columns()}
    rows, _ = _rows_below(below)
    is_met = ROWS_OF_KEY * keys <= estimator.of(rows).rows
    return is_met and (keys < FEW_VALUES or names.isdisjoint(counted))


def few_values(argument: Expr, groups: float, given: Estimate) -> bool:
    """Whether so many groups have few distinct values of an argument, and a sample of rows meets these."""
    known = number_of([argument], given)
    return known is not None and known * max(1.0, groups) < min(FEW_KEYS, FEW_VALUES, given.rows / ROWS_OF_KEY)


def number_of(keys: Iterable[Expr], given: Estimate) -> float | None:
    """How many different keys some rows have, at most."""
    product = 1.0
    for key in keys:
        known = given.distinct(key)
        if known is None:
            return None
        product *= max(1.0, known)
    return min(product, max(1.0, given.rows))


def _rows_below(step: Grouped) -> tuple[Step, Keys]:
    """The rows that a step groups, and its keys over these."""
    keys, below = dealing_of(step).keys, step.inputs[0]
    if not isinstance(step, Aggregate):
        return below, keys
    first = partial_of(below) if step.absorbs else step
    assert first is not None
    return first.inputs[0], tuple(substitute(key, dict(first.by)) for key in keys)
