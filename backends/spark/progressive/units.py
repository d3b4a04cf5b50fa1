"""Sampling units as the driver knows them: splits of files, or slices of a table in memory that travel with the task.

Their order, their zones and their sizes are those of a local run (`backends/local/progressive/units.py`). `rows_for`
gives the rows of the wire that bring units to a task: one about all of them (`UNITS`), and those of the scan."""

from __future__ import annotations

import json
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends import Run
from tsql.backends.io import Split, tell_lost
from tsql.backends.local.progressive.units import BatchUnits, BlockUnits, SplitUnits, Units, unit_rows
from tsql.backends.local.progressive.zones import Zone
from tsql.backends.local.run.dataset import BlockData, SourceData
from tsql.backends.local.run.host import Shared
from tsql.backends.spark.splits import plain
from tsql.backends.spark.stages.scans import table_batches, with_rows
from tsql.backends.spark.wire import Row, encode_batches
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.scan import Scan

UNITS = "\0units"
"""The name under which a task is told of its units."""


class WaveUnits(Units):
    """Units that travel."""

    @abstractmethod
    def rows_for(self, task: int, name: str, units: np.ndarray) -> Iterator[Row]:
        """The rows of the wire that bring these units to a task, in this order, for the scan of this name."""
        ...


@dataclass(frozen=True)
class Splits:
    """What `SplitUnits` must know of files that it does not read."""

    source: Any
    splits: list[Split]


class FileUnits(SplitUnits, WaveUnits):
    """Splits of files, which the tasks read."""

    def __init__(self, scan: Scan, splits: list[Split], seed: int):
        super().__init__(Splits(scan.source, splits), None, seed)  # type: ignore[arg-type]  # the driver reads no rows

    def rows_for(self, task: int, name: str, units: np.ndarray) -> Iterator[Row]:
        yield task, name, 0, json.dumps([plain(self.splits[unit]) for unit in units]).encode()


class Slices(WaveUnits):
    """Slices of rows in the driver's memory."""

    @abstractmethod
    def batch(self, unit: int) -> pa.RecordBatch:
        """The rows of a unit."""
        ...

    def zone(self, column: str) -> Zone | None:
        # Codes of a dictionary mean nothing in a task.
        found = super().zone(column)
        return None if found is None or found.dictionary is not None else found

    def rows_for(self, task: int, name: str, units: np.ndarray) -> Iterator[Row]:
        for place, unit in enumerate(units):
            for blob in encode_batches([with_rows(self.batch(unit))], self.rows_bytes):
                yield task, name, place, blob.to_pybytes()

    rows_bytes = 1 << 30
    """A unit is one blob, whatever its size."""


class BlockSlices(Slices, BlockUnits):
    """Slices of a table in blocks."""

    def __init__(self, scan: Scan, run: Run, seed: int):
        table = scan.source
        super().__init__(table, BlockData(table, scan.columns, scan.where, 1, unit_rows(table.rows)), seed)
        self.decoded = table_batches(scan, run)
        self.ends = list(accumulate(batch.num_rows for batch in self.decoded))

    def batch(self, unit: int) -> pa.RecordBatch:
        start, rows = int(self.starts[unit]), int(self.rows[unit])
        found = []
        number = bisect_right(self.ends, start)
        while rows:
            batch = self.decoded[number]
            piece = batch.slice(start - (self.ends[number] - batch.num_rows), rows)
            found.append(piece)
            start, rows, number = start + piece.num_rows, rows - piece.num_rows, number + 1
        return found[0] if len(found) == 1 else pa.concat_batches(found)


class ArrowSlices(Slices, BatchUnits):
    """Slices of Arrow batches of a source that only the driver can read."""

    def __init__(self, scan: Scan, run: Run, seed: int):
        data = SourceData(scan.source, scan.columns, scan.where, 1, 0, Shared(run))
        super().__init__(data, unit_rows(data.rows or data.expected or 0), seed)
        self.names = list(scan.columns)
        tell_lost(scan.source, scan.columns, run)

    def batch(self, unit: int) -> pa.RecordBatch:
        _, arrays, _ = self.slices[unit]
        if not arrays:
            return pa.RecordBatch.from_arrays([pa.nulls(int(self.rows[unit]))], ["rows"])
        return pa.RecordBatch.from_arrays(list(map(_short, arrays)), self.names)


def _short(array: Any) -> Any:
    """An array without a dictionary that has more values than the array."""
    if pa.types.is_dictionary(array.type) and len(array.dictionary) > len(array):
        return array.dictionary_decode()
    return array


def units_of(scan: Scan, splits: list[Split] | None, run: Run, seed: int) -> WaveUnits:
    """The units of a scan. splits: those that tasks read; None if the driver sends the rows."""
    if splits is not None:
        return FileUnits(scan, splits, seed)
    return BlockSlices(scan, run, seed) if isinstance(scan.source, BlockTable) else ArrowSlices(scan, run, seed)
