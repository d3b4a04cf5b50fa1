"""A row group that is read column by column on request: all rows of a batch, or a selection.

`LaneReader` uses it for columns without a lane. A column of which no row is wanted is never opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tsql.backends.io import Split
from tsql.backends.io.files import reading
from tsql.backends.io.parquet.pages import ChunkReader, Selection, read_all

if TYPE_CHECKING:
    from tsql.backends.io.parquet.source import ParquetSource

BATCH_ROWS = 1 << 17
"""The most rows of a batch. Row groups of usual sizes are one batch, so that pages without a wanted row are skipped."""

DENSE = 0.4
"""If more than this fraction of the rows is wanted, all are decoded and the others dropped."""


class LateSplit:
    """One row group. `advance` goes to the next rows, `get` reads columns of them, each column once. `selection` names
    the wanted rows."""

    def __init__(self, source: ParquetSource, split: Split):
        self.source, self.split, self.file = source, split, source._file(split.file)
        self.start = self.rows = 0
        self._readers: dict[int, ChunkReader] = {}
        self._places: dict[int, int] = {}
        self._tables: dict[int, pa.ChunkedArray] = {}

    def advance(self) -> int:
        """Go to the next batch, and return its number of rows; 0 at the end."""
        self.start += self.rows
        left = self.split.known_rows - self.start
        self.rows = -(-left // -(-left // BATCH_ROWS)) if left else 0
        return self.rows

    def get(self, names: tuple[str, ...], selection: Selection | None = None) -> list[pa.Array]:
        """The columns in the types of `Source.read`."""
        count = self.rows if selection is None else selection.count
        with reading(self.split.file, "a Parquet file"):
            positions = {name: at for name in names if (at := self._position(name)) is not None}
            ours = [at for at in dict.fromkeys(positions.values()) if self._open(at)]
            found = dict(zip(ours, self._decode([self._readers[at] for at in ours], ours, selection), strict=True))
            for at in positions.values():
                if at not in found:
                    found[at] = self._taken(at, selection)
            return [self.source._column(found, self.file, positions, name, count) for name in names]

    def _position(self, name: str) -> int | None:
        return None if name in self.source.partitions.types else self.file.index.get(name.lower())

    def _open(self, position: int) -> bool:
        """Whether our decoder reads a column. If so, it is positioned at the rows of this batch."""
        if position in self._tables:
            return False
        reader = self._readers.get(position)
        if reader is None:
            reader = self.source._chunk_reader(self.file, self.split, position)
            if reader is None:
                self._tables[position] = self.source._whole_column(self.file, self.split, position)
                return False
            self._readers[position], self._places[position] = reader, 0
        if self._places[position] < self.start:
            read_all([reader], self.start - self._places[position], Selection.of(()))
        self._places[position] = self.start + self.rows
        return True

    def _decode(self, readers: list[ChunkReader], positions: list[int], selection: Selection | None) -> list[pa.Array]:
        wide = [reader for reader in readers if reader.batch_rows(self.rows) < self.rows]
        narrow = [reader for reader in readers if reader not in wide]
        if selection is not None and selection.count > DENSE * self.rows:
            numbers = pa.array(selection.rows[:-1])
            done = [array.take(numbers) for array in read_all(narrow, self.rows)]
        else:
            done = read_all(narrow, self.rows, selection)
        found = dict(zip(map(id, narrow), done, strict=True)) | {
            id(reader): self._in_pieces(reader, selection) for reader in wide
        }
        return [found[id(reader)] for reader in readers]

    def _in_pieces(self, reader: ChunkReader, selection: Selection | None) -> pa.Array:
        """A column with so much text that its batches need fewer rows; returned with 64-bit offsets."""
        numbers = np.arange(self.rows, dtype=np.int32) if selection is None else selection.rows[:-1]
        size, pieces = reader.batch_rows(self.rows), []
        for start in range(0, self.rows, size):
            rows = min(size, self.rows - start)
            low, high = np.searchsorted(numbers, (start, start + rows))
            (array,) = read_all([reader], rows, Selection.of(numbers[low:high] - start))
            pieces.append(array.cast(pa.large_string() if array.type == pa.string() else pa.large_binary()))
        return pa.concat_arrays(pieces)

    def _taken(self, position: int, selection: Selection | None) -> pa.Array:
        """A column that pyarrow has read."""
        rows = self._tables[position].slice(self.start, self.rows)
        array = rows.combine_chunks() if selection is None else rows.take(pa.array(selection.rows[:-1]))
        return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def keep(arrays: dict[str, pa.Array], selection: Any) -> dict[str, pa.Array]:
    """The selected rows of decoded columns."""
    numbers = pa.array(selection.rows[:-1])
    return {name: array.take(numbers) for name, array in arrays.items()}
