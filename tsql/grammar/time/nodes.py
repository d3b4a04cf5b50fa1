"""The syntax nodes of temporal SQL, as its neighbours parse them and the analyzer reads them.

A function of time in FROM is `exp.Table(this=<TimeFunction>, alias=..)`, so that aliases, samples and joins are where
sqlglot has them for any table. Both spellings of a window function (ours and Flink's) give one and the same tree.
Intervals are kept as they were written (`exp.Interval`, or any expression); what a literal interval may be has been
checked by the parser. Row pattern matching has its nodes in `match_nodes.py`."""

from __future__ import annotations

from sqlglot import exp


class TimeFunction(exp.Expression):
    """Base of the table functions of time.

    this: the input, `exp.Table` (a name, a file, a table function, or another TimeFunction as its `this`) or
    `exp.Subquery`;
          it may have an alias of its own, by which the arguments can name its columns.
    partition_by: the expressions of PARTITION BY, if any. Every other arg is called like its `name =>` in SQL, except
    `time`, the time of a row (any expression over the input)."""

    arg_types = {"this": True, "partition_by": False}
    sql_name = ""
    """The name in SQL."""


class WindowFunction(TimeFunction):
    """Base of the window functions: they add window_start and window_end (count windows also window_id) to each row,
    and repeat a row for each window that it is in. By time: `time` and sizes; by count: `rows`, ordered by `time`."""


class Tumble(WindowFunction):
    """TUMBLE(input, time, size [, offset, timezone]) or TUMBLE(input, time, rows => n)."""

    sql_name = "TUMBLE"
    arg_types = {
        **TimeFunction.arg_types,
        "time": True,
        "size": False,
        "offset": False,
        "rows": False,
        "timezone": False,
    }


class Hop(WindowFunction):
    """HOP(input, time, slide, size [, offset, timezone]) or HOP(input, time, slide_rows => m, rows => n)."""

    sql_name = "HOP"
    arg_types = {**Tumble.arg_types, "slide": False, "slide_rows": False}


class Cumulate(WindowFunction):
    """CUMULATE(input, time, step, size [, offset, timezone]); a literal size is a multiple of a literal step."""

    sql_name = "CUMULATE"
    arg_types = {**TimeFunction.arg_types, "time": True, "step": True, "size": True, "offset": False, "timezone": False}


class Session(WindowFunction):
    """SESSION(input [PARTITION BY key, ..], time, gap [, max_size])."""

    sql_name = "SESSION"
    arg_types = {**TimeFunction.arg_types, "time": True, "gap": True, "max_size": False}


class LifetimeFunction(TimeFunction):
    """Base of the functions that give a temporal relation. All but LIFETIME and SLIDE need one as their input (or a
    table that has a period)."""


class Lifetime(LifetimeFunction):
    """LIFETIME(input [, start [, duration | end]]): sets the lifetime of each row. All are expressions of the row;
    without `start` the input's PERIOD is meant, without `duration` and `end` the lifetime is open."""

    sql_name = "LIFETIME"
    arg_types = {**TimeFunction.arg_types, "start": False, "duration": False, "end": False}


class Slide(LifetimeFunction):
    """SLIDE(input, time, size): the lifetime [time, time + size)."""

    sql_name = "SLIDE"
    arg_types = {**TimeFunction.arg_types, "time": True, "size": True}


class Shift(LifetimeFunction):
    """SHIFT(input, by): moves both ends; `by` may be negative."""

    sql_name = "SHIFT"
    arg_types = {**TimeFunction.arg_types, "by": True}


class Extend(LifetimeFunction):
    """EXTEND(input, by): moves the end later."""

    sql_name = "EXTEND"
    arg_types = {**TimeFunction.arg_types, "by": True}


class Clip(LifetimeFunction):
    """CLIP(input, duration): no lifetime is longer than `duration`."""

    sql_name = "CLIP"
    arg_types = {**TimeFunction.arg_types, "duration": True}


class Chop(LifetimeFunction):
    """CHOP(input, size [, offset]): splits lifetimes at the grid."""

    sql_name = "CHOP"
    arg_types = {**TimeFunction.arg_types, "size": True, "offset": False}


class Stitch(LifetimeFunction):
    """STITCH(input): merges equal rows whose lifetimes meet."""

    sql_name = "STITCH"


class Quantize(LifetimeFunction):
    """QUANTIZE(input, slide [, size, step, offset]): start to the grid below, end to the grid above. No `size` means
    that of `slide`; `step` is the progress interval of Trill's ProgressiveQuantizeLifetime (CUMULATE)."""

    sql_name = "QUANTIZE"
    arg_types = {**TimeFunction.arg_types, "slide": True, "size": False, "step": False, "offset": False}


class PointAtEnd(LifetimeFunction):
    """POINT_AT_END(input): each row becomes a point at the end of its lifetime."""

    sql_name = "POINT_AT_END"


FUNCTIONS: dict[str, type[TimeFunction]] = {
    kind.sql_name: kind
    for kind in (
        Tumble,
        Hop,
        Cumulate,
        Session,
        Lifetime,
        Slide,
        Shift,
        Extend,
        Clip,
        Chop,
        Stitch,
        Quantize,
        PointAtEnd,
    )
}
"""The functions of time by their names in SQL."""


class AsofJoin(exp.Join):
    """l ASOF [LEFT | INNER] JOIN r ON .. | USING (..) [TOLERANCE iv]; `method` is "ASOF", all else as in `exp.Join`."""

    arg_types = {**exp.Join.arg_types, "tolerance": False}


class ClipJoin(exp.Join):
    """l CLIP JOIN r ON ..; `method` is "CLIP"."""


class AsOf(exp.Expression):
    """FOR VALID_TIME | SYSTEM_TIME AS OF this; it is the arg `version` of the `exp.Table` before it. The two words mean
    the same."""


class Sequenced(exp.Expression, exp.Query):
    """SEQUENCED VALIDTIME query. `this` is the whole query behind the words (set operations, WITH, ORDER BY and LIMIT
    are inside); `with_` is a WITH before them, whose queries are not sequenced; `emit` and `progressive` as in every
    query."""

    arg_types = {"this": True, "with_": False, "emit": False, "progressive": False}


class Emit(exp.Expression):
    """EMIT .. at the end of a statement's query: the arg `emit` of that query's outermost node.

    this: exp.Var FINAL, CHANGES or EVERY.
    every: the interval of EVERY.
    before_watermark: True for BEFORE WATERMARK (with EVERY).
    changes_after_watermark: True for `, CHANGES AFTER WATERMARK` (with FINAL and EVERY).
    within: the latency budget, an interval.
    """

    arg_types = {
        "this": True,
        "every": False,
        "before_watermark": False,
        "changes_after_watermark": False,
        "within": False,
    }


class Progressive(exp.Expression):
    """PROGRESSIVE [EVERY ..] .. at the end of a statement's query: the arg `progressive` of its outermost node.

    every: a number literal (0 < n <= 100 of PERCENT, or of ROWS), or an interval.  unit: exp.Var PERCENT or ROWS, for
    a number.  until_error: a number literal > 0.  within: an interval.  confidence: a number literal, 0 < p < 1.
    seed: an integer literal.
    """

    arg_types = {
        "every": False,
        "unit": False,
        "until_error": False,
        "within": False,
        "confidence": False,
        "seed": False,
    }


class CreateStream(exp.Expression):
    """CREATE [OR REPLACE] STREAM [IF NOT EXISTS] this [(expressions)] [WITH (options)].

    this: exp.Table.  expressions: exp.ColumnDef, table constraints as in CREATE TABLE, Period, and at most one
    Watermark.
    options: a StreamOptions, or nothing.  replace, exists: True where said.
    """

    arg_types = {"this": True, "expressions": False, "options": False, "replace": False, "exists": False}


class Watermark(exp.Expression):
    """WATERMARK FOR this AS expression [IDLE TIMEOUT iv] [ALLOWED LATENESS iv] [ON LATE DROP | ADJUST | ERROR | INTO
    t].

    this: exp.Identifier, the column.  expression: the watermark after a row, over its columns.
    idle_timeout, allowed_lateness: intervals.  on_late: exp.Var DROP, ADJUST, ERROR or INTO; into: the exp.Table of
    INTO."""

    arg_types = {
        "this": True,
        "expression": True,
        "idle_timeout": False,
        "allowed_lateness": False,
        "on_late": False,
        "into": False,
    }


class Period(exp.Expression):
    """PERIOD FOR this (start, end) among the columns of CREATE TABLE or CREATE STREAM; all three are exp.Identifier."""

    arg_types = {"this": True, "start": True, "end": True}


class StreamOptions(exp.Property):
    """WITH (name = value, ..) of CREATE STREAM and CREATE TABLE (there a member of its exp.Properties): `expressions`
    are StreamOption, each name once."""

    arg_types = {"expressions": True}


class StreamOption(exp.Expression):
    """name = value: `this` is an exp.Var in lower case, `value` a literal, TRUE or FALSE, or a signed number."""

    arg_types = {"this": True, "value": True}


class CreateSink(exp.Expression):
    """CREATE [OR REPLACE] SINK [IF NOT EXISTS] this WITH (options). replace, exists: True where said."""

    arg_types = {"this": True, "options": True, "replace": False, "exists": False}


class ShowStreams(exp.Expression):
    """SHOW STREAMS, or SHOW SINKS (`sinks`)."""

    arg_types = {"sinks": False}
