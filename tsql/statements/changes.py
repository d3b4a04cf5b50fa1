"""Executes statements that change the catalog, each as one atomic step; `tsql/statements/perform.py` calls
`perform`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tsql.analyze import kinds as statements
from tsql.catalog.definition import Table
from tsql.kernels.blocks.stored import StoredTable
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.expr.types import BIGINT
from tsql.relation import Relation, of_table
from tsql.statements.transactions import Changes

if TYPE_CHECKING:
    from tsql.session import Session


class Work:
    """The context of executing a statement: the catalog, a way to run queries, and the record of changes."""

    def __init__(
        self,
        session: Session,
        changes: Changes,
        relation: Callable[[statements.Query], Relation],
        values: dict[str, Any],
    ):
        self.session, self.catalog, self.changes = session, session.transactions.catalog, changes
        self.relation, self.values = relation, values

    def rows(self, query: statements.Query) -> Iterator[pa.RecordBatch]:
        """The batches of a query."""
        return self.relation(query).batches()

    def table(self, query: statements.Query) -> pa.Table:
        """The whole result of a query."""
        return self.relation(query).arrow()

    def target(self, name: str) -> Table:
        """The table that a statement changes, as it is now."""
        entry = self.catalog.entry(name)
        if not isinstance(entry, Table):
            raise CatalogError(f'Table with name "{name}" does not exist')
        return entry

    def publish(self, name: str, entry: Any, appended: list[pa.RecordBatch] | None = None) -> None:
        """Put something under a name; readers that start later see it."""
        self.catalog.add(name, entry)
        self.changes.note(name, appended)

    def store(self, name: str, table: Table, data: StoredTable, appended: list[pa.RecordBatch] | None = None) -> None:
        """Publish other rows of a table."""
        if data is not table.data:
            self.publish(name, replace(table, data=data), appended)


def perform(
    session: Session, statement: Any, relation: Callable[[statements.Query], Relation], values: dict[str, Any]
) -> Relation:
    """Execute one statement of `statements.Change`."""
    transactions = session.transactions
    if isinstance(statement, statements.TransactionStep):
        transactions.step(statement.step)
        return done().tell(transactions.take_notes())
    if transactions.store is not None and transactions.store.read_only and not getattr(statement, "temporary", False):
        raise CatalogError("the database is open for reading only", hint="connect(path) without read_only=True")
    with transactions.statement() as changes:
        result = carry_out(Work(session, changes, relation, values), statement)
    return result.tell(transactions.take_notes())


def carry_out(work: Work, statement: Any) -> Relation:
    """Execute one statement inside of a statement of the session's transactions."""
    from tsql.statements import ddl, dml

    match statement:
        case statements.Insert():
            return dml.insert(work, statement)
        case statements.Delete():
            return dml.delete(work, statement)
        case statements.Update():
            return dml.update(work, statement)
        case statements.Nothing():
            return done()
    return ddl.perform(work, statement)


def done() -> Relation:
    """The result of a statement without rows."""
    return of_table((), (), [], message="ok")


def counted(rows: int) -> Relation:
    """The result of a statement that changed `rows` rows."""
    return of_table(("Count",), (BIGINT,), [[rows]], message=f"{rows} row{'' if rows == 1 else 's'}")


def kept(relation: Relation) -> Relation:
    """A result that is computed now, before what it reads changes."""
    table = relation.arrow()
    return Relation(tuple(relation.columns), relation.sql_types, lambda run: iter(table.to_batches()))
