"""`MemorySink`: collects the committed batches of a job as a table. For tests and notebooks.

The rows are in this object and end with the process. While it lives, a job that fails and is resumed with the same
object gives each row once; one that is resumed with a new object begins it empty."""

from __future__ import annotations

import pyarrow as pa

from tsql.backends.live.sinks.changes import fold
from tsql.backends.live.sinks.sink import Output, Token
from tsql.backends.live.sinks.staging import check_ahead
from tsql.kernels.expr.errors import SourceError


class MemorySink:
    is_exact = True
    takes_changes = True
    is_prompt = True

    def __init__(self) -> None:
        self._output: Output | None = None
        self._batches: list[pa.RecordBatch] = []
        self._waiting: list[pa.RecordBatch] = []
        self._prepared: dict[int, list[pa.RecordBatch]] = {}
        self._last = 0

    def table(self) -> pa.Table:
        """The rows of the epochs that are committed, or their changes. Any thread may ask."""
        if self._output is None:
            raise SourceError("this sink has no rows yet: no job has been started with it")
        return pa.Table.from_batches(list(self._batches), self._output.schema)

    def result(self) -> pa.Table:
        """The rows of the result as it is now: changes are folded."""
        table = self.table()
        return fold(table) if self._output is not None and self._output.has_changes else table

    def open(self, output: Output) -> None:
        if self._output is not None and (self._output.job, self._output.schema) != (output.job, output.schema):
            raise SourceError("this MemorySink holds the rows of another job", hint="make one for each job")
        self._output = output

    def recover(self, epoch: int, token: Token) -> None:
        job = self._output.job if self._output is not None else ""
        check_ahead("this MemorySink", job, self._last, epoch)
        for prepared in sorted(self._prepared):
            if prepared <= epoch:
                self.commit(prepared, None)
        self._prepared.clear()
        self._waiting = []
        self._last = epoch

    def write(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)

    def prepare(self, epoch: int) -> Token:
        self._prepared[epoch], self._waiting = self._waiting, []
        return None

    def commit(self, epoch: int, token: Token) -> None:
        self._batches.extend(self._prepared.pop(epoch, ()))
        self._last = max(self._last, epoch)

    def last_committed(self) -> int | None:
        return self._last

    def close(self) -> None:
        self._waiting = []
