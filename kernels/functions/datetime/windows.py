"""The arithmetic of windows in time: panes of a fixed width, aligned to the epoch plus an offset, all in microseconds.

Rows whose time is infinite are in no window: the analyzer drops them before these functions see them, and refuses those
whose windows would begin or end outside of TIMESTAMP (`margins` in `planner/logical/overlapping_windows.py`)."""

from __future__ import annotations

from datetime import datetime

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.types import BIGINT, TIMESTAMP
from tsql.kernels.functions.registry import function
from tsql.kernels.runtime.calendar import floor_div


def _split(k: PipelineKernel, time: Val, width: int, offset: int) -> tuple[Val, Val]:
    """The number of a time's pane, and the distance of the time from the pane's start. The offset is not subtracted
    from the time, which may be the earliest possible."""
    number = floor_div(k, time, width)
    rest = time - number * width
    turns, part = divmod(offset, width)
    if part:
        early = rest < part
        number, rest = number - early.uto("i64"), rest - part + k.select(early, k.i64(width), k.i64(0))
    return (number - turns if turns else number), rest


def _grid(width: Datum, offset: Datum) -> tuple[int, int]:
    """The width and the offset, which are constants."""
    if width.range is None or offset.range is None or width.range[0] <= 0:
        raise BindError("the width of a pane is a constant above zero, and its offset a constant")
    return width.range[0], offset.range[0]


@function(
    "time_pane",
    args=(TIMESTAMP, BIGINT, BIGINT),
    returns=BIGINT,
    ranged=True,
    constant=(1, 2),
    examples=(("time_pane(TIMESTAMP '1970-01-01 00:00:25', 10000000, 0)", 2),),
)
def time_pane(k: PipelineKernel, d: Datum, width: Datum, offset: Datum) -> Datum:
    """The number of a time's pane. Panes are this many microseconds wide, and pane 0 starts at the epoch plus an
    offset."""
    size, shift = _grid(width, offset)
    number, _ = _split(k, d.value.to("i64"), size, shift)
    known = None if d.range is None else ((d.range[0] - shift) // size, (d.range[1] - shift) // size)
    return Datum(BIGINT, (number,), None, known, stable=d.stable)


@function(
    "time_floor",
    args=(TIMESTAMP, BIGINT, BIGINT),
    returns=TIMESTAMP,
    ranged=True,
    constant=(1, 2),
    examples=(("time_floor(TIMESTAMP '1970-01-01 00:00:25', 10000000, 0)", datetime(1970, 1, 1, 0, 0, 20)),),
)
def time_floor(k: PipelineKernel, d: Datum, width: Datum, offset: Datum) -> Datum:
    """The start of the pane that a time is in."""
    size, shift = _grid(width, offset)
    time = d.value.to("i64")
    _, behind = _split(k, time, size, shift)
    known = None
    if d.range is not None:
        low, high = ((bound - shift) // size * size + shift for bound in d.range)
        known = low, high
    return Datum(TIMESTAMP, (time - behind,), None, known, stable=d.stable)


@function(
    "pane_time",
    args=(BIGINT, BIGINT, BIGINT),
    returns=TIMESTAMP,
    ranged=True,
    constant=(1, 2),
    examples=(("pane_time(2, 10000000, 0)", datetime(1970, 1, 1, 0, 0, 20)),),
)
def pane_time(k: PipelineKernel, d: Datum, width: Datum, offset: Datum) -> Val:
    """The start of a pane by its number."""
    size, shift = _grid(width, offset)
    return d.value.to("i64") * size + shift
