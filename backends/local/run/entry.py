"""Arrow batches that enter a part of a plan: from a split, an in-memory table, a DataFrame or a live source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.local.run.dataset import Dataset, SourceData, slices
from tsql.backends.local.run.dataset import Part as Morsel
from tsql.backends.local.run.positions import ROW_BITS
from tsql.kernels.emit.batch import Morsels, SourceColumn, arrow_layout
from tsql.kernels.emit.pipeline import ColumnarScan
from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.schema import Schema
from tsql.kernels.operators.collect import OutputColumn


def chunk_columns(schema: Schema) -> tuple[SourceColumn, ...]:
    """The memory layout of rows that a kernel has collected."""
    return tuple(OutputColumn(f.name, Column(f.name, f.type, f.nullable)).source() for f in schema)


def facts_of(data: SourceData) -> dict[str, Any]:
    """(nullable, bounds) of each column of a source. Tasks get them from here: otherwise they would have to read every
    file."""
    found = {}
    for name in data.columns:
        column = data._column(name, data.source.schema[name].type.to_arrow())
        found[name] = [column.layout.nullable, None if column.range is None else list(column.range)]
    return found


class BatchData(Dataset):
    """One shard of Arrow batches, each with the order of its split. Facts about the columns come from the driver."""

    positioned = numbered = True

    def __init__(
        self,
        schema: Schema,
        facts: dict[str, Any],
        batches: Callable[[], Iterator[tuple[int, pa.RecordBatch]]],
        run: Run,
    ):
        self.schema, self.facts, self.batches, self.run = schema, facts, batches, run
        self.shards = 1

    def _columns(self, types: list[pa.DataType]) -> tuple[SourceColumn, ...]:
        columns = []
        for field, arrow in zip(self.schema, types, strict=True):
            nullable, bounds = self.facts.get(field.name, (True, None))
            columns.append(
                SourceColumn(
                    field.name,
                    field.type,
                    arrow_layout(field.type, arrow, nullable),
                    None if bounds is None else tuple(bounds),
                )
            )
        return tuple(columns)

    def empty_source(self) -> ColumnarScan:
        return ColumnarScan(self._columns([f.type.to_arrow() for f in self.schema]))

    def feed(self, shard: int) -> Iterator[Morsel]:
        position, last = 0, None
        for number, (order, batch) in enumerate(self.batches()):
            if order != last:
                # The position of the row in the whole input, which `first` and `last` compare, whichever task reads
                # it.
                position, last = order << ROW_BITS, order
            yield self.part(batch, position, (order, number))
            position += batch.num_rows

    def part(self, batch: pa.RecordBatch, position: int, order: tuple[int, ...]) -> Morsel:
        """The rows of a batch whose first row has this position in the input."""
        arrays = list(batch.columns)[: len(self.schema)]
        morsels = Morsels(len(arrays))
        for start, rows, pieces in slices(arrays, batch.num_rows, self.run.settings.batch_rows):
            morsels.add_arrays(pieces, position + start, rows)
        return Morsel(ColumnarScan(self._columns([a.type for a in arrays])), morsels, order)
