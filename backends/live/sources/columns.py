"""Arrow data as batches of a stream: the declared columns in their order and types. Called by all readers.

`plain_batch` takes what a file source gives (`Source.read`), `conformed_batches` any Arrow table, whose types are
checked and cast and whose text and offsets are looked at: a kernel reads them without doubt."""

from __future__ import annotations

import pyarrow as pa

from tsql.backends.io.convert import castable, convert
from tsql.backends.io.normalize import engine_schema, normalize
from tsql.backends.live.sources.notices import Notices
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import HUGEINT


def plain_batch(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """A batch of a file source without dictionaries, and with decimals as such."""
    return pa.RecordBatch.from_arrays(
        [_plain(array, field) for array, field in zip(batch.columns, schema, strict=True)], schema=schema.to_arrow()
    )


def _plain(array: pa.Array, field: Field) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if field.type.is_decimal and pa.types.is_integer(array.type):
        array = array.cast(pa.decimal128(38, 0)).view(pa.decimal128(38, field.type.scale))
    return array if array.type == field.type.to_arrow() else array.cast(field.type.to_arrow())


def empty_batch(schema: Schema) -> pa.RecordBatch:
    """No rows."""
    return pa.RecordBatch.from_pylist([], schema=schema.to_arrow())


def joined(batches: list[pa.RecordBatch], schema: Schema) -> pa.RecordBatch:
    """The rows of several batches of a stream."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else empty_batch(schema)


def columns_of_table(table: pa.Table, origin: str) -> Schema:
    """The columns of a stream that begins with this table and has no declared columns."""
    found = engine_schema(table.schema, origin)
    schema = Schema(tuple(field for field in found if field.type.is_readable))
    if not schema.fields:
        raise SourceError(f"{origin}: there is no column that can be read")
    return schema


def conformed_batches(table: pa.Table, schema: Schema, origin: str, notices: Notices) -> list[pa.RecordBatch]:
    """A table as batches with the columns of `schema`, found by name. Other columns are left out."""
    there = engine_schema(table.schema, origin)
    positions = {name.lower(): position for position, name in enumerate(there.names)}
    columns = []
    for field in schema:
        position = positions.get(field.name.lower())
        if position is None:
            raise SourceError(
                f"{origin}: there is no column {field.name}", hint=f"the columns are {', '.join(there.names)}"
            )
        columns.append(_column(table.column(position), there.fields[position], field, origin, notices))
    shaped = pa.Table.from_arrays(columns, schema=schema.to_arrow())
    return [batch for batch in shaped.to_batches() if batch.num_rows]


def _column(column: pa.ChunkedArray, source: Field, target: Field, origin: str, notices: Notices) -> pa.ChunkedArray:
    if not castable(source.type, target.type):
        raise SourceError(
            f"{origin}: column {target.name} is {source.type} here, which cannot be read as {target.type}"
        )
    try:
        # A HUGEINT may use all 128 bits, which is more than the 38 digits of Arrow's type.
        column.validate(full=source.type != HUGEINT or not pa.types.is_decimal128(column.type))
        parts = normalize(
            column, source.type, lambda: notices.tell(f"digits below microseconds of column {target.name} were dropped")
        )
        arrays = [_plain(convert(part, source.type, target.type), target) for part in parts]
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise SourceError(f"{origin}: column {target.name} cannot be read as {target.type}: {error}") from error
    return pa.chunked_array(arrays, target.type.to_arrow())
