"""Parquet files as a source: one file, a list, a folder or a glob, with hive partitions as columns.

A split is one row group. Only the columns asked for are read; files are skipped by their partition values and row
groups by their statistics. The first file's schema decides (with `union_by_name` the union of all), later files are
cast to it. Where tasks of a cluster read very many files, a split is a part of a file (`sampled`), of which the task
makes row groups (`opened`).

A column chunk is read by our own decoder of pages (`parquet_pages`), or by pyarrow where the decoder does not know its
codec, its encoding or its type (`parquet_forms` has the list). Measured on TPC-H SF1 lineitem (6 M rows, 53 row groups,
Snappy, dictionaries with PLAIN behind them where they grew too large, warm page cache), all of `ParquetSource.read`, in
CPU milliseconds of one thread, the best of 7 interleaved runs on a 2-core machine that was busy with other work:

| columns | by pyarrow | by our decoder |
|---|---|---|
| the 4 of Q6 | 121 | 65 |
| the 7 of Q1 | 173 | 103 |
| l_discount, l_quantity, l_extendedprice, l_tax | 112 | 63 |
| l_extendedprice | 91 | 44 |
| l_returnflag, l_linestatus (as dictionaries) | 36 | 24 |
| l_orderkey | 39 | 29 |
| l_comment | 455 | 272 |

Of the 65 for Q6, Snappy takes 28 (libsnappy: 66), copying from the page cache 10, decoding to arrays 22. What else was
tried:

| choice | columns | without | with |
|---|---|---|---|
| DECIMAL delivered as its stored integers (`parquet_footer`), by pyarrow | 4 decimals | 166 | 123 |
| `read_dictionary` for small dictionaries, by pyarrow | l_returnflag, l_linestatus | 259 | 26 |
| `read_dictionary` for many values (not done) | l_comment | 422 | 1107 |
| looking for bytes that are not ASCII before UTF-8 is checked | l_comment | 372 | 272 |
| `pre_buffer` (not done) | the 7 of Q1 | 172 | 172 |
| memory map (not done: a file cut while it is mapped would end the process) | the 7 of Q1 | 172 | 179 |

Batches of 16 k, 32 k, 64 k and 128 k rows took 182, 183, 172 and 200. `use_threads` is off because the engine's workers
read splits in parallel."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from io import FileIO
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tsql.backends.io import ColumnStatistics, LazyColumns, Split, Statistics, remote
from tsql.backends.io.convert import castable, convert
from tsql.backends.io.files import NO_PARTITIONS, Partitions, expand, open_stored, partitions_of, reading, stored_path
from tsql.backends.io.normalize import TWELVE_BYTES, batch_of, engine_schema, normalize
from tsql.backends.io.parquet.footer import Footer, read_footer
from tsql.backends.io.parquet.forms import ColumnForm, column_form, is_ours
from tsql.backends.io.parquet.lanes import LaneReader
from tsql.backends.io.parquet.pages import ChunkReader, UnknownPages, read_all
from tsql.backends.io.parquet.sampled import ALL_FOOTERS, Sample, Told, holds, open_all, parts_of, sample_of
from tsql.backends.io.parquet.statistics import chunk_bounds, dictionary_values, fold, quick_bounds, small_dictionary
from tsql.backends.io.prune import Bounds, columns_of, may_match
from tsql.backends.io.text import from_stored
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import DECIMAL, Type, common_type
from tsql.kernels.process import forks

if TYPE_CHECKING:
    import pyarrow.parquet as pq

BATCH_ROWS = 65_536
OPEN_FILES = 8
FEW_FILES = 64
"""Of more files, bounds come from pyarrow (`quick_bounds`). Of few, the parsed chunks are needed to read anyway."""
KEPT_FOOTERS = 8
"""So many footers are kept of files that are read in parts. A task may read thousands of files."""
_SIXTEEN_BYTES = pa.binary(16)
OPTIONS = ("hive_partitioning", "hive_types_autocast", "union_by_name")


class ParquetFile:
    """One file: its footer, and the position of each column (names are case-insensitive)."""

    def __init__(self, footer: Footer):
        self.footer = footer
        self._forms: dict[int, ColumnForm | None] = {}
        found = engine_schema(_meant(footer), footer.path)
        self.types: list[Type] = [
            DECIMAL(*footer.unscaled[f.name]) if f.name in footer.unscaled else f.type for f in found
        ]
        self.names = found.names
        self.index = {name.lower(): i for i, name in enumerate(found.names)}
        if len(set(footer.schema.names)) != len(footer.schema.names):
            raise SourceError(f"{footer.path}: two columns of this Parquet file have the same name")

    @cached_property
    def dictionaries(self) -> set[int]:
        """The columns of strings with few values. Only readers ask: it takes half as long as all else of a footer."""
        return {i for i, kind in enumerate(self.types) if kind.is_string and small_dictionary(self.footer, i)}

    def form(self, index: int) -> ColumnForm | None:
        """How our decoder reads a column; None if pyarrow reads it."""
        if index not in self._forms:
            self._forms[index] = column_form(self.footer, index)
        return self._forms[index]


def _meant(footer: Footer) -> pa.Schema:
    """The schema with the meaning of columns that are plain bytes for pyarrow: a UUID, an interval, a timestamp
    (INT96)."""
    fields = list(footer.schema)
    for index, (field, leaf) in enumerate(zip(fields, footer.leaves, strict=True)):
        if field.name in footer.int96:
            fields[index] = field.with_type(pa.timestamp("ns"))
        elif field.type == _SIXTEEN_BYTES and footer.metadata.schema.column(leaf).logical_type.type == "UUID":
            fields[index] = field.with_type(pa.uuid())
        elif field.type == TWELVE_BYTES and footer.metadata.schema.column(leaf).converted_type == "INTERVAL":
            fields[index] = field.with_type(pa.month_day_nano_interval())
    return pa.schema(fields)


class ParquetSource:
    """Reads Parquet files. Thread-safe: each thread keeps its own open files."""

    def __init__(self, patterns: Sequence[str], options: dict[str, Any] | None = None):
        self.patterns = tuple(patterns)
        self.options = dict(options or {})
        self.sizes: dict[str, int] = {}
        self.sample: Sample | None = None
        self.told: Told | None = None
        self.paths, self.partitions = self._listed()
        self.may_lack_columns = bool(self.options.get("union_by_name", False))
        self._files: dict[str, ParquetFile] = {}
        self._passing: dict[str, None] = {}
        self._bounds: dict[tuple[str, str], list[Bounds]] = {}
        self._told_bounds: dict[str, dict[str, Bounds]] = {}
        self._lock = forks.lock()
        self._local = threading.local()
        self.lost: set[str] = set()
        self.schema = self._schema()

    def _listed(self) -> tuple[tuple[str, ...], Partitions]:
        """The files, and what their folders say."""
        paths = expand(self.patterns, "parquet", self.sizes)
        if self.options.get("hive_partitioning") is False:
            return paths, NO_PARTITIONS
        return paths, partitions_of(paths, self.options.get("hive_types_autocast", True))

    def read_in_tasks(self) -> None:
        """Other processes will read the files. Of very many, only a sample is opened here, and splits are parts of
        files."""
        if len(self.paths) <= ALL_FOOTERS or self.sample is not None:
            return
        for path in self.paths:
            if path not in self.sizes and not remote.is_remote(path):
                with reading(path, "a Parquet file"):
                    self.sizes[path] = os.path.getsize(stored_path(path))
        self.sample = sample_of(self.paths, self.sizes)
        self._files = {path: self._files[path] for path in self.sample.paths if path in self._files}

    @property
    def _known_paths(self) -> tuple[str, ...]:
        """The files whose footers are read here."""
        return self.paths if self.sample is None else self.sample.paths

    @property
    def _share(self) -> float:
        """The share of all rows in these files."""
        return 1.0 if self.sample is None else self.sample.share

    @cached_property
    def _rows(self) -> int:
        """The number of rows: estimated if there is a sample."""
        if self.sample is not None and self.told is not None and len(self.told.rows) == len(self.paths):
            return sum(self.told.rows.values())
        found = open_all(self._known_paths, lambda path: self._file(path).footer.metadata.num_rows)
        return sum(found) if self.sample is None else round(sum(found) / self._share)

    @cached_property
    def _bytes(self) -> int:
        """The stored bytes of all files whose sizes are known."""
        return sum(self.sizes.get(path, 0) for path in self.paths)

    def statistics(self) -> Statistics:
        rows = self._rows
        footers = [self._file(path).footer.metadata for path in self._known_paths]
        size = sum(
            metadata.row_group(i).total_byte_size for metadata in footers for i in range(metadata.num_row_groups)
        )
        return Statistics(rows, round(size / self._share), LazyColumns(self.schema.readable, self._column_statistics))

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        used = [name for name in columns_of(filter) if name in self.schema]
        found: list[Split] = []
        for path in self.paths:
            constant = {name: self._constant_bounds(path, name) for name in used if name in self.partitions.types}
            if self.sample is not None:
                constant |= {name: bounds for name in used if (bounds := self._of_log(name).get(path)) is not None}
            if constant and not may_match(filter, constant):
                continue
            if self.sample is not None:
                found += self._parts(path, len(found))
            else:
                found += self._row_groups(path, len(found), columns, filter, constant)
        return found

    def _parts(self, path: str, order: int) -> list[Split]:
        """A file in parts whose rows are estimated. `detail` is their range of bytes, and the size of the file."""
        size = self.sizes.get(path)
        parts = parts_of(size)
        rows: float | None = None if self.told is None else self.told.rows.get(path)
        if rows is None:
            rows = self._rows / len(self.paths) if size is None else self._rows * size / max(1, self._bytes)
        return [
            Split(order + number, path, None, [start, end, size], 0, round(rows / len(parts)), self._constants(path))
            for number, (start, end) in enumerate(parts)
        ]

    def _of_log(self, name: str) -> dict[str, Bounds]:
        """The bounds of a column that is no partition, by file, as far as a log tells them."""
        if self.told is None or name in self.partitions.types:
            return {}
        if name not in self._told_bounds:
            self._told_bounds[name] = self.told.bounds(name)
        return self._told_bounds[name]

    def _constants(self, path: str) -> list[Any] | None:
        """The values of the partition columns in a file."""
        types, values = self.partitions.types, self.partitions.values
        return [values[path][name] for name in types] if types else None

    def opened(self, split: Split, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        """The row groups of a split that is a part of a file, as far as their rows may pass the filter. Another split
        is what it is."""
        if not isinstance(split.detail, list):
            return [split]
        constant = {
            name: self._constant_bounds(split.file, name)
            for name in columns_of(filter)
            if name in self.partitions.types
        }
        if constant and not may_match(filter, constant):
            return []
        file, size = self._passed(split.file), split.detail[2]
        if size is not None and file.footer.size != size:
            raise SourceError(f"{split.file}: the file has changed since the query was planned")
        return self._row_groups(split.file, split.order, columns, filter, constant, split.detail)

    def _row_groups(
        self,
        path: str,
        order: int,
        columns: tuple[str, ...],
        filter: Expr | None,
        constant: dict[str, Bounds],
        part: list[Any] | None = None,
    ) -> list[Split]:
        """The row groups in a file that a filter does not rule out. Those of a part of it share the order of the
        part."""
        self._check_columns(path, columns)
        used = [name for name in columns_of(filter) if name in self.schema and name not in constant]
        footer, constants = self._file(path).footer, self._constants(path)
        found: list[Split] = []
        first = 0
        for number in range(footer.metadata.num_row_groups):
            if part is not None and not holds(part, footer, number):
                continue
            rows = footer.metadata.row_group(number).num_rows
            bounds = constant | {name: self._chunk_bounds(path, name)[number] for name in used}
            if rows and (filter is None or may_match(filter, bounds)):
                place = (order + len(found), 0) if part is None else (order, first)
                found.append(Split(place[0], path, rows, number, place[1], constants=constants))
            first += rows
        return found

    def _passed(self, path: str) -> ParquetFile:
        """A file that is read in parts. The footers of files before it are forgotten."""
        with self._lock:
            self._passing.pop(path, None)
            self._passing[path] = None
            gone = list(self._passing)[:-KEPT_FOOTERS]
            for one in gone:
                del self._passing[one]
                if self.sample is None or one not in self.sample.paths:
                    self._files.pop(one, None)
                self._bounds = {key: found for key, found in self._bounds.items() if key[0] != one}
        return self._file(path)

    def split_bounds(self, split: Split, column: str) -> tuple[int, int] | None:
        """The minimum and maximum of a time column in a split; None if unknown. There may be NULLs in any case."""
        bounds = self.bounds_of_split(split, column)
        known = bounds is not None and isinstance(bounds.low, int) and isinstance(bounds.high, int)
        return (bounds.low, bounds.high) if bounds is not None and known else None

    def bounds_of_split(self, split: Split, column: str) -> Bounds | None:
        """What is known of a column in a split; None for a part of a file that only tasks open."""
        if column in self.partitions.types:
            return self._constant_bounds(split.file, column)
        return None if isinstance(split.detail, list) else self._chunk_bounds(split.file, column)[split.detail]

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        if isinstance(split.detail, list):
            for group in self.opened(split, columns, None):
                yield from self.read(group, columns)
            return
        file = self._file(split.file)
        positions = {
            name: file.index[name.lower()]
            for name in columns
            if name not in self.partitions.types and name.lower() in file.index
        }
        if not positions:
            for start in range(0, split.known_rows, BATCH_ROWS):
                rows = min(BATCH_ROWS, split.known_rows - start)
                yield batch_of([self._constant(split.file, name, rows) for name in columns], columns, rows)
            return
        with reading(split.file, "a Parquet file"):
            for rows, found in self._arrays(file, split, list(positions.values())):
                arrays = [self._column(found, file, positions, name, rows) for name in columns]
                yield batch_of(arrays, columns, rows)

    def _arrays(
        self, file: ParquetFile, split: Split, positions: list[int]
    ) -> Iterator[tuple[int, dict[int, pa.Array]]]:
        """Batches of a row group as (rows, array of each column by position): some columns by our decoder, the others
        by pyarrow, whose batches then determine the rows of each batch."""
        ours: dict[int, ChunkReader] = {}
        for position in positions:
            reader = self._chunk_reader(file, split, position)
            if reader is not None:
                ours[position] = reader
        most = min([BATCH_ROWS, *(reader.batch_rows(BATCH_ROWS) for reader in ours.values())])
        others = [position for position in positions if position not in ours]
        done = 0
        for batch in self._batches(file, split, others, most):
            rows = min(most, split.known_rows - done) if batch is None else batch.num_rows
            done += rows
            if done > split.known_rows:
                break
            found = dict(zip(ours, read_all(list(ours.values()), rows), strict=True))
            for number, position in enumerate(others):
                assert batch is not None, "pyarrow reads the others"
                array = found[position] = batch.column(number)
                _check_values(array, file.types[position])
            yield rows, found
        if done != split.known_rows:
            raise SourceError(
                f"{split.file}: row group {split.detail} holds {done} rows, its footer says {split.known_rows}: "
                "the file is damaged"
            )

    def open_lanes(self) -> LaneReader:
        """A reader for one worker that reads columns of a split on request, for all or some rows."""
        return LaneReader(self)

    def arrow_type(self, name: str) -> pa.DataType:
        """The most likely Arrow type of a column: strings with few values are dictionaries."""
        file, kind = self._file(self.paths[0]), self.schema[name].type
        coded = name not in self.partitions.types and file.index.get(name.lower()) in file.dictionaries
        return (
            pa.dictionary(pa.int32(), kind.to_arrow())
            if coded
            else pa.int64()
            if kind.is_decimal and kind.width <= 18
            else kind.to_arrow()
        )

    def _chunk_reader(self, file: ParquetFile, split: Split, position: int) -> ChunkReader | None:
        """Our reader of a column of a row group; None if pyarrow reads it."""
        if remote.is_remote(split.file):
            return None  # our decoder reads by descriptor
        form, chunk = file.form(position), file.footer.chunks[split.detail][position]
        if form is None or not is_ours(chunk):
            return None
        origin = f"{split.file}: column {file.names[position]} of row group {split.detail + 1}"
        with suppress(UnknownPages):
            return ChunkReader(
                self._descriptor(file),
                file.footer.size,
                chunk,
                form,
                split.known_rows,
                position in file.dictionaries,
                origin,
            )
        return None

    def _whole_column(self, file: ParquetFile, split: Split, position: int) -> pa.ChunkedArray:
        """A column of a row group that pyarrow reads."""
        column = (
            self._reader(file)
            .read_row_group(split.detail, [file.footer.schema.field(position).name], use_threads=False)
            .column(file.footer.schema.field(position).name)
        )
        if len(column) != split.known_rows:
            raise SourceError(
                f"{split.file}: row group {split.detail} holds {len(column)} rows, its footer says "
                f"{split.known_rows}: the file is damaged"
            )
        for array in column.chunks:
            _check_values(array, file.types[position])
        return column

    def _batches(
        self, file: ParquetFile, split: Split, positions: list[int], most: int
    ) -> Iterator[pa.RecordBatch | None]:
        """The batches of the columns that pyarrow reads; None for each batch if it reads nothing."""
        if positions:
            names = [file.footer.schema.field(i).name for i in positions]
            for batch in self._reader(file).iter_batches(most, [split.detail], names, use_threads=False):
                yield batch.select(names)
        else:
            yield from repeat(None, -(-split.known_rows // most))

    def describe(self) -> dict[str, Any]:
        return {"kind": "parquet", "paths": list(self.patterns), "options": dict(self.options)}

    def describe_some(self) -> dict[str, Any]:
        """The description of the first file alone, with the columns and types of all files. A task that reads a few of
        very many files adds their names, and the values that are constant in them (`with_files`): it need not list and
        open the others."""
        from tsql.backends.io.parquet.table import table_options

        columns = [(field.name, field.type, field.name) for field in self.schema if field.type.is_readable]
        first = self._constants(self.paths[0])
        options = table_options(columns, list(self.partitions.types), () if first is None else [first])
        return {
            "kind": "parquet_table",
            "paths": [self.paths[0]],
            "options": {**options, "complete": not self.may_lack_columns},
        }

    def _schema(self) -> Schema:
        found: dict[str, Field] = {}
        paths = self.paths if self.may_lack_columns else self.paths[:1]
        # Of very many files, nobody may want the footers again.
        read = self._file if len(paths) <= ALL_FOOTERS else self._read_file
        for path, columns in zip(paths, open_all(paths, lambda path: _columns(read(path))), strict=True):
            for name, kind in columns:
                known = found.get(name.lower())
                if known is None:
                    found[name.lower()] = Field(name, kind)
                    continue
                merged = _merged(known.type, kind)
                if merged is None:
                    raise SourceError(
                        f"{path}: column {name} is {kind} here and {known.type} in {self.paths[0]}, and "
                        "these have no common type"
                    )
                found[name.lower()] = Field(known.name, merged)
        for name, kind in self.partitions.types.items():
            known = found.get(name.lower())
            found[name.lower()] = Field(name if known is None else known.name, kind)
        # A partition column replaces a stored one of the same name, and keeps the stored one's spelling.
        self.partitions = self._spelled(found)
        return Schema(tuple(found.values()))

    def _spelled(self, fields: dict[str, Field]) -> Any:
        names = {name: fields[name.lower()].name for name in self.partitions.types}
        types = {names[name]: kind for name, kind in self.partitions.types.items()}
        values = {
            path: {names[name]: value for name, value in row.items()} for path, row in self.partitions.values.items()
        }
        return type(self.partitions)(types, values)

    def _file(self, path: str) -> ParquetFile:
        with self._lock:
            found = self._files.get(path)
        if found is None:
            # Not under the lock: footers elsewhere are read side by side.
            found = self._read_file(path)
            with self._lock:
                found = self._files.setdefault(path, found)
        return found

    def _read_file(self, path: str) -> ParquetFile:
        return ParquetFile(read_footer(path))

    def _check_columns(self, path: str, columns: tuple[str, ...]) -> None:
        """Refuse a file that lacks a needed column, or has it in a type that cannot be cast, before anything is
        read."""
        file, first = self._file(path), self.paths[0]
        for name in columns:
            if name in self.partitions.types:
                continue
            position = file.index.get(name.lower())
            if position is None:
                if not self.may_lack_columns:
                    raise SourceError(
                        f"{path}: column {name}, which is in {first}, is missing here",
                        hint="union_by_name => true reads missing columns as NULL",
                    )
            elif not castable(file.types[position], self.schema[name].type):
                raise SourceError(
                    f"{path}: column {name} is {file.types[position]} here and {self.schema[name].type} in {first}"
                )

    def _column(
        self, found: dict[int, pa.Array], file: ParquetFile, positions: dict[str, int], name: str, rows: int
    ) -> pa.Array:
        kind, path = self.schema[name].type, file.footer.path
        if name not in positions:
            return self._constant(path, name, rows)
        position = positions[name]
        source, array = file.types[position], found[position]
        if source.is_decimal and pa.types.is_integer(array.type):
            if source == kind:
                return array if array.type == pa.int64() else array.cast(pa.int64())
            array = _scaled(array, source)
        (array,) = normalize(array, source, lambda: self.lost.add(name)) or (pa.nulls(0, source.to_arrow()),)
        if source == kind:
            return array
        try:
            return convert(array, source, kind)
        except ValueError as error:
            raise SourceError(
                f"{path}: column {name} is {source} here and {kind} in {self.paths[0]}: {error}"
            ) from error

    def _constant(self, path: str, name: str, rows: int) -> pa.Array:
        """A column that is constant in a file: a partition value, or NULL for a column that the file lacks."""
        kind = self.schema[name].type
        value = self.partitions.values[path][name] if name in self.partitions.types else None
        if value is None:
            return pa.nulls(rows, kind.to_arrow())
        return pa.repeat(from_stored([value], kind)[0], rows)

    def _constant_bounds(self, path: str, name: str) -> Bounds:
        value = self.partitions.values[path][name]
        return Bounds(value, value, int(value is None), 1)

    def _chunk_bounds(self, path: str, name: str) -> list[Bounds]:
        """The bounds of a stored column per row group; unknown if the file stores it in another type."""
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
                bounds = chunk_bounds if len(self.paths) <= FEW_FILES else quick_bounds
                found = bounds(file.footer, position, file.types[position])
            self._bounds[key] = found
        return self._bounds[key]

    def _column_statistics(self, name: str) -> ColumnStatistics:
        if name not in self.partitions.types:
            kind = self.schema[name].type
            parts = [part for path in self._known_paths for part in self._chunk_bounds(path, name)]
            known = fold(parts, kind)
            if self.sample is not None:
                # The files that were not opened may hold a NULL.
                nulls = round(known.nulls / self._share) if known.nulls else None
                told = self._of_log(name)
                all_files = fold(told.values(), kind) if len(told) == len(self.paths) else known
                known = replace(known, minimum=all_files.minimum, maximum=all_files.maximum, exact=False, nulls=nulls)
            file = self._file(self.paths[0])
            index = file.index.get(name.lower())
            if index is None:
                return known
            values = dictionary_values(file.footer, index, kind, known, self._rows, parts, self._share)
            return replace(known, distinct=values)
        parts, some = [], self._rows // len(self.paths) + 1
        for path in self.paths:
            value = self.partitions.values[path][name]
            rows = some if self.sample is not None else self._file(path).footer.metadata.num_rows
            parts.append(Bounds(value, value, rows if value is None else 0, rows))
        return fold(parts, self.schema[name].type)

    def _descriptor(self, file: ParquetFile) -> int:
        """This thread's open descriptor of a file. The footer is not read again, so the file must not change."""
        files: dict[str, FileIO] = self._local.__dict__.setdefault("files", {})
        path = file.footer.path
        if path not in files:
            while len(files) >= OPEN_FILES:
                files.pop(next(iter(files))).close()
            files[path] = FileIO(stored_path(path))
        descriptor = files[path].fileno()
        if os.fstat(descriptor).st_size != file.footer.size:
            raise SourceError(f"{path}: the file has changed since it was opened")
        return descriptor

    def _reader(self, file: ParquetFile) -> pq.ParquetFile:
        """This thread's open reader of a file, for columns that pyarrow reads."""
        readers: dict[str, pq.ParquetFile] = self._local.__dict__.setdefault("readers", {})
        path = file.footer.path
        if path not in readers:
            while len(readers) >= OPEN_FILES:
                readers.pop(next(iter(readers))).close(force=True)
            stream, elsewhere = open_stored(path), remote.is_remote(path)
            if elsewhere and stream.size() != file.footer.size:
                raise SourceError(f"{path}: the file has changed since it was opened")
            import pyarrow.parquet as pq

            readers[path] = pq.ParquetFile(
                stream,
                metadata=file.footer.metadata,
                read_dictionary=[file.footer.schema.field(i).name for i in file.dictionaries],
                pre_buffer=elsewhere,
                page_checksum_verification=True,
                arrow_extensions_enabled=False,
            )
        return readers[path]


def _columns(file: ParquetFile) -> list[tuple[str, Type]]:
    return list(zip(file.names, file.types, strict=True))


def _merged(a: Type, b: Type) -> Type | None:
    """The common type of a column that has type a in one file and b in another; unreadable if one of them is."""
    return common_type(a, b) if a.is_readable and b.is_readable else a if not a.is_readable else b


def _check_values(array: pa.Array, kind: Type) -> None:
    """Check what pyarrow leaves unchecked."""
    if kind.is_string:
        _check_strings(array)
    elif pa.types.is_time(array.type):
        array.validate(full=True)


def _check_strings(array: pa.Array) -> None:
    """Raise pa.ArrowInvalid for the results of a damaged page: indices outside of the dictionary, or text that is not
    UTF-8."""
    if not pa.types.is_dictionary(array.type) or array.null_count or array.type.index_type != pa.int32():
        array.validate(full=True)
        return
    array.dictionary.validate(full=True)
    # As unsigned numbers, one pass also finds those below zero.
    indices = np.asarray(array.indices).view(np.uint32)
    if len(indices) and indices.max() >= len(array.dictionary):
        raise pa.ArrowInvalid("a dictionary index is out of bounds")


def _scaled(array: pa.Array, kind: Type) -> pa.Array:
    """Unscaled integers as decimals."""
    return array.cast(pa.decimal128(38, 0)).view(pa.decimal128(38, kind.scale)).cast(kind.to_arrow())
