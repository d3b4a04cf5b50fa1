"""Sampling units of a scan, in a seeded random order: runs of rows in memory, or row groups of files.

Rows that lie together resemble each other, so the units are the sample and not the rows. A unit of a table has 2 to 8
thousand rows: there are enough units to know how much they differ, and each is long enough to be read at full speed."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends.io import Split
from tsql.backends.local.progressive.zones import Zone, block_zone, split_zone
from tsql.backends.local.run.dataset import BlockData, Part, SourceData, slices
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.late_decoding import LateData
from tsql.backends.local.run.positions import first_position
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.emit.batch import Morsels
from tsql.kernels.emit.pipeline import ColumnarScan

LEAST_ROWS, MOST_ROWS, UNITS = 2048, 8192, 1000
"""The rows of a unit are a power of two between these, so that there are at least so many units where that can be."""

Batch = tuple[int, Part]
"""The number of a batch of units, and rows of it."""


def unit_rows(rows: int) -> int:
    """The rows of a unit of a table with so many rows."""
    size = MOST_ROWS
    while size > LEAST_ROWS and rows < UNITS * size:
        size //= 2
    return size


class Units:
    """Base class. `count` units with `rows[i]` rows each. `order`: those that are read. The first `certain` ones are
    counted in full, then come the others at random."""

    knows_rows = True
    """Whether the rows of each unit are exact."""

    def __init__(self, rows: np.ndarray, seed: int):
        self.rows, self.count, self.seed = rows, len(rows), seed
        self.order = self._shuffled(np.arange(self.count))
        self.certain = 0

    are_read_singly = False
    """Whether each unit is a batch of its own."""

    def zone(self, column: str) -> Zone | None:
        """The bounds of a column in each unit, where they are known."""
        return None

    def strata(self) -> np.ndarray | None:
        """Numbers of the files that units are in, if there are several."""
        return None

    def arrange(self, certain: np.ndarray, empty: np.ndarray) -> None:
        """Read these units first, and those without rows that count not at all."""
        first = self._shuffled(np.flatnonzero(certain & ~empty))
        self.order = np.concatenate([first, self._shuffled(np.flatnonzero(~certain & ~empty))])
        self.certain = len(first)

    def _shuffled(self, units: np.ndarray) -> np.ndarray:
        """These units in a random order. Of several files, each part of the order has a like share of each."""
        random = np.random.Generator(np.random.PCG64(self.seed))
        mixed = units[random.permutation(len(units))]
        strata = self.strata()
        if strata is None or len(units) == 0:
            return mixed
        mine = strata[mixed]
        sizes = np.bincount(mine)
        rank = np.empty(len(mixed), np.int64)
        by_stratum = np.argsort(mine, kind="stable")
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        rank[by_stratum] = np.arange(len(mixed)) - starts[mine[by_stratum]]
        place = (rank + random.random(len(sizes))[mine]) / sizes[mine]
        return mixed[np.argsort(place, kind="stable")]

    @property
    def length(self) -> int:
        """How many units are read in all."""
        return len(self.order)

    @property
    def all_rows(self) -> int:
        return int(self.rows[self.order].sum())

    def rows_of(self, first: int, last: int) -> int:
        """The rows of the units at these places of the order."""
        return int(self.rows[self.order[first:last]].sum())

    def batches(self, batches: list[np.ndarray]) -> Iterator[Batch]:
        """The rows of batches of units."""
        raise NotImplementedError


class BlockUnits(Units):
    """Units of a table in memory. `data` has a morsel for each."""

    def __init__(self, table: BlockTable, data: BlockData, seed: int):
        self.sources = [source for source, _, _ in data.parts]
        self.morsels = [morsels for _, morsels, _ in data.parts]
        self.records = [
            np.frombuffer(bytes(one.data), np.uint8).reshape(one.count, one.record_bytes) for one in self.morsels
        ]
        counts = [one.count for one in self.morsels]
        self.part = np.repeat(np.arange(len(counts)), counts)
        self.record = np.concatenate([np.arange(count) for count in counts])
        rows = [records[:, :8].copy().view(np.int64).ravel() for records in self.records]
        starts = [records[:, 8:16].copy().view(np.int64).ravel() for records in self.records]
        self.table, self.starts = table, np.concatenate(starts)
        super().__init__(np.concatenate(rows), seed)

    def zone(self, column: str) -> Zone | None:
        return block_zone(self.table, column, self.starts, self.rows)

    def batches(self, batches: list[np.ndarray]) -> Iterator[Batch]:
        for number, units in enumerate(batches):
            for part in range(len(self.sources)):
                mine = units if len(self.sources) == 1 else units[self.part[units] == part]
                if len(mine) == 0:
                    continue
                data = bytearray(self.records[part][self.record[mine]].tobytes())
                morsels = self.morsels[part]
                chosen = Morsels(morsels.columns, data, len(mine), int(self.rows[mine].sum()), [morsels])
                yield number, Part(self.sources[part], chosen)


class BatchUnits(Units):
    """Units of Arrow memory: slices of the batches of a source, which are views of what is there anyway."""

    def __init__(self, data: SourceData, size: int, seed: int):
        self.slices: list[tuple[Any, list[pa.Array], int]] = []
        rows: list[int] = []
        layouts: dict[Any, ColumnarScan] = {}
        for split in data.splits:
            position = first_position(split)
            for batch in data.source.read(split, data.columns):
                layout, arrays = data.scan_of(batch), list(batch.columns)
                source = layouts.setdefault(layout.columns, layout)
                for start, count, pieces in slices(arrays, batch.num_rows, size):
                    self.slices.append((source, pieces, position + start))
                    rows.append(count)
                position += batch.num_rows
        super().__init__(np.array(rows, np.int64), seed)

    def batches(self, batches: list[np.ndarray]) -> Iterator[Batch]:
        for number, units in enumerate(batches):
            by_source: dict[int, tuple[Any, Morsels]] = {}
            for unit in units:
                source, arrays, position = self.slices[unit]
                _, morsels = by_source.setdefault(id(source), (source, Morsels(len(arrays))))
                morsels.add_arrays(arrays, position, int(self.rows[unit]))
            for source, morsels in by_source.values():
                yield number, Part(source, morsels)


class SplitUnits(Units):
    """Units of files: their splits. `flow` reads them, with columns that are decoded late where the plan says so."""

    are_read_singly = True

    def __init__(self, data: SourceData, flow: Flow, seed: int):
        self.splits, self.source = data.splits, data.source
        self.flow = flow
        self.knows_rows = all(split.rows is not None for split in data.splits)
        super().__init__(np.array([_rows(split) for split in data.splits], np.int64), seed)

    def zone(self, column: str) -> Zone | None:
        return split_zone(self.source, column, self.source.schema[column].type, self.splits)

    def strata(self) -> np.ndarray | None:
        files = {path: place for place, path in enumerate(dict.fromkeys(split.path for split in self.splits))}
        return np.array([files[split.path] for split in self.splits]) if len(files) > 1 else None

    def batches(self, batches: list[np.ndarray]) -> Iterator[Batch]:
        # No part comes of a split whose rows all fail the first filters.
        numbers = {self.splits[unit].order: number for number, units in enumerate(batches) for unit in units}
        data = self._reading([self.splits[unit] for units in batches for unit in units])
        for part in data.feed(0):
            yield numbers[part.order[0]], part

    def _reading(self, splits: list[Any]) -> Any:
        data: Any = copy(self.flow.data)
        source: Any = copy(data.data if isinstance(data, LateData) else data)
        source.splits = splits
        source._start()
        if not isinstance(data, LateData):
            return source
        data.data = source
        return data


def _rows(split: Split) -> int:
    """The rows of a split, or what is expected of it. Where nothing is known, splits count alike."""
    rows = split.expected if split.rows is None else split.rows
    return 1 if rows is None else rows


class JoinedUnits(Units):
    """The units of several scans, one after the other. Each part of the order has a like share of each scan."""

    def __init__(self, parts: list[Units], seed: int):
        self.parts = parts
        self.are_read_singly = any(part.are_read_singly for part in parts)
        super().__init__(np.concatenate([part.rows for part in parts]), seed)

    def strata(self) -> np.ndarray | None:
        found: list[np.ndarray] = []
        first = 0
        for part in self.parts:
            strata = part.strata()
            found.append(first + (np.zeros(part.count, np.int64) if strata is None else strata))
            first = int(found[-1].max(initial=first)) + 1
        return np.concatenate(found)
