"""Rows of a micro-batch as they come to a task: batches of a streaming DataFrame, names of files that the task reads,
or messages that it decodes. Out: Arrow batches of each stream, with the partition that they are from.

The DataFrames of all streams of a job are one: a column has the number of the stream, and each stream has columns of
its own, which are NULL in the rows of others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends.io.normalize import normalize
from tsql.backends.io.open import open_source
from tsql.backends.live.formats.format import format_of
from tsql.backends.live.sources.columns import plain_batch
from tsql.backends.live.sources.files import SAMPLE_ROWS
from tsql.backends.live.sources.found_files import is_hidden
from tsql.backends.live.sources.notices import Notices
from tsql.backends.spark.streaming.spec import StreamSpec
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import parse_type

NUMBER = "stream"
"""The column with the number of a stream."""

ONE = "rows"
"""The partition of streams whose partitions nobody tells."""

FILE_COLUMNS = ("path", "length", "changed_us")
MESSAGE_COLUMNS = ("partition", "offset", "value")

Arrived = Iterator[tuple[pa.RecordBatch, str]]


def column_name(number: int, name: str) -> str:
    """The name of a column of a stream in the DataFrame of all."""
    return f"{NUMBER}_{number}_{name}"


def schema_of(columns: list[list[str]]) -> Schema:
    """A schema of names and types as text."""
    return Schema(tuple(Field(name, parse_type(kind)) for name, kind in columns))


class Arriving:
    """What comes of one stream in one task."""

    def __init__(self, spec: StreamSpec):
        self.spec, self.schema = spec, schema_of(spec.columns)
        self.notices = Notices()
        self._format: Any = None

    def of(self, batch: pa.RecordBatch) -> Arrived:
        """The rows of the stream in a batch of the DataFrame of all."""
        mine = np.asarray(batch.column(NUMBER)) == self.spec.number
        if not mine.any():
            return
        batch = batch if mine.all() else batch.filter(pa.array(mine))
        match self.spec.kind:
            case "files":
                yield from self._of_files(self._columns(batch, FILE_COLUMNS))
            case "messages":
                yield from self._of_messages(self._columns(batch, MESSAGE_COLUMNS))
            case _:
                yield self._normal(self._columns(batch, self.schema.names)), ONE

    def _columns(self, batch: pa.RecordBatch, names: tuple[str, ...]) -> list[pa.Array]:
        return [batch.column(column_name(self.spec.number, name)) for name in names]

    def _normal(self, columns: list[pa.Array]) -> pa.RecordBatch:
        arrays = []
        for column, field in zip(columns, self.schema, strict=True):
            try:
                found = normalize(column, field.type)[0] if len(column) else pa.nulls(0, field.type.to_arrow())
            except pa.ArrowInvalid as error:
                raise SourceError(f"{self.spec.name}: column {field.name}: {error}") from error
            arrays.append(found if found.type == field.type.to_arrow() else found.cast(field.type.to_arrow()))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema.to_arrow())

    def _of_files(self, columns: list[pa.Array]) -> Arrived:
        """The rows of files. Each is read by one task."""
        for uri, length, changed_us in zip(*(column.to_pylist() for column in columns), strict=True):
            path = path_of(uri)
            if is_hidden(os.path.basename(path)) or (not length and self.spec.file_kind in ("csv", "json")):
                continue
            self._check_unchanged(path, length, changed_us)
            options: dict[str, Any] = {**self.spec.options, "schema": {f.name: f.type for f in self.schema}}
            if self.spec.file_kind in SAMPLE_ROWS:
                options.setdefault("sample_size", SAMPLE_ROWS[self.spec.file_kind])
            source = open_source(path, self.spec.file_kind, options)
            for split in source.splits(self.schema.names, None):
                for batch in source.read(split, self.schema.names):
                    yield plain_batch(batch, self.schema), ONE

    def _check_unchanged(self, path: str, length: int, changed_us: int) -> None:
        if "://" in path:
            return
        try:
            status = os.stat(path)
        except OSError as error:
            raise SourceError(
                f"{path}: {error.strerror}",
                hint="all machines of the cluster must see the files of a stream under the same path",
            ) from error
        if status.st_size != length or status.st_mtime_ns // 1_000_000 != changed_us // 1000:
            raise SourceError(
                f"{path}: the file has changed after Spark saw it",
                hint="write files under a name that ends in .tmp, and rename them when they are whole",
            )

    def _of_messages(self, columns: list[pa.Array]) -> Arrived:
        """The rows of messages, by partition."""
        if self._format is None:
            self._format = format_of(self.spec.options, self.schema, self.notices)
        partitions, offsets, values = columns
        numbers = np.asarray(partitions)
        for number in np.unique(numbers):
            places = np.flatnonzero(numbers == number)
            places = places[np.argsort(np.asarray(offsets)[places], kind="stable")]
            mine = values.take(pa.array(places)).to_pylist()
            first = [int(offset) for offset in np.asarray(offsets)[places]]
            present = [place for place, message in enumerate(mine) if message is not None]

            def where(at: int, number: int = number, first: list[int] = first, present: list[int] = present) -> str:
                return f"{self.spec.name}: partition {number}, offset {first[present[at]]}"

            if present:
                yield self._format.decode([mine[place] for place in present], where), str(number)


def path_of(uri: str) -> str:
    """The path that Spark names, as tsql reads it."""
    for scheme in ("file://", "file:"):
        if uri.startswith(scheme):
            return uri.removeprefix(scheme)
    return uri.replace("s3a://", "s3://", 1) if uri.startswith("s3a://") else uri
