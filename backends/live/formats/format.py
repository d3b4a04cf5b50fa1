"""`Format`: how messages become rows, and the list of formats. Readers of messages call `format_of` once.

A batch is decoded as a whole: no format handles a message by itself unless it is a bad one. A bad message is an error
that names it and the column, or is left out and counted if errors are ignored."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from tsql.backends.live.sources.notices import Notices
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema

Where = Callable[[int], str]
"""The name of a message, or of a line, by its position in what is decoded, for errors."""

BAD = "messages that cannot be read"
"""The reason under which `Notices` counts what was left out."""

FORMATS = {
    "json": ("json", "JsonFormat"),
    "csv": ("csv", "CsvFormat"),
    "arrow": ("arrow", "ArrowFormat"),
    "binary": ("binary", "BinaryFormat"),
}
"""The module and the class of each format, imported when it is used."""


class Format(Protocol):
    """Decodes messages into batches of a schema."""

    def decode(self, messages: Sequence[bytes], where: Where) -> pa.RecordBatch:
        """The rows of messages, in their order."""
        ...


class LineFormat(Format, Protocol):
    """A format whose messages can be the lines of a text."""

    def decode_lines(self, block: bytes, where: Where) -> pa.RecordBatch:
        """The rows of a block of whole lines. Blank lines are no messages."""
        ...


def format_of(options: Mapping[str, Any], schema: Schema, notices: Notices) -> Any:
    """The format that the option `format` names."""
    module, name = FORMATS[options["format"]]
    path = f"tsql.backends.live.formats.{module}"
    __import__(path)
    return getattr(sys.modules[path], name)(options, schema, notices)


def refuse_types(schema: Schema, format: str, names: Sequence[str], hint: str) -> None:
    """An error if a column has one of these types."""
    for field in schema:
        if field.type.name in names:
            raise SourceError(f"column {field.name} is {field.type}, which format {format} cannot hold", hint=hint)


class BadMessages:
    """What becomes of bad messages."""

    def __init__(self, options: Mapping[str, Any], notices: Notices) -> None:
        self.ignored = bool(options.get("ignore_errors"))
        self._notices = notices

    def meet(self, error: SourceError, messages: int = 1) -> None:
        """Raise the error, or count the messages and keep the first error as a notice."""
        if not self.ignored:
            raise error
        if not self._notices.left_out[BAD]:
            self._notices.tell(error.message)
        self._notices.left_out[BAD] += messages
