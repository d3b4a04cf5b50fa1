"""Checks of lifetimes inside of plans (tsql/analyze/time/): what no lifetime of a row may be."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import TIMESTAMP
from tsql.kernels.functions.registry import function

INFINITY = 2**63 - 1


@function("closed_end", args=(TIMESTAMP,), returns=TIMESTAMP, can_fail=True)
def closed_end(k: PipelineKernel, end: Datum) -> Val:
    """The end of a lifetime, which must not be open."""
    k.fail(
        end.value == INFINITY,
        "CHOP of an open lifetime: give it an end first, as in CHOP(CLIP(t, INTERVAL '1 day'), ..)",
    )
    return end.value


@function("closed_start", args=(TIMESTAMP,), returns=TIMESTAMP, can_fail=True)
def closed_start(k: PipelineKernel, start: Datum) -> Val:
    """The start of a lifetime, which must have one."""
    k.fail(
        start.value == -INFINITY,
        "CHOP of a lifetime that begins at -infinity: give it a start first, as in LIFETIME(t, start => ..)",
    )
    return start.value
