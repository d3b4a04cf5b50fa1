"""A table of PostgreSQL that only grows → the rows of a stream, by a key that only grows. Connector `postgres`, over
psycopg 3.

The offset of the one partition is the last key, as text. A batch is the rows of a range of keys, in the order of the
keys; rows with equal keys are never cut apart. The server writes it as CSV, in texts of 512 rows, and it is decoded at
once (COPY gives one row at a time: 2x slower, and 20x more work here). Rows that are changed after they were read are
not read again, rows whose key is NULL never.

**Keys that are committed late.** Keys are taken from a sequence before they are committed. One transaction takes 6,
another takes 7 and commits: a reader that sees 7 and goes on behind it never sees 6. So a key is read in three steps
(`_advance`):

1. look at the largest key k;
2. look which transactions hold a lock for writing on the table, and wait until these have ended;
3. read the rows up to k.

An INSERT takes its lock before it takes its key, and holds it until its transaction has ended. So a key below k was
either committed or rolled back, or its transaction was among those of step 2. (To compare the row's xmin with
pg_snapshot_xmin is not enough: a transaction that got its number early may take its key late, and one that has taken
its key may have no number yet.) Other transactions are not waited for, however long they run. A transaction that writes
to the table and stays open holds the stream back; `wait_for_writers = false` does not wait, and may lose rows.

That is not safe if keys are taken before the INSERT: by a separate SELECT nextval(..), by a sequence with a CACHE, by a
client that takes blocks of keys, or as the time of a transaction that began before. Then `delay` helps: rows up to k
are read so long after k was seen. It must be longer than it takes from the taking of a key to its commit. On a replica
the locks of writers are not visible, so it takes `delay` there."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from tsql.backends.live.formats.csv import CsvFormat
from tsql.backends.live.sources.columns import empty_batch
from tsql.backends.live.sources.notices import Notices
from tsql.backends.live.sources.postgres_columns import PgColumn, columns_of, from_sent, line_of, sent_schema
from tsql.backends.live.sources.reader import Arrival, Offset
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process import forks

PARTITION = "keys"
TEXT_ROWS = 512
"""Rows of one text: a value of PostgreSQL has at most 1 GB."""
WRITERS_SECONDS = 0.02
"""How often to look whether writers have ended."""
SESSION = """
SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET extra_float_digits = 1; SET client_encoding = 'UTF8';
SET default_transaction_read_only = on
"""


class PostgresReader:
    """Reads the rows of a table behind a key."""

    replays = True

    def __init__(self, options: Mapping[str, Any], schema: Schema | None, name: str) -> None:
        self.name, self.notices = name, Notices()
        self._url: str = options["url"]
        self._names: list[str] = options["table"].split(".")
        self._table = sql.Identifier(*self._names)
        self._key = sql.Identifier(options["key"])
        self._order: sql.Composable = self._key
        self._key_name: str = options["key"]
        self._latest: bool = options["start"] == "latest"
        self._waits: bool = options["wait_for_writers"]
        self._delay: float = options["delay"]
        self._follow: bool = options["follow"]
        self._interval: float = options["poll_interval"]
        self._timeout: float = options["timeout"]
        self._closing = threading.Event()
        self._busy = forks.lock()
        self._connection: psycopg.Connection | None = None
        self._oid, columns = self._connect()
        try:
            self._columns, self.schema = columns_of(columns, schema, self._shown)
        except SourceError:
            self.close()
            raise
        self._format = CsvFormat({}, sent_schema(self.schema), self.notices, quoted_is_null=False, breaks=True)
        self._last: str | None = None
        self._seen: _Seen | None = None
        self._safe: str | None = None
        self._next_look = 0.0
        self._behind: int | None = None
        self._told = self._ended = False

    @property
    def _shown(self) -> str:
        return ".".join(self._names)

    def open(self, offsets: Mapping[str, Offset]) -> None:
        offset = offsets.get(PARTITION)
        if offset is not None and not (isinstance(offset, dict) and isinstance(offset.get("key", 0), str | None)):
            raise SourceError(f"the offset of {self.name} in the checkpoint is damaged")
        if offset is not None:
            self._last = offset["key"]
        elif self._latest:
            self._last = self._largest()
        self._seen, self._safe, self._next_look, self._told, self._ended = None, None, 0.0, False, False

    def poll(self, rows: int, seconds: float) -> Sequence[Arrival] | None:
        deadline = time.monotonic() + seconds
        with self._busy:
            while not self._closing.is_set():
                if not self._told:
                    self._told = True
                    return [Arrival(PARTITION, empty_batch(self.schema), self._offset())]
                if self._ended:
                    return None
                now = time.monotonic()
                if self._safe is None and now >= self._next_look:
                    self._advance()
                if self._safe is not None:
                    batch = self._read(rows)
                    return [] if batch is None else [Arrival(PARTITION, batch, self._offset())]
                if self._ended:
                    continue
                now = time.monotonic()
                if now >= deadline:
                    return []
                self._closing.wait(min(deadline, self._next_look) - now)
        return []

    def behind(self) -> int | None:
        """The distance from the last key to the largest, if keys are integers."""
        return self._behind

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        """Rows stay where they are: nothing to do."""

    def close(self) -> None:
        self._closing.set()
        connection = self._connection
        if connection is not None and not connection.closed:
            connection.cancel_safe()
        with self._busy:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _offset(self) -> Offset:
        return {"key": self._last}

    def _advance(self) -> None:
        """Find a key up to which all rows are final. See the module's text."""
        if self._seen is None:
            largest = self._largest()
            if largest is None:
                self._ended = not self._follow
                self._next_look = time.monotonic() + self._interval
                return
            self._seen = _Seen(largest, self._writers() if self._waits else set(), time.monotonic())
        elif self._seen.writers:
            self._seen.writers &= self._writers()
        wait = self._seen.since + self._delay - time.monotonic()
        if self._seen.writers or wait > 0:
            self._next_look = time.monotonic() + (WRITERS_SECONDS if self._seen.writers else wait)
            return
        self._safe, self._seen, self._next_look = self._seen.key, None, 0.0

    def _largest(self) -> str | None:
        """The largest key behind the last one."""
        query = sql.SQL("SELECT max({key})::text FROM {table} WHERE {behind}")
        found = self._one(query.format(key=self._key, table=self._table, behind=self._range(None)))
        if found is not None and found.lstrip("-").isdecimal():
            last = self._last if self._last is not None else "0"
            self._behind = max(0, int(found) - int(last)) if last.lstrip("-").isdecimal() else None
        elif found is None and self._behind is not None:
            self._behind = 0
        return found

    def _writers(self) -> set[str]:
        """The transactions that hold a lock for writing on the table or one of its partitions."""
        query = sql.SQL(
            "SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND granted "
            "AND mode = 'RowExclusiveLock' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
            "AND relation IN (SELECT {oid} UNION SELECT relid::oid FROM pg_partition_tree({oid}))"
        ).format(oid=sql.SQL("{}::oid").format(sql.Literal(self._oid)))
        with self._asking() as connection:
            return {row[0] for row in connection.execute(query).fetchall()}
        return {"unknown"}  # the reader is being closed

    def _range(self, until: str | None) -> sql.Composed:
        """The condition for keys behind the last one, and up to one."""
        parts = [sql.SQL("{} IS NOT NULL").format(self._key)]
        if self._last is not None:
            parts.append(sql.SQL("{} > {}").format(self._key, sql.Literal(self._last)))
        if until is not None:
            parts.append(sql.SQL("{} <= {}").format(self._key, sql.Literal(until)))
        return sql.SQL(" AND ").join(parts)

    def _read(self, rows: int) -> pa.RecordBatch | None:
        """The next rows, about `rows` of them; None if the reader is being closed."""
        safe = self._safe
        cut = sql.SQL("SELECT {key}::text FROM {table} WHERE {range} ORDER BY {key} OFFSET {skip} LIMIT 1").format(
            key=self._key, table=self._table, range=self._range(safe), skip=sql.Literal(max(0, rows - 1))
        )
        until = self._one(cut)
        until = safe if until is None else until
        query = sql.SQL(
            "SELECT string_agg(line, chr(10) ORDER BY n), count(*) FROM (SELECT {line} AS line, "
            "row_number() OVER (ORDER BY {order}) AS n FROM {table} WHERE {range}) AS sent "
            "GROUP BY n / {rows} ORDER BY n / {rows}"
        ).format(
            line=line_of(self._columns),
            order=self._order,
            table=self._table,
            range=self._range(until),
            rows=sql.Literal(TEXT_ROWS),
        )
        with self._asking() as connection:
            texts = connection.execute(query).fetchall()
            block, count = "\n".join(text for text, _ in texts).encode(), sum(rows for _, rows in texts)
            last = "the first" if self._last is None else f"key {self._last}"
            batch = self._format.decode_lines(block, lambda i: f"{self._shown}: row {i + 1} behind {last}")
            if batch.num_rows != count:
                raise SourceError(f"{self._shown}: {count} rows were sent, and {batch.num_rows} could be read")
            self._last = until
            if until == safe:
                self._safe = None
            return from_sent(batch, self.schema)
        return None

    def _one(self, query: sql.Composed) -> str | None:
        with self._asking() as connection:
            row = connection.execute(query).fetchone()
            return None if row is None else row[0]
        return None

    @contextmanager
    def _asking(self) -> Iterator[psycopg.Connection]:
        """The connection; its errors become errors of the source, and none if the reader is being closed."""
        connection = self._connection
        if connection is None:
            raise SourceError(f"{self.name} is closed")
        try:
            yield connection
        except psycopg.Error as error:
            if not self._closing.is_set():
                raise SourceError(f"{self._shown}: PostgreSQL: {_first_line(error)}") from None

    def _connect(self) -> tuple[int, list[PgColumn]]:
        """Connect, and look at the table."""
        try:
            connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=max(1, round(self._timeout)), application_name="tsql"
            )
        except psycopg.OperationalError as error:
            raise SourceError(f"{self.name}: PostgreSQL cannot be reached: {_first_line(error)}") from None
        except psycopg.Error:
            # The message may repeat the password.
            raise SourceError(f"{self.name}: option url is no address of a database of PostgreSQL") from None
        self._connection = connection
        try:
            with self._asking():
                connection.execute(SESSION)
                return self._looked_at(connection)
        except SourceError:
            self.close()
            raise
        raise SourceError(f"{self.name} is closed")

    def _looked_at(self, connection: psycopg.Connection) -> tuple[int, list[PgColumn]]:
        named = self._table.as_string(connection)
        row = connection.execute(
            "SELECT oid, relkind::text, pg_is_in_recovery() FROM pg_class WHERE oid = to_regclass(%s)", [named]
        ).fetchone()
        if row is None:
            raise SourceError(f"{self._shown}: there is no such table")
        oid, kind, is_replica = row
        if kind not in ("r", "p"):
            raise SourceError(f"{self._shown} is no table", hint="a view does not tell who writes to its tables")
        if is_replica and self._waits and not self._delay:
            raise SourceError(
                f"{self._shown}: this server is a replica, where the writers of a table are not visible",
                hint="read from the primary, or set delay, and wait_for_writers = false",
            )
        found = connection.execute(
            "SELECT attname, atttypid::bigint, atttypmod FROM pg_attribute "
            "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [oid],
        ).fetchall()
        columns = [PgColumn(*one) for one in found]
        if self._key_name not in {column.name for column in columns}:
            shown = ", ".join(column.name for column in columns)
            raise SourceError(f"{self._shown}: there is no column {self._key_name}", hint=f"its columns are {shown}")
        unique = connection.execute(
            "SELECT 1 FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0] "
            "WHERE indrelid = %s AND attname = %s AND indisunique AND indisvalid AND indnkeyatts = 1 "
            "AND indpred IS NULL",
            [oid, self._key_name],
        ).fetchone()
        if unique is None:
            # Rows with equal keys come in the order in which they are stored.
            self._order = sql.SQL("{}, tableoid, ctid").format(self._key)
        cached = connection.execute(
            "SELECT 1 FROM pg_sequence WHERE seqrelid = pg_get_serial_sequence(%s, %s)::regclass AND seqcache > 1",
            [named, self._key_name],
        ).fetchone()
        if cached is not None and not self._delay:
            self.notices.tell(
                f"{self._shown}: the sequence of {self._key_name} has a CACHE: rows may be lost without delay"
            )
        return int(oid), columns


class _Seen:
    """A key, the transactions that may commit smaller ones, and since when it is known."""

    def __init__(self, key: str, writers: set[str], since: float) -> None:
        self.key, self.writers, self.since = key, writers, since


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
