"""Which aggregates have a state that can be handed on: what two phases and panes need."""

from __future__ import annotations

from tsql.kernels.aggregates.bodies import plain_body
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.operators.aggregate.combine import fold_of


def can_split(call: AggregateCall) -> bool:
    """Whether a partial state of the call can be handed on and merged."""
    return plain_body(call).decomposable and not call.distinct and not call.order


def can_combine(call: AggregateCall) -> bool:
    """Whether windows of the call can be made of the states of panes."""
    return can_split(call) and fold_of("x", call) is not None
