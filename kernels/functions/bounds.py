"""lower_bound, upper_bound, relative_error, is_certain: how well a value of a progressive query is known.

In a snapshot they are computed from the sample (`planner/progressive/snapshot_plan.py`). Anywhere else a value is
exact: its bounds are the value itself."""

from __future__ import annotations

from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BOOLEAN, DOUBLE, Type
from tsql.kernels.functions.registry import function


def same(t: Type) -> Type:
    return t


@function("lower_bound", args=("numeric",), returns=same, examples=(("lower_bound(2.5)", None),))
@function("upper_bound", args=("numeric",), returns=same, examples=(("upper_bound(2.5)", None),))
def bound(k: PipelineKernel, value: Datum) -> Datum:
    """The value."""
    return value


@function("relative_error", args=("numeric",), returns=DOUBLE)
def relative_error(k: PipelineKernel, value: Datum) -> Datum:
    """None."""
    return Datum(DOUBLE, (k.f64(0.0),))


@function("is_certain", args=("numeric",), returns=BOOLEAN)
def is_certain(k: PipelineKernel, value: Datum) -> Datum:
    """Yes."""
    return Datum(BOOLEAN, (k.true,))
