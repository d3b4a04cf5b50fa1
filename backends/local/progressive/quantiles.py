"""Bounds of quantiles: the shares of a group's rows below the estimate, each with an error, turned back into values.

The share F of rows that are at most the estimate is a ratio of two totals over units, of rows below and of all rows. So
its variance follows from the units, linearised (Woodruff 1952): with k of m rows below in each of B units, M rows in
all, and a part f of all rows in the sample

    variance of F = (1 - f) B / (B - 1) sum((k - F m)^2) / M^2

The bounds are the quantiles at p - width * error and p + width * error. Where values repeat, the shares below the
estimate and up to it differ; the larger error counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tsql.backends.local.progressive.confidence import LEAST_BATCHES
from tsql.backends.local.progressive.group_codes import GroupCodes, pairs_of

Bounds = tuple[np.ndarray, np.ndarray]
Width = Callable[[Any], Any]


def quantile_bounds(
    values: np.ndarray, rows: np.ndarray, groups: GroupCodes, share: float, read: float, width: Width
) -> Bounds:
    """Of each group; NaN where it has none yet. values: of these rows of the sample. read: the part of all rows in the
    sample. width: the half width of bounds in errors, by the number of units."""
    codes, batch = groups.codes[rows], groups.batch[rows]
    rows = np.bincount(codes, minlength=groups.groups)
    ends = np.cumsum(rows)
    by_group = np.argsort(codes.astype(np.uint16) if groups.groups < 1 << 16 else codes, kind="stable")
    ordered = values[by_group]
    for first, last in zip((ends - rows).tolist(), ends.tolist(), strict=True):
        ordered[first:last].sort()
    there = rows > 0
    at = (ends - rows) + np.floor(share * np.maximum(rows - 1, 0)).astype(np.int64)
    middle = np.full(groups.groups, np.nan)
    middle[there] = ordered[at[there]]
    pairs, place = pairs_of(codes, batch, groups.groups, groups.batches)
    of_pair, in_pair = pairs // max(1, groups.batches), np.bincount(place, minlength=len(pairs))
    batches = np.bincount(of_pair, minlength=groups.groups)
    variance = np.zeros(groups.groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        for is_below in (values <= middle[codes], values < middle[codes]):
            below = np.bincount(place, weights=is_below, minlength=len(pairs))
            ratio = np.bincount(codes, weights=is_below, minlength=groups.groups) / rows
            off = below - ratio[of_pair] * in_pair
            found = np.bincount(of_pair, weights=off * off, minlength=groups.groups) / rows**2
            variance = np.maximum(variance, found)
        variance *= (1 - read) * batches / (batches - 1)
    error = width(np.maximum(batches, 2).astype(np.float64)) * np.sqrt(variance)
    low, high = share - error, share + error
    known = (batches >= LEAST_BATCHES) & (variance > 0) & (low > 0) & (high < 1)
    lows, highs = np.full(groups.groups, np.nan), np.full(groups.groups, np.nan)
    first, most = (ends - rows)[known], rows[known] - 1
    lows[known] = ordered[first + np.floor(low[known] * most).astype(np.int64)]
    highs[known] = ordered[first + np.ceil(high[known] * most).astype(np.int64)]
    return lows, highs
