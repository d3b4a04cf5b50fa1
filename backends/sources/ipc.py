"""Arrow IPC files and streams (also Feather 2) as a source.

A file's splits are its record batches, memory-mapped; a stream can only be read from its start, so it is one split.
Offsets, dictionary indices and text are checked as they are read: a damaged file is an error, not a crash in a kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tsql.backends.sources import Split, Statistics
from tsql.backends.sources.convert import castable, convert
from tsql.backends.sources.files import expand, open_input, reading, stored_path, total_bytes
from tsql.backends.sources.normalize import batch_of, engine_schema, normalize
from tsql.kernels.errors import SourceError
from tsql.kernels.expr import Expr
from tsql.kernels.schema import Schema
from tsql.kernels.types import HUGEINT

EXPECTED = "an Arrow IPC file or stream"
OPTIONS = ()


class IpcSource:
    """Reads Arrow IPC; the first file's schema decides, later files are cast to it by name."""

    def __init__(self, patterns: Sequence[str], options: dict[str, Any] | None = None):
        self.patterns = tuple(patterns)
        self.options = dict(options or {})
        self.paths = expand(self.patterns, "ipc")
        self._schemas: dict[str, Schema] = {}
        self._local = threading.local()
        self.lost: set[str] = set()
        self.schema = self._schema_of(self.paths[0])

    def statistics(self) -> Statistics:
        rows = [split.rows for split in self.splits((), None)]
        return Statistics(None if None in rows else sum(rows), total_bytes(self.paths))

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        found: list[Split] = []
        for path in self.paths:
            self._check_columns(path, columns)
            with reading(path, EXPECTED):
                reader = self._reader(path)
                counts = [None] if reader is None else [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
            for number, rows in enumerate(counts):
                if rows != 0:
                    found.append(Split(len(found), path, rows, None if rows is None else number))
        return found

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        path = split.path
        schema = self._schema_of(path)
        positions = {name.lower(): i for i, name in enumerate(schema.names)}
        with reading(path, EXPECTED):
            for batch in self._batches(split):
                arrays = [self._column(batch.column(positions[name.lower()]), schema.fields[positions[name.lower()]].type, name, path) for name in columns]
                yield from _aligned(arrays, columns, batch.num_rows)

    def describe(self) -> dict[str, Any]:
        return {"kind": "ipc", "paths": list(self.patterns), "options": dict(self.options)}

    def _batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        reader = self._reader(split.path)
        if reader is not None:
            yield reader.get_batch(split.detail)
            return
        with open_input(split.path) as stream, pa.ipc.open_stream(stream) as batches:
            yield from batches

    def _reader(self, path: str) -> pa.ipc.RecordBatchFileReader | None:
        """This thread's reader of a file with random access; None for a stream."""
        readers = self._local.__dict__.setdefault("readers", {})
        if path not in readers:
            stored = stored_path(path)
            with open(stored, "rb") as file:
                is_file = file.read(6) == b"ARROW1"
            readers[path] = pa.ipc.open_file(pa.memory_map(stored)) if is_file else None
        return readers[path]

    def _schema_of(self, path: str) -> Schema:
        if path not in self._schemas:
            with reading(path, EXPECTED):
                reader = self._reader(path)
                if reader is not None:
                    arrow = reader.schema
                else:
                    with open_input(path) as stream, pa.ipc.open_stream(stream) as batches:
                        arrow = batches.schema
            self._schemas[path] = engine_schema(arrow, path)
        return self._schemas[path]

    def _check_columns(self, path: str, columns: tuple[str, ...]) -> None:
        types = {field.name.lower(): field.type for field in self._schema_of(path)}
        for name in columns:
            kind = types.get(name.lower())
            if kind is None:
                raise SourceError(f"{path}: column {name}, which is in {self.paths[0]}, is missing here")
            if not castable(kind, self.schema[name].type):
                raise SourceError(f"{path}: column {name} is {kind} here and {self.schema[name].type} in {self.paths[0]}")

    def _column(self, array: pa.Array, source: Any, name: str, path: str) -> list[pa.Array]:
        # All 128 bits of a HUGEINT may be used, which is more than the 38 digits that Arrow's type says.
        array.validate(full=source != HUGEINT or not pa.types.is_decimal128(array.type))
        kind = self.schema[name].type
        parts = normalize(array, source, lambda: self.lost.add(name))
        if source == kind:
            return parts
        try:
            return [convert(part, source, kind) for part in parts]
        except ValueError as error:
            raise SourceError(f"{path}: column {name} is {source} here and {kind} in {self.paths[0]}: {error}") from error


def _aligned(columns: list[list[pa.Array]], names: tuple[str, ...], rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of columns whose chunks may be cut at different rows (strings past 2 GB)."""
    if all(len(parts) == 1 for parts in columns):
        yield batch_of([parts[0] for parts in columns], names, rows)
        return
    yield from pa.table([pa.chunked_array(parts) for parts in columns], names=list(names)).to_batches()
