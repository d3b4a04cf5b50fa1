"""In-memory Arrow data as a source: tables, record batch readers, and anything with the Arrow C interface.

Data that can be read only once (a stream) is read when the source is made. Columns are converted to the engine's types
on first read, and kept. Statistics are computed on first use."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Context
from typing import Any

import pyarrow as pa

from tsql.backends.io import ColumnStatistics, LazyColumns, Split, Statistics
from tsql.backends.io.files import reading
from tsql.backends.io.frames import table_of_stream
from tsql.backends.io.normalize import batch_of, engine_schema, normalize
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.types import Type
from tsql.kernels.process import forks
from tsql.kernels.process.arrow_compute import pc

SPLIT_ROWS = 131_072
_DIGITS = Context(prec=76)
"""Precision for the digits of any DECIMAL: Python's default context rounds to 28."""


class ArrowSource:
    """A table in memory. Splits are ranges of rows. Once its columns are converted, reading a split copies nothing."""

    in_memory = True

    def __init__(self, data: Any, name: str = "the Arrow data"):
        self.name = name
        self._table = _as_table(data, name)
        self.schema = engine_schema(self._table.schema, name)
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._statistics: dict[str, ColumnStatistics] = {}
        self.lost: set[str] = set()
        self._lock = forks.lock()

    def statistics(self) -> Statistics:
        return Statistics(
            self._table.num_rows,
            self._table.get_total_buffer_size(),
            LazyColumns(self.schema.readable, self._column_statistics),
        )

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        rows = self._table.num_rows
        starts = range(0, rows, SPLIT_ROWS)
        return [Split(order, None, min(SPLIT_ROWS, rows - start), start) for order, start in enumerate(starts)]

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        if not columns:
            yield batch_of([], (), split.known_rows)
            return
        parts = pa.table(
            [self._column(name).slice(split.detail, split.known_rows) for name in columns], names=list(columns)
        )
        yield from (batch for batch in parts.to_batches() if batch.num_rows)

    def table(self) -> pa.Table:
        """The whole table in the engine's types."""
        names = self.schema.readable
        return pa.table([self._column(name) for name in names], names=list(names)) if names else self._table

    def describe(self) -> None:
        return None

    def _column(self, name: str) -> pa.ChunkedArray:
        with self._lock:
            if name not in self._columns:
                index = self.schema.names.index(name)
                kind = self.schema.fields[index].type
                with reading(f"{self.name}, column {name}", str(kind)):
                    self._columns[name] = _chunked(
                        normalize(self._table.column(index), kind, lambda: self.lost.add(name)), kind
                    )
            return self._columns[name]

    def _column_statistics(self, name: str) -> ColumnStatistics:
        column = self._column(name)
        if name not in self._statistics:
            if self.schema[name].type.name == "VARCHAR":
                _check_text(column, self.name, name)
            self._statistics[name] = exact_statistics(column, self.schema[name].type)
        return self._statistics[name]


def _as_table(data: Any, name: str) -> pa.Table:
    try:
        if isinstance(data, pa.Table):
            return data
        if isinstance(data, pa.RecordBatch):
            return pa.Table.from_batches([data])
        if isinstance(data, pa.RecordBatchReader):
            return data.read_all()
        if hasattr(data, "__arrow_c_stream__"):
            return table_of_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)])
        if hasattr(data, "__dataframe__"):
            from pyarrow.interchange import from_dataframe

            return from_dataframe(data)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, NotImplementedError) as error:
        raise SourceError(f"{name} cannot be read as an Arrow table: {error}") from error
    raise SourceError(
        f"{name}: a {type(data).__name__} is no Arrow data",
        hint="pass a pyarrow Table or RecordBatchReader, or anything with __arrow_c_stream__ (pandas, polars)",
    )


def _chunked(arrays: list[pa.Array], kind: Type) -> pa.ChunkedArray:
    """One column of the chunks; a mix of plain and dictionary chunks becomes plain."""
    types = {array.type for array in arrays}
    if len(types) > 1:
        arrays = [array.dictionary_decode() if pa.types.is_dictionary(array.type) else array for array in arrays]
    return pa.chunked_array(arrays, arrays[0].type if arrays else kind.to_arrow())


def _check_text(column: pa.ChunkedArray, table: str, name: str) -> None:
    """Refuse text that is not UTF-8, and offsets that point outside of it: kernels rely on both."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise SourceError(
            f"{table}, column {name}: {error}",
            hint="the column must hold UTF-8; bytes of another kind go into a binary column",
        ) from error


def exact_statistics(column: pa.ChunkedArray, kind: Type) -> ColumnStatistics:
    """Minimum, maximum and NULLs of a column in the engine's types. NaN is above every number, as in DuckDB."""
    nulls = column.null_count
    if kind.name == "INTERVAL" or nulls == len(column):
        return ColumnStatistics(nulls=nulls, exact=nulls == len(column))
    if pa.types.is_dictionary(column.type):
        used = [pc.take(chunk.dictionary, pc.unique(chunk.indices).drop_null()) for chunk in column.chunks]
        column = pa.chunked_array([part for part in used if len(part)], column.type.value_type)
    if kind.is_float and pc.any(pc.is_nan(column)).as_py():
        column = pc.filter(column, pc.invert(pc.is_nan(column)))
        low = pc.min(column).as_py()
        return ColumnStatistics(float("nan") if low is None else low, float("nan"), nulls, exact=True)
    bounds = pc.min_max(_stored(column, kind))
    return ColumnStatistics(_value(bounds["min"], kind), _value(bounds["max"], kind), nulls, exact=True)


def _stored(column: pa.ChunkedArray, kind: Type) -> pa.ChunkedArray:
    if kind.name == "DATE":
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if kind.is_temporal else column


def _value(scalar: pa.Scalar, kind: Type) -> Any:
    value = scalar.as_py()
    if kind.is_decimal:
        return int(value.scaleb(kind.scale, _DIGITS))
    return int(value) if kind.is_integer else value
