"""Results as files: `write` streams batches as CSV, JSON (one object per line), Arrow IPC or Parquet.

Called by `Relation.write` and the command line. One batch is held at a time (Parquet: one row group). Files are written
atomically (`whole_files`), so a failed query leaves no partial file and does not harm the target."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from tsql.backends.io import remote, store_writes
from tsql.backends.io.normalize import unique_names
from tsql.backends.io.value_text import json_string, json_texts, texts
from tsql.backends.io.whole_files import write_whole
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.process.quick_dataclass import dataclass

SLICE_ROWS = 16_384
ROW_GROUP_ROWS = 122_880
_QUOTED = '[",\\n\\r#]|^$'


@dataclass
class WriteOptions:
    """How a file is written. `compression` None means the default of the format, or what the file name says.
    `force_quote` names columns whose values are always quoted; `quote_all` quotes all."""

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    null: str = ""
    force_quote: list[str] | None = None
    quote_all: bool = False
    array: bool = False
    compression: str | None = None
    row_group_rows: int = ROW_GROUP_ROWS


_DEFAULTS = WriteOptions()


def write(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    kind: str,
    target: str | os.PathLike[str] | BinaryIO,
    options: WriteOptions = _DEFAULTS,
) -> int:
    """Write all batches to a path or an open binary file, and return the number of rows. `kind` is csv, json, arrow or
    parquet."""
    if kind not in WRITERS:
        raise SourceError(f"unknown format {kind}", hint=f"formats are {', '.join(WRITERS)}")
    schema = distinct_names(schema if isinstance(schema, pa.Schema) else schema.to_arrow())
    counted = Counted(batches, schema)
    if not isinstance(target, str | os.PathLike):
        WRITERS[kind](counted, schema, target, options)
        return counted.rows
    if remote.is_remote(os.fspath(target)):
        store_writes.write_whole(os.fspath(target), _filling(counted, schema, kind, Path(target), options))
        return counted.rows
    path = Path(target)
    fill = _filling(counted, schema, kind, path, options)
    try:
        write_whole(path, fill)
    except OSError as error:
        raise SourceError(f"cannot write {path}: {error.strerror or error}") from error
    return counted.rows


def write_stored(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, kind: str, target: str, options: WriteOptions
) -> tuple[int, int]:
    """Write all batches to a file of a store that is not at its place yet. Returns the rows and bytes."""
    counted = Counted(batches, schema)
    size = store_writes.write_file(target, _filling(counted, schema, kind, Path(target), options))
    return counted.rows, size


def _filling(
    counted: Counted, schema: pa.Schema, kind: str, path: Path, options: WriteOptions
) -> Callable[[BinaryIO], None]:
    def fill(stream: BinaryIO) -> None:
        packing = _packing(path, kind, options)
        if packing is None:
            WRITERS[kind](counted, schema, stream, options)
            return
        with pa.CompressedOutputStream(stream, packing) as packed:
            WRITERS[kind](counted, schema, packed, options)

    return fill


def _packing(path: Path, kind: str, options: WriteOptions) -> str | None:
    """The compression of a whole text file; Parquet compresses its own pages."""
    if kind not in ("csv", "json"):
        return None
    if options.compression in (None, "auto"):
        return {".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower())
    return None if options.compression in ("none", "uncompressed") else options.compression


def distinct_names(schema: pa.Schema) -> pa.Schema:
    """Column names made unique, as DuckDB's COPY does."""
    return pa.schema([field.with_name(name) for name, field in zip(unique_names(schema.names), schema, strict=True)])


class Counted:
    """Batches cast to the schema, with a count of the rows that went by."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema):
        self.rows = 0
        self._batches, self._schema = batches, schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            if batch.num_rows:
                arrays = [_as(array, field.type) for array, field in zip(batch.columns, self._schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type) and not pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
    return array if array.type == kind else array.cast(kind)


def _slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches small enough for the text of one to fit in 32-bit offsets, for all practical contents."""
    for batch in batches:
        for start in range(0, batch.num_rows, SLICE_ROWS):
            yield batch.slice(start, SLICE_ROWS)


def write_csv(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, stream: BinaryIO, options: WriteOptions = _DEFAULTS
) -> None:
    """A header, then one line per row. NULL is empty (or a given text); a string that could be read as NULL is
    quoted."""
    always = {name.lower() for name in (schema.names if options.quote_all else options.force_quote or ())}
    if options.header:
        stream.write(
            _lines(
                [_quoted(pa.array([name], pa.string()), options, name.lower() in always) for name in schema.names],
                options.delimiter,
            )
        )
    for batch in _slices(batches):
        stream.write(
            _lines(
                [
                    _csv_column(column, options, name.lower() in always)
                    for name, column in zip(schema.names, batch.columns, strict=True)
                ],
                options.delimiter,
            )
        )


def _csv_column(column: pa.Array, options: WriteOptions, always: bool) -> pa.Array:
    found = texts(column)
    plain = (
        pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
        or pa.types.is_temporal(column.type)
        or pa.types.is_decimal(column.type)
    )
    plain = plain and options.delimiter in ",|;\t" and not options.null
    return pc.fill_null(found if plain and not always else _quoted(found, options, always), options.null)


def _quoted(column: pa.Array, options: WriteOptions, always: bool = False) -> pa.Array:
    quote = options.quote
    if options == _DEFAULTS:
        pattern = _QUOTED
    else:
        # A value that reads as NULL is quoted, and so is an empty one if NULL is written as nothing.
        pattern = f"[\\n\\r#{re.escape(quote)}{re.escape(options.delimiter)}]|^{re.escape(options.null)}$"
    special = pc.is_valid(column) if always else pc.match_substring_regex(column, pattern)
    if not pc.any(special).as_py():
        return column
    escaped = pc.replace_substring(column, quote, options.escape + quote)
    return pc.if_else(special, pc.binary_join_element_wise(quote, escaped, quote, ""), column)


def write_json(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, stream: BinaryIO, options: WriteOptions = _DEFAULTS
) -> None:
    """One object per line; with the option `array`, in brackets and separated by commas."""
    if options.array:
        _write_array(batches, schema, stream)
        return
    keys = [("{" if i == 0 else ",") + json_string(name) + ":" for i, name in enumerate(schema.names)]
    for batch in _slices(batches):
        parts: list[Any] = []
        for key, column in zip(keys, batch.columns, strict=True):
            parts += [pa.scalar(key), json_texts(column)]
        stream.write(_lines([*parts, pa.scalar("}" if keys else "{}")], ""))


def _write_array(batches: Iterable[pa.RecordBatch], schema: pa.Schema, stream: BinaryIO) -> None:
    before = b"[\n\t"
    for batch in _slices(batches):
        lines = io.BytesIO()
        write_json([batch], schema, lines)
        for line in lines.getvalue().splitlines():
            stream.write(before + line)
            before = b",\n\t"
    stream.write(b"[\n]\n" if before.startswith(b"[") else b"\n]\n")


def _lines(parts: list[Any], separator: str) -> memoryview | bytes:
    """The parts of each row joined, a line per row: the bytes of one string array."""
    rows = pc.binary_join_element_wise(pc.binary_join_element_wise(*parts, separator), "\n", "")
    if not isinstance(rows, pa.Array):
        return rows.as_py().encode()
    offsets = pa.Array.from_buffers(pa.int32(), len(rows) + 1, [None, rows.buffers()[1]], offset=rows.offset)
    return memoryview(rows.buffers()[2])[offsets[0].as_py() : offsets[len(rows)].as_py()]


def write_arrow(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, stream: BinaryIO, options: WriteOptions = _DEFAULTS
) -> None:
    """An Arrow IPC stream."""
    with pa.ipc.new_stream(stream, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_parquet(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, stream: BinaryIO, options: WriteOptions = _DEFAULTS
) -> None:
    """Parquet with row groups of DuckDB's size; decimals up to 18 digits as integers, which read fastest."""
    # Imported here: with all its file systems, the import takes 30 ms.
    import pyarrow.parquet as pq

    for field in schema:
        if field.type == pa.month_day_nano_interval():
            raise SourceError(
                f"column {field.name} is INTERVAL, which is not written to Parquet", hint="CAST it to VARCHAR"
            )
    size = options.row_group_rows
    compression = {None: "snappy", "uncompressed": "none"}.get(options.compression, options.compression)
    with pq.ParquetWriter(
        stream, schema, compression=compression, store_decimal_as_integer=True, store_schema=False
    ) as writer:
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= size:
                writer.write_table(pa.Table.from_batches(waiting, schema), row_group_size=size)
                waiting, rows = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, schema), row_group_size=size)


WRITERS: dict[str, Callable[[Iterable[pa.RecordBatch], pa.Schema, BinaryIO, WriteOptions], None]] = {
    "csv": write_csv,
    "json": write_json,
    "arrow": write_arrow,
    "parquet": write_parquet,
}
