"""CREATE, DROP and ALTER: changes the catalog. `tsql/statements/changes.py` calls `perform` inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.analyze import kinds as statements
from tsql.catalog.catalog import kind_of
from tsql.catalog.definition import ColumnDefinition, Table, TableDefinition, View
from tsql.catalog.external import External
from tsql.kernels.blocks.stored import StoredTable, one
from tsql.kernels.expr.errors import CatalogError, PlanError, TransactionError
from tsql.live_view import LiveView
from tsql.relation import Relation
from tsql.statements.changes import Work, counted, done


def perform(work: Work, statement: Any) -> Relation:
    """Execute one statement."""
    match statement:
        case statements.CreateTable():
            return _create_table(work, statement)
        case statements.CreateView():
            view = View(statement.name, statement.text, statement.temporary)
            if not _is_taken(work, statement):
                work.publish(statement.name, view)
        case statements.CreateExternal():
            _create_external(work, statement)
        case statements.CreateMacro():
            _create_macro(work, statement)
        case statements.Drop():
            _drop(work, statement)
        case statements.Alter():
            _alter(work, statement)
        case _:
            raise PlanError(f"{type(statement).__name__} statements cannot run here")
    return done()


def _is_taken(
    work: Work, statement: statements.CreateTable | statements.CreateView | statements.CreateExternal
) -> bool:
    """Whether there is nothing to do, because the name is taken and the statement allows that."""
    there = work.catalog.entry(statement.name)
    if there is None:
        return False
    if statement.if_not_exists:
        return True
    if work.catalog.dataset(statement.name) is not None:
        raise CatalogError(
            f'Table with name "{statement.name}" already exists in the cluster', hint=f"DROP TABLE {statement.name}"
        )
    match statement:
        case statements.CreateView():
            wanted = "view"
        case statements.CreateExternal():
            wanted = statement.entry.kind
        case _:
            wanted = "table"
    if statement.replace and kind_of(there) != wanted:
        raise CatalogError(
            f'Existing object "{statement.name}" is of type {kind_of(there).capitalize()}, trying to '
            f"replace with type {wanted.capitalize()}"
        )
    if not statement.replace:
        work.catalog.add(statement.name, there, replace=False)  # raises: the name is taken
    return False


def _create_table(work: Work, statement: statements.CreateTable) -> Relation:
    if _is_taken(work, statement):
        return done()
    if statement.definition is not None:
        work.publish(
            statement.name, Table(statement.definition, StoredTable(statement.definition.schema), statement.temporary)
        )
        return done()
    relation = work.relation(statement.query)
    names = column_names(relation.columns)
    definition = TableDefinition(
        tuple(ColumnDefinition(name, t) for name, t in zip(names, relation.sql_types, strict=True)),
        period=statement.period,
    )

    def renamed() -> Iterator[pa.RecordBatch]:
        for batch in relation.batches():
            yield batch.rename_columns(names)

    data = (
        StoredTable.of_batches(definition.schema, renamed()) if statement.with_data else StoredTable(definition.schema)
    )
    work.publish(statement.name, Table(definition, data, statement.temporary))
    return counted(data.rows)


def column_names(names: Sequence[str]) -> list[str]:
    """The names of a table's columns: those of the query, repeated ones numbered as DuckDB does (`a`, `a_1`)."""
    taken: set[str] = set()
    found: list[str] = []
    for name in names:
        candidate, count = name, 0
        while candidate.lower() in taken:
            count += 1
            candidate = f"{name}_{count}"
        taken.add(candidate.lower())
        found.append(candidate)
    return found


def _create_external(work: Work, statement: statements.CreateExternal) -> None:
    if _is_taken(work, statement):
        return
    entry = statement.entry
    late = None if entry.watermark is None else entry.watermark.into
    if late is not None:
        _create_late(work, late, statement.name, entry)
    work.publish(statement.name, entry)


def _create_late(work: Work, name: str, stream: str, entry: External) -> None:
    """Creates the table of ON LATE INTO with the columns of the stream, unless it exists."""
    there = work.catalog.entry(name)
    if name.lower() == stream.lower():
        raise CatalogError(f'late rows of "{stream}" cannot go into itself')
    if there is None:
        definition = TableDefinition(
            tuple(ColumnDefinition(column.name, column.type) for column in entry.schema), period=entry.period
        )
        work.publish(name, Table(definition, StoredTable(definition.schema)))
        return
    if not isinstance(there, Table):
        raise CatalogError(f'late rows go into a table: "{name}" is a {kind_of(there)}')
    columns = [(column.name.lower(), column.type) for column in there.definition.columns]
    if columns != [(column.name.lower(), column.type) for column in entry.schema]:
        raise CatalogError(
            f'late rows of "{stream}" cannot go into "{name}": its columns differ',
            hint=f"the columns of the stream are {entry.schema}",
        )


def _create_macro(work: Work, statement: statements.CreateMacro) -> None:
    macro = statement.macro
    if work.catalog.macro(macro.name) is not None and not statement.replace:
        if statement.if_not_exists:
            return
        raise CatalogError(
            f'Macro Function with name "{macro.name}" already exists', hint="use CREATE OR REPLACE MACRO"
        )
    work.catalog.put_macro(macro.name, macro)
    work.changes.macros.add(macro.name.lower())


def _drop(work: Work, statement: statements.Drop) -> None:
    kept = [name for name in statement.names if statement.kind == "table" and work.catalog.dataset(name) is not None]
    if kept and work.session.transactions.is_open:
        raise TransactionError("DROP TABLE of a dataset in the cluster cannot be taken back by a transaction")
    for name in statement.names:
        if name in kept:
            continue
        if statement.kind == "macro":
            if work.catalog.macro(name) is None:
                if statement.if_exists:
                    continue
                raise CatalogError(f'Macro Function with name "{name}" does not exist')
            work.catalog.put_macro(name, None)
            work.changes.macros.add(name.lower())
        else:
            entry = work.catalog.entry(name)
            work.catalog.drop(name, kind=statement.kind, if_exists=statement.if_exists)
            if isinstance(entry, LiveView):
                entry.drop()
            else:
                work.changes.note(name)
    datasets = work.catalog.datasets() if kept else None
    for name in kept if datasets is not None else ():
        datasets.drop(name)


def _alter(work: Work, statement: statements.Alter) -> None:
    entry = work.catalog.entry(statement.name)
    if statement.new_name is not None:
        _rename(work, statement.name, statement.new_name, entry)
        return
    table = work.target(statement.name)
    columns: dict[str, str | pa.ChunkedArray] = {}
    for name, origin in statement.columns:
        columns[name] = (
            origin
            if isinstance(origin, str)
            else _values(work, origin, statement.definition.schema[name].type.to_arrow())
        )
    data = table.data
    if (
        any(name != origin for name, origin in columns.items() if isinstance(origin, str))
        or len(columns) != len(data.fields)
        or any(not isinstance(o, str) for o in columns.values())
    ):
        data = data.with_columns(statement.definition.schema, columns)
    for column in statement.definition.columns:
        if column.not_null and not isinstance(columns[column.name], str) and columns[column.name].null_count:
            raise CatalogError(f"NOT NULL constraint failed: {statement.name}.{column.name}")
    work.publish(statement.name, replace(table, definition=statement.definition, data=data))


def _values(work: Work, query: statements.Query, arrow: pa.DataType) -> pa.ChunkedArray:
    """The values of a new column in the order of the rows."""
    found = work.table(query)
    order = np.argsort(np.asarray(one(found.column(0))), kind="stable")
    values = one(found.column(1))
    return pa.chunked_array([values.take(pa.array(order))], arrow)


def _rename(work: Work, name: str, new_name: str, entry: Any) -> None:
    taken = work.catalog.entry(new_name)
    if taken is not None and new_name.lower() != name.lower():
        raise CatalogError(f'Could not rename "{name}" to "{new_name}": another entry with this name already exists!')
    work.catalog.drop(name)
    work.changes.note(name)
    work.publish(new_name, replace(entry, name=new_name) if isinstance(entry, View) else entry)
