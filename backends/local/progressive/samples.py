"""A bounded sample of the rows that have been read: of each unit the same share, as a run of rows at a random place.

The units are what the sample is of: their rows resemble each other, so its error follows from how much units differ.
A run of rows costs no copy of its own, and many units with few rows each say more than few units with all rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from tsql.backends.local.progressive.confidence import LEAST_BATCHES
from tsql.backends.local.progressive.units import Units
from tsql.backends.local.run.host import Chunk, chunk_type
from tsql.kernels.operators.collect import OutputColumn
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class Cap:
    """A sample has at most so many rows, or one of so many that were read."""

    rows: int
    one_of: int

    def of(self, read: int) -> int:
        return max(self.rows, read // self.one_of)


LOOKED_AT, STOPPING, COUNTED = Cap(1 << 16, 32), Cap(1 << 16, 8), Cap(1 << 18, 8)
"""The cap where errors are computed; where a query may stop, so that the last snapshot is as good as it can be; and
where values are only shown, which costs less."""

REPLICATED, REPLICATED_UNITS = Cap(1 << 13, 2048), 32
"""The cap of the part of a sample that is replicated. It has so many units, if there are."""

MOST_STATES = 1 << 16
"""States are not replicated if eight batches have more of them."""


@dataclass
class Sample:
    """names: of the columns; seed: of random choices. arrays: the columns of the rows, unit by unit. batch: of each
    row, the place of its unit in the order; places: its own in the sample that this is a part of. source_rows: of each
    unit, its rows before any was dropped. scale: all rows for one of the sample. share: the part of all rows that it
    is. is_whole: it has all rows that were read. rest: the rows of the scan that are not in it; infinite if that is not
    known. are_states: its rows are states of groups, of which a batch has each one."""

    names: tuple[str, ...]
    seed: int
    arrays: list[pa.Array]
    batch: np.ndarray
    places: np.ndarray
    source_rows: np.ndarray
    scale: float
    share: float
    is_whole: bool
    rest: float = np.inf
    are_states: bool = False

    @property
    def rows(self) -> int:
        return len(self.batch)

    @property
    def batches(self) -> int:
        return len(self.source_rows)

    def chunks(self, shards: int) -> list[list[Chunk]]:
        """The rows with their places, in so many shards."""
        cuts = [(self.rows * n // shards, self.rows * (n + 1) // shards) for n in range(shards)]
        arrays = [*self.arrays, pa.array(self.places)]
        return [[Chunk((0,), b - a, [one.slice(a, b - a) for one in arrays])] for a, b in cuts]

    def part(self, rows: int) -> Sample | None:
        """Its first units, with all their rows or some of each, so that there are about so many rows. None if there
        are far more states."""
        each = max(1, self.rows // max(1, self.batches))
        batches = min(self.batches, max(rows // each, REPLICATED_UNITS))
        if self.are_states:
            batches = min(batches, MOST_STATES // each)
            if batches < LEAST_BATCHES:
                return None
        counts = np.bincount(self.batch, minlength=self.batches)[:batches]
        in_all = int(counts.sum())
        arrays, batch, factor = [a.slice(0, in_all) for a in self.arrays], self.batch[:in_all], 1.0
        thinned = 1 if self.are_states else -(-in_all // max(1, rows))
        if thinned > 1:
            within = np.arange(in_all) - np.repeat(np.cumsum(counts) - counts, counts)
            kept = np.flatnonzero(within * thinned < np.repeat(counts, counts))
            arrays, batch, factor = [a.take(pa.array(kept)) for a in arrays], batch[kept], in_all / max(1, len(kept))
        factor *= float(self.source_rows.sum()) / max(1.0, float(self.source_rows[:batches].sum()))
        places = np.arange(in_all) if thinned <= 1 else kept
        source_rows, scale, share = self.source_rows[:batches], self.scale * factor, self.share / factor
        return replace(
            self, arrays=arrays, batch=batch, places=places, source_rows=source_rows, scale=scale, share=share
        )


def row_sample(units: Units, read: list[list[Chunk]], columns: tuple[OutputColumn, ...], most: int) -> Sample:
    """At most about so many rows. read: those of each unit that was read, in their order."""
    places = len(read)
    rows = np.array([sum(chunk.rows for chunk in chunks) for chunks in read], np.int64)
    pieces = max(1, -(-int(rows.sum()) // max(1, most)))
    chosen = np.random.Generator(np.random.PCG64([units.seed, 1])).integers(0, 2**62, units.length)[:places] % pieces
    firsts, lasts = rows * chosen // pieces, rows * (chosen + 1) // pieces
    found: list[list[pa.Array]] = [[] for _ in columns]
    for chunks, first, last in zip(read, firsts.tolist(), lasts.tolist(), strict=True):
        _add(found, chunks, first, last)
    arrays = [_joined(one, column) for one, column in zip(found, columns, strict=True)]
    counts = lasts - firsts
    source_rows, in_all, known = _source_rows(units, [units.order[place : place + 1] for place in range(places)])
    share = source_rows.sum() / max(1.0, in_all)
    kept = float(counts.sum()) / float(rows.sum()) if counts.sum() else 1.0 / pieces
    batch = np.repeat(np.arange(places), counts)
    rest = in_all - source_rows.sum() + float((rows - counts).sum()) if known else np.inf
    names, row = tuple(column.name for column in columns), np.arange(len(batch))
    return Sample(
        names, units.seed, arrays, batch, row, source_rows, 1.0 / (share * kept), share * kept, pieces == 1, rest
    )


def _add(found: list[list[pa.Array]], chunks: list[Chunk], first: int, last: int) -> None:
    """Some rows of a unit."""
    start = 0
    for chunk in chunks:
        a, b = max(first, start), min(last, start + chunk.rows)
        if a < b:
            for column, array in zip(found, chunk.arrays, strict=True):
                column.append(array.slice(a - start, b - a))
        start += chunk.rows


def _joined(arrays: list[pa.Array], column: OutputColumn) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], chunk_type(column))


def state_sample(units: Units, read: list[tuple[np.ndarray, list[Chunk]]], columns: tuple[OutputColumn, ...]) -> Sample:
    """The states of batches of units."""
    chunks = [chunk for _, found in read for chunk in found]
    arrays = [_joined([chunk.arrays[n] for chunk in chunks], column) for n, column in enumerate(columns)]
    batch = np.repeat(np.arange(len(read)), [sum(chunk.rows for chunk in found) for _, found in read])
    source_rows, in_all, known = _source_rows(units, [batch for batch, _ in read])
    share = source_rows.sum() / max(1.0, in_all)
    rest = in_all - source_rows.sum() if known else np.inf
    names, row = tuple(column.name for column in columns), np.arange(len(batch))
    return Sample(names, units.seed, arrays, batch, row, source_rows, 1.0 / share, share, True, rest, True)


def _source_rows(units: Units, batches: list[np.ndarray]) -> tuple[np.ndarray, float, bool]:
    """The rows of each batch, those of all units, and whether they are known; otherwise these are units."""
    known = bool(np.all(units.rows > 0))
    rows = units.rows if known else np.ones(units.count)
    return np.array([rows[batch].sum() for batch in batches], np.float64), float(rows[units.order].sum()), known
