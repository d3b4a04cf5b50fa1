"""Rejected rows of CSV files: what `store_rejects` keeps of them, and the two tables that show it.

The reader leaves such rows out and counts them. `CsvRejects.note` then reads the file once more, to say where they are
and why. The catalog registers `RejectTables` under the names from the options, with DuckDB's columns. Integers are
signed here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tsql.backends.io import Split, Statistics
from tsql.backends.io import options as opt
from tsql.backends.io.csv.values import reader, shown
from tsql.backends.io.normalize import batch_of
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN, VARCHAR
from tsql.kernels.process import forks
from tsql.kernels.process.quick_dataclass import dataclass

if TYPE_CHECKING:
    from tsql.backends.io.csv.lines import RawRow
    from tsql.backends.io.csv.source import _Reader

ERRORS = Schema.of(
    ("scan_id", BIGINT), ("file_id", BIGINT), ("line", BIGINT), ("line_byte_position", BIGINT),
    ("byte_position", BIGINT), ("column_idx", BIGINT), ("column_name", VARCHAR), ("error_type", VARCHAR),
    ("csv_line", VARCHAR), ("error_message", VARCHAR),
)  # fmt: skip
SCANS = Schema.of(
    ("scan_id", BIGINT), ("file_id", BIGINT), ("file_path", VARCHAR), ("delimiter", VARCHAR), ("quote", VARCHAR),
    ("escape", VARCHAR), ("newline_delimiter", VARCHAR), ("skip_rows", BIGINT), ("has_header", BOOLEAN),
    ("columns", VARCHAR), ("date_format", VARCHAR), ("timestamp_format", VARCHAR), ("user_arguments", VARCHAR),
)  # fmt: skip


def rejects_of(options: Mapping[str, Any]) -> CsvRejects | None:
    """Where rejected rows are stored, if the options ask for it."""
    wanted = bool(opt.flag(options, "store_rejects")) or "rejects_table" in options or "rejects_scan" in options
    if not wanted:
        if "rejects_limit" in options:
            raise SourceError("option rejects_limit needs store_rejects => true")
        return None
    if opt.flag(options, "ignore_errors", None) is False:
        raise SourceError(
            "store_rejects leaves rows with errors out, and ignore_errors is false", hint="leave out ignore_errors"
        )
    names = opt.text(options, "rejects_table") or "reject_errors", opt.text(options, "rejects_scan") or "reject_scans"
    if names[0].lower() == names[1].lower():
        raise SourceError(f"options rejects_table and rejects_scan both say {names[0]}")
    return CsvRejects(*names, opt.count(options, "rejects_limit", 0))


@dataclass
class CsvRejects:
    """The rejected rows of one source: rows of the two tables by file. `limit` is how many errors per file are kept; 0
    for all."""

    table: str
    scan: str
    limit: int
    scan_id: int = 0
    errors: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)
    scans: dict[int, tuple[Any, ...]] = field(default_factory=dict)

    def note(self, pass_: _Reader) -> None:
        """Store what a pass over a file has left out, replacing the result of an earlier pass."""
        file = pass_.source.paths.index(pass_.path)
        found: list[tuple[Any, ...]] = []
        if pass_.left_out or pass_.most_bytes:
            for error in _errors(pass_):
                found.append((file, *error))
                if len(found) == self.limit:
                    break
        self.errors[file] = found
        self.scans.pop(file, None)
        if found:
            self.scans[file] = (file, *_scan(pass_))


def _scan(pass_: _Reader) -> tuple[Any, ...]:
    format, options = pass_.format, pass_.source.options
    columns = ",".join(f"'{name}': '{kind}'" for name, kind in zip(format.names, format.types, strict=True))
    given = ", ".join(
        f"{name}={value!r}" if isinstance(value, str) else f"{name}={str(value).lower()}"
        for name, value in sorted(opt.plain(options).items())
        if name != "columns"
    )
    dialect = format.dialect
    formats = opt.text(options, "dateformat"), opt.text(options, "timestampformat")
    return (
        pass_.path,
        dialect.delimiter,
        dialect.quote,
        dialect.escape,
        None,
        format.skip,
        format.header,
        "{" + columns + "}",
        *formats,
        given,
    )


def _errors(pass_: _Reader) -> Iterator[tuple[Any, ...]]:
    """(line, its byte, the byte of the error, column from 1, its name, kind, text, message) for each error in the rows
    read. Bytes are counted from 1."""
    format, source = pass_.format, pass_.source
    width, columns = len(format.names), [reader(pass_.kind(i), how) for i, how in enumerate(format.formats)]
    failed, row_number = set(pass_.failed), -1
    with pass_.raw_rows() as rows:
        if format.header:
            next(rows, None)
        following = next(rows, None)
        while following is not None:
            row, following = following, next(rows, None)
            if row_number + 1 >= pass_.done_rows and not pass_.finished:
                return  # nobody has asked for more rows
            raw = row.text.rstrip("\r\n")
            where, text = (row.line, row.position + 1), _decoded(raw)
            if pass_.most_bytes and len(raw) > pass_.most_bytes:
                message = f"Maximum line size of {pass_.most_bytes} bytes exceeded. Actual Size:{len(row.text)} bytes."
                yield *where, row.position + 1, None, None, "LINE SIZE OVER MAXIMUM", text, message
            elif following is None and pass_.unclosed:
                yield (
                    *where,
                    row.position + 1,
                    None,
                    None,
                    "UNQUOTED VALUE",
                    text,
                    "Value with unterminated quote found.",
                )
            elif not row.fields and width > 1:
                continue
            elif len(row.fields) > width or (len(row.fields) < width and not source.padded):
                for column, position, kind in _wrong_width(row, width):
                    name = format.names[column] if column < width else None
                    found = column if column < width else column + 1
                    yield (
                        *where,
                        position,
                        found,
                        name,
                        kind,
                        text,
                        f"Expected Number of Columns: {width} Found: {found}",
                    )
            else:
                row_number += 1
                if row_number in failed:
                    for column, position, kind, message in _wrong_values(pass_, row, columns):
                        yield *where, position, column + 1, format.names[column], kind, text, message


def _wrong_width(row: RawRow, width: int) -> Iterator[tuple[int, int, str]]:
    """(column, byte, kind) for each missing or extra column of a row."""
    for column in range(len(row.fields), width):
        yield column, row.position + 1 + len(row.text.rstrip("\r\n")), "MISSING COLUMNS"
    for column in range(width, len(row.fields)):
        yield column, _start(row, column) - 1, "TOO MANY COLUMNS"


def _wrong_values(pass_: _Reader, row: RawRow, columns: list[Any]) -> Iterator[tuple[int, int, str, str]]:
    """(column, byte, kind, message) for each value of a row that cannot be converted."""
    nulls = set(pass_.source.nulls)
    for column, (raw, read) in enumerate(zip(row.fields, columns, strict=False)):
        try:
            value = raw.encode("latin-1").decode("utf-8")
        except UnicodeDecodeError:
            yield (
                column,
                _start(row, column),
                "INVALID ENCODING",
                "Invalid unicode (byte sequence mismatch) detected. This file is not utf-8 encoded.",
            )
            return
        if value not in nulls and read(value) is None:
            name, kind = pass_.format.names[column], pass_.kind(column)
            yield (
                column,
                _start(row, column),
                "CAST",
                f'Error when converting column "{name}". Could not convert string "{shown(value)}" to \'{kind}\'',
            )


def _start(row: RawRow, column: int) -> int:
    """The byte where a field starts, if no field before it is quoted."""
    return row.position + 1 + sum(len(value) + 1 for value in row.fields[:column])


def _decoded(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "replace")


class RejectTables:
    """The tables of rejected rows of a session, by name. Scans are numbered in order of creation."""

    def __init__(self) -> None:
        self._tables: dict[str, RejectTable] = {}
        self._scans = 0
        self._lock = forks.lock()

    def add(self, rejects: CsvRejects) -> list[RejectTable]:
        """Show what a source rejects, and return the tables to register under their names."""
        with self._lock:
            self._scans += 1
            rejects.scan_id = self._scans
            fresh = []
            for name, schema in ((rejects.table, ERRORS), (rejects.scan, SCANS)):
                table = self._tables.get(name.lower())
                if table is None or table.schema is not schema:
                    table = self._tables[name.lower()] = RejectTable(name, schema)
                    fresh.append(table)
                table.kept.append(rejects)
            return fresh


class RejectTable:
    """One of the two tables, as a source of everything that earlier queries have rejected."""

    def __init__(self, name: str, schema: Schema) -> None:
        self.name, self.schema = name, schema
        self.kept: list[CsvRejects] = []

    def statistics(self) -> Statistics:
        return Statistics(None, None)

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        return [Split(0, None, None)]

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        rows = [(scan.scan_id, *row) for scan in list(self.kept) for row in self._rows(scan)]
        if rows:
            found = dict(zip(self.schema.names, zip(*rows, strict=True), strict=True))
            yield batch_of(
                [pa.array(found[name], self.schema[name].type.to_arrow()) for name in columns], columns, len(rows)
            )

    def _rows(self, scan: CsvRejects) -> list[tuple[Any, ...]]:
        if self.schema is SCANS:
            return [row for _, row in sorted(scan.scans.items())]
        return [row for _, rows in sorted(scan.errors.items()) for row in rows]

    def describe(self) -> None:
        return None
