"""Whole files as rows: `read_text` and `read_blob`, a row for each file with its name, content, size and time.

The columns are DuckDB's. Nothing is decompressed and a file is opened only if its content is asked for:
`SELECT size FROM read_text('*')` needs no text. A file that is not UTF-8 is an error of `read_text`, where its content
is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from tsql.backends.io import Split, Statistics
from tsql.backends.io.files import changed_us, check_whole, expand, open_input, reading, stored_bytes, total_bytes
from tsql.backends.io.normalize import batch_of
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, BLOB, TIMESTAMPTZ, VARCHAR, Type

OPTIONS = ()
MAX_BYTES = 2**31 - 1
"""A longer text does not fit the offsets of Arrow's columns."""


class WholeSource:
    """Files of which each is one row and one split."""

    kind: ClassVar[str]
    content: ClassVar[Type]

    def __init__(self, patterns: Sequence[str], options: dict[str, Any] | None = None):
        self.patterns = tuple(patterns)
        self.options = dict(options or {})
        self.paths = expand(self.patterns, self.kind)
        columns = {"filename": VARCHAR, "content": self.content, "size": BIGINT, "last_modified": TIMESTAMPTZ}
        self.schema = Schema(tuple(Field(name, kind) for name, kind in columns.items()))

    def statistics(self) -> Statistics:
        return Statistics(len(self.paths), total_bytes(self.paths))

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        return [Split(order, path, 1) for order, path in enumerate(self.paths)]

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        path = split.file
        with reading(path, f"a file for read_{self.kind}"):
            found = {name: self._value(path, name) for name in columns}
        yield batch_of([pa.array([found[name]], self.schema[name].type.to_arrow()) for name in columns], columns, 1)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "paths": list(self.patterns), "options": dict(self.options)}

    def _value(self, path: str, name: str) -> Any:
        match name:
            case "filename":
                return _text(repr(path), os.fsencode(path), "its name")
            case "content":
                return self._content(path)
            case "size":
                return stored_bytes(path)
        return changed_us(path)

    def _content(self, path: str) -> Any:
        with open_input(path, "none") as stream:
            found = stream.read(MAX_BYTES + 1)
            check_whole(path, stream)
        if len(found) > MAX_BYTES:
            raise SourceError(f"{path}: a file of {len(found)} bytes or more is too long for one value")
        return found


class TextSource(WholeSource):
    """Files as VARCHAR."""

    kind = "text"
    content = VARCHAR

    def _content(self, path: str) -> str:
        return _text(path, super()._content(path), "its content")


class BlobSource(WholeSource):
    """Files as BLOB."""

    kind = "blob"
    content = BLOB


def _text(shown: str, found: bytes, what: str) -> str:
    try:
        return found.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{shown}: {what} is not UTF-8: byte {error.start + 1}"
        raise SourceError(message, hint="read_blob reads any content") from None
