"""`StreamReader`: what a connector does. A reader gives rows with the offsets behind them, and begins again at any of
these offsets.

    reader.open({})                     from the beginning, or from the offsets of a checkpoint
    for arrival in reader.poll(..):     rows of one partition, in its order
    reader.acknowledge(offsets)         these rows are in a checkpoint and will not be asked for again

Each partition is a list of rows that only grows. An offset is a JSON value that names a place in it. Reading from an
offset gives the same rows in the same order each time: that is what makes a restarted job exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass

Offset = Any
"""A JSON value."""


@dataclass(frozen=True)
class Arrival:
    """Rows of a partition, in its order, with the offset behind the last of them. A batch without rows says that the
    partition is there, or that it moved on over something without rows."""

    partition: str
    rows: pa.RecordBatch
    offset: Offset


class StreamReader(Protocol):
    """Reads one stream. All calls come from one thread, but for `close`, which any thread may call at any time: a
    `poll` that waits then returns."""

    schema: Schema
    """The columns of the batches, in `schema.to_arrow()` types."""

    replays: bool
    """Whether `open` can go back to an earlier offset. If not (a pipe, a socket), rows that came after the last
    checkpoint are lost when a job is killed, and the job says so."""

    def open(self, offsets: Mapping[str, Offset]) -> None:
        """Begin behind these offsets. Partitions without one begin as the options say (at their beginning, mostly)."""
        ...

    def poll(self, rows: int, seconds: float) -> Sequence[Arrival] | None:
        """Rows that have come, at most about `rows` of them. Waits up to `seconds` while there are none, and then
        returns an empty list. None: the stream has ended, and no further row will come."""
        ...

    def behind(self) -> int | None:
        """How many rows, messages or bytes are known to be there and have not been read; None if that is not
        known. It asks nobody: it tells what the last `poll` saw."""
        ...

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        """A checkpoint with these offsets is durable."""
        ...

    def close(self) -> None:
        """Free connections, files and threads. A second call does nothing."""
        ...
