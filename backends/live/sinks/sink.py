"""`Sink`: takes the rows of a job, in epochs.

An epoch is what a job gives between two checkpoints. Its rows are written when they come, become durable by `prepare`,
and visible by `commit`:

    sink.open(output)                       once
    sink.recover(epoch, token)              once: the job begins (0, None) or goes on behind a durable checkpoint
    sink.write(rows) ..                     rows of the epoch that is open
    token = sink.prepare(epoch)             they are durable, and nobody sees them yet
                                            (the job makes the checkpoint durable, with the token in it)
    sink.commit(epoch, token)               they are visible

A job that is killed before its checkpoint is durable begins again at the checkpoint before; one that is killed after it
finds the token there. So each row is seen once, if the sink can do two things: forget what was prepared and has no
durable checkpoint, and commit the same epoch a second time without effect. Both are `recover`.

A job without a checkpoint calls `prepare` and `commit` whenever its results are due."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass

Token = Any
"""A JSON value: what `commit` needs to know of an epoch, in this process or a later one."""

CHANGE = "change"
"""The last column of a list of changes, TINYINT: 1 adds a row to the result, -1 takes one away."""


@dataclass(frozen=True)
class Output:
    """What a job gives. schema: the Arrow schema of its batches. types: the SQL types of its columns. has_changes: the
    last column is `CHANGE`, and the rows are changes of a result; if not, rows are final and are only added. keys: the
    names of the columns that identify a row of the result, if the query tells (its groups); sinks that can update use
    them. job: an identifier that stays the same when a job is resumed, of letters, digits and `-`."""

    schema: pa.Schema
    types: tuple[Type, ...]
    job: str
    has_changes: bool = False
    keys: tuple[str, ...] = ()


class Sink(Protocol):
    """All calls come from one thread at a time, not always the same one. An error is a `TsqlError` that names the
    target and the reason; it ends the job."""

    is_exact: bool
    """Whether rows are seen once whatever happens. A sink that is not (a function, a terminal) may get the rows of the
    last epoch again after a crash; the documentation of the sink says so."""

    takes_changes: bool
    """Whether it takes lists of changes. If not, a query that gives changes is refused."""

    # is_prompt: a sink may have this, true. Without a checkpoint, its epochs then end whenever rows have come: they
    # cost nothing, and somebody waits for the rows.

    def open(self, output: Output) -> None:
        """Check that the target takes these rows, and connect. Nothing is written yet."""
        ...

    def recover(self, epoch: int, token: Token) -> None:
        """Make the target hold the epochs up to this one: commit it if that has not happened, and remove what was
        prepared after it by this job. (0, None): the job is new. Rows of other jobs stay."""
        ...

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows of the open epoch."""
        ...

    def prepare(self, epoch: int) -> Token:
        """End the open epoch: its rows survive a crash from here on. Epochs are numbered from 1, one after the other.
        An epoch without rows is prepared and committed too, and should cost next to nothing."""
        ...

    def commit(self, epoch: int, token: Token) -> None:
        """Make a prepared epoch visible, all of it at once. The next epoch may have been begun."""
        ...

    def last_committed(self) -> int | None:
        """The last epoch of this job that is visible in the target; None if the target cannot tell."""
        ...

    def close(self) -> None:
        """Free connections and files. What was written and not prepared is dropped. A second call does nothing."""
        ...
