"""The error of what has no closed form: a Poisson bootstrap of units.

A replicate has each unit of the sample a number of times, drawn from Poisson's distribution with mean 1. What the
result shows is computed for each replicate, by the kernels of the plan; it varies between them as it would between
samples. Totals of a replicate are scaled by the rows that it has, since these vary too.

Their mean differs from the value of the sample as that differs from the value of all rows: an estimated bias, as an
entropy or the skewness of a heavy tail has. Bounds reach as much further on the side where the value is missed.

In: a part of a sample. Out: the rows of its replicates; and from the values of the groups in each, their errors and
biases. The part has fewer units than the sample: its bias is larger by the quotient, and its error by the root of
it."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import pyarrow as pa

from tsql.backends.local.progressive.samples import Sample
from tsql.backends.local.run.host import Chunk

REPLICATES = 64
"""One more follows them: the part of the sample as it is."""

LEAST_VALUES = 0.9
"""A group whose value is known in fewer of the replicates has no error."""


def replicates(sample: Sample, names: Container[str], shards: int) -> list[list[Chunk]]:
    """The rows of all replicates, those of a replicate in one shard, with the columns of these names and three more:
    their places in the whole sample, the number of the replicate, and all rows for one of it."""
    random = np.random.Generator(np.random.PCG64([sample.seed, 2, sample.batches]))
    drawn = random.poisson(1.0, (REPLICATES, sample.batches))
    weights = np.vstack([drawn, np.ones((1, sample.batches), drawn.dtype)])
    source = weights @ sample.source_rows
    with np.errstate(divide="ignore"):
        scales = np.where(source > 0, sample.scale * sample.source_rows.sum() / source, 0.0)
    found: list[list[Chunk]] = []
    for shard in range(shards):
        mine = np.arange(len(weights))[shard::shards]
        times = weights[mine][:, sample.batch]
        taken = np.repeat(np.tile(np.arange(sample.rows), len(mine)), times.ravel())
        sizes = times.sum(axis=1)
        indices = pa.array(taken)
        arrays = [array.take(indices) for array, name in zip(sample.arrays, sample.names, strict=True) if name in names]
        hidden = sample.places[taken], np.repeat(mine, sizes), np.repeat(scales[mine], sizes)
        found.append([Chunk((0,), len(taken), [*arrays, *(pa.array(one) for one in hidden)])])
    return found


def errors(
    replicate: np.ndarray, codes: np.ndarray, values: np.ndarray, groups: int, batches: int
) -> tuple[np.ndarray, np.ndarray]:
    """The standard error of a value in each group, and its bias; NaN where they are not known. values: NaN where there
    is none."""
    known = np.isfinite(values) & (codes >= 0)
    plain = np.full(groups, np.nan)
    whole = known & (replicate == REPLICATES)
    plain[codes[whole]] = values[whole]
    known &= replicate < REPLICATES
    codes, values = codes[known], values[known]
    counts = np.bincount(codes, minlength=groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = np.bincount(codes, weights=values, minlength=groups) / counts
        off = values - middle[codes]
        variance = np.bincount(codes, weights=off * off, minlength=groups) / (counts - 1)
        # The spread of the units is that of a sample of them.
        found = np.sqrt(variance * (batches / (batches - 1)))
    enough = (counts >= LEAST_VALUES * REPLICATES) & (found > 0)
    return np.where(enough, found, np.nan), np.where(enough, middle - plain, np.nan)
