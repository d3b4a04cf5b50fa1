"""has_time: whether a row has a time that can be in a window; rows whose time is NULL are counted for the user as they are left out.

Windows put it into the filter below them, so that the count needs no step of its own: where the column has no NULLs there is no code for it.
"""

from __future__ import annotations

from typing import Any

from tsql.kernels.context import PipelineKernel, Slot
from tsql.kernels.datum import Datum, both
from tsql.kernels.expr import Call, Expr
from tsql.kernels.functions.datetime_parts import is_finite
from tsql.kernels.functions.registry import function
from tsql.kernels.types import BOOLEAN, DATE, TIMESTAMP, TIMESTAMPTZ

WITHOUT_TIME = "rows without a time"
"""How rows whose time is NULL are counted."""

NAME = "has_time"


def counts_rows(predicate: Expr) -> bool:
    """Whether evaluating a predicate counts rows, so that it must be asked of each row once, and not of rows that are left out before."""
    return any(isinstance(part, Call) and part.name == NAME for part in predicate.walk())


def _register() -> None:
    for t in (DATE, TIMESTAMP, TIMESTAMPTZ):

        @function(NAME, args=(t,), returns=BOOLEAN, nulls="expression", duckdb="isfinite")
        def has_time(k: PipelineKernel, call: Call, row: Any) -> Datum:
            """Whether a time is neither NULL nor infinite; NULLs are counted."""
            from tsql.kernels.emit import emit

            time = emit(k, call.args[0], row)
            if time.valid is not None:
                mask = getattr(row, "mask", None)
                missing = ~time.valid if mask is None else ~time.valid & mask
                (word,) = k.slot(Slot("count", None, (WITHOUT_TIME,)), ("ptr",))
                k.store(word, k.load("i64", word) + missing.uto("i64"))
            found = both(is_finite(k, time), time.valid)
            return Datum(BOOLEAN, (k.true if found is None else found,))


_register()
