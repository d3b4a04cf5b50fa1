"""Arrow IPC files and streams (also Feather 2) as a source.

The splits of a file are its record batches, of which only the needed columns are read. A stream can only be read from
its start, so it is one split. Nothing is memory-mapped: if somebody truncates a mapped file, the process dies. Offsets,
dictionary indices and text are checked as they are read: a damaged file is an error, not a crash in a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tsql.backends.io import Split, Statistics
from tsql.backends.io.convert import castable, convert
from tsql.backends.io.files import expand, open_input, open_stored, reading, total_bytes
from tsql.backends.io.normalize import batch_of, engine_schema, normalize
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import HUGEINT

EXPECTED = "an Arrow IPC file or stream"
OPTIONS = ()


class IpcSource:
    """Reads Arrow IPC. The first file's schema applies; later files are cast to it by name."""

    def __init__(self, patterns: Sequence[str], options: dict[str, Any] | None = None):
        self.patterns = tuple(patterns)
        self.options = dict(options or {})
        self.paths = expand(self.patterns, "ipc")
        self._schemas: dict[str, Schema] = {}
        self._are_files: dict[str, bool] = {}
        self._counts: dict[str, list[int] | list[None]] = {}
        self.lost: set[str] = set()
        self.schema = self._schema_of(self.paths[0])

    def statistics(self) -> Statistics:
        splits = self.splits((), None)
        rows = [split.rows for split in splits if split.rows is not None]
        return Statistics(sum(rows) if len(rows) == len(splits) else None, total_bytes(self.paths))

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        found: list[Split] = []
        for path in self.paths:
            self._check_columns(path, columns)
            with reading(path, EXPECTED):
                counts = self._counts_of(path)
            for number, rows in enumerate(counts):
                if rows != 0:
                    found.append(Split(len(found), path, rows, None if rows is None else number))
        return found

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        path = split.file
        schema = self._schema_of(path)
        positions = {name.lower(): i for i, name in enumerate(schema.names)}
        wanted = sorted({positions[name.lower()] for name in columns})
        with reading(path, EXPECTED):
            for batch, there in self._batches(split, wanted):
                arrays = []
                for name in columns:
                    position = positions[name.lower()]
                    arrays.append(self._column(batch.column(there[position]), schema.fields[position].type, name, path))
                yield from _aligned(arrays, columns, batch.num_rows)

    def describe(self) -> dict[str, Any]:
        return {"kind": "ipc", "paths": list(self.patterns), "options": dict(self.options)}

    def _batches(self, split: Split, wanted: list[int]) -> Iterator[tuple[pa.RecordBatch, dict[int, int]]]:
        """Batches with at least the columns at these file positions, and the position of each in the batch."""
        if self._is_file(split.file):
            # Without any column, one column is read to count the rows.
            kept = wanted or self._narrowest(split.file)
            with self._reader(split.file, kept) as reader:
                batch = reader.get_batch(split.detail)
            yield batch, {place: at for at, place in enumerate(kept)}
            return
        with open_input(split.file) as stream, pa.ipc.open_stream(stream) as batches:
            for batch in batches:
                yield batch, {place: place for place in wanted}

    def _is_file(self, path: str) -> bool:
        """Whether this is a file with random access, and not a stream."""
        if path not in self._are_files:
            with open_stored(path) as file:
                self._are_files[path] = file.read(6) == b"ARROW1"
        return self._are_files[path]

    @contextmanager
    def _reader(self, path: str, wanted: Sequence[int] = ()) -> Iterator[pa.ipc.RecordBatchFileReader]:
        """A reader of some columns of a file; of all columns if none is named. The file is closed afterwards: there may
        be thousands."""
        options = pa.ipc.IpcReadOptions(included_fields=list(wanted) or None)
        with open_stored(path) as file:
            yield pa.ipc.open_file(file, options=options)

    def _counts_of(self, path: str) -> list[int] | list[None]:
        """The rows of each batch of a file. The count precedes the data of each batch, so one column is read."""
        if path not in self._counts:
            if self._is_file(path):
                with self._reader(path, self._narrowest(path)) as reader:
                    self._counts[path] = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
            else:
                self._counts[path] = [None]
        return self._counts[path]

    def _narrowest(self, path: str) -> list[int]:
        """The position of the column that takes the fewest bytes to read, judged by its type; empty if there is no
        column."""
        with self._reader(path) as reader:
            arrow = reader.schema
        return sorted(range(len(arrow)), key=lambda place: _bits(arrow.field(place).type))[:1]

    def _schema_of(self, path: str) -> Schema:
        if path not in self._schemas:
            with reading(path, EXPECTED):
                if self._is_file(path):
                    with self._reader(path) as reader:
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
                raise SourceError(
                    f"{path}: column {name} is {kind} here and {self.schema[name].type} in {self.paths[0]}"
                )

    def _column(self, array: pa.Array, source: Any, name: str, path: str) -> list[pa.Array]:
        # A HUGEINT may use all 128 bits, which is more than the 38 digits of Arrow's type.
        array.validate(full=source != HUGEINT or not pa.types.is_decimal128(array.type))
        kind = self.schema[name].type
        parts = normalize(array, source, lambda: self.lost.add(name))
        if source == kind:
            return parts
        try:
            return [convert(part, source, kind) for part in parts]
        except ValueError as error:
            raise SourceError(
                f"{path}: column {name} is {source} here and {kind} in {self.paths[0]}: {error}"
            ) from error


def _aligned(columns: list[list[pa.Array]], names: tuple[str, ...], rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of columns whose chunks may end at different rows (strings past 2 GB)."""
    if all(len(parts) == 1 for parts in columns):
        yield batch_of([parts[0] for parts in columns], names, rows)
        return
    yield from pa.table([pa.chunked_array(parts) for parts in columns], names=list(names)).to_batches()


def _bits(kind: pa.DataType) -> int:
    """The width of a value. Text and nested values count as wide."""
    try:
        return kind.bit_width
    except ValueError:
        return 1 << 16
