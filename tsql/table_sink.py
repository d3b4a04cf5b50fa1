"""`TableSink`: rows of a job into a table of its session, in a database on disk or in memory.

An epoch is one commit of the database: its rows, and in a database on disk the number of the epoch, in the table
`tsql_epochs`. Rows that are prepared lie in an Arrow file beside the checkpoint until then. A table in memory ends with
its process, and so does what a job without a checkpoint has prepared.

Changes of a result become rows that are inserted, replaced and deleted, if the table has a primary key that is the key
of the result; a table with a column `change` gets the changes themselves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tsql.analyze.changes import Overlay
from tsql.analyze.statements import Analyzer
from tsql.backends.io.arrow import ArrowSource
from tsql.backends.io.durable import sync_folder
from tsql.backends.live.jobs.kept_rows import read_rows, write_rows
from tsql.backends.live.sinks.sink import CHANGE, Output, Token
from tsql.backends.live.sinks.staging import check_ahead
from tsql.catalog.definition import Table
from tsql.grammar.parser.statements import parse
from tsql.grammar.script import split
from tsql.kernels.expr.errors import CatalogError, SourceError
from tsql.kernels.expr.keywords import quote
from tsql.statements import changes
from tsql.statements.perform import StatementContext

if TYPE_CHECKING:
    from tsql.session import Session

EPOCHS = "tsql_epochs"
ROWS = "#rows"
WAIT_SECONDS = 0.02


class TableSink:
    """Adds the rows of a job to a table."""

    is_exact = True
    takes_changes = True

    def __init__(self, session: Session, table: str, checkpoint: str | None, staging: str = "rows"):
        """staging: the name of the folder in the checkpoint for rows that are prepared."""
        self._session, self._table = session, table
        self._is_kept = checkpoint is not None and session.path is not None
        self._staging = Path(checkpoint) / staging if checkpoint is not None else None
        self._waiting: list[pa.RecordBatch] = []
        self._prepared: dict[int, list[pa.RecordBatch]] = {}
        self._committed: int | None = None
        self._output: Output | None = None

    def open(self, output: Output) -> None:
        self._output = output
        names = self._definition().schema.names
        mine = tuple(output.schema.names)
        self._logs = output.has_changes and CHANGE in names
        wanted = mine if self._logs or not output.has_changes else mine[:-1]
        if len(names) != len(wanted):
            raise CatalogError(
                f'table "{self._table}" has {len(names)} columns, and the query gives {len(wanted)}',
                hint=f"CREATE TABLE {quote(self._table)} AS <the query> WITH NO DATA",
            )
        if output.has_changes and not self._logs and self._key() != set(output.keys):
            raise CatalogError(
                f'the changes of the result cannot be made in table "{self._table}": it has no primary key that is the '
                f"key of the result ({', '.join(output.keys) or 'which has none'})",
                hint=f"PRIMARY KEY ({', '.join(output.keys)}), EMIT FINAL, or a last column {CHANGE} TINYINT"
                if output.keys
                else f"EMIT FINAL, or a last column {CHANGE} TINYINT",
            )
        if self._is_kept:
            self._run(f"CREATE TABLE IF NOT EXISTS {EPOCHS} (job VARCHAR PRIMARY KEY, epoch BIGINT)")
        if self._staging is not None:
            try:
                self._staging.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise SourceError(f"cannot make the folder {self._staging}: {error.strerror}") from error

    def recover(self, epoch: int, token: Token) -> None:
        self._waiting = []
        known = self.last_committed()
        if self._is_kept:
            assert self._output is not None
            check_ahead(f"table {self._table}", self._output.job, known or 0, epoch)
        if self._staging is not None:
            if token is not None and known is not None and known < epoch:
                self.commit(epoch, token)
            for path in self._staging.glob("*.arrow"):
                path.unlink(missing_ok=True)
        self._prepared.clear()

    def write(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)

    def prepare(self, epoch: int) -> Token:
        rows, self._waiting = self._waiting, []
        if not rows:
            return None
        if self._staging is None:
            self._prepared[epoch] = rows
            return str(epoch)
        assert self._output is not None
        name = f"{epoch:09d}.arrow"
        try:
            checksum = write_rows(self._staging / name, rows, self._output.schema)
            sync_folder(self._staging)
        except OSError as error:
            raise SourceError(f"cannot write {self._staging / name}: {error.strerror or error}") from error
        return [name, checksum]

    def commit(self, epoch: int, token: Token) -> None:
        if token is None:
            return
        known = self.last_committed()
        if known is not None and epoch <= known:
            return
        rows = self._rows(epoch, token)
        with self._session.transactions.lock:
            self._wait_for_transaction()
            with self._session.transactions.statement() as noted:
                self._apply(rows, noted)
                if self._is_kept:
                    assert self._output is not None
                    number = pa.table({"job": [self._output.job], "epoch": [epoch]})
                    _statement(self._session, f"INSERT OR REPLACE INTO {EPOCHS} FROM {quote(ROWS)}", number, noted)
        self._committed = epoch
        if self._staging is not None:
            (self._staging / f"{epoch:09d}.arrow").unlink(missing_ok=True)

    def last_committed(self) -> int | None:
        if not self._is_kept:
            return self._committed
        assert self._output is not None
        found = self._session.sql(f"SELECT epoch FROM {EPOCHS} WHERE job = $job", {"job": self._output.job}).fetchall()
        return found[0][0] if found else 0

    def close(self) -> None:
        self._waiting = []

    def _rows(self, epoch: int, token: Token) -> pa.Table:
        assert self._output is not None
        if self._staging is None:
            return pa.Table.from_batches(self._prepared.pop(epoch), self._output.schema)
        try:
            name, checksum = token
            if name != f"{epoch:09d}.arrow":
                raise ValueError(f"{name} is not a file of its rows")
            return pa.Table.from_batches(read_rows(self._staging / name, checksum), self._output.schema)
        except (OSError, TypeError, ValueError) as error:
            raise SourceError(f"the rows of epoch {epoch} cannot be read: {error}") from error

    def _apply(self, rows: pa.Table, noted: Any) -> None:
        assert self._output is not None
        table = quote(self._table)
        if self._logs or not self._output.has_changes:
            _statement(self._session, f"INSERT INTO {table} FROM {quote(ROWS)}", rows, noted)
            return
        keys = ", ".join(map(quote, self._output.keys))
        columns = ", ".join(map(quote, rows.column_names[:-1]))
        gone = f"DELETE FROM {table} WHERE ({keys}) IN (SELECT {keys} FROM {quote(ROWS)})"
        if len(self._output.keys) == 1:
            gone = f"DELETE FROM {table} WHERE {keys} IN (SELECT {keys} FROM {quote(ROWS)})"
        _statement(self._session, gone, rows, noted)
        # The last change of a key says whether there is a row: a row goes before another one comes.
        numbered = rows.append_column("place", pa.array(range(rows.num_rows)))
        _statement(
            self._session, f"INSERT INTO {table} SELECT {columns} FROM ({_last(columns, keys)})", numbered, noted
        )

    def _definition(self) -> Any:
        entry = self._session.catalog.entry(self._table)
        if not isinstance(entry, Table):
            raise CatalogError(f'Table with name "{self._table}" does not exist')
        return entry.definition

    def _key(self) -> set[str]:
        return next((set(key.columns) for key in self._definition().keys if key.primary), set())

    def _wait_for_transaction(self) -> None:
        """A transaction of the user's is not ours to write into."""
        transactions = self._session.transactions
        while transactions.is_open:
            transactions.lock.release()
            try:
                time.sleep(WAIT_SECONDS)
            finally:
                transactions.lock.acquire()

    def _run(self, text: str) -> None:
        with self._session.transactions.lock:
            self._wait_for_transaction()
            self._session.sql(text)


def _last(columns: str, keys: str) -> str:
    """The last change of each key, where it is a row that comes."""
    return (
        f"SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY place DESC) AS back "
        f"FROM {quote(ROWS)}) WHERE back = 1 AND {quote(CHANGE)} > 0"
    )


def _statement(session: Session, text: str, rows: pa.Table, noted: Any) -> None:
    """Carry out one statement that reads `ROWS`, inside of a statement of the session's transactions."""
    (parsed,), piece = parse(text), split(text, None)[0]
    catalog = Overlay(session.catalog, **{ROWS: ArrowSource(rows, ROWS)})
    statement = Analyzer(parsed, catalog, None).statement()
    context = StatementContext(session._scripts, piece, {})
    changes.carry_out(changes.Work(session, noted, context.relation, {}), statement)
