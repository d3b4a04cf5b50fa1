"""The groups of the rows of a sample: a number for each row, by its keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsql.kernels.process.quick_dataclass import dataclass

MOST_CELLS = 1 << 20
"""Of so many possible pairs of groups and units, each has a cell of an array."""


@dataclass
class GroupCodes:
    """codes: the group of each row of the sample; -1 for rows that were dropped. batch: the unit of each row; seen: in
    how many units each group has rows."""

    codes: np.ndarray
    batch: np.ndarray
    groups: int
    batches: int
    seen: np.ndarray

    def of(self, rows: pa.ChunkedArray | pa.Array) -> np.ndarray:
        """The groups that rows of the sample stand for; -1 for none."""
        places = np.asarray(pc.fill_null(rows, -1), np.int64)
        return np.where(places < 0, -1, self.codes[places]) if len(self.codes) else np.full(len(places), -1)

    def part(self, batches: int) -> np.ndarray:
        """In how many of the first units each group has rows."""
        return _seen(self.codes, self.batch, self.groups, batches)


def group_codes(rows: np.ndarray, keys: list[pa.Array], batch: np.ndarray, batches: int) -> GroupCodes:
    """rows: places in the sample; keys: theirs. batch: the unit of each row of the sample."""
    mixed = np.zeros(len(rows), np.int64)
    groups = min(1, len(rows))
    for key in keys:
        codes, size = _numbers(key)
        mixed, groups = _numbers(pa.array(mixed * size + codes)) if groups > 1 else (codes, size)
    found = np.full(len(batch), -1, np.int64)
    found[rows] = mixed
    return GroupCodes(found, batch, groups, batches, _seen(found, batch, groups, batches))


def _numbers(key: pa.Array) -> tuple[np.ndarray, int]:
    """Equal values as equal numbers from 0 on, and how many there are."""
    if pa.types.is_floating(key.type):
        # Both zeros are one value.
        key = pc.add(key, pa.scalar(0, key.type))
    encoded = key.dictionary_encode("encode")
    return np.asarray(encoded.indices, np.int64), len(encoded.dictionary)


def _seen(codes: np.ndarray, batch: np.ndarray, groups: int, batches: int) -> np.ndarray:
    mine = (codes >= 0) & (batch < batches)
    pairs, _ = pairs_of(codes[mine], batch[mine], groups, batches)
    return np.bincount(pairs // max(1, batches), minlength=groups)


def pairs_of(codes: np.ndarray, batch: np.ndarray, groups: int, batches: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of a group and a unit that have rows, as group * units + unit; and the place of each row's pair."""
    mixed = codes * batches + batch
    if groups * batches > max(MOST_CELLS, len(codes)):
        return np.unique(mixed, return_inverse=True)
    pairs = np.flatnonzero(np.bincount(mixed, minlength=groups * batches))
    places = np.zeros(groups * batches, np.int64)
    places[pairs] = np.arange(len(pairs))
    return pairs, places[mixed]
