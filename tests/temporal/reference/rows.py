"""What all references share: rows, keys, groups, and times as integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

Row = dict[str, Any]
Rows = list[Row]
On = Callable[[Row, Row], Any]
"""Whether a left and a right row match; None (NULL) is no match."""

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
EPOCH = datetime(1970, 1, 1)


def us(moment: str | datetime) -> int:
    """Microseconds since 1970 of a moment: '2024-02-29 12:30', '12:30' (of 1970-01-01), or a datetime."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(f"1970-01-01 {moment}" if "-" not in moment else moment)
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment(time_us: int) -> datetime:
    """The inverse of `us`."""
    return EPOCH + timedelta(microseconds=time_us)


def floor(time: int, period: int, offset: int = 0) -> int:
    """The last point of the grid `offset + k * period` that is not after `time`. (Python's // rounds down, also below
    zero.)"""
    return (time - offset) // period * period + offset


def ceil(time: int, period: int, offset: int = 0) -> int:
    """The first point of the grid that is not before `time`."""
    return -((offset - time) // period) * period + offset


def key_of(row: Row, keys: Sequence[str]) -> tuple[Any, ...]:
    """The values of the key columns; NULLs are equal to each other, as in GROUP BY."""
    return tuple(row[name] for name in keys)


def grouped(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], Rows]:
    """The rows of each key, in input order."""
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(key_of(row, keys), []).append(row)
    return groups


def equal(*columns: str) -> On:
    """A join condition: the columns of both sides are equal, and NULL is equal to nothing."""
    return lambda left, right: all(left[name] is not None and left[name] == right[name] for name in columns)


def group_by(rows: Iterable[Row], keys: Sequence[str], **aggregates: Callable[[Rows], Any]) -> Rows:
    """Plain GROUP BY: one row per key with the result of each aggregate, which gets the rows of the group. Without keys
    there is one group."""
    groups = grouped(rows, keys)
    if not keys:
        groups.setdefault((), [])
    return [
        dict(zip(keys, key)) | {name: aggregate(group) for name, aggregate in aggregates.items()}
        for key, group in groups.items()
    ]


def count(rows: Rows) -> int:
    """count(*)"""
    return len(rows)


def values(rows: Rows, column: str) -> list[Any]:
    """The values of a column that are not NULL."""
    return [row[column] for row in rows if row[column] is not None]


def total(column: str) -> Callable[[Rows], Any]:
    """sum(column): NULL over no values."""
    return lambda rows: sum(values(rows, column)) if values(rows, column) else None


def least(column: str) -> Callable[[Rows], Any]:
    """min(column)"""
    return lambda rows: min(values(rows, column), default=None)


def greatest(column: str) -> Callable[[Rows], Any]:
    """max(column)"""
    return lambda rows: max(values(rows, column), default=None)


def distinct_count(column: str) -> Callable[[Rows], int]:
    """count(DISTINCT column)"""
    return lambda rows: len(set(values(rows, column)))


def median(column: str) -> Callable[[Rows], Any]:
    """median(column) of numbers: the mean of the two in the middle if their number is even."""

    def of(rows: Rows) -> float | None:
        found = sorted(values(rows, column))
        if not found:
            return None
        middle = len(found) // 2
        return float(found[middle]) if len(found) % 2 else (found[middle - 1] + found[middle]) / 2

    return of
