"""time_round: a time as the nearest multiple of a second or a millisecond, which is what a cast to TIMESTAMP(0) or
TIMESTAMP(3) does."""

from __future__ import annotations

from datetime import datetime

from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.types import BIGINT, TIMESTAMP
from tsql.kernels.functions.datetime.arithmetic import OUT_OF_RANGE
from tsql.kernels.functions.datetime.parts import is_finite
from tsql.kernels.functions.registry import function
from tsql.kernels.runtime.calendar import TIMESTAMP_MAX, floor_mod


@function(
    "time_round",
    args=(TIMESTAMP, BIGINT),
    returns=TIMESTAMP,
    constant=(1,),
    ranged=True,
    can_fail=True,
    examples=(
        ("time_round(TIMESTAMP '2020-01-01 00:00:00.5', 1000000)", datetime(2020, 1, 1, 0, 0, 1)),
        ("time_round(TIMESTAMP '1969-12-31 23:59:58.5', 1000000)", datetime(1969, 12, 31, 23, 59, 58)),
    ),
)
def time_round(k: PipelineKernel, d: Datum, unit: Datum) -> Datum:
    """The nearest multiple of this many microseconds since the epoch; halves are rounded away from the epoch, as in
    DuckDB."""
    if unit.range is None or unit.range[0] <= 0:
        raise BindError("the unit of time_round is a constant above zero")
    size = unit.range[0]
    time, finite = d.value.to("i64"), is_finite(k, d)
    behind = floor_mod(k, time, size)
    # Before the epoch the half belongs to the earlier multiple.
    up = behind * 2 + k.select(time < 0, k.i64(0), k.i64(1)) > size
    cut = time - behind
    if d.range is None or d.range[1] > TIMESTAMP_MAX - size:
        late = up & (cut > TIMESTAMP_MAX - size)
        k.fail(late if finite is None else late & finite, OUT_OF_RANGE)
    rounded = cut + k.select(up, k.i64(size), k.i64(0))
    known = None if d.range is None else (d.range[0] - size, d.range[1] + size)
    return Datum(TIMESTAMP, (rounded if finite is None else k.select(finite, rounded, time),), None, known)
