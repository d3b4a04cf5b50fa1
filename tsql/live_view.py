"""`LiveView`: CREATE MATERIALIZED VIEW: the result of a job, as a table that other queries read.

It is the sink of its job. A query reads the rows of the last epoch that was committed, all of them or none: those are
the rows of the result at one punctuation of its streams. It belongs to the session and ends with it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tsql.backends.io.arrow import ArrowSource
from tsql.backends.live.sinks.changes import fold
from tsql.backends.live.sinks.sink import Output, Token
from tsql.backends.names import FoundTable, NeverKept
from tsql.kernels.expr.schema import Schema

if TYPE_CHECKING:
    from tsql.jobs import Job

MATERIALIZED_VIEW = "materialized view"

LEAST_ROWS, MOST_CHUNKS = 65_536, 1_024
"""Changes that nobody has looked at are made when there are more of them than rows, and than this."""


class LiveView:
    """An entry of the catalog, and the sink that fills it. most: of a result whose rows are final, only so many of the
    last ones are kept (a terminal shows no more)."""

    is_exact = True
    takes_changes = True
    is_prompt = True
    kind = MATERIALIZED_VIEW

    def __init__(self, name: str, schema: Schema, most: int | None = None):
        self.name, self.schema = name, schema
        self._most = most
        self.left_out = 0
        """Rows that are not kept."""
        self.job: Job | None = None
        self._lock = threading.Lock()
        self._table = schema.to_arrow().empty_table()
        self._changes: list[pa.RecordBatch] = []
        self._changed = 0
        """Rows of `_changes`."""
        self._has_changes = False
        self._open: list[pa.RecordBatch] = []
        self._prepared: dict[int, list[pa.RecordBatch]] = {}

    def resolved(self) -> FoundTable:
        """The rows as they are now, for a query."""
        if self.job is not None and self.job.error is not None:
            raise self.job.error
        return FoundTable(ArrowSource(self.table(), self.name), NeverKept())

    def table(self) -> pa.Table:
        """The rows of the result as of the last epoch."""
        with self._lock:
            self._merge()
            return self._table

    def _merge(self) -> None:
        """Make the changes that have come in the rows."""
        if not self._changes:
            return
        more = pa.Table.from_batches(self._changes)
        self._changes, self._changed = [], 0
        if self._has_changes:
            there = pa.array(np.ones(self._table.num_rows, np.int8))
            self._table = fold(pa.concat_tables([self._table.append_column(more.schema[-1], there), more]))
            return
        self._table = pa.concat_tables([self._table, more.cast(self._table.schema)])
        if self._most is not None and self._table.num_rows > self._most:
            beyond = self._table.num_rows - self._most
            self._table, self.left_out = self._table.slice(beyond), self.left_out + beyond
        if self._table.num_columns and self._table[0].num_chunks > MOST_CHUNKS + self._table.num_rows // LEAST_ROWS:
            self._table = self._table.combine_chunks()

    def open(self, output: Output) -> None:
        self._has_changes = output.has_changes
        plain = output.schema.remove(len(output.schema) - 1) if output.has_changes else output.schema
        with self._lock:
            self._table = plain.empty_table()

    def recover(self, epoch: int, token: Token) -> None:
        """A view begins with its session, and so does its job."""

    def write(self, rows: pa.RecordBatch) -> None:
        self._open.append(rows)

    def prepare(self, epoch: int) -> Token:
        self._prepared[epoch], self._open = self._open, []
        return None

    def commit(self, epoch: int, token: Token) -> None:
        with self._lock:
            more = self._prepared.pop(epoch, [])
            self._changes += more
            self._changed += sum(batch.num_rows for batch in more)
            if self._changed > max(self._table.num_rows, LEAST_ROWS) or len(self._changes) > MOST_CHUNKS:
                self._merge()  # nobody may ever look

    def last_committed(self) -> int | None:
        return None

    def close(self) -> None:
        self._open = []

    def drop(self) -> None:
        """Stop the job: nobody can read the view any more."""
        if self.job is not None and not self.job.is_over:
            self.job.stop(now=True)
