"""NOT NULL, CHECK, UNIQUE and PRIMARY KEY: refuses rows that must not be stored, with DuckDB's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tsql.backends.io.arrow import ArrowSource
from tsql.backends.io.value_text import texts
from tsql.catalog.definition import Key, Table, TableDefinition
from tsql.kernels.blocks.keys import KeyColumn, locate
from tsql.kernels.blocks.stored import StoredTable
from tsql.kernels.expr.errors import ConstraintError, TsqlError
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.process.arrow_compute import pc

if TYPE_CHECKING:
    from tsql.statements.changes import Work


def check_not_null(table: str, definition: TableDefinition, batches: list[pa.RecordBatch]) -> None:
    """Refuse NULL in the columns that forbid it."""
    for column in definition.columns:
        if column.not_null:
            for batch in batches:
                if column.name in batch.schema.names and batch.column(column.name).null_count:
                    raise ConstraintError(f"NOT NULL constraint failed: {table}.{column.name}")


def check_conditions(work: Work, name: str, table: Table, batches: list[pa.RecordBatch]) -> None:
    """Refuse rows for which a CHECK is false; one that is NULL holds."""
    if not table.definition.checks or not batches:
        return
    rows = ArrowSource(pa.Table.from_batches(batches))
    for text in table.definition.checks:
        if _violated(work, text, rows):
            raise ConstraintError(f'CHECK constraint failed on table "{name}" with expression CHECK({text})')


def _violated(work: Work, text: str, rows: Any) -> bool:
    from tsql.analyze.changes import Overlay
    from tsql.analyze.statements import Analyzer
    from tsql.grammar.parser.statements import parse

    (parsed,) = parse(f'SELECT 1 FROM "#rows" WHERE NOT (CAST(({text}) AS {BOOLEAN})) LIMIT 1')
    try:
        query = Analyzer(parsed, Overlay(work.catalog, **{"#rows": rows}), None).query(parsed.node, "")
        return work.table(query).num_rows > 0
    except TsqlError as error:
        error.position = None  # a place in a text that the user has not written
        raise


def _keys(definition: TableDefinition, key: Key, rows: pa.Table | pa.RecordBatch) -> KeyColumn:
    columns = [rows.column(name) for name in key.columns]
    chunked = [c if isinstance(c, pa.ChunkedArray) else pa.chunked_array([c]) for c in columns]
    return KeyColumn(tuple(definition.schema[name].type for name in key.columns), chunked, key.nulls_equal)


def check_keys(
    definition: TableDefinition,
    data: StoredTable,
    batches: list[pa.RecordBatch],
    replaced: Mapping[str, pa.Array] | None = None,
    changed: set[str] | None = None,
) -> None:
    """Refuse rows whose key another row has. For an update, `replaced` has the old values of the rows, whose keys
    become free, and `changed` the columns that may differ."""
    if not batches:
        return
    for key in definition.keys:
        if changed is not None and not changed & set(key.columns):
            continue
        rows = pa.Table.from_batches(batches) if len(batches) > 1 else batches[0]
        wanted = _keys(definition, key, rows)
        repeated = wanted.repeated()
        if len(repeated):
            raise _duplicate(key, rows, int(repeated[0]))
        taken = locate(data, key.columns, wanted) >= 0
        if replaced is not None and taken.any():
            # A key of the table belongs to one row: if that one is updated too, the key is free.
            old = _keys(definition, key, pa.table({name: replaced[name] for name in key.columns}))
            taken &= ~_among(wanted.keys, old.keys)
        if taken.any():
            raise _duplicate(key, rows, int(wanted.rows[np.argmax(taken)]))


def _among(keys: Any, others: Any) -> np.ndarray:
    if isinstance(keys, np.ndarray):
        return np.isin(keys, others)
    return pc.is_in(keys, value_set=others).to_numpy(zero_copy_only=False)


def free_rows(table: Table, keys: tuple[Key, ...], rows: pa.Table) -> np.ndarray:
    """The rows whose keys occur neither in an earlier one of the rows nor in the table. As in DuckDB, a row that is
    left out because of the table still hides a later one with its key."""
    free = np.ones(rows.num_rows, np.bool_)
    for key in keys:
        wanted = _keys(table.definition, key, rows)
        free[wanted.repeated()] = False
        free[wanted.rows[locate(table.data, key.columns, wanted) >= 0]] = False
    return np.flatnonzero(free)


def _duplicate(key: Key, rows: pa.Table | pa.RecordBatch, at: int) -> ConstraintError:
    values = [
        texts(
            rows.column(name).slice(at, 1).combine_chunks()
            if isinstance(rows, pa.Table)
            else rows.column(name).slice(at, 1)
        )[0].as_py()
        for name in key.columns
    ]
    shown = ", ".join(
        f"{name}: {'NULL' if value is None else value}" for name, value in zip(key.columns, values, strict=True)
    )
    return ConstraintError(f'Duplicate key "{shown}" violates {"primary key" if key.primary else "unique"} constraint')
