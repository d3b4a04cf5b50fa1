"""TUMBLE, HOP, CUMULATE, SESSION and count windows: each gives the rows once per window that they are in, with
window_start and window_end.

A row whose time is NULL is in no window; `null_times` counts them. GROUP BY over the result is `rows.group_by`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.temporal.reference.rows import Row, Rows, floor, grouped


def null_times(rows: Rows, time: str) -> int:
    """How many rows are in no window because they have no time."""
    return sum(row[time] is None for row in rows)


def tumble(rows: Rows, time: str, size: int, offset: int = 0) -> Rows:
    """Windows `[s, s + size)`, one beside the other."""
    return hop(rows, time, size, size, offset)


def hop(rows: Rows, time: str, slide: int, size: int, offset: int = 0) -> Rows:
    """Windows `[s, s + size)` for every s of the grid `offset + k * slide`. With slide > size there are gaps, whose
    rows are in no window."""
    _positive(slide=slide, size=size)
    result = []
    for row in _timed(rows, time):
        start = floor(row[time], slide, offset)
        while start + size > row[time]:
            result.append(_placed(row, start, start + size))
            start -= slide
    return result


def cumulate(rows: Rows, time: str, step: int, size: int, offset: int = 0) -> Rows:
    """Windows `[s, s + step), [s, s + 2 step) .. [s, s + size)` for every s of the grid `offset + k * size`."""
    _positive(step=step, size=size)
    if size % step:
        raise ValueError("the size of CUMULATE must be a multiple of its step")
    result = []
    for row in _timed(rows, time):
        start = floor(row[time], size, offset)
        for end in range(start + step, start + size + 1, step):
            if start <= row[time] < end:
                result.append(_placed(row, start, end))
    return result


def session(rows: Rows, time: str, gap: int, keys: Sequence[str] = (), max_size: int | None = None) -> Rows:
    """Per key, runs of rows that are at most `gap` apart: `[first, last + gap)`.

    With `max_size` a row that far or more after the first one of its session starts another, and the end is at most
    `first + max_size`."""
    _positive(gap=gap, max_size=1 if max_size is None else max_size)
    result = []
    for group in grouped(_timed(rows, time), keys).values():
        sessions: list[Rows] = []
        for row in sorted(group, key=lambda row: row[time]):
            if (
                sessions
                and row[time] - sessions[-1][-1][time] <= gap
                and (max_size is None or row[time] - sessions[-1][0][time] < max_size)
            ):
                sessions[-1].append(row)
            else:
                sessions.append([row])
        for members in sessions:
            start, end = members[0][time], members[-1][time] + gap
            if max_size is not None:
                end = min(end, start + max_size)
            result.extend(_placed(row, start, end) for row in members)
    return result


def count_windows(
    rows: Rows, time: str, size_rows: int, slide_rows: int | None = None, keys: Sequence[str] = ()
) -> Rows:
    """Per key, rows numbered by (time, position in the input); window i holds rows `i * slide_rows .. i * slide_rows +
    size_rows - 1`.

    A window is `[first time, last time + 1 us)`; `window_id` is i, since tied rows can give equal bounds. One that
    would lack rows is not there. Without `slide_rows` the windows stand beside each other."""
    slide_rows = size_rows if slide_rows is None else slide_rows
    _positive(rows=size_rows, slide_rows=slide_rows)
    result = []
    for group in grouped(_timed(rows, time), keys).values():
        ordered = sorted(group, key=lambda row: row[time])  # a stable sort: ties stay in input order
        for window_id, first in enumerate(range(0, len(ordered) - size_rows + 1, slide_rows)):
            members = ordered[first : first + size_rows]
            for row in members:
                result.append(_placed(row, members[0][time], members[-1][time] + 1) | {"window_id": window_id})
    return result


def _timed(rows: Rows, time: str) -> Rows:
    return [row for row in rows if row[time] is not None]


def _placed(row: Row, start: int, end: int) -> Row:
    return row | {"window_start": start, "window_end": end}


def _positive(**sizes: int) -> None:
    for name, value in sizes.items():
        if value <= 0:
            raise ValueError(f"{name} must be positive, not {value}")
