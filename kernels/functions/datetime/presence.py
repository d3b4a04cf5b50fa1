"""has_time: whether a row has a time that can be in a window. has_start: whether it has a start of its lifetime, which
may be infinite. Rows whose time is NULL are dropped and counted for the user.

Windows and lifetimes add these to the filter below them, so the count needs no extra step; a column without NULLs needs
no code for it. `has_time(time, before, after)` fails for finite times that are closer than this many microseconds to
the ends of TIMESTAMP: their windows would begin or end outside of it. If the column's bounds are known to be far from
the ends, as they nearly always are, there is no code for that either. It is not declared as failing, so that it moves
like has_start: it is evaluated once per row, as counting requires."""

from __future__ import annotations

from typing import Any

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel, Slot
from tsql.kernels.emit.datum import Datum, both
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Call, Expr
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DATE, TIMESTAMP, TIMESTAMPTZ
from tsql.kernels.functions.datetime.parts import is_finite
from tsql.kernels.functions.registry import function
from tsql.kernels.runtime.calendar import TIMESTAMP_MAX, TIMESTAMP_MIN

WITHOUT_TIME = "rows without a time"
"""The name under which rows with a NULL time are counted."""

OUTSIDE = "Date and time not in timestamp range: a window of this row would begin or end outside of it"

NAMES = ("has_time", "has_start")


def counts_rows(predicate: Expr) -> bool:
    """Whether evaluating a predicate counts rows. Then it must be evaluated once per row, and not for rows dropped
    before."""
    return any(isinstance(part, Call) and part.name in NAMES for part in predicate.walk())


def _counted(k: PipelineKernel, time: Datum, mask: Val | None) -> None:
    """Count the row if its time is NULL; `mask` is false for rows that were dropped before."""
    if time.valid is not None:
        missing = ~time.valid if mask is None else ~time.valid & mask
        (word,) = k.slot(Slot("count", None, (WITHOUT_TIME,)), ("ptr",))
        k.store(word, k.load("i64", word) + missing.uto("i64"))


def _register() -> None:
    for t in (DATE, TIMESTAMP, TIMESTAMPTZ):

        @function("has_time", args=(t,), returns=BOOLEAN, nulls="expression", duckdb="isfinite")
        def has_time(k: PipelineKernel, call: Call, row: Any) -> Datum:
            """Whether a time is neither NULL nor infinite; NULLs are counted."""
            from tsql.kernels.emit.expressions import emit

            time = emit(k, call.args[0], row)
            _counted(k, time, getattr(row, "mask", None))
            found = both(is_finite(k, time), time.valid)
            return Datum(BOOLEAN, (k.true if found is None else found,))

        @function("has_start", args=(t,), returns=BOOLEAN, nulls="expression")
        def has_start(k: PipelineKernel, call: Call, row: Any) -> Datum:
            """Whether a time is not NULL; NULLs are counted."""
            from tsql.kernels.emit.expressions import emit

            time = emit(k, call.args[0], row)
            _counted(k, time, getattr(row, "mask", None))
            return Datum(BOOLEAN, (k.true if time.valid is None else time.valid,))


_register()


@function("has_time", args=(TIMESTAMP, BIGINT, BIGINT), returns=BOOLEAN, nulls="expression", constant=(1, 2))
def has_windows(k: PipelineKernel, call: Call, row: Any) -> Datum:
    """Whether a time is neither NULL nor infinite; an error where it is too near to an end of TIMESTAMP. NULLs are
    counted."""
    from tsql.kernels.emit.expressions import emit

    time, before, after = (emit(k, arg, row) for arg in call.args)
    if before.range is None or after.range is None:
        raise BindError("how far a time must be from the ends of TIMESTAMP is a constant", position=call.position)
    mask = getattr(row, "mask", None)
    _counted(k, time, mask)
    found = both(is_finite(k, time), time.valid)
    first, last = TIMESTAMP_MIN + before.range[0], TIMESTAMP_MAX - after.range[0]
    low, high = time.bounds
    if low < first or high > last:
        micros = time.value.to("i64")
        with k.guarded(both(found, mask), call.position):
            k.fail((micros < first) | (micros > last), OUTSIDE)
    return Datum(BOOLEAN, (k.true if found is None else found,))
