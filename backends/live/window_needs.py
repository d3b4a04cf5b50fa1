"""What a window function needs of the rows around its own, in the order of time: how far it looks back and ahead.

`needs_of` reads it off the calls of a window step. It decides which rows of `Windows` are final and which are kept."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Expr, Literal, SortKey
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.windows.call import Bound, Frame, WindowCall
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.progress import DAY_US

COUNTED = ("row_number", "rank", "dense_rank")
"""Functions that number rows: the numbers of a batch are added to those so far."""

CARRIED = ("count", "count_star", "sum", "min", "max", "bool_and", "bool_or")
"""Aggregates whose value over more rows follows from two values."""


@dataclass(frozen=True)
class Needs:
    """rows_back, length_back: a row sees that many rows before it, and that far back in time (microseconds, or units of
    a number). rows_ahead, length_ahead: the same for rows after it. carried: calls whose value over all rows before is
    known from one row of the partition. all_back: a call that needs all rows before; whole: one that needs the whole
    partition."""

    rows_back: int = 0
    length_back: int | None = None
    rows_ahead: int = 0
    length_ahead: int = 0
    carried: tuple[str, ...] = ()
    all_back: str | None = None
    whole: str | None = None


def needs_of(step: Window) -> Needs:
    """What the calls of a window step need together."""
    found = Needs()
    for name, call in step.calls:
        found = _both(found, _needs(name, call, step.order))
    if found.rows_ahead:
        # The peers of a row may wait when the row is final.
        for name, call in step.calls:
            split = call.name in ("rank", "dense_rank") or (name in found.carried and call.frame.mode != "rows")
            if split and call.name != "row_number":
                return _both(found, Needs(all_back=call.name))
    return found


def is_in_time(order: tuple[SortKey, ...]) -> bool:
    """Whether later rows come after earlier ones: ascending, and rows without a time last."""
    return bool(order) and not order[0].descending and (not order[0].nulls_first or not nullable(order[0].expr))


def nullable(expr: Expr) -> bool:
    return getattr(expr, "nullable", True)


def _both(one: Needs, other: Needs) -> Needs:
    lengths = [length for length in (one.length_back, other.length_back) if length is not None]
    return Needs(
        max(one.rows_back, other.rows_back),
        max(lengths) if lengths else None,
        max(one.rows_ahead, other.rows_ahead),
        max(one.length_ahead, other.length_ahead),
        (*one.carried, *other.carried),
        one.all_back or other.all_back,
        one.whole or other.whole,
    )


def _needs(name: str, call: WindowCall, order: tuple[SortKey, ...]) -> Needs:
    match call.name:
        case "row_number" | "rank" | "dense_rank":
            return Needs(carried=(name,))
        case "lag" | "lead":
            rows = _number(call.args[1]) if len(call.args) > 1 else 1
            if rows is None or (call.ignore_nulls and rows):
                return Needs(whole=call.name) if call.name == "lead" or rows is None else Needs(all_back=call.name)
            distance = rows if call.name == "lead" else -rows
            return Needs(rows_ahead=distance) if distance > 0 else Needs(rows_back=-distance)
        case "last_value" if call.frame.end.kind == "current" and not (call.ignore_nulls or call.frame.exclude):
            return Needs()
        case "percent_rank" | "cume_dist" | "ntile" | "stitch_chain" | "rows_start" | "rows_end" | "rows_number":
            return Needs(whole=call.name)
        case "session_start" | "session_end":
            return Needs(whole=call.name)
    return _both(_ahead(call, order), _back(name, call, order))


def _ahead(call: WindowCall, order: tuple[SortKey, ...]) -> Needs:
    frame = call.frame
    match frame.end.kind:
        case "unbounded":
            return Needs(whole=call.name)
        case "following":
            distance = _distance(frame, frame.end, order)
            if distance is None:
                return Needs(whole=call.name)
            return Needs(rows_ahead=distance) if frame.mode == "rows" else Needs(length_ahead=distance)
    if frame.start.kind == "following" and _distance(frame, frame.start, order) is None:
        return Needs(whole=call.name)
    return Needs()


def _back(name: str, call: WindowCall, order: tuple[SortKey, ...]) -> Needs:
    frame = call.frame
    match frame.start.kind:
        case "unbounded":
            return Needs(carried=(name,)) if _is_carried(call) else Needs(all_back=call.name)
        case "preceding":
            distance = _distance(frame, frame.start, order)
            if distance is None:
                return Needs(all_back=call.name)
            return Needs(rows_back=distance) if frame.mode == "rows" else Needs(length_back=distance)
        case "current" if frame.mode != "rows":
            return Needs(length_back=0)
    return Needs()


def _is_carried(call: WindowCall) -> bool:
    """Whether a call over all rows so far needs no more of them than its own last value."""
    end, frame = call.frame.end, call.frame
    reaches = end.kind == "current" or (end.kind == "preceding" and frame.mode == "rows" and _number(end.offset) == 1)
    known = call.name in CARRIED or (call.name == "first_value" and not call.ignore_nulls and call.filter is None)
    return reaches and known and not (frame.exclude or call.distinct or call.order)


def _distance(frame: Frame, bound: Bound, order: tuple[SortKey, ...]) -> int | None:
    """How far a frame reaches; None if that differs from row to row or is not known."""
    if frame.mode == "rows":
        return _number(bound.offset)
    if frame.mode != "range" or not isinstance(bound.offset, Literal):
        return None
    value, kind = bound.offset.value, order[0].expr.type
    if isinstance(value, tuple) and value[0] == 0 and kind.name in ("TIMESTAMP", "TIMESTAMPTZ"):
        return value[1] * DAY_US + value[2]
    return value if isinstance(value, int) and kind.is_integer else None


def _number(expr: Expr | None) -> int | None:
    if not isinstance(expr, Literal) or isinstance(expr.value, bool):
        return None
    return expr.value if isinstance(expr.value, int) else None
