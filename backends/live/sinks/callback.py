"""`Callback`: calls a Python function with each Arrow batch of a job's results.

At least once. The function is called in `prepare`, before the checkpoint is durable: a job that is killed in between
gives the same epoch again when it is resumed. Called in `commit` instead, a function would lose the rows of an epoch
whose checkpoint was durable and whose rows were in the memory of the killed process; and kept in the checkpoint, they
would come again after each regular stop, since nobody can ask a function what it has seen.

A job without checkpoints prepares an epoch whenever it has results, so the function gets them at once. Rows of an epoch
wait in memory. An exception of the function ends the job, as the cause of its error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tsql.backends.live.sinks.sink import Output, Token
from tsql.kernels.expr.errors import ExecutionError, TsqlError


class Callback:
    is_exact = False
    takes_changes = True
    is_prompt = True

    def __init__(self, function: Callable[[pa.RecordBatch], Any]):
        self._function = function
        self._waiting: list[pa.RecordBatch] = []

    def open(self, output: Output) -> None:
        pass  # a function takes all rows

    def recover(self, epoch: int, token: Token) -> None:
        self._waiting = []

    def write(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._waiting.append(rows)

    def prepare(self, epoch: int) -> Token:
        waiting, self._waiting = self._waiting, []
        for rows in waiting:
            try:
                self._function(rows)
            except TsqlError:
                raise
            except Exception as error:  # whatever the function raises
                name = getattr(self._function, "__qualname__", type(self._function).__name__)
                raise ExecutionError(f"the function {name} failed: {type(error).__name__}: {error}") from error
        return None

    def commit(self, epoch: int, token: Token) -> None:
        pass  # the function has the rows

    def last_committed(self) -> int | None:
        return None

    def close(self) -> None:
        self._waiting = []
