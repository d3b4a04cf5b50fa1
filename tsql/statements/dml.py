"""INSERT, UPDATE and DELETE: the rows of a query are checked against the constraints and become a new version of a
table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.analyze import kinds as statements
from tsql.analyze.changes import EXCLUDED
from tsql.backends.io.arrow import ArrowSource
from tsql.backends.local.run.constants import constant_array
from tsql.catalog.definition import Table
from tsql.kernels.blocks.keys import KeyColumn, locate
from tsql.kernels.blocks.stored import PLACE, StoredTable, one
from tsql.kernels.expr.nodes import Cast, Expr, Literal, Parameter, rewrite
from tsql.kernels.expr.schema import Schema
from tsql.planner.bind.fold import fold
from tsql.planner.logical import nodes as logical
from tsql.relation import Relation
from tsql.statements.changes import Work, counted, kept
from tsql.statements.constraints import check_conditions, check_keys, check_not_null, free_rows


def insert(work: Work, statement: statements.Insert) -> Relation:
    """Append rows; where a key is taken, do what ON CONFLICT says."""
    table = work.target(statement.table)
    batches = (
        _constant_batches(work, statement, table) if statement.query is None else _query_batches(work, statement, table)
    )
    check_not_null(statement.table, table.definition, batches)
    check_conditions(work, statement.table, table, batches)
    changed: pa.Table | None = None
    data = table.data
    if statement.conflict is not None:
        batches, data, changed = _resolve(work, statement, table, batches)
    check_keys(table.definition, data, batches)
    rows = sum(b.num_rows for b in batches) + (0 if changed is None else changed.num_rows)
    stored = data.append(batches)
    returned = None
    if statement.returning is not None:
        shown = _as_table(table, batches)
        returned = _returned(
            work, statement.returning, shown if changed is None else pa.concat_tables([shown, changed])
        )
    only_appended = data is table.data
    work.store(statement.table, table, stored, batches if only_appended else None)
    return counted(rows) if returned is None else returned


def _as_table(table: Table, batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, schema=table.definition.schema.to_arrow())


def _query_batches(work: Work, statement: statements.Insert, table: Table) -> list[pa.RecordBatch]:
    schema = table.definition.schema.to_arrow()
    return [
        pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        for batch in work.rows(statement.query)
        if batch.num_rows
    ]


def _constant_batches(work: Work, statement: statements.Insert, table: Table) -> list[pa.RecordBatch]:
    """Rows of constants, computed without a kernel. Those that cannot be (random(), a failing cast) run as a query."""
    rows: list[list[Any]] = []
    for row in statement.rows:
        values = [_value(expr, work.values) for expr in row]
        if any(value is None for value in values):
            return _computed(work, statement, table)
        rows.append([value.value for value in values if value is not None])
    fields = table.definition.columns
    arrays = [constant_array(c.type, [row[i] for row in rows], arrow=True) for i, c in enumerate(fields)]
    return [pa.RecordBatch.from_arrays(arrays, schema=table.definition.schema.to_arrow())] if rows else []


def _value(expr: Expr, parameters: Mapping[str, Any]) -> Literal | None:
    if isinstance(expr, Literal):
        return expr
    bound = rewrite(expr, lambda e: Literal(parameters[e.name], e.type) if isinstance(e, Parameter) else e)
    if isinstance(bound, Cast) and isinstance(bound.arg, Literal):
        folded = fold(bound.arg, bound.dtype)
        if folded is not None:
            return folded
    return bound if isinstance(bound, Literal) else None


def _computed(work: Work, statement: statements.Insert, table: Table) -> list[pa.RecordBatch]:
    schema = Schema(tuple(table.definition.schema))
    plan = logical.Values(statement.rows, schema)
    query = statements.Query(logical.Output(plan, schema.names, schema.names), "")
    return [pa.RecordBatch.from_arrays(b.columns, schema=schema.to_arrow()) for b in work.rows(query) if b.num_rows]


def _resolve(
    work: Work, statement: statements.Insert, table: Table, batches: list[pa.RecordBatch]
) -> tuple[list[pa.RecordBatch], StoredTable, pa.Table | None]:
    """The rows that are inserted, the table with the rows that were updated instead, and these rows."""
    conflict = statement.conflict
    rows = _as_table(table, batches)
    if conflict.update is None:
        free = free_rows(table, conflict.keys, rows)
        return rows.take(pa.array(free)).to_batches(), table.data, None
    (key,) = conflict.keys
    types = tuple(table.definition.schema[c].type for c in key.columns)
    wanted = KeyColumn(types, [rows.column(c) for c in key.columns], key.nulls_equal)
    repeated = wanted.repeated()
    if len(repeated):
        # As in DuckDB, the first row of a key counts, and no row is changed twice.
        rows = rows.take(pa.array(np.setdiff1d(np.arange(rows.num_rows), repeated)))
        wanted = KeyColumn(types, [rows.column(c) for c in key.columns], key.nulls_equal)
    places = locate(table.data, key.columns, wanted)
    hit = places >= 0
    free = np.setdiff1d(np.arange(rows.num_rows), wanted.rows[hit])
    order = np.argsort(places[hit], kind="stable")
    places, taken = places[hit][order], wanted.rows[hit][order]
    if not len(places):
        return rows.to_batches(), table.data, None
    old = rows_at(table.data, places)
    given = rows.take(pa.array(taken))
    both = old.append_column(PLACE, pa.array(places))
    for name in rows.column_names:
        both = both.append_column(EXCLUDED + name.lower(), given.column(name))
    found = work.table(conflict.update(ArrowSource(both)))
    data, changed = _updated(work, statement.table, table, found, conflict.columns, tuple(old.column_names), old)
    return rows.take(pa.array(free)).to_batches(), data, changed


def rows_at(data: StoredTable, places: np.ndarray) -> pa.Table:
    """The rows at sorted places, decoded."""
    return pa.table(
        [data.column(name).take(pa.array(places)) for name in data.fields.names], names=list(data.fields.names)
    )


def delete(work: Work, statement: statements.Delete) -> Relation:
    """Remove rows; only blocks that contain some of them are rewritten."""
    table = work.target(statement.table)
    if statement.query is None:
        work.store(statement.table, table, StoredTable(table.data.fields) if table.data.rows else table.data)
        return counted(table.data.rows)
    found = work.table(statement.query)
    places, first = np.unique(np.asarray(one(found.column(0))), return_index=True)
    returned = None
    if statement.returning is not None:
        shown = (
            found.drop_columns([found.column_names[0]])
            .take(pa.array(first))
            .rename_columns(list(table.definition.names))
        )
        returned = _returned(work, statement.returning, shown)
    if len(places):
        work.store(statement.table, table, table.data.delete(places))
    return counted(len(places)) if returned is None else returned


def update(work: Work, statement: statements.Update) -> Relation:
    """Change values; only blocks with changed rows are rewritten, and only their columns that SET names."""
    table = work.target(statement.table)
    found = work.table(statement.query)
    old = found.select(list(range(1 + len(statement.columns), found.num_columns))).rename_columns(list(statement.old))
    data, changed = _updated(work, statement.table, table, found, statement.columns, statement.old, old)
    returned = None if statement.returning is None else _returned(work, statement.returning, changed)
    work.store(statement.table, table, data)
    return counted(changed.num_rows) if returned is None else returned


def _updated(
    work: Work,
    name: str,
    table: Table,
    found: pa.Table,
    columns: tuple[str, ...],
    old_names: tuple[str, ...],
    old: pa.Table,
) -> tuple[StoredTable, pa.Table]:
    """The table with new values, and the changed rows; `found` has row positions and new values. A row found twice gets
    its first values."""
    definition = table.definition
    all_places = np.asarray(one(found.column(0)))
    places, first = np.unique(all_places, return_index=True)
    chosen = pa.array(first)
    values = {column: one(found.column(1 + i)).take(chosen) for i, column in enumerate(columns)}
    if old.num_rows == len(all_places):
        before = {column: one(old.column(column)).take(chosen) for column in old_names}
    else:
        # ON CONFLICT .. WHERE has left some of the rows out.
        whole = rows_at(table.data, places)
        before = {column: one(whole.column(column)) for column in old_names}
    after = {c: values.get(c, before.get(c)) for c in definition.names}
    rows = (
        pa.table({c: a for c, a in after.items() if a is not None})
        if any(a is not None for a in after.values())
        else pa.table({})
    )
    check_not_null(name, definition, rows.to_batches())
    if not len(places):
        return table.data, rows
    check_conditions(work, name, table, rows.to_batches())
    check_keys(definition, table.data, rows.to_batches(), {c: before[c] for c in before}, set(columns))
    return table.data.update(places, values), rows


def _returned(work: Work, returning: statements.Returning, rows: pa.Table) -> Relation:
    return kept(work.relation(returning(ArrowSource(rows))))
