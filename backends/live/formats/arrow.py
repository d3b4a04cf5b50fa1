"""Format `arrow`: a message is an Arrow IPC stream of any number of rows, with the declared columns by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tsql.backends.live.formats.format import BadMessages, Where
from tsql.backends.live.sources.columns import conformed_batches, joined
from tsql.backends.live.sources.notices import Notices
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema


class ArrowFormat:
    """Decodes Arrow IPC streams."""

    def __init__(self, options: Mapping[str, Any], schema: Schema, notices: Notices) -> None:
        self.schema, self._notices = schema, notices
        self._bad = BadMessages(options, notices)

    def decode(self, messages: Sequence[bytes], where: Where) -> pa.RecordBatch:
        found: list[pa.RecordBatch] = []
        for number, message in enumerate(messages):
            try:
                found += conformed_batches(_table(message, where(number)), self.schema, where(number), self._notices)
            except SourceError as error:
                self._bad.meet(error)
        return joined(found, self.schema)


def _table(message: bytes, where: str) -> pa.Table:
    try:
        with pa.ipc.open_stream(message) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise SourceError(f"{where}: not an Arrow IPC stream: {error}") from error
