"""Combines the statistics of a table's pieces; used by `StoredTable`."""

from __future__ import annotations

from tsql.kernels.expr.statistics import ColumnStatistics
from tsql.kernels.expr.types import Type


def merged_statistics(t: Type, pieces: list[tuple[int, ColumnStatistics]]) -> ColumnStatistics:
    """The statistics of a column from (rows, statistics) of its pieces.

    Bounds hold for all rows, or are unknown. The number of distinct values adds up where most values of a piece are its
    own (a key), and is that of the richest piece otherwise (a category), which is an estimate."""
    nulls = sum(min(rows, s.nulls or 0) for rows, s in pieces)
    # A piece may be a part of what was counted, so it has at most `nulls` NULLs: only `distinct` tells that it has no
    # values.
    known = [(rows, s) for rows, s in pieces if rows and s.distinct != 0]
    if not known:
        return ColumnStatistics(nulls=nulls, distinct=0)
    distinct = [s.distinct for _, s in known if s.distinct is not None]
    most: int | None = None
    if len(distinct) == len(known):
        keys = all(d * 2 > rows for (rows, _), d in zip(known, distinct, strict=True))
        most = sum(distinct) if keys else max(distinct)
    if any(not s.exact or s.minimum is None or s.maximum is None for _, s in known):
        return ColumnStatistics(nulls=nulls, distinct=most)
    low, high = min(s.minimum for _, s in known), max(s.maximum for _, s in known)
    if most is not None and (t.is_integer or t.name == "DATE"):
        most = min(most, high - low + 1)
    return ColumnStatistics(low, high, nulls, most, True)
