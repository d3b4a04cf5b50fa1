"""The parameters of the functions of time: their names, order, kinds, and valid combinations."""

from __future__ import annotations

from tsql.grammar.time.nodes import (
    Chop,
    Clip,
    Cumulate,
    Extend,
    Hop,
    Lifetime,
    PointAtEnd,
    Quantize,
    Session,
    Shift,
    Slide,
    Stitch,
    TimeFunction,
    Tumble,
)
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class TimeParameter:
    """kind: "time" an expression of the row, "length" an interval > 0 without months, "offset" an interval without
    months, "duration" an interval of the row that is more than zero if literal, "growth" the same or zero, "move" any
    interval, "count" a number of rows, "text" a string. Those that are not `positional` are given by name only."""

    name: str
    kind: str
    required: bool = False
    positional: bool = True


_TIME = TimeParameter("time", "time", required=True)
_OFFSET = TimeParameter("offset", "offset")
_ZONE = TimeParameter("timezone", "text", positional=False)
_ROWS = TimeParameter("rows", "count", positional=False)

PARAMETERS: dict[type[TimeFunction], tuple[TimeParameter, ...]] = {
    Tumble: (_TIME, TimeParameter("size", "length"), _OFFSET, _ROWS, _ZONE),
    Hop: (
        _TIME,
        TimeParameter("slide", "length"),
        TimeParameter("size", "length"),
        _OFFSET,
        _ROWS,
        TimeParameter("slide_rows", "count", positional=False),
        _ZONE,
    ),
    Cumulate: (
        _TIME,
        TimeParameter("step", "length", required=True),
        TimeParameter("size", "length", required=True),
        _OFFSET,
        _ZONE,
    ),
    Session: (_TIME, TimeParameter("gap", "length", required=True), TimeParameter("max_size", "length")),
    Lifetime: (
        TimeParameter("start", "time"),
        TimeParameter("duration", "duration"),
        TimeParameter("end", "time", positional=False),
    ),
    Slide: (_TIME, TimeParameter("size", "duration", required=True)),
    Shift: (TimeParameter("by", "move", required=True),),
    Extend: (TimeParameter("by", "growth", required=True),),
    Clip: (TimeParameter("duration", "duration", required=True),),
    Chop: (TimeParameter("size", "length", required=True), _OFFSET),
    Stitch: (),
    Quantize: (
        TimeParameter("slide", "length", required=True),
        TimeParameter("size", "length"),
        TimeParameter("step", "length"),
        _OFFSET,
    ),
    PointAtEnd: (),
}
"""The parameters behind the table, in their order. Flink has the same order, and calls the table DATA and the time
TIMECOL."""

OTHER_NAMES = {"timecol": "time", "data": "table", "input": "table"}

USAGE: dict[type[TimeFunction], str] = {
    Tumble: "TUMBLE(t, ts, INTERVAL '10 minutes') or TUMBLE(t, ts, rows => 100)",
    Hop: (
        "HOP(t, ts, slide => INTERVAL '1 minute', size => INTERVAL '10 minutes') or HOP(t, ts, slide_rows => "
        "10, rows => 100)"
    ),
    Cumulate: "CUMULATE(t, ts, step => INTERVAL '1 hour', size => INTERVAL '1 day')",
    Session: "SESSION(t PARTITION BY k, ts, gap => INTERVAL '30 minutes')",
    Lifetime: "LIFETIME(t, start => ts, duration => INTERVAL '1 hour')",
    Slide: "SLIDE(t, ts, INTERVAL '10 minutes')",
    Shift: "SHIFT(t, INTERVAL '1 hour')",
    Extend: "EXTEND(t, INTERVAL '1 hour')",
    Clip: "CLIP(t, INTERVAL '1 hour')",
    Chop: "CHOP(t, INTERVAL '1 hour')",
    Stitch: "STITCH(t)",
    Quantize: "QUANTIZE(t, slide => INTERVAL '1 minute', size => INTERVAL '10 minutes')",
    PointAtEnd: "POINT_AT_END(t)",
}
"""A call of each, for the hints of errors."""
