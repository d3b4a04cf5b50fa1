"""From when on a result is final: the least bound of the rows to come under which no later row can change it.

Each function takes the rows that a query reads and gives its results, each with that time (microseconds); None: only at
the end. Times of rows differ, so `bound > time` is `bound >= time + 1`."""

from __future__ import annotations

from collections.abc import Callable

from tests.temporal.reference.rows import On, Row, Rows, equal

Moments = list[tuple[tuple[object, ...], int | None]]
"""(a result, its moment)."""
SAME_KEY = equal("k")


def in_time(rows: Rows, key: str | None, result: Callable[[Rows, int], object], ahead: int = 0) -> Moments:
    """A window function over the rows of a key in the order of time; `ahead`: how many rows after its own it sees."""
    found: Moments = []
    for part in _partitions(rows, key):
        for place, row in enumerate(part):
            last = place + ahead
            found.append(((row["id"], result(part, place)), part[last]["ts"] + 1 if last < len(part) else None))
    return found


def in_range(rows: Rows, back: int, ahead: int, result: Callable[[Rows], object]) -> Moments:
    """An aggregate over the rows whose times are near a row's."""
    found: Moments = []
    for row in rows:
        near = [other for other in rows if -back <= other["ts"] - row["ts"] <= ahead]
        found.append(((row["id"], result(near)), row["ts"] + ahead + 1))
    return found


def best_of_windows(rows: Rows, size: int, count: int) -> Moments:
    """The rows with the greatest v of each tumbling window: known when the window is over."""
    found: Moments = []
    for start in sorted({row["ts"] // size * size for row in rows}):
        inside = sorted((r for r in rows if r["ts"] // size * size == start), key=lambda r: (-r["v"], r["id"]))
        found += [((row["id"], place + 1), start + size) for place, row in enumerate(inside[:count])]
    return found


def falls_and_rises(rows: Rows, key: str) -> Moments:
    """Matches of `S DOWN+ UP+`: known when the row behind the last one has come."""
    found: Moments = []
    for part in _partitions(rows, key):
        v = [row["v"] for row in part]
        start = 0
        while start < len(part):
            low = start
            while low + 1 < len(part) and v[low + 1] < v[low]:
                low += 1
            top = low
            while top + 1 < len(part) and v[top + 1] > v[top]:
                top += 1
            if low == start or top == low:
                start += 1
                continue
            moment = part[top + 1]["ts"] + 1 if top + 1 < len(part) else None
            found.append(((part[start]["id"], part[top]["id"]), moment))
            start = top + 1
    return found


def runs_within(rows: Rows, length: int) -> Moments:
    """Matches of `S ANY+ WITHIN length`, one after the other: known when a row further away has come, or may come."""
    found: Moments = []
    start = 0
    while start < len(rows):
        last = start
        while last + 1 < len(rows) and rows[last + 1]["ts"] < rows[start]["ts"] + length:
            last += 1
        if last > start:
            found.append(((rows[start]["id"], rows[last]["id"]), rows[start]["ts"] + length))
        start = last + 1 if last > start else start + 1
    return found


def uncovered(rows: Rows, others: Rows, lasts: int, other_lasts: int, on: On = SAME_KEY) -> Moments:
    """NOT EXISTS over lifetimes of constant lengths: a piece is known when the bound has reached its end. One that is
    cut off is known when the row that does it has come; rows come before the bound has passed them."""
    found: Moments = []
    for row in rows:
        since, end = row["ts"], row["ts"] + lasts
        for other in sorted((o for o in others if on(row, o)), key=lambda o: o["ts"]):
            if other["ts"] + other_lasts <= since or other["ts"] >= end:
                continue
            if other["ts"] > since:
                found.append(((row["id"], since, other["ts"]), other["ts"] + 1))
            since = max(since, other["ts"] + other_lasts)
        if since < end:
            found.append(((row["id"], since, end), end))
    return found


def clipped(rows: Rows, others: Rows, lasts: int, on: On = SAME_KEY) -> Moments:
    """CLIP JOIN of lifetimes of a constant length: a row is known when the bound has reached its end, or the row that
    clips it has come."""
    found: Moments = []
    for row in rows:
        starts = [o["ts"] for o in others if on(row, o) and o["ts"] > row["ts"]]
        own = row["ts"] + lasts
        end = min([own, *starts])
        found.append(((row["id"], row["ts"], end), end if end == own else end + 1))
    return found


def latest(rows: Rows, lasts: int) -> Moments:
    """The last row of each key, of those alive: its time ends when the next one comes, and is known when the bound has
    passed that."""
    found: Moments = []
    for part in _partitions(rows, "k"):
        for row, later in zip(part, [*part[1:], None], strict=True):
            end = row["ts"] + lasts if later is None else min(row["ts"] + lasts, later["ts"])
            found.append(((row["id"], row["ts"], end), end + 1))
    return found


def islands(rows: Rows, lasts: int) -> Moments:
    """DISTINCT k over lifetimes of a constant length: an island is known when the bound has passed its end."""
    found: Moments = []
    for part in _partitions(rows, "k"):
        start = end = part[0]["ts"]
        end += lasts
        for row in part[1:]:
            if row["ts"] > end:
                found.append(((row["k"], start, end), end + 1))
                start = row["ts"]
            end = row["ts"] + lasts
        found.append(((part[0]["k"], start, end), end + 1))
    return found


def unmatched_in_band(rows: Rows, others: Rows, length: int) -> Moments:
    """A full join with `o.ts BETWEEN e.ts AND e.ts + length`: a left row is known when no partner can come, a right row
    when no left row can."""
    found: Moments = []

    def near(row: Row, other: Row) -> bool:
        return row["k"] == other["k"] and row["ts"] <= other["ts"] <= row["ts"] + length

    for row in rows:
        partners = [other["id"] for other in others if near(row, other)]
        found += [((row["id"], one), row["ts"] + length + 1) for one in partners or [None]]
    for other in others:
        if not any(near(row, other) for row in rows):
            found.append(((None, other["id"]), other["ts"] + 1))
    return found


def _partitions(rows: Rows, key: str | None) -> list[Rows]:
    parts: dict[object, Rows] = {}
    for row in sorted(rows, key=lambda r: r["ts"]):
        parts.setdefault(None if key is None else row[key], []).append(row)
    return list(parts.values())
