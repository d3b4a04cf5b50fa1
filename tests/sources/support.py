"""What the tests of sources share: all rows of a source in engine types, and the same from DuckDB."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.duck import empty_duckdb
from tsql.backends.io import Source
from tsql.backends.io.open import open_source
from tsql.kernels.expr.nodes import Expr

DUCKDB_NAMES = {"TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ", "JSON": "VARCHAR", '"NULL"': "VARCHAR"}


def table_of(source: Source, columns: tuple[str, ...] | None = None, filter: Expr | None = None) -> pa.Table:
    """All rows of a source as a table in the types of its schema; checks what the protocol promises of batches."""
    names = source.schema.names if columns is None else columns
    target = pa.schema([pa.field(name, source.schema[name].type.to_arrow()) for name in names])
    batches = []
    for split in source.splits(names, filter):
        rows = 0
        for batch in source.read(split, names):
            batch.validate(full=True)
            assert tuple(batch.schema.names) == names
            arrays = [_plain(array, source.schema[name].type) for name, array in zip(names, batch.columns, strict=True)]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=target) if names else batch)
            rows += batch.num_rows
        assert split.rows is None or split.rows == rows
    return pa.Table.from_batches(batches, target if names else None)


def _plain(array: pa.Array, kind: Any) -> pa.Array:
    """A column as the protocol allows it, in the one type of the schema."""
    if pa.types.is_dictionary(array.type):
        assert kind.is_string and array.type.index_type in (pa.int8(), pa.int16(), pa.int32())
        array = array.dictionary_decode()
    if kind.is_decimal and kind.width <= 18 and array.type == pa.int64():
        return array.cast(pa.decimal128(38, 0)).view(pa.decimal128(38, kind.scale)).cast(kind.to_arrow())
    assert array.type == kind.to_arrow(), (array.type, kind)
    return array


def rows_of(
    source: Source, columns: tuple[str, ...] | None = None, filter: Expr | None = None
) -> list[tuple[Any, ...]]:
    table = table_of(source, columns, filter)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def types_of(source: Source) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in source.schema]


def ours(path: Any, kind: str | None = None, **options: Any) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    source = open_source(path, kind, options)
    return types_of(source), rows_of(source)


def duck(function: str, path: Any, **options: Any) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    """Names, types and rows as DuckDB reads them."""
    with empty_duckdb() as connection:
        connection.execute("SET timezone = 'UTC'")
        where = literal([str(p) for p in path] if isinstance(path, list) else str(path))
        settings = "".join(f", {name} = {literal(value)}" for name, value in options.items())
        relation = connection.sql(f"SELECT * FROM {function}({where}{settings})")
        types = [
            (name, DUCKDB_NAMES.get(str(kind), str(kind)))
            for name, kind in zip(relation.columns, relation.types, strict=True)
        ]
        table = relation.to_arrow_table()
        return types, list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def literal(value: Any) -> str:
    """A Python value as SQL text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    return "'" + str(value).replace("'", "''") + "'"
