"""`BlockTable`: a table in memory, made of encoded columns that kernels read in place.

In: Arrow batches of a schema. Out: morsels, one per block of 65,536 rows that its zone maps do not rule out. The table
is immutable once made and owns its memory; readers share it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.kernels.blocks.encode import BLOCK_ROWS, BlockColumn, encode
from tsql.kernels.blocks.zones import possible_blocks
from tsql.kernels.emit.batch import Morsels, SourceColumn
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.statistics import Statistics

KEPT_MORSELS = 64
"""The morsel records of this many scans are kept with the table: making them costs more than a short query."""


class BlockTable:
    """A relation in memory; a source for plans."""

    def __init__(self, schema: Schema, rows: int, columns: dict[str, BlockColumn]):
        self.rows, self.columns = rows, columns
        self.schema = Schema(tuple(Field(f.name, f.type, columns[f.name].source.layout.nullable) for f in schema))
        self._morsels: dict[Any, Morsels] = {}

    @staticmethod
    def from_batches(schema: Schema, batches: Iterable[pa.RecordBatch]) -> BlockTable:
        """Encode all batches; their columns are matched by position."""
        chunks: list[list[pa.Array]] = [[] for _ in schema]
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            for column, array in zip(chunks, batch.columns, strict=True):
                column.append(array)
        columns = {}
        for field, arrays in zip(schema, chunks, strict=True):
            columns[field.name] = encode(
                field.name, field.type, pa.chunked_array(arrays, arrays[0].type if arrays else field.type.to_arrow())
            )
        return BlockTable(schema, rows, columns)

    @property
    def bytes(self) -> int:
        return sum(c.bytes for c in self.columns.values())

    def statistics(self) -> Statistics:
        return Statistics(self.rows, self.bytes, {n: c.statistics for n, c in self.columns.items()})

    def describe(self) -> dict[str, Any] | None:
        return None

    def source_columns(self, names: tuple[str, ...]) -> tuple[SourceColumn, ...]:
        return tuple(self.columns[n].source for n in names)

    def morsels(self, names: tuple[str, ...], where: Expr | None = None, batch_rows: int = 0) -> Morsels:
        """Records of the blocks that may match, in order; with `batch_rows` the morsels are smaller than blocks."""
        key = (tuple(names), where, batch_rows)
        known = self._morsels.get(key)
        if known is not None:
            return known
        blocks = -(-self.rows // BLOCK_ROWS)
        possible = np.flatnonzero(possible_blocks(where, self.columns, blocks))
        morsels = Morsels(len(names))
        chosen = [self.columns[n] for n in names]
        for block in possible:
            first, last = int(block) * BLOCK_ROWS, min(self.rows, (int(block) + 1) * BLOCK_ROWS)
            for start, rows in block_runs(first, last, batch_rows):
                morsels.add(rows, start, [c.addresses(start) for c in chosen])
        if len(self._morsels) >= KEPT_MORSELS:
            self._morsels.clear()
        self._morsels[key] = morsels
        return morsels

    def parts(
        self, names: tuple[str, ...], where: Expr | None = None, batch_rows: int = 0
    ) -> list[tuple[tuple[SourceColumn, ...], Morsels]]:
        """The columns and morsels of each layout; a table made at once has one."""
        return [(self.source_columns(names), self.morsels(names, where, batch_rows))]

    @cached_property
    def sorted_columns(self) -> frozenset[str]:
        """The columns whose values never decrease and are never NULL."""
        return frozenset(name for name, column in self.columns.items() if column.is_sorted)

    def batches(self, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The table as Arrow batches again (decoded), block by block; for other engines and for export."""
        for start in range(0, self.rows, BLOCK_ROWS):
            rows = min(BLOCK_ROWS, self.rows - start)
            yield pa.RecordBatch.from_arrays([decode(self.columns[n], start, rows) for n in names], list(names))


def decode(column: BlockColumn, start: int, rows: int) -> pa.Array:
    """The rows of a column in the Arrow type of its SQL type."""
    source, t = column.source, column.source.type
    if not isinstance(column.data, np.ndarray):
        return column.data.slice(start, rows)
    validity = None
    if column.validity is not None:
        mask = pa.Array.from_buffers(pa.bool_(), rows, [None, column.validity], offset=start)
        validity = pa.concat_arrays([mask, mask.slice(0, 0)]).buffers()[1]
    stored = column.data[start : start + rows]
    if source.dictionary is not None:
        codes = pa.Array.from_buffers(pa.int32(), rows, [validity, pa.py_buffer(stored.astype(np.int32))])
        return pa.DictionaryArray.from_arrays(codes, source.dictionary.values).cast(t.to_arrow())
    if t.is_float:
        return pa.Array.from_buffers(t.to_arrow(), rows, [validity, pa.py_buffer(np.ascontiguousarray(stored))])
    values = stored.astype(np.int64) + (source.layout.base or 0)
    arrow = t.to_arrow()
    if pa.types.is_decimal(arrow):
        words = np.empty(2 * rows, np.int64)
        words[0::2], words[1::2] = values, values >> 63
        return pa.Array.from_buffers(arrow, rows, [validity, pa.py_buffer(words)])
    narrow = values.astype(f"{'u' if t.is_unsigned else 'i'}{arrow.bit_width // 8}")
    return pa.Array.from_buffers(arrow, rows, [validity, pa.py_buffer(narrow)])


def block_runs(first: int, last: int, batch_rows: int) -> Iterator[tuple[int, int]]:
    """(start, rows) pieces of a block of at most `batch_rows` rows (0: one piece)."""
    step = batch_rows or last - first
    for start in range(first, last, step):
        yield start, min(step, last - start)
