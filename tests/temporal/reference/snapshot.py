"""Snapshot semantics: a temporal operator gives at every instant what the plain operator gives over the rows alive
then.

`per_snapshot` evaluates any function of plain rows that way, by cutting time at every end of a lifetime; aggregates,
DISTINCT and the set operations follow from it. Joins, EXISTS and NOT EXISTS keep rows apart and are written out;
`snapshots` and `same_snapshots` tell whether they, and the engine, mean the same at every instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.temporal.reference.lifetimes import before, content, earlier
from tests.temporal.reference.rows import On, Row, Rows, group_by

Interval = tuple[int, int | None]


def elementary(*relations: Rows) -> list[Interval]:
    """The intervals between neighbouring ends of lifetimes. Within one of them the same rows are alive at every
    instant."""
    ends = [row[name] for relation in relations for row in relation for name in ("valid_from", "valid_to")]
    cuts: list[int | None] = sorted({end for end in ends if end is not None})
    if None in ends:
        cuts.append(None)
    return [(start, end) for start, end in zip(cuts, cuts[1:]) if start is not None]


def alive_at(rows: Rows, instant: int) -> Rows:
    """The rows alive at an instant, without their lifetimes."""
    return [dict(content(row)) for row in rows if row["valid_from"] <= instant and before(instant, row["valid_to"])]


def per_snapshot(function: Callable[..., Rows], *relations: Rows) -> Rows:
    """`function` over the rows alive in each elementary interval; where nothing is alive it is not asked."""
    result = []
    for start, end in elementary(*relations):
        living = [alive_at(relation, start) for relation in relations]
        if any(living):
            result.extend(row | {"valid_from": start, "valid_to": end} for row in function(*living))
    return result


def coalesce(rows: Rows) -> Rows:
    """Equal rows whose lifetimes touch or overlap become one row."""
    result = []
    for payload in dict.fromkeys(content(row) for row in rows):
        pieces = [(row["valid_from"], row["valid_to"]) for row in rows if content(row) == payload]
        result.extend(dict(payload) | {"valid_from": start, "valid_to": end} for start, end in union(pieces))
    return result


def snapshots(rows: Rows, intervals: Sequence[Interval]) -> list[Counter[tuple[tuple[str, Any], ...]]]:
    """The multiset of rows alive in each interval."""
    return [Counter(content(row) for row in alive_at(rows, start)) for start, _ in intervals]


def same_snapshots(one: Rows, other: Rows) -> bool:
    """Whether two temporal relations are the same at every instant, however their rows are cut."""
    intervals = elementary(one, other)
    return snapshots(one, intervals) == snapshots(other, intervals)


def aggregate(rows: Rows, keys: Sequence[str], **aggregates: Callable[[Rows], Any]) -> Rows:
    """GROUP BY: a row per group and maximal interval in which its result does not change; none where nothing is
    alive."""
    return coalesce(per_snapshot(lambda living: group_by(living, keys, **aggregates), rows))


def distinct(rows: Rows) -> Rows:
    """SELECT DISTINCT"""
    return coalesce(rows)


def qualified(rows: Rows, keep: Callable[[Row, Rows], bool]) -> Rows:
    """QUALIFY: a row stays while `keep` says so of it and the rows alive then. Rows are told apart by their values."""
    return coalesce(per_snapshot(lambda living: [row for row in living if keep(row, living)], rows))


def union_all(left: Rows, right: Rows) -> Rows:
    """UNION ALL"""
    return left + right


def union_distinct(left: Rows, right: Rows) -> Rows:
    """UNION"""
    return coalesce(left + right)


def intersect_distinct(left: Rows, right: Rows) -> Rows:
    """INTERSECT"""
    return coalesce(
        per_snapshot(
            lambda one, other: [dict(row) for row in set(map(content, one)) & set(map(content, other))], left, right
        )
    )


def except_distinct(left: Rows, right: Rows) -> Rows:
    """EXCEPT"""
    return coalesce(
        per_snapshot(
            lambda one, other: [dict(row) for row in set(map(content, one)) - set(map(content, other))], left, right
        )
    )


def intersect_all(left: Rows, right: Rows) -> Rows:
    """INTERSECT ALL: of each row as many copies as both sides have. See `_copies` for how they are cut."""
    return _copies(lambda one, other: one & other, left, right)


def except_all(left: Rows, right: Rows) -> Rows:
    """EXCEPT ALL: of each row as many copies as the left side has more. See `_copies` for how they are cut."""
    return _copies(lambda one, other: one - other, left, right)


def _copies(operation: Callable[[Counter[Any], Counter[Any]], Counter[Any]], left: Rows, right: Rows) -> Rows:
    """Per snapshot only the number of equal rows is defined, not which of them stay. The n-th copy of a row is there
    while there are n or more, in maximal pieces; other cuts that agree at every instant (`same_snapshots`) are as
    right."""

    def numbered(one: Rows, other: Rows) -> Rows:
        counts = operation(Counter(map(content, one)), Counter(map(content, other)))
        return [dict(payload) | {"copy": number} for payload, copies in counts.items() for number in range(copies)]

    merged = coalesce(per_snapshot(numbered, left, right))
    return [{name: value for name, value in row.items() if name != "copy"} for row in merged]


def inner_join(left: Rows, right: Rows, on: On) -> Rows:
    """JOIN: a row per pair that matches, alive while both are. Columns of the right side win where names are equal."""
    result = []
    for one in left:
        for other in right:
            if on(one, other) and (both := intersection(one, other)) is not None:
                result.append(one | other | {"valid_from": both[0], "valid_to": both[1]})
    return result


def left_join(left: Rows, right: Rows, on: On, right_columns: Sequence[str]) -> Rows:
    """LEFT JOIN: the pairs, and each left row with NULLs for the parts of its lifetime that nothing matches."""
    padding = {name: None for name in right_columns}
    return inner_join(left, right, on) + [_padded(row, padding) for row in anti_join(left, right, on)]


def full_join(left: Rows, right: Rows, on: On, left_columns: Sequence[str], right_columns: Sequence[str]) -> Rows:
    """FULL JOIN: a left join, and each right row with NULLs for the parts that no left row matches. A column of both
    sides is NULL only if it is in `left_columns`."""
    padding = {name: None for name in left_columns}
    alone = anti_join(right, left, lambda row, other: on(other, row))
    return left_join(left, right, on, right_columns) + [padding | row for row in alone]


def semi_join(left: Rows, right: Rows, on: On) -> Rows:
    """EXISTS: the maximal parts of each left row in which some right row matches."""
    return [
        row | {"valid_from": start, "valid_to": end} for row in left for start, end in union(_shared(row, right, on))
    ]


def anti_join(left: Rows, right: Rows, on: On) -> Rows:
    """NOT EXISTS, ANTI JOIN: the maximal parts of each left row in which no right row matches."""
    result = []
    for row in left:
        start: int | None = row["valid_from"]
        for covered_from, covered_to in union(_shared(row, right, on)):
            if start is not None and start < covered_from:
                result.append(row | {"valid_from": start, "valid_to": covered_from})
            start = covered_to
        if start is not None and before(start, row["valid_to"]):
            result.append(row | {"valid_from": start})
    return result


def clip_join(left: Rows, right: Rows, on: On) -> Rows:
    """CLIP JOIN: each left row ends at the first matching right row that starts strictly after it, if it is still alive
    then."""
    result = []
    for row in left:
        later = [other["valid_from"] for other in right if on(row, other) and other["valid_from"] > row["valid_from"]]
        result.append(row | {"valid_to": earlier(row["valid_to"], min(later, default=None))})
    return result


def intersection(one: Row, other: Row) -> Interval | None:
    """When both rows are alive, if ever."""
    start, end = max(one["valid_from"], other["valid_from"]), earlier(one["valid_to"], other["valid_to"])
    return (start, end) if before(start, end) else None


def union(intervals: Sequence[Interval]) -> list[Interval]:
    """The fewest intervals that cover the same instants, in order."""
    result: list[Interval] = []
    for start, end in sorted(intervals, key=lambda interval: interval[0]):
        if result and (result[-1][1] is None or start <= result[-1][1]):
            last_start, last_end = result.pop()
            end = None if last_end is None or end is None else max(last_end, end)
            start = last_start
        result.append((start, end))
    return result


def _shared(row: Row, others: Rows, on: On) -> list[Interval]:
    found = [intersection(row, other) for other in others if on(row, other)]
    return [interval for interval in found if interval is not None]


def _padded(row: Row, padding: Row) -> Row:
    return row | {name: value for name, value in padding.items() if name not in row}
