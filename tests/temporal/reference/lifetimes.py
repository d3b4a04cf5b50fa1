"""The functions that give rows a lifetime `[valid_from, valid_to)` or change it: LIFETIME, SLIDE, SHIFT, EXTEND, CLIP,
CHOP, STITCH, QUANTIZE, POINT_AT_END.

`valid_to` None is an open lifetime. Rows that are never alive (no start, or an empty lifetime) are left out everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.temporal.reference.rows import Row, Rows, ceil, floor

Value = str | int | Callable[[Row], int | None]
"""A column, a constant, or an expression of the row."""

BEGIN = -(2**63 - 1)
"""The start of what is alive always: DuckDB's -infinity."""


def lifetime(rows: Rows, start: Value, duration: Value | None = None, end: Value | None = None) -> Rows:
    """LIFETIME(t, start => e [, duration => iv | end => e]): without the last two, or where they are NULL, the row
    stays alive."""
    assert duration is None or end is None
    result = []
    for row in rows:
        valid_from, valid_to = _value(row, start), None if end is None else _value(row, end)
        if duration is not None and valid_from is not None and (spent := _value(row, duration)) is not None:
            valid_to = valid_from + spent
        result.append(row | {"valid_from": valid_from, "valid_to": valid_to})
    return alive(result)


def slide(rows: Rows, time: str, size: int) -> Rows:
    """SLIDE(t, ts, size): `[ts, ts + size)`."""
    return lifetime(rows, start=time, duration=size)


def points(rows: Rows, time: str) -> Rows:
    """A stream under SEQUENCED VALIDTIME: `[ts, ts + 1 us)`."""
    return lifetime(rows, start=time, duration=1)


def always(rows: Rows) -> Rows:
    """An untimed relation beside a temporal one."""
    return [row | {"valid_from": BEGIN, "valid_to": None} for row in rows]


def shift(rows: Rows, by: int) -> Rows:
    """SHIFT(t, by): both ends move."""
    return [
        _living(row, row["valid_from"] + by, None if row["valid_to"] is None else row["valid_to"] + by) for row in rows
    ]


def extend(rows: Rows, by: int) -> Rows:
    """EXTEND(t, by): the end moves later (earlier if `by` is negative, which may leave nothing)."""
    return alive(
        [_living(row, row["valid_from"], None if row["valid_to"] is None else row["valid_to"] + by) for row in rows]
    )


def clip(rows: Rows, longest: int) -> Rows:
    """CLIP(t, longest): no lifetime is longer."""
    return alive(
        [_living(row, row["valid_from"], earlier(row["valid_to"], row["valid_from"] + longest)) for row in rows]
    )


def chop(rows: Rows, period: int, offset: int = 0) -> Rows:
    """CHOP(t, period): each lifetime is cut at the points of the grid. An open one would have no last piece and is
    refused."""
    result = []
    for row in rows:
        if row["valid_to"] is None:
            raise ValueError("CHOP of an open lifetime: give it an end first, for example with CLIP")
        start = row["valid_from"]
        while start < row["valid_to"]:
            end = min(floor(start, period, offset) + period, row["valid_to"])
            result.append(_living(row, start, end))
            start = end
    return result


def stitch(rows: Rows) -> Rows:
    """STITCH(t): a row that ends where an equal one starts becomes one row with it.

    Where several end or start at that instant, the one that has lived longest goes on with the one that ends first, and
    so on in this order: lifetimes are determined by the rows alone, not by their order. Overlapping rows stay two rows.
    """
    pieces = [(content(row), row["valid_from"], row["valid_to"]) for row in rows]
    for instant in sorted({end for _, _, end in pieces if end is not None}):
        for payload in {payload for payload, _, end in pieces if end == instant}:
            ended = sorted((piece for piece in pieces if piece[0] == payload and piece[2] == instant), key=_by_start)
            started = sorted((piece for piece in pieces if piece[0] == payload and piece[1] == instant), key=_by_end)
            for before, after in zip(ended, started):
                pieces.remove(before)
                pieces.remove(after)
                pieces.append((payload, before[1], after[2]))
    return [_living(dict(payload), start, end) for payload, start, end in pieces]


def quantize(rows: Rows, slide: int, size: int, offset: int = 0, step: int | None = None) -> Rows:
    """QUANTIZE(t, slide => .., size => ..): the start moves to the grid below, the end to the grid above, and a row
    lives at least `size`.

    As in Trill: starts are on the grid `offset + k * step` (`step` is `slide` if not given), ends on `offset + size + k
    * slide`. For points, and a size that is a multiple of slide, the rows alive in `[e - slide, e)` are those of the
    HOP window that ends at e; with `step` those of the CUMULATE window that ends at e, in `[e - step, e)`."""
    result = []
    for row in rows:
        end = None
        if row["valid_to"] is not None:
            end = max(
                ceil(row["valid_to"], slide, offset + size), floor(row["valid_from"] + size, slide, offset + size)
            )
        result.append(_living(row, floor(row["valid_from"], step or slide, offset), end))
    return result


def point_at_end(rows: Rows) -> Rows:
    """POINT_AT_END(t): `[valid_to, valid_to + 1 us)`; an open row has no end and gives none."""
    return [_living(row, row["valid_to"], row["valid_to"] + 1) for row in rows if row["valid_to"] is not None]


def alive(rows: Rows) -> Rows:
    """The rows that are alive at some instant."""
    return [row for row in rows if row["valid_from"] is not None and before(row["valid_from"], row["valid_to"])]


def before(start: int, end: int | None) -> bool:
    """Whether an instant is before an end that may be open."""
    return end is None or start < end


def earlier(one: int | None, other: int | None) -> int | None:
    """The earlier of two ends; None is the latest."""
    return one if other is None or (one is not None and one <= other) else other


def content(row: Row) -> tuple[tuple[str, Any], ...]:
    """A row without its lifetime, as something that can be compared and hashed."""
    return tuple((name, value) for name, value in row.items() if name not in ("valid_from", "valid_to"))


def _living(row: Row, start: int, end: int | None) -> Row:
    return row | {"valid_from": start, "valid_to": end}


def _value(row: Row, value: Value) -> int | None:
    if isinstance(value, str):
        return row[value]
    return value(row) if callable(value) else value


def _by_start(piece: tuple[Any, int, int | None]) -> int:
    return piece[1]


def _by_end(piece: tuple[Any, int, int | None]) -> tuple[bool, int]:
    return piece[2] is None, piece[2] or 0
