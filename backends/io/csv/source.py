"""CSV files as a source: detection by `csv_sniff`, reading by pyarrow's streaming reader in bounded memory.

A file is one split. pyarrow converts values first. If it meets text outside its grammar, reading continues from the
same row with all columns as text, converted value by value like DuckDB's casts (`csv_values`). This is slower, but
reports the exact line and column of a bad value.

A file never ends early without an error. A row longer than a block is read in larger blocks, up to `max_line_size`. A
quote that is open at the end of the file swallows the `EndMark` after it, which is detected."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.csv

from tsql.backends.io import Split, Statistics
from tsql.backends.io import options as opt
from tsql.backends.io.csv.dialect import Dialect
from tsql.backends.io.csv.input import CsvBytes, EndMark, in_use, longest_row, too_long
from tsql.backends.io.csv.lines import Numbered, PlainCsv, RawRow, RawRows, plain_stream, shorter, without_comments
from tsql.backends.io.csv.rejects import CsvRejects, rejects_of
from tsql.backends.io.csv.sniff import CsvFormat, number_format, sniff
from tsql.backends.io.csv.values import FALSE_WORDS, TRUE_WORDS, convert_column, reader, shown
from tsql.backends.io.files import expand, reading, stored_path, total_bytes
from tsql.backends.io.normalize import batch_of
from tsql.backends.io.text import TextFormat
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import VARCHAR, Type, common_type
from tsql.kernels.process.arrow_compute import pc

OPTIONS = (
    "header", "delim", "sep", "delimiter", "quote", "escape", "nullstr", "columns", "types", "dtypes", "names",
    "all_varchar", "skip", "ignore_errors", "dateformat", "timestampformat", "compression", "sample_size",
    "union_by_name", "auto_detect", "comment", "null_padding", "max_line_size", "maximum_line_size",
    "decimal_separator", "strict_mode", "column_names", "column_types", "encoding", "thousands", "normalize_names",
    "store_rejects", "rejects_table", "rejects_scan", "rejects_limit",
)  # fmt: skip
ALIASES = {"column_names": "names", "column_types": "types", "maximum_line_size": "max_line_size"}
BLOCK_BYTES = 1 << 21
LARGEST_BLOCK_BYTES = (1 << 31) - 1


class CsvSource:
    """Reads CSV files. The first file's columns apply; later files must have the same (or `union_by_name`)."""

    def __init__(self, patterns: Sequence[str], options: dict[str, Any] | None = None):
        self.patterns = tuple(patterns)
        self.options = {ALIASES.get(name, name): value for name, value in (options or {}).items()}
        self.paths = expand(self.patterns, "csv")
        self.padded = bool(opt.flag(self.options, "null_padding"))
        self.longest = longest_row(self.options)
        self.numbers = number_format(self.options)
        self.rejects: CsvRejects | None = rejects_of(self.options)
        self.ignore_errors = bool(opt.flag(self.options, "ignore_errors")) or self.rejects is not None
        self.nulls = opt.texts(self.options, "nullstr") or [""]
        self.lost: set[str] = set()
        self._formats: dict[str, CsvFormat] = {self.paths[0]: sniff(self.paths[0], self.options)}
        self.schema = self._schema()

    def statistics(self) -> Statistics:
        return Statistics(None, total_bytes(self.paths))

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        return [Split(order, path, None, None) for order, path in enumerate(self.paths)]

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        format = self._format(split.file)
        if format.empty and not format.header:
            return  # a header may have got rows since it was looked at
        positions = _positions(format)
        present = [name for name in columns if name.lower() in positions]
        with reading(split.file, "a CSV file"):
            for batch in _Reader(self, split.file, format, tuple(present)).batches():
                arrays = {name: batch.column(i) for i, name in enumerate(present)}
                missing = (
                    pa.nulls(batch.num_rows, self.schema[name].type.to_arrow())
                    for name in columns
                    if name not in arrays
                )
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
                    # A file without rows has no types: the first file with rows decides.
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
            raise SourceError(
                f"{path}: has {len(found.names)} columns, {self.paths[0]} has {len(first.names)}",
                hint="union_by_name => true reads missing columns as NULL",
            )
        names = {name.lower() for name in first.names}
        if found.header and first.header and {name.lower() for name in found.names} == names:
            return found
        if found.header and first.header and "columns" not in self.options and "names" not in self.options:
            missing = next(name for name in first.names if name.lower() not in {other.lower() for other in found.names})
            raise SourceError(
                f"{path}: column {missing}, which is in {self.paths[0]}, is missing here",
                hint="union_by_name => true reads missing columns as NULL",
            )
        return CsvFormat(found.dialect, found.skip, found.header, first.names, first.types, found.formats, found.empty)


def _positions(format: CsvFormat) -> dict[str, int]:
    return {name.lower(): i for i, name in enumerate(format.names)}


def _nothing() -> None:
    """Tell of nothing."""


class _Reader:
    """One pass over one file: rows in batches of the needed columns, converted by pyarrow, and by us from the first
    batch that pyarrow cannot convert."""

    def __init__(self, source: CsvSource, path: str, format: CsvFormat, columns: tuple[str, ...]):
        self.source, self.path, self.format, self.columns = source, path, format, columns
        positions = _positions(format)
        self.indexes = [positions[name.lower()] for name in columns]
        self.types = [source.schema[name].type for name in columns]
        self.done_rows = 0
        self.block_bytes = BLOCK_BYTES
        self.mark: EndMark | None = None
        dialect = format.dialect
        # A limit smaller than a block needs a count of each line; a larger one is enforced by the block size.
        self.most_bytes = source.longest if source.longest < BLOCK_BYTES else 0
        self.rewritten = bool(dialect.comment or source.padded or self.most_bytes or (dialect.loose and dialect.quote))
        self.failed: list[int] = []
        """Rows that were left out because of a bad value. Their numbers do not count rows with a wrong number of
        fields."""
        self.left_out = self.unclosed = self.finished = False
        in_use(self)

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches():
                if batch.num_rows:
                    yield batch
        finally:
            if self.source.rejects is not None:
                self.source.rejects.note(self)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        careful = self.source.ignore_errors
        largest = min(max(self.source.longest, BLOCK_BYTES), LARGEST_BLOCK_BYTES)
        while True:
            try:
                yield from self._stream(careful)
                self.finished = True
                return
            except pa.ArrowInvalid as error:
                message = str(error)
                if "straddling" in message or "out of sync" in message or "block size" in message.lower():
                    if self.block_bytes >= largest:
                        raise too_long(self.path, self._line_of(self.done_rows), largest) from None
                    self.block_bytes = min(16 * self.block_bytes, largest)
                elif "Expected" in message and "columns" in message:
                    raise self._wrong_width() from None
                elif not careful:
                    careful = True
                else:
                    raise

    def _stream(self, careful: bool) -> Iterator[pa.RecordBatch]:
        skip = self.done_rows
        with self._input() as stream:
            seen = 0
            for batch in self._closed(self._open(stream, careful)):
                start, seen = seen, seen + batch.num_rows
                if seen <= skip:
                    continue
                if start < skip:
                    batch = batch.slice(skip - start)
                converted = self._convert(batch, careful, max(start, skip))
                self.done_rows = seen
                yield converted

    def _closed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, if the file does not end inside quotes. If errors are ignored, the unterminated row is dropped:
        it is the last one, so one batch is held back."""
        if not self.source.ignore_errors:
            rows = 0
            for batch in batches:
                rows += batch.num_rows
                yield batch
            if self.mark is not None and not self.mark.seen:
                raise self._unclosed(rows - 1)
            return
        last: pa.RecordBatch | None = None
        for batch in batches:
            if last is not None and batch.num_rows:
                yield last
            last = batch if batch.num_rows or last is None else last
        if last is not None and self.mark is not None and not self.mark.seen:
            self.left_out = self.unclosed = True
            last = last.slice(0, last.num_rows - 1)
        if last is not None:
            yield last

    def _unclosed(self, row: int) -> SourceError:
        return SourceError(
            f"{self.path}: line {self._line_of(row)}: a quote in the row that starts here is never closed",
            hint="quote => '' takes quotes as they are, ignore_errors => true leaves this row out",
        )

    def _input(self) -> pa.NativeFile:
        """The bytes of the file, rewritten first if pyarrow cannot read them directly."""
        source, dialect, format = self.source, self.format.dialect, self.format
        stored_path(self.path)  # all of a pipe is awaited here: pyarrow reads in threads that nobody can call off
        if not self.rewritten:
            self.mark = (
                EndMark(dialect.delimiter, len(format.names), dialect.quote, dialect.escape) if dialect.quote else None
            )
            ending = None if self.mark is None else self.mark.ending
            return pa.PythonFile(CsvBytes(self.path, source.options, format.skip, ending), "r")

        def clean(lines: Iterable[Numbered]) -> Iterator[Numbered]:
            kept = itertools.islice(without_comments(lines, dialect.comment, dialect.quote), format.skip, None)
            return shorter(kept, self.most_bytes, self.path, source.ignore_errors) if self.most_bytes else kept

        def unclosed() -> bool:
            if not source.ignore_errors:
                raise self._unclosed(sum(1 for _ in self._data_rows()) - 1)
            self.left_out = self.unclosed = True
            return False

        width = len(format.names) if source.padded else None
        return plain_stream(
            PlainCsv(CsvBytes(self.path, source.options), dialect, clean, width, source.nulls[0], unclosed)
        )

    def _open(self, stream: pa.NativeFile, careful: bool) -> Iterable[pa.RecordBatch]:
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
            invalid_row_handler=self._invalid,
        )
        convert = pa.csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=self.source.nulls,
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
            true_values=TRUE_WORDS,
            false_values=FALSE_WORDS,
            decimal_point=self.source.numbers.decimal,
        )
        read = pa.csv.ReadOptions(
            use_threads=False, block_size=self.block_bytes, column_names=names, skip_rows_after_names=int(format.header)
        )
        try:
            return pa.csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):
                return ()
            raise

    def _invalid(self, row: pa.csv.InvalidRow) -> str:
        """What to do with a row that has a wrong number of fields."""
        if self.mark is not None and row.text == self.mark.text:
            self.mark.seen = True
            return "skip"
        self.left_out = True
        return "skip" if self.source.ignore_errors else "error"

    def _arrow_type(self, index: int) -> pa.DataType:
        """The types that pyarrow converts itself: all except those whose text it reads differently."""
        kind, format = self.kind(index), self.format.formats[index]
        if kind.name in ("DATE", "TIMESTAMP", "TIMESTAMPTZ") and (format.order != "ymd" or format.strptime is not None):
            return pa.string()
        if kind.is_numeric and format.thousands:
            return pa.string()
        return kind.to_arrow()

    def kind(self, index: int) -> Type:
        name = self.format.names[index]
        return self.source.schema[name].type if name in self.source.schema else self.format.types[index]

    def _convert(self, batch: pa.RecordBatch, careful: bool, first_row: int) -> pa.RecordBatch:
        arrays, failed, names = {}, None, dict(zip(self.indexes, self.columns, strict=True))
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            index = int(name[1:])
            kind, format = self.kind(index), self.format.formats[index]
            if careful or array.type != kind.to_arrow():
                # If every column is read to find bad rows, columns that nobody requested report nothing.
                lost = partial(self.source.lost.add, names[index]) if index in names else _nothing
                array, wrong = convert_column(array, kind, format, lost)
                if wrong is not None:
                    if not self.source.ignore_errors:
                        raise self._bad_value(index, kind, format)
                    failed = wrong if failed is None else pc.or_(failed, wrong)
            arrays[index] = array
        shaped = batch_of([arrays[i] for i in self.indexes], tuple(self.columns), batch.num_rows)
        if failed is None:
            return shaped
        self.left_out = True
        if self.source.rejects is not None:
            self.failed += [first_row + i for i in pc.indices_nonzero(failed).to_pylist()]
        return shaped.filter(pc.invert(failed))

    def raw_rows(self) -> RawRows:
        """The rows with their locations in the file, including the header."""
        return RawRows(self.path, self.format.dialect, self.format.skip, self.source.options)

    def _data_rows(self) -> Iterator[RawRow]:
        with self.raw_rows() as rows:
            if self.format.header:
                next(rows, None)
            yield from rows

    def _line_of(self, row: int) -> int:
        """The line where a row starts, by its number among the rows that pyarrow has read. The row need not end."""
        width = len(self.format.names)
        with self.raw_rows() as rows:
            if self.format.header:
                next(rows, None)
            done = 0
            while done < row and (found := next(rows, None)) is not None:
                done += bool(found.fields) or width == 1
            return rows.next_line() or 1

    def _wrong_width(self) -> SourceError:
        width = len(self.format.names)
        hint = "ignore_errors => true skips such rows, skip => n skips lines at the start"
        for row in self._data_rows():
            if len(row.fields) != width and (row.fields or width == 1):
                return SourceError(
                    f"{self.path}: line {row.line}: expected {width} fields, found {len(row.fields)}", hint=hint
                )
        return SourceError(f"{self.path}: a row does not have {width} fields", hint=hint)

    def _bad_value(self, index: int, kind: Type, format: TextFormat) -> SourceError:
        """The error for the first value of a column that does not convert, with its line."""
        name, read, nulls = self.format.names[index], reader(kind, format), set(self.source.nulls)
        for row in self._data_rows():
            if index < len(row.fields):
                try:
                    value = row.fields[index].encode("latin-1").decode("utf-8")
                except UnicodeDecodeError:
                    return SourceError(
                        f"{self.path}: line {row.line}: column {name} is not valid UTF-8",
                        hint="encoding => 'latin-1' (or another) says how the file is written",
                    )
                if value not in nulls and read(value) is None:
                    return SourceError(
                        f"{self.path}: line {row.line}: column {name}: could not convert '{shown(value)}' to {kind}",
                        hint=f"types => {{'{name}': 'VARCHAR'}} reads the column as text",
                    )
        return SourceError(f"{self.path}: column {name} holds a value that is no {kind}")
