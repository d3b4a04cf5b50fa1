"""`PostgresSink`: writes the rows of a job to a table of PostgreSQL, through psycopg. Exactly once.

    tsql_epochs (job, epoch)     the last epoch of each job that has rows, in the schema of the table
    tsql_staged_<hash>           the rows of a job's epochs that are written or prepared

Rows are copied to the staging table in a transaction that `prepare` commits. `commit` moves the rows of the epoch to
the table and sets the job's epoch in tsql_epochs, in one transaction: both are visible, or neither, so a second commit
finds the epoch there and does nothing. `recover` moves what a checkpoint names, and deletes what came later.

Why a staging table: an epoch must survive `prepare`, before it may be seen. An open transaction ends with the process.
PREPARE TRANSACTION would survive without writing the rows twice, but servers refuse it by default
(`max_prepared_transactions = 0`), and one that is forgotten holds its locks for ever. The staging table is a logged
one: an unlogged table is emptied when the server crashes, and rows of an epoch with a durable checkpoint would be lost.
For the same reason transactions wait for the disk (`synchronous_commit`), whatever the server's default is.

A process that was killed may have a statement on its way to the server. So each connection holds an advisory lock of
its job, and `recover` waits until those of the process before are free.

A list of changes updates the table if the query tells its keys and the table has a primary key, or a unique index, on
just these columns: each commit puts the new rows of its keys and deletes keys that are gone. A table that is made here
gets a unique index in which NULLs are equal, since a group may be NULL. Without keys, changes are inserted as rows,
with their column."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tsql.backends.io.snapshot import first_line, missing
from tsql.backends.io.writers import Counted, WriteOptions, write_csv
from tsql.backends.live.sinks.postgres_table import PostgresTable
from tsql.backends.live.sinks.sink import Output, Token
from tsql.backends.live.sinks.staging import check_ahead, rows_gone
from tsql.kernels.expr.errors import SourceError

CONNECT_SECONDS = 30
LOCK_SECONDS = 30


class PostgresSink:
    is_exact = True
    takes_changes = True

    def __init__(self, url: str, table: str, schema: str = ""):
        """table: a name, also with its schema before a dot. A name that has dots itself comes with `schema`."""
        self._url = url
        before, dot, after = table.partition(".")
        self._schema_name, self._name = (schema, table) if schema else (before, after) if dot else ("public", table)
        self._table: PostgresTable | None = None
        # Rows of the next epoch may be written while an epoch is committed: each has its connection.
        self._writer: Any = None
        self._committer: Any = None
        self._epoch, self._last = 1, 0
        self._rows = 0

    def open(self, output: Output) -> None:
        psycopg = _library()
        table = self._table = PostgresTable(self._schema_name, self._name, output)
        self._job = output.job
        # Texts are always quoted: \. on a line of its own would end the COPY.
        texts = [f.name for f in table.columns if _is_quoted(f.type)]
        self._options = WriteOptions(header=False, force_quote=texts)
        with self._failing():
            known = psycopg.conninfo.conninfo_to_dict(self._url)
            seconds = int(known.get("connect_timeout") or CONNECT_SECONDS)
            for name in ("_writer", "_committer"):
                connection = psycopg.connect(
                    self._url, autocommit=True, client_encoding="utf8", connect_timeout=seconds, application_name="tsql"
                )
                setattr(self, name, connection)
                connection.execute("SET synchronous_commit = on")
                connection.execute("SET idle_in_transaction_session_timeout = 0")
            table.check(self._committer)

    def recover(self, epoch: int, token: Token) -> None:
        table = self._opened()
        with self._failing():
            self._lock()
            table.make(self._committer)
            self._ask("INSERT INTO {epochs} VALUES ({job}, 0) ON CONFLICT DO NOTHING", job=self._job)
            last = self._durable()
            check_ahead(table.shown, self._job, last, epoch)
            self._ask("DELETE FROM {staged} WHERE tsql_epoch > {epoch}", epoch=epoch)
            staged = self._ask("SELECT DISTINCT tsql_epoch FROM {staged} ORDER BY 1").fetchall()
            for (prepared,) in staged:
                self._move(prepared, token if prepared == epoch else None)
            if token is not None and self._durable() < epoch:
                raise rows_gone(table.shown, epoch)
        self._epoch, self._last = epoch + 1, epoch

    def _lock(self) -> None:
        """Wait until no other process runs this job."""
        errors = _library().errors
        for connection, key in zip((self._writer, self._committer), self._opened().lock_keys(), strict=True):
            connection.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
            try:
                connection.execute("SELECT pg_advisory_lock(%s)", (key,))
            except errors.LockNotAvailable as error:
                raise SourceError(
                    f"cannot write {self._opened().shown}: another process runs job {self._job}"
                ) from error
            connection.execute("SET lock_timeout = 0")

    def write(self, rows: pa.RecordBatch) -> None:
        table = self._opened()
        for batch in Counted([rows], table.columns):
            epochs = pa.array([self._epoch]).take(pa.array([0] * batch.num_rows))
            columns = [epochs, *(_stored(column) for column in batch.columns)]
            text = io.BytesIO()
            names = ["tsql_epoch", *batch.schema.names]
            lines = pa.RecordBatch.from_arrays(columns, names=names)
            write_csv([lines], lines.schema, text, self._options)
            with self._failing():
                if not self._rows:
                    self._writer.execute("BEGIN")
                copying = table.statement("COPY {staged} (tsql_epoch, {all}) FROM STDIN (FORMAT csv)")
                with self._writer.cursor() as cursor:
                    with cursor.copy(copying) as copy:
                        copy.write(text.getbuffer())
            self._rows += batch.num_rows

    def prepare(self, epoch: int) -> Token:
        rows, self._rows = self._rows, 0
        self._epoch = epoch + 1
        if not rows:
            return None
        with self._failing():
            done = self._writer.execute("COMMIT").statusmessage
        if done != "COMMIT":
            raise SourceError(f"cannot write {self._opened().shown}: the transaction of epoch {epoch} ended by {done}")
        return {"rows": rows}

    def commit(self, epoch: int, token: Token) -> None:
        if token is not None:
            with self._failing():
                self._move(epoch, token)
        self._last = max(self._last, epoch)

    def _move(self, epoch: int, token: Token) -> None:
        """Move a staged epoch to the table, if that has not been done."""
        with self._committer.transaction():
            if self._durable(" FOR UPDATE") >= epoch:
                return
            for statement in self._opened().moves(epoch):
                self._committer.execute(statement)
            moved = self._ask("DELETE FROM {staged} WHERE tsql_epoch = {epoch}", epoch=epoch).rowcount
            if token is not None and moved != token["rows"]:
                raise rows_gone(self._opened().shown, epoch)
            self._ask("UPDATE {epochs} SET epoch = {epoch} WHERE job = {job}", epoch=epoch, job=self._job)

    def _durable(self, how: str = "") -> int:
        """The last epoch that has rows and is visible."""
        found = self._ask("SELECT epoch FROM {epochs} WHERE job = {job}" + how, job=self._job).fetchone()
        return int(found[0]) if found else 0

    def last_committed(self) -> int | None:
        with self._failing():
            is_there = self._opened().place(self._committer, "tsql_epochs") is not None
            return max(self._durable() if is_there else 0, self._last)

    def close(self) -> None:
        for connection in (self._writer, self._committer):
            if connection is not None:
                connection.close()
        self._writer = self._committer = None

    def _ask(self, text: str, **values: Any) -> Any:
        return self._committer.execute(self._opened().statement(text, **values))

    def _opened(self) -> PostgresTable:
        assert self._table is not None, "open comes first"
        return self._table

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Errors of the server as errors of the table, without the password that the address may hold."""
        try:
            yield
        except _library().Error as error:
            reason = first_line(error).replace(self._url, "the url")
            raise SourceError(f"cannot write {self._opened().shown}: {reason}") from error


def _library() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise missing("PostgreSQL", "psycopg", "postgres", error) from error
    return psycopg


def _is_quoted(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)


def _stored(column: pa.Array) -> pa.Array:
    """A column whose text is as PostgreSQL reads it: bytes are hexadecimal."""
    if pa.types.is_binary(column.type):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        # Arrow's spelling reads back as the same number, and takes no Python call for each.
        return column.cast(pa.string())
    return column
