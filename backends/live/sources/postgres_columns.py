"""The columns of a table of PostgreSQL ↔ those of a stream: types, the expression for a row as text, and what becomes
of it. Used by `postgres`.

Each column is cast to the type that it has in the stream, so PostgreSQL does what can fail. Bytes are sent as
hexadecimal digits and read in one piece."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from psycopg import sql

from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INTEGER,
    SMALLINT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
    Type,
)
from tsql.kernels.process.quick_dataclass import dataclass

_TYPES = {
    16: BOOLEAN, 17: BLOB, 20: BIGINT, 21: SMALLINT, 23: INTEGER, 26: BIGINT, 700: FLOAT, 701: DOUBLE, 1082: DATE,
    1083: TIME, 1114: TIMESTAMP, 1184: TIMESTAMPTZ,
}  # fmt: skip
"""By the numbers that PostgreSQL's types have always had. Others are read as text, but for NUMERIC."""

_NUMERIC = 1700
_CASTS = {
    "BOOLEAN": "boolean", "TINYINT": "smallint", "SMALLINT": "smallint", "INTEGER": "integer", "BIGINT": "bigint",
    "UTINYINT": "smallint", "USMALLINT": "integer", "UINTEGER": "bigint", "UBIGINT": "numeric(20, 0)",
    "HUGEINT": "numeric(39, 0)", "FLOAT": "real", "DOUBLE": "double precision", "VARCHAR": "text", "DATE": "date",
    "TIME": "time", "TIMESTAMP": "timestamp", "TIMESTAMPTZ": "timestamptz",
}  # fmt: skip


@dataclass(frozen=True)
class PgColumn:
    """A column: the number of its type in pg_type, and what is in brackets behind it. `target` is its type in the
    stream."""

    name: str
    type_number: int
    modifier: int
    target: Type | None = None

    def type(self) -> Type:
        """The type of the column if none is declared."""
        if self.type_number != _NUMERIC:
            return _TYPES.get(self.type_number, VARCHAR)
        width, scale = (self.modifier - 4) >> 16, (self.modifier - 4) & 0x7FF
        return DECIMAL(width, scale) if self.modifier >= 4 and width <= 38 and scale <= width else DOUBLE


def columns_of(found: list[PgColumn], schema: Schema | None, table: str) -> tuple[list[PgColumn], Schema]:
    """The columns that are read, and those of the stream: the declared ones, or all."""
    if schema is None:
        schema = Schema(tuple(Field(column.name, column.type()) for column in found))
    by_name = {column.name.lower(): column for column in found} | {column.name: column for column in found}
    chosen = []
    for field in schema:
        column = by_name.get(field.name) or by_name.get(field.name.lower())
        if column is None:
            shown = ", ".join(one.name for one in found)
            raise SourceError(f"{table}: there is no column {field.name}", hint=f"its columns are {shown}")
        if field.type != BLOB and not field.type.is_decimal and field.type.name not in _CASTS:
            raise SourceError(
                f"{table}: column {field.name} cannot be read as {field.type}",
                hint="declare the column as VARCHAR and cast it",
            )
        chosen.append(PgColumn(column.name, column.type_number, column.modifier, field.type))
    return chosen, schema


def line_of(columns: list[PgColumn]) -> sql.Composed:
    """The expression for a row as a line of CSV. Its last field is there because a single NULL would be an empty
    line."""
    return sql.SQL(" || ',' || ").join([*map(_field, columns), sql.SQL("'t'")])


def _field(column: PgColumn) -> sql.Composed:
    kind, name = column.target or column.type(), sql.Identifier(column.name)
    if kind == BLOB:
        return sql.SQL("coalesce('\"' || encode({}::bytea, 'hex') || '\"', '')").format(name)
    if kind == VARCHAR:
        return sql.SQL("coalesce('\"' || replace({}::text, '\"', '\"\"') || '\"', '')").format(name)
    cast = f"numeric({kind.width}, {kind.scale})" if kind.is_decimal else _CASTS[kind.name]
    return sql.SQL("coalesce({}::" + cast + "::text, '')").format(name)


def sent_schema(schema: Schema) -> Schema:
    """The columns of the lines that are sent."""
    sent = tuple(Field(field.name, VARCHAR if field.type == BLOB else field.type) for field in schema)
    return Schema((*sent, Field("", BOOLEAN)))


def from_sent(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """The columns of the stream."""
    columns = [
        _bytes_of(array) if field.type == BLOB else array for array, field in zip(batch.columns, schema, strict=False)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.to_arrow())


def _bytes_of(digits: pa.Array) -> pa.Array:
    """Bytes from texts of hexadecimal digits, all at once."""
    valid, _, text = digits.buffers()
    offsets = np.frombuffer(digits.buffers()[1], np.int32, len(digits) + 1, 4 * digits.offset)
    if not len(digits):
        return pa.array([], pa.binary())
    start, end = int(offsets[0]), int(offsets[-1])
    data = bytes.fromhex(text.slice(start, end - start).to_pybytes().decode("ascii")) if text is not None else b""
    if digits.offset and valid is not None:
        valid = pa.array(np.asarray(digits.is_valid())).buffers()[1]
    halves = ((offsets - start) // 2).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(digits), [valid, pa.py_buffer(halves), pa.py_buffer(data)], digits.null_count
    )
