"""`LateSinks`: the tables of ON LATE INTO. Late rows are written with the epoch of their job, so each is there once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from tsql.backends.live.jobs.streams import StreamSource
from tsql.backends.live.sinks.sink import Output, Sink, Token

MakeSink = Callable[[StreamSource], Sink]
"""Makes the sink of the table of a stream's late rows."""


class LateSinks:
    """A sink for each stream whose late rows go into a table. Their epochs are those of the job."""

    def __init__(self, streams: Sequence[StreamSource], make: MakeSink | None, identifier: str):
        self._make, self._identifier = make, identifier
        self._streams = {stream.catalog_name: stream for stream in streams if make is not None and _routes(stream)}
        self._sinks: dict[str, Sink] = {}

    def begin(self, epoch: int, tokens: dict[str, Token]) -> None:
        """Connect, and hold the epochs up to this one."""
        for name, stream in self._streams.items():
            assert self._make is not None
            self._sinks[name] = sink = self._make(stream)
            types = tuple(field.type for field in stream.schema)
            sink.open(Output(stream.schema.to_arrow(), types, f"{self._identifier}-late-{name}"))
            sink.recover(epoch, tokens.get(name))

    def write(self, stream: str, rows: Sequence[pa.RecordBatch]) -> None:
        """Take late rows of a stream."""
        for batch in rows:
            self._sinks[stream].write(batch)

    def prepare(self, epoch: int) -> dict[str, Token]:
        """End the epoch: its rows survive a crash."""
        return {name: sink.prepare(epoch) for name, sink in self._sinks.items()}

    def commit(self, epoch: int, tokens: dict[str, Token]) -> None:
        """Make the rows of an epoch visible."""
        for name, sink in self._sinks.items():
            sink.commit(epoch, tokens[name])

    def close(self) -> None:
        """Free connections."""
        for sink in self._sinks.values():
            sink.close()


def _routes(stream: StreamSource) -> bool:
    return not stream.ends and stream.watermark is not None and stream.watermark.into is not None
