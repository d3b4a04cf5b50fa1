"""random(): a number per row, computed from the row's number, the call's number in the query, and the query's start
time.

Like all functions it depends only on its arguments, so a plan may compute it twice. The binder
(`planner/bind/forms.py`) gives each call its own number, and each row the number of row_number()."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, DOUBLE
from tsql.kernels.functions.datetime.difference import now
from tsql.kernels.functions.registry import function

_GOLDEN = -0x61C8864680B583EB


@function("random_of_row", args=(BIGINT, BIGINT), returns=DOUBLE)
def random_of_row(k: PipelineKernel, row: Datum, call: Datum) -> Val:
    """A number in [0, 1)."""
    # The finalizer of splitmix64, over steps of the golden ratio, twice: neighbouring rows and calls have nothing in
    # common.
    z = now(k) * _GOLDEN + call.value
    for step in (k.i64(0), row.value):
        z = (z ^ step) * _GOLDEN
        for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
            z = (z ^ z.ushr(shift)) * factor
        z = z ^ z.ushr(31)
    return z.ushr(11).to("f64") * (1.0 / (1 << 53))
