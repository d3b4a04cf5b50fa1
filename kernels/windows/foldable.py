"""Which aggregates can follow rows that start and end: what planning must know of kernels/windows/lifetime_folds.py."""

from __future__ import annotations

from tsql.kernels.aggregates.bodies import plain_body
from tsql.kernels.expr.nodes import Aggregate

EXTREMES = {"min": "<", "max": ">"}
"""Aggregates that give the value of the best row, with the comparison that decides."""


def is_foldable(call: Aggregate) -> bool:
    """Whether an aggregate has a state that rows can be removed from, that merges with others, or that is a single
    row."""
    if call.distinct or call.order:
        return False
    body = plain_body(call)
    merges = body.decomposable and not body.release() and not body.wants_position and not body.wants_order
    return body.removable or call.name in EXTREMES or merges
