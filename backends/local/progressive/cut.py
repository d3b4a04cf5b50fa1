"""Cuts the rows of a snapshot as LIMIT does, and says which of them are certain to be in the result."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tsql.planner.progressive.ranking import PASSES, POSSIBLE, RANK_HIGH, RANK_LOW, SURE, Ranking

CERTAIN, POSSIBLY = "certain", "possible"


def status_of(sure: np.ndarray) -> pa.ChunkedArray:
    """The status of rows."""
    return pa.chunked_array([pa.array(np.where(sure, CERTAIN, POSSIBLY).tolist(), pa.string())])


def cut(rows: pa.Table, ranking: Ranking) -> tuple[pa.Table, np.ndarray]:
    """The first rows that pass, of rows in their order, and whether each is certain."""
    passes, possible, sure = (np.asarray(rows[name]) for name in (PASSES, POSSIBLE, SURE))
    lows, highs = (_filled(rows[name]) for name in (RANK_LOW, RANK_HIGH))
    if not ranking.descending:
        lows, highs = -highs, -lows
    lows, highs = np.where(np.isnan(lows), -np.inf, lows), np.where(np.isnan(highs), np.inf, highs)
    rivals = np.sort(highs[possible])[::-1]
    # Of the others, so many may be before a row that is certain: one less than the limit.
    bar = rivals[ranking.count] if len(rivals) > ranking.count else -np.inf
    shown = np.flatnonzero(passes)[: ranking.count]
    return rows.take(pa.array(shown)), (sure & ((lows > bar) | (len(rivals) <= ranking.count)))[shown]


def _filled(column: pa.ChunkedArray) -> np.ndarray:
    return column.to_numpy(zero_copy_only=False).astype(np.float64)
