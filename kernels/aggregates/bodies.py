"""From an aggregate call to its body, and the names under which an exported state travels."""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateArgument, Body
from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.expr.nodes import Aggregate, Literal


def state_names(name: str, count: int) -> tuple[str, ...]:
    """Columns that hold the exported state of the aggregate `name`."""
    return (name,) if count == 1 else tuple(f"{name}__{i}" for i in range(count))


def make_body(call: Aggregate, inputs: tuple[AggregateArgument, ...], rows: int | None) -> Body:
    """The body of a call, given what is known of its arguments."""
    function = AGGREGATES.find(call.name, tuple(a.type for a in call.args))
    body = function.body(inputs, call.type, rows)
    body.order_keys = call.order
    return body


def plain_body(call: Aggregate) -> Body:
    """The body with nothing known of its arguments: enough to ask for its exported types."""
    return make_body(
        call, tuple(AggregateArgument(a.type, constant=a if isinstance(a, Literal) else None) for a in call.args), None
    )
