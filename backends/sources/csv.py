"""CSV files as a source: detection by `csv_sniff`, reading by pyarrow's streaming reader in bounded memory.

A file is one split. Values are first converted by pyarrow. Where it meets text that its grammar does not know, the file
is read on from the same row with all columns as text, which is converted value by value as DuckDB casts it
(`csv_values`): slower, and exact about the line and the column of a value that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tsql.backends.sources import Split, Statistics
from tsql.backends.sources import options as opt
from tsql.backends.sources.csv_lines import Numbered, PlainCsv, plain_stream, shorter, without_comments
from tsql.backends.sources.csv_sniff import CsvFormat, Dialect, decimal_separator, numbered_rows, sniff
from tsql.backends.sources.csv_values import convert_column, reader, shown
from tsql.backends.sources.files import expand, open_input, reading, total_bytes
from tsql.backends.sources.normalize import batch_of
from tsql.backends.sources.text import TextFormat
from tsql.kernels.errors import SourceError
from tsql.kernels.expr import Expr
from tsql.kernels.schema import Field, Schema
from tsql.kernels.types import VARCHAR, Type, common_type

OPTIONS = (
    "header", "delim", "sep", "delimiter", "quote", "escape", "nullstr", "columns", "types", "dtypes", "names", "all_varchar", "skip",
    "ignore_errors", "dateformat", "timestampformat", "compression", "sample_size", "union_by_name", "auto_detect", "comment", "null_padding",
    "max_line_size", "maximum_line_size", "decimal_separator", "strict_mode", "column_names", "column_types",
)  # fmt: skip
ALIASES = {"column_names": "names", "column_types": "types", "maximum_line_size": "max_line_size"}
BLOCK_BYTES = 1 << 21
LARGEST_BLOCK_BYTES = 1 << 30
_TRUE = ["true", "True", "TRUE", "t", "T", "yes", "Yes", "YES"]
_FALSE = ["false", "False", "FALSE", "f", "F", "no", "No", "NO"]


class CsvSource:
    """Reads CSV files. The first file's columns decide; later ones must have the same (or `union_by_name`)."""

    def __init__(self, patterns: Sequence[str], options: dict[str, Any] | None = None):
        self.patterns = tuple(patterns)
        self.options = {ALIASES.get(name, name): value for name, value in (options or {}).items()}
        self.paths = expand(self.patterns, "csv")
        self.padded = bool(opt.flag(self.options, "null_padding"))
        self.most_bytes = opt.count(self.options, "max_line_size", 0)
        self.decimal = decimal_separator(self.options)
        self.ignore_errors = bool(opt.flag(self.options, "ignore_errors"))
        self.nulls = opt.texts(self.options, "nullstr") or [""]
        self.lost: set[str] = set()
        self._formats: dict[str, CsvFormat] = {self.paths[0]: sniff(self.paths[0], self.options)}
        self.schema = self._schema()

    def statistics(self) -> Statistics:
        return Statistics(None, total_bytes(self.paths))

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        return [Split(order, path, None, None) for order, path in enumerate(self.paths)]

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        format = self._format(split.path)
        if format.empty:
            return
        positions = _positions(format)
        present = [name for name in columns if name.lower() in positions]
        with reading(split.path, "a CSV file"):
            for batch in _Reader(self, split.path, format, tuple(present)).batches():
                arrays = {name: batch.column(i) for i, name in enumerate(present)}
                missing = (pa.nulls(batch.num_rows, self.schema[name].type.to_arrow()) for name in columns if name not in arrays)
                shaped = [arrays[name] if name in arrays else next(missing) for name in columns]
                yield batch_of(shaped, columns, batch.num_rows)

    def describe(self) -> dict[str, Any]:
        return {"kind": "csv", "paths": list(self.patterns), "options": opt.plain(self.options)}

    def _schema(self) -> Schema:
        found: dict[str, Field] = {}
        guessed: set[str] = set()
        for path in self.paths if self._union else self.paths[:1]:
            format = self._format(path)
            for name, kind in zip(format.names, format.types, strict=True):
                key, known = name.lower(), found.get(name.lower())
                if known is None:
                    found[key] = Field(name, kind)
                    guessed |= {key} if format.empty else set()
                elif not format.empty:
                    # A file without rows says nothing of types: the first file with rows decides.
                    found[key] = Field(known.name, kind if key in guessed else common_type(known.type, kind) or VARCHAR)
                    guessed.discard(key)
        return Schema(tuple(found.values()))

    @property
    def _union(self) -> bool:
        return bool(opt.flag(self.options, "union_by_name"))

    def _format(self, path: str) -> CsvFormat:
        """The format of a file: the first one's, with the columns in this file's own order."""
        if path not in self._formats:
            found, first = sniff(path, self.options), self._formats[self.paths[0]]
            if not self._union and not found.empty and not first.empty:
                found = self._as_first(path, found, first)
            self._formats[path] = found
        return self._formats[path]

    def _as_first(self, path: str, found: CsvFormat, first: CsvFormat) -> CsvFormat:
        if len(found.names) != len(first.names):
            raise SourceError(f"{path}: has {len(found.names)} columns, {self.paths[0]} has {len(first.names)}", hint="union_by_name => true reads missing columns as NULL")
        names = {name.lower() for name in first.names}
        if found.header and first.header and {name.lower() for name in found.names} == names:
            return found
        if found.header and first.header and "columns" not in self.options and "names" not in self.options:
            missing = next(name for name in first.names if name.lower() not in {other.lower() for other in found.names})
            raise SourceError(f"{path}: column {missing}, which is in {self.paths[0]}, is missing here", hint="union_by_name => true reads missing columns as NULL")
        return CsvFormat(found.dialect, found.skip, found.header, first.names, first.types, found.formats, found.empty)


def _positions(format: CsvFormat) -> dict[str, int]:
    return {name.lower(): i for i, name in enumerate(format.names)}


class _Reader:
    """One pass over one file: rows in batches of the needed columns, by pyarrow's conversion first, by ours from the
    first batch that it cannot convert."""

    def __init__(self, source: CsvSource, path: str, format: CsvFormat, columns: tuple[str, ...]):
        self.source, self.path, self.format, self.columns = source, path, format, columns
        positions = _positions(format)
        self.indexes = [positions[name.lower()] for name in columns]
        self.types = [source.schema[name].type for name in columns]
        self.done_rows = 0
        self.rewritten = False
        self.block_bytes = BLOCK_BYTES

    def batches(self) -> Iterator[pa.RecordBatch]:
        careful = self.source.ignore_errors
        while True:
            try:
                for batch in self._stream(careful):
                    if batch.num_rows:
                        yield batch
                return
            except pa.ArrowInvalid as error:
                message = str(error)
                if "straddling" in message or "out of sync" in message or "block size" in message.lower():
                    if self.block_bytes >= LARGEST_BLOCK_BYTES:
                        raise SourceError(f"{self.path}: a row is longer than {LARGEST_BLOCK_BYTES} bytes (or a quote is never closed)") from None
                    self.block_bytes = min(16 * self.block_bytes, LARGEST_BLOCK_BYTES)
                elif "Expected" in message and "columns" in message:
                    raise self._wrong_width() from None
                elif not careful:
                    careful = True
                else:
                    raise

    def _stream(self, careful: bool) -> Iterator[pa.RecordBatch]:
        skip = self.done_rows
        with self._input() as stream:
            reader = self._open(stream, careful)
            if reader is None:
                return
            seen = 0
            for batch in reader:
                start, seen = seen, seen + batch.num_rows
                if seen <= skip:
                    continue
                if start < skip:
                    batch = batch.slice(skip - start)
                converted = self._convert(batch, careful)
                self.done_rows = seen
                yield converted

    def _input(self) -> pa.NativeFile:
        """The bytes of the file; made plain first where pyarrow would not take them as they are."""
        stream = open_input(self.path, opt.text(self.source.options, "compression"))
        source, dialect = self.source, self.format.dialect
        if not (dialect.comment or source.padded or source.most_bytes or (dialect.loose and dialect.quote)):
            return stream

        def clean(lines: Iterable[Numbered]) -> Iterator[Numbered]:
            kept = without_comments(lines, dialect.comment, dialect.quote)
            return shorter(kept, source.most_bytes, self.path, source.ignore_errors) if source.most_bytes else iter(kept)

        width = len(self.format.names) if source.padded else None
        self.rewritten = True
        return plain_stream(PlainCsv(stream, dialect.rows, clean, dialect.delimiter, width, source.nulls[0]))

    def _open(self, stream: pa.NativeFile, careful: bool) -> pa.csv.CSVStreamingReader | None:
        format = self.format
        names = [f"c{i}" for i in range(len(format.names))]
        every = careful and self.source.ignore_errors
        used = range(len(names)) if every else dict.fromkeys(self.indexes) or [0]
        types = {names[i]: pa.binary() if careful else self._arrow_type(i) for i in used}
        dialect = Dialect(format.dialect.delimiter, '"', '"') if self.rewritten else format.dialect
        parse = pa.csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote or False,
            double_quote=dialect.escape in ("", dialect.quote),
            escape_char=False if dialect.escape in ("", dialect.quote) else dialect.escape,
            newlines_in_values=bool(dialect.quote),
            ignore_empty_lines=len(names) > 1,
            invalid_row_handler=(lambda row: "skip") if self.source.ignore_errors else None,
        )
        convert = pa.csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=self.source.nulls,
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
            true_values=_TRUE,
            false_values=_FALSE,
            decimal_point=self.source.decimal,
        )
        read = pa.csv.ReadOptions(use_threads=False, block_size=self.block_bytes, column_names=names, skip_rows=format.skip, skip_rows_after_names=int(format.header))
        try:
            return pa.csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):
                return None
            raise

    def _arrow_type(self, index: int) -> pa.DataType:
        """What pyarrow converts by itself: all but types whose text it reads differently."""
        kind, format = self._kind(index), self.format.formats[index]
        if kind.name in ("DATE", "TIMESTAMP", "TIMESTAMPTZ") and (format.order != "ymd" or format.strptime is not None):
            return pa.string()
        return kind.to_arrow()

    def _kind(self, index: int) -> Type:
        name = self.format.names[index]
        return self.source.schema[name].type if name in self.source.schema else self.format.types[index]

    def _convert(self, batch: pa.RecordBatch, careful: bool) -> pa.RecordBatch:
        arrays, failed, names = {}, None, dict(zip(self.indexes, self.columns, strict=True))
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            index = int(name[1:])
            kind, format = self._kind(index), self.format.formats[index]
            if careful or array.type != kind.to_arrow():
                array, wrong = convert_column(array, kind, format, partial(self.source.lost.add, names.get(index)))
                if wrong is not None:
                    if not self.source.ignore_errors:
                        raise self._bad_value(index, kind, format)
                    failed = wrong if failed is None else pc.or_(failed, wrong)
            arrays[index] = array
        shaped = batch_of([arrays[i] for i in self.indexes], tuple(self.columns), batch.num_rows)
        return shaped if failed is None else shaped.filter(pc.invert(failed))

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        rows = numbered_rows(self.path, self.format.dialect, self.source.options)
        if self.format.header:
            next(rows, None)
        return rows

    def _wrong_width(self) -> SourceError:
        width = len(self.format.names)
        hint = "ignore_errors => true skips such rows, skip => n skips lines at the start"
        for line, row in self._rows():
            if len(row) != width and (row or width == 1):
                return SourceError(f"{self.path}: line {line}: expected {width} fields, found {len(row)}", hint=hint)
        return SourceError(f"{self.path}: a row does not have {width} fields", hint=hint)

    def _bad_value(self, index: int, kind: Type, format: TextFormat) -> SourceError:
        """The error for the first value of a column that does not convert, with its line."""
        name, read, nulls = self.format.names[index], reader(kind, format), set(self.source.nulls)
        for line, row in self._rows():
            if index < len(row) and row[index] not in nulls:
                if "\ufffd" in row[index] and not _is_utf8(self.path, line, self.source.options):
                    return SourceError(f"{self.path}: line {line}: column {name} is not valid UTF-8")
                if read(row[index]) is None:
                    return SourceError(f"{self.path}: line {line}: column {name}: could not convert '{shown(row[index])}' to {kind}", hint=f"types => {{'{name}': 'VARCHAR'}} reads the column as text")
        return SourceError(f"{self.path}: column {name} holds a value that is no {kind}")


def _is_utf8(path: str, line: int, options: dict[str, Any]) -> bool:
    with open_input(path, opt.text(options, "compression")) as stream:
        found = b""
        for number, line_bytes in enumerate(_lines(stream), 1):
            found = line_bytes
            if number >= line:
                break
    try:
        found.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _lines(stream: pa.NativeFile) -> Iterator[bytes]:
    rest = b""
    while part := stream.read(1 << 20):
        *whole, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n")
        yield from whole
    yield rest
