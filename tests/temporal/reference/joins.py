"""Joins in time over plain relations: band joins, ASOF, and FOR VALID_TIME AS OF, each as a loop over all pairs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from tests.temporal.reference.lifetimes import before
from tests.temporal.reference.rows import On, Row, Rows

INEQUALITIES: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}


def band_join(left: Rows, right: Rows, on: On, left_time: str, right_time: str, low: int, high: int) -> Rows:
    """`ON .. AND r.ts BETWEEN l.ts + low AND l.ts + high`; a NULL time matches nothing. Columns of the right side win
    where names are equal."""

    def close(one: Row, other: Row) -> bool:
        start, moment = one[left_time], other[right_time]
        return start is not None and moment is not None and start + low <= moment <= start + high

    return [one | other for one in left for other in right if on(one, other) and close(one, other)]


def asof_join(
    left: Rows,
    right: Rows,
    on: On,
    left_time: str,
    right_time: str,
    inequality: str = ">=",
    tolerance: int | None = None,
    outer: Sequence[str] | None = None,
) -> Rows:
    """`l ASOF JOIN r ON .. AND l.ts >= r.ts [TOLERANCE ..]`: each left row with the nearest right row that satisfies
    the inequality.

    Among right rows of equal time the last in input order wins. The tolerance is inclusive. A NULL time never matches.
    `outer` are the right side's columns: with them it is ASOF LEFT JOIN, and a left row without a partner gets NULLs.
    """
    result = []
    for one in left:
        best: Row | None = None
        for other in right:
            if not _asof_match(one, other, on, left_time, right_time, inequality, tolerance):
                continue
            if best is None or abs(one[left_time] - other[right_time]) <= abs(one[left_time] - best[right_time]):
                best = other
        if best is not None:
            result.append(one | best)
        elif outer is not None:
            result.append(one | {name: None for name in outer if name not in one})
    return result


def as_of(rows: Rows, instant: int | None, start: str = "vs", end: str = "ve") -> Rows:
    """`t FOR VALID_TIME AS OF x`: the rows with `vs <= x < ve`, where a NULL `ve` is open and a NULL `vs` or x matches
    nothing."""
    return [
        row
        for row in rows
        if instant is not None and row[start] is not None and row[start] <= instant and before(instant, row[end])
    ]


def join_as_of(
    left: Rows, right: Rows, on: On, time: str, start: str = "vs", end: str = "ve", outer: Sequence[str] | None = None
) -> Rows:
    """`l JOIN r FOR VALID_TIME AS OF l.ts ON ..`; `outer` as for `asof_join`, for LEFT JOIN."""
    result = []
    for one in left:
        partners = [other for other in as_of(right, one[time], start, end) if on(one, other)]
        result.extend(one | other for other in partners)
        if not partners and outer is not None:
            result.append(one | {name: None for name in outer if name not in one})
    return result


def _asof_match(
    one: Row, other: Row, on: On, left_time: str, right_time: str, inequality: str, tolerance: int | None
) -> bool:
    if one[left_time] is None or other[right_time] is None or not on(one, other):
        return False
    near = tolerance is None or abs(one[left_time] - other[right_time]) <= tolerance
    return near and INEQUALITIES[inequality](one[left_time], other[right_time])
