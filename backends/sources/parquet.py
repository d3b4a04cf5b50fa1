"""Parquet files as a source: one file, a list, a folder or a glob, with hive partitions as columns.

A split is one row group. Only the columns asked for are read; files are skipped by their partition values and row groups
by their statistics. The first file's schema decides (with `union_by_name` the union of all), later files are cast to it.

How a row group is read was measured on TPC-H SF1 lineitem (6 M rows, 53 row groups, Snappy, warm page cache). The times
are CPU milliseconds of one thread, medians of 7 interleaved runs on a 2-core machine that was busy with other work, so
differences below some 10 % say nothing:

| choice | columns | without | with |
|---|---|---|---|
| DECIMAL delivered as its stored integers (`parquet_footer`) | 4 decimals | 166 | 123 |
| `read_dictionary` for small dictionaries | l_returnflag, l_linestatus | 259 | 26 |
| `read_dictionary` for many values (not done) | l_comment | 422 | 1107 |
| check of indices and UTF-8, so that a damaged page is an error | the 7 of Q1 | 172 | 193 |
| the same | l_comment | 422 | 498 |
| `pre_buffer` (not done) | the 7 of Q1 | 172 | 172 |
| memory map (not done: a file cut while it is mapped would end the process) | the 7 of Q1 | 172 | 179 |
| verifying page checksums (lineitem has none) | the 7 of Q1 | 172 | 171 |

Batches of 16 k, 32 k, 64 k and 128 k rows took 182, 183, 172 and 200. All of `ParquetSource.read` took 215 for Q1's columns.
`use_threads` is off because the engine's workers read splits in parallel.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tsql.backends.sources import ColumnStatistics, LazyColumns, Split, Statistics
from tsql.backends.sources.convert import castable, convert
from tsql.backends.sources.files import NO_PARTITIONS, expand, partitions_of, reading
from tsql.backends.sources.normalize import batch_of, engine_schema, normalize
from tsql.backends.sources.parquet_footer import Footer, read_footer
from tsql.backends.sources.parquet_statistics import chunk_bounds, dictionary_values, fold, small_dictionary
from tsql.backends.sources.prune import Bounds, columns_of, may_match
from tsql.backends.sources.text import from_stored
from tsql.kernels.errors import SourceError
from tsql.kernels.expr import Expr
from tsql.kernels.schema import Field, Schema
from tsql.kernels.types import DECIMAL, Type, common_type

BATCH_ROWS = 65_536
OPEN_FILES = 8
OPTIONS = ("hive_partitioning", "hive_types_autocast", "union_by_name")


class _File:
    """One file: its footer, and where each of its columns stands (names are found without regard to case)."""

    def __init__(self, footer: Footer):
        self.footer = footer
        found = engine_schema(footer.schema, footer.path)
        self.types: list[Type] = [DECIMAL(*footer.unscaled[f.name]) if f.name in footer.unscaled else f.type for f in found]
        self.names = found.names
        self.index = {name.lower(): i for i, name in enumerate(found.names)}
        self.dictionaries = [footer.schema.field(i).name for i, kind in enumerate(self.types) if kind.is_string and small_dictionary(footer, i)]
        if len(set(footer.schema.names)) != len(footer.schema.names):
            raise SourceError(f"{footer.path}: two columns of this Parquet file have the same name")


class ParquetSource:
    """Reads Parquet files; safe to use from many threads, each of which keeps its own open files."""

    def __init__(self, patterns: Sequence[str], options: dict[str, Any] | None = None):
        self.patterns = tuple(patterns)
        self.options = dict(options or {})
        self.paths = expand(self.patterns, "parquet")
        hive = self.options.get("hive_partitioning")
        self.partitions = NO_PARTITIONS if hive is False else partitions_of(self.paths, self.options.get("hive_types_autocast", True))
        self._files: dict[str, _File] = {}
        self._bounds: dict[tuple[str, str], list[Bounds]] = {}
        self._lock = threading.Lock()
        self._local = threading.local()
        self.schema = self._schema()

    def statistics(self) -> Statistics:
        footers = [self._file(path).footer.metadata for path in self.paths]
        rows = sum(metadata.num_rows for metadata in footers)
        size = sum(metadata.row_group(i).total_byte_size for metadata in footers for i in range(metadata.num_row_groups))
        return Statistics(rows, size, LazyColumns(self.schema.names, self._column_statistics))

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        used = [name for name in columns_of(filter) if name in self.schema]
        found: list[Split] = []
        for path in self.paths:
            constant = {name: self._constant_bounds(path, name) for name in used if name in self.partitions.types}
            if constant and not may_match(filter, constant):
                continue
            self._check_columns(path, columns)
            metadata = self._file(path).footer.metadata
            for number in range(metadata.num_row_groups):
                rows = metadata.row_group(number).num_rows
                bounds = constant | {name: self._chunk_bounds(path, name)[number] for name in used if name not in constant}
                if rows and (filter is None or may_match(filter, bounds)):
                    found.append(Split(len(found), path, rows, number))
        return found

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        file = self._file(split.path)
        positions = {name: file.index[name.lower()] for name in columns if name not in self.partitions.types and name.lower() in file.index}
        if not positions:
            for start in range(0, split.rows, BATCH_ROWS):
                rows = min(BATCH_ROWS, split.rows - start)
                yield batch_of([self._constant(split.path, name, rows) for name in columns], columns, rows)
            return
        stored = [file.footer.schema.field(i).name for i in positions.values()]
        rows = 0
        with reading(split.path, "a Parquet file"):
            for batch in self._reader(file).iter_batches(BATCH_ROWS, [split.detail], stored, use_threads=False):
                rows += batch.num_rows
                arrays = [self._column(batch, file, positions, name) for name in columns]
                yield batch_of(arrays, columns, batch.num_rows)
        if rows != split.rows:
            raise SourceError(f"{split.path}: row group {split.detail} holds {rows} rows, its footer says {split.rows}: the file is damaged")

    def describe(self) -> dict[str, Any]:
        return {"kind": "parquet", "paths": list(self.patterns), "options": dict(self.options)}

    def _schema(self) -> Schema:
        union = self.options.get("union_by_name", False)
        found: dict[str, Field] = {}
        for path in self.paths if union else self.paths[:1]:
            file = self._file(path)
            for name, kind in zip(file.names, file.types, strict=True):
                known = found.get(name.lower())
                merged = kind if known is None else common_type(known.type, kind)
                if merged is None:
                    raise SourceError(f"{path}: column {name} is {kind} here and {known.type} in {self.paths[0]}, and these have no common type")
                found[name.lower()] = Field(name if known is None else known.name, merged)
        for name, kind in self.partitions.types.items():
            known = found.get(name.lower())
            found[name.lower()] = Field(name if known is None else known.name, kind)
        # A partition column replaces a stored one of the same name, and is known under the stored one's spelling.
        self.partitions = self._spelled(found)
        return Schema(tuple(found.values()))

    def _spelled(self, fields: dict[str, Field]) -> Any:
        names = {name: fields[name.lower()].name for name in self.partitions.types}
        types = {names[name]: kind for name, kind in self.partitions.types.items()}
        values = {path: {names[name]: value for name, value in row.items()} for path, row in self.partitions.values.items()}
        return type(self.partitions)(types, values)

    def _file(self, path: str) -> _File:
        with self._lock:
            if path not in self._files:
                self._files[path] = _File(read_footer(path))
            return self._files[path]

    def _check_columns(self, path: str, columns: tuple[str, ...]) -> None:
        """Refuse a file that lacks a needed column or has it in a type that cannot be cast, before anything is read."""
        file, first = self._file(path), self.paths[0]
        for name in columns:
            if name in self.partitions.types:
                continue
            position = file.index.get(name.lower())
            if position is None:
                if not self.options.get("union_by_name", False):
                    raise SourceError(f"{path}: column {name}, which is in {first}, is missing here", hint="union_by_name => true reads missing columns as NULL")
            elif not castable(file.types[position], self.schema[name].type):
                raise SourceError(f"{path}: column {name} is {file.types[position]} here and {self.schema[name].type} in {first}")

    def _column(self, batch: pa.RecordBatch, file: _File, positions: dict[str, int], name: str) -> pa.Array:
        kind, path = self.schema[name].type, file.footer.path
        if name not in positions:
            return self._constant(path, name, batch.num_rows)
        position = positions[name]
        source = file.types[position]
        array = batch.column(file.footer.schema.field(position).name)
        unscaled = file.footer.unscaled.get(file.names[position])
        if unscaled is not None:
            if source == kind:
                return array if array.type == pa.int64() else array.cast(pa.int64())
            array = _scaled(array, source)
        elif source.is_string:
            _check_strings(array)
        (array,) = normalize(array, source) or (pa.nulls(0, source.to_arrow()),)
        if source == kind:
            return array
        try:
            return convert(array, source, kind)
        except ValueError as error:
            raise SourceError(f"{path}: column {name} is {source} here and {kind} in {self.paths[0]}: {error}") from error

    def _constant(self, path: str, name: str, rows: int) -> pa.Array:
        """A column that is the same for a whole file: a partition value, or NULL for a column that the file lacks."""
        kind = self.schema[name].type
        value = self.partitions.values[path][name] if name in self.partitions.types else None
        if value is None:
            return pa.nulls(rows, kind.to_arrow())
        return pa.repeat(from_stored([value], kind)[0], rows)

    def _constant_bounds(self, path: str, name: str) -> Bounds:
        value = self.partitions.values[path][name]
        return Bounds(value, value, int(value is None), 1)

    def _chunk_bounds(self, path: str, name: str) -> list[Bounds]:
        """The bounds of a stored column per row group; unknown where the file stores it in another type."""
        key = (path, name)
        if key not in self._bounds:
            file = self._file(path)
            groups = [file.footer.metadata.row_group(i).num_rows for i in range(file.footer.metadata.num_row_groups)]
            position = file.index.get(name.lower())
            if position is None:
                found = [Bounds(None, None, rows, rows) for rows in groups]
            elif file.types[position] != self.schema[name].type:
                found = [Bounds(None, None, None, rows) for rows in groups]
            else:
                found = chunk_bounds(file.footer, position, file.types[position])
            self._bounds[key] = found
        return self._bounds[key]

    def _column_statistics(self, name: str) -> ColumnStatistics:
        if name not in self.partitions.types:
            kind = self.schema[name].type
            known = fold((part for path in self.paths for part in self._chunk_bounds(path, name)), kind)
            file = self._file(self.paths[0])
            index = file.index.get(name.lower())
            return known if index is None else replace(known, distinct=dictionary_values(file.footer, index, kind))
        parts = []
        for path in self.paths:
            value, rows = self.partitions.values[path][name], self._file(path).footer.metadata.num_rows
            parts.append(Bounds(value, value, rows if value is None else 0, rows))
        return fold(parts, self.schema[name].type)

    def _reader(self, file: _File) -> pq.ParquetFile:
        """This thread's open reader of a file; the footer is not read again, so the file must be as it was."""
        readers: dict[str, pq.ParquetFile] = self._local.__dict__.setdefault("readers", {})
        path = file.footer.path
        if path not in readers:
            while len(readers) >= OPEN_FILES:
                readers.pop(next(iter(readers))).close(force=True)
            stream = pa.OSFile(path, "rb")
            if stream.size() != file.footer.size:
                raise SourceError(f"{path}: the file has changed since it was opened")
            readers[path] = pq.ParquetFile(
                stream,
                metadata=file.footer.metadata,
                read_dictionary=file.dictionaries,
                pre_buffer=False,
                coerce_int96_timestamp_unit="us",
                page_checksum_verification=True,
                arrow_extensions_enabled=False,
            )
        return readers[path]


def _check_strings(array: pa.Array) -> None:
    """Raise pa.ArrowInvalid for what a damaged page may give: indices outside of the dictionary, text that is not UTF-8."""
    if not pa.types.is_dictionary(array.type) or array.null_count or array.type.index_type != pa.int32():
        array.validate(full=True)
        return
    array.dictionary.validate(full=True)
    # As unsigned numbers, so that one pass finds those below zero too.
    indices = np.asarray(array.indices).view(np.uint32)
    if len(indices) and indices.max() >= len(array.dictionary):
        raise pa.ArrowInvalid("a dictionary index is out of bounds")


def _scaled(array: pa.Array, kind: Type) -> pa.Array:
    """Unscaled integers as decimals."""
    return array.cast(pa.decimal128(38, 0)).view(pa.decimal128(38, kind.scale)).cast(kind.to_arrow())
