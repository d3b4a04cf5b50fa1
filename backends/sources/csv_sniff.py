"""CSV detection: from the start of a file to its dialect, its header and its column types, as DuckDB's sniffer does it.

`sniff` is called by `CsvSource` for the first file (for every file with `union_by_name`). What the user states is taken
as it is; the rest is found in a sample: the delimiter that gives the most columns consistently, the first row as a
header if it does not fit the types below it, and the first type that fits all sampled values of a column.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tsql.backends.sources import options as opt
from tsql.backends.sources.csv_lines import LooseRows, without_comments
from tsql.backends.sources.csv_values import detect, fits
from tsql.backends.sources.files import open_input, reading
from tsql.backends.sources.normalize import unique_names
from tsql.backends.sources.text import ISO, TextFormat, parser
from tsql.kernels.errors import SourceError
from tsql.kernels.types import DOUBLE, VARCHAR, Type

DELIMITERS = (",", "|", ";", "\t")
COMMENT = "#"
"""What comments begin with where a file has some and nobody says so."""
SAMPLE_ROWS = 20_480
SAMPLE_BYTES = 2_000_000
DIALECT_BYTES = 65_536


@dataclass(frozen=True)
class Dialect:
    """How rows and fields are separated; an empty quote or escape means that there is none. `loose`: quotes inside a quoted
    field need no escape. `comment`: what follows this character is no data, unless it is empty."""

    delimiter: str
    quote: str
    escape: str
    loose: bool = False
    comment: str = ""

    def rows(self, lines: Any) -> Any:
        """The reader of this dialect, over lines without comments."""
        if self.loose and self.quote:
            return LooseRows(lines, self.delimiter, self.quote)
        quoting = csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE
        doubled = self.escape in ("", self.quote)
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote or None, doublequote=doubled, escapechar=None if doubled else self.escape, quoting=quoting, strict=False)


@dataclass(frozen=True)
class CsvFormat:
    """Everything needed to read a file: columns in file order with their types and how their dates are written.
    `empty` says that there are no rows below the header."""

    dialect: Dialect
    skip: int
    header: bool
    names: tuple[str, ...]
    types: tuple[Type, ...]
    formats: tuple[TextFormat, ...]
    empty: bool = False


def sniff(path: str, options: Mapping[str, Any]) -> CsvFormat:
    """The format of a CSV file."""
    sample, whole = read_sample(path, options)
    skip = opt.count(options, "skip", 0)
    padded = bool(opt.flag(options, "null_padding"))
    comment = opt.character(options, "comment")
    text = _below(sample, skip, comment or "", options)
    dialect = _dialect(text[:DIALECT_BYTES], whole and len(text) <= DIALECT_BYTES, options)
    if comment is None and COMMENT in text:
        # A mark that was not asked for counts only if the file makes no sense with it, and does without.
        plain = _below(sample, skip, COMMENT, options)
        other = _dialect(plain[:DIALECT_BYTES], whole and len(plain) <= DIALECT_BYTES, options)
        if plain.strip() and not _consistent(text, dialect, whole, padded) and _consistent(plain, other, whole, padded):
            text, dialect, comment = plain, other, COMMENT
    dialect = replace(dialect, comment=comment or "")
    rows = _rows(text, dialect, whole, opt.count(options, "sample_size", SAMPLE_ROWS) or SAMPLE_ROWS)
    width = max(map(len, rows), default=1) if padded else _width(rows)
    rows = [row for row in rows if row or width == 1]
    if not any(rows):
        return _nothing(dialect, skip, options)
    names = opt.texts(options, "nullstr") or [""]
    nulls = set(names)
    if padded:
        rows = [row + names[:1] * (width - len(row)) for row in rows]
    return _columns(path, dialect, skip, rows, width, nulls, options)


def _below(text: str, skip: int, comment: str, options: Mapping[str, Any]) -> str:
    """A sample without its comments and the lines to skip."""
    if not comment and not skip:
        return text
    quote = opt.character(options, "quote")
    lines = [line for _, line in without_comments(enumerate(text.splitlines(keepends=True), 1), comment, '"' if quote is None else quote)]
    return "".join(lines[skip:])


def _consistent(text: str, dialect: Dialect, whole: bool, padded: bool) -> bool:
    score = _score(text[:DIALECT_BYTES], dialect, whole and len(text) <= DIALECT_BYTES, padded)
    return score is not None and score[0]


def read_sample(path: str, options: Mapping[str, Any]) -> tuple[str, bool]:
    """The start of a file as text, and whether that is all of it. Bytes that are not UTF-8 are found when reading."""
    with reading(path, "a CSV file"), open_input(path, opt.text(options, "compression")) as stream:
        data = bytearray()
        while len(data) <= SAMPLE_BYTES and (part := stream.read(SAMPLE_BYTES)):
            data += part
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise SourceError(f"{path}: this file is UTF-16, only UTF-8 is read", hint="convert it first, for example with iconv -f UTF-16 -t UTF-8")
    if b"\0" in data[:4096]:
        raise SourceError(f"{path}: this is not a text file (it holds NUL bytes), expected CSV")
    whole = len(data) <= SAMPLE_BYTES
    text = bytes(data[:SAMPLE_BYTES]).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n"), whole


def _dialect(text: str, whole: bool, options: Mapping[str, Any]) -> Dialect:
    delimiter = opt.character(options, "delim", "sep", "delimiter")
    quote, escape = opt.character(options, "quote"), opt.character(options, "escape")
    if delimiter == "":
        raise SourceError("option delim is empty")
    delimiters = (delimiter,) if delimiter is not None else DELIMITERS
    quotes = (quote,) if quote is not None else ('"', "'") if "'" in text else ('"',)
    padded = bool(opt.flag(options, "null_padding"))
    found: list[tuple[tuple[bool, int, int], Dialect]] = []
    unclosed = False
    for mark in quotes:
        loose = opt.flag(options, "strict_mode", True) is False
        escapes = (escape,) if escape is not None else (mark, "\\") if mark and "\\" + mark in text else (mark,)
        for candidate in (Dialect(d, mark, e, loose) for d in delimiters for e in escapes):
            score = _score(text, candidate, whole, padded)
            unclosed |= score is None
            if score is not None:
                found.append((score, candidate))
    if unclosed and quote is None:
        found += [(score, c) for c in (Dialect(d, "", "") for d in delimiters) if (score := _score(text, c, whole, padded)) is not None]
    if not found:
        return Dialect(delimiters[0], '"' if quote is None else quote, escape or '"')
    best = max(score for score, _ in found)
    return next(candidate for score, candidate in found if score == best)


def _score(text: str, dialect: Dialect, whole: bool, padded: bool) -> tuple[bool, int, int] | None:
    """(all rows have one width, the width, quoted fields) of the sample; None where its quotes do not close. The width of
    `padded` rows is that of the longest."""
    if dialect.quote and not dialect.loose and _bad_quotes(text, dialect, whole):
        return None
    widths = Counter(len(row) for row in _rows(text, dialect, whole, 2_000) if row)
    if not widths:
        return (False, 1, 0)
    if padded:
        widths = Counter({max(widths): widths.total()})
    width, rows = widths.most_common(1)[0]
    consistent = len(widths) == 1
    if width == 1 or (not consistent and rows * 2 <= widths.total()):
        return (consistent and width > 1, 1, 0)
    quoted = text.count(dialect.delimiter + dialect.quote) + text.count("\n" + dialect.quote) if dialect.quote else 0
    return (consistent, width, quoted)


def _bad_quotes(text: str, dialect: Dialect, whole: bool) -> bool:
    """Whether a quote is never closed, or something stands between the end of a quoted field and the next one."""
    try:
        strict = csv.reader(io.StringIO(text), delimiter=dialect.delimiter, quotechar=dialect.quote, doublequote=dialect.escape in ("", dialect.quote), escapechar=None if dialect.escape in ("", dialect.quote) else dialect.escape, strict=True)
        for _ in strict:
            pass
    except csv.Error as error:
        return whole or "unexpected end of data" not in str(error)
    return False


def _rows(text: str, dialect: Dialect, whole: bool, limit: int) -> list[list[str]]:
    rows: list[list[str]] = []
    try:
        for row in dialect.rows(io.StringIO(text)):
            rows.append(row)
            if len(rows) > limit:
                return rows[:limit]
    except csv.Error:
        return rows
    return rows if whole or len(rows) < 2 else rows[:-1]


def _width(rows: list[list[str]]) -> int:
    widths = Counter(len(row) for row in rows if row)
    return widths.most_common(1)[0][0] if widths else 1


def _nothing(dialect: Dialect, skip: int, options: Mapping[str, Any]) -> CsvFormat:
    """A file without rows has the columns that the user states, or one column0 (as in DuckDB)."""
    stated = opt.column_types(options, "columns") or {name: VARCHAR for name in opt.texts(options, "names") or ["column0"]}
    return CsvFormat(dialect, skip, False, tuple(unique_names(list(stated))), tuple(stated.values()), (ISO,) * len(stated), True)


def _columns(path: str, dialect: Dialect, skip: int, rows: list[list[str]], width: int, nulls: set[str], options: Mapping[str, Any]) -> CsvFormat:
    stated = opt.column_types(options, "columns")
    if stated is not None and len(stated) != width:
        raise SourceError(f"{path}: option columns names {len(stated)} columns, the file has {width}")
    first = rows[0] if rows[0] else [""]
    below = [row for row in rows[1:] if len(row) == width] if len(rows) > 1 else [first]
    below = below or [row for row in rows[1:]]
    found = [_type(below, i, nulls, options) for i in range(width)]
    if stated is not None:
        found = [(kind, _format(kind, found[i][1], options)) for i, kind in enumerate(stated.values())]
    header = opt.flag(options, "header", None)
    if header is None:
        header = len(first) == width and _is_header(first, found, nulls)
    if not header and len(rows) > 1 and stated is None:
        # What the first row holds comes last: the rows below have said what kind of column it is, and it fits them.
        found = [_type([*below, first], i, nulls, options) for i in range(width)]
    if header and len(rows) == 1 and stated is None:
        found = [(VARCHAR, ISO)] * width
    names = list(stated) if stated is not None else _names(first if header else [], width, options)
    found = _override(path, names, found, options)
    return CsvFormat(dialect, skip, header, tuple(names), tuple(kind for kind, _ in found), tuple(format for _, format in found), header and len(rows) == 1)


def _type(rows: list[list[str]], index: int, nulls: set[str], options: Mapping[str, Any]) -> tuple[Type, TextFormat]:
    if opt.flag(options, "all_varchar"):
        return VARCHAR, ISO
    values = [row[index] for row in rows if index < len(row) and row[index] not in nulls]
    for option, kind in (("dateformat", "DATE"), ("timestampformat", "TIMESTAMP")):
        stated = opt.text(options, option)
        if stated is not None and values:
            format = TextFormat(strptime=stated)
            read = parser(opt.one_type(option, kind), format)
            if all(read(value) is not None for value in values):
                return opt.one_type(option, kind), format
    kind, format = detect(values)
    if decimal_separator(options) == "," and kind == VARCHAR and values and all(map(_COMMA_NUMBER.fullmatch, (value.strip() for value in values))):
        return DOUBLE, TextFormat(decimal=",")
    return kind, format


_COMMA_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:,[0-9]*)?|,[0-9]+)(?:e[+-]?[0-9]+)?|-?(?:nan|inf(?:inity)?)", re.IGNORECASE)


def decimal_separator(options: Mapping[str, Any]) -> str:
    """What stands before the fraction of a number: a point or a comma."""
    found = opt.text(options, "decimal_separator") or "."
    if found not in (".", ","):
        raise SourceError(f"option decimal_separator is '.' or ',', not {found!r}")
    return found


def _format(kind: Type, seen: TextFormat, options: Mapping[str, Any]) -> TextFormat:
    option = {"DATE": "dateformat", "TIMESTAMP": "timestampformat", "TIMESTAMPTZ": "timestampformat"}.get(kind.name)
    stated = opt.text(options, option) if option else None
    if stated is not None:
        return TextFormat(strptime=stated)
    if kind.is_numeric and decimal_separator(options) == ",":
        return TextFormat(decimal=",")
    return seen if option else ISO


def _is_header(first: list[str], found: list[tuple[Type, TextFormat]], nulls: set[str]) -> bool:
    """A first row is a header if all columns are text, or if it does not fit their types, or if it is all NULL."""
    cells = list(zip(first, found, strict=True))
    if all(kind == VARCHAR for _, (kind, _) in cells) or all(cell in nulls for cell, _ in cells):
        return True
    return any(cell not in nulls and kind != VARCHAR and not fits(cell, kind, format) for cell, (kind, format) in cells)


def _names(header: list[str], width: int, options: Mapping[str, Any]) -> list[str]:
    stated = opt.texts(options, "names") or []
    if len(stated) > width:
        raise SourceError(f"option names has {len(stated)} names, the file has {width} columns")
    digits = len(str(width - 1))
    found = []
    for i in range(width):
        name = stated[i] if i < len(stated) else header[i].strip() if i < len(header) else ""
        found.append(name or f"column{i:0{digits}d}")
    return unique_names(found)


def _override(path: str, names: list[str], found: list[tuple[Type, TextFormat]], options: Mapping[str, Any]) -> list[tuple[Type, TextFormat]]:
    for option in ("types", "dtypes"):
        stated = options.get(option)
        if stated is None:
            continue
        if isinstance(stated, list | tuple):
            stated = dict(zip(names, stated, strict=False))
        lowered = {name.lower(): i for i, name in enumerate(names)}
        for name, kind in (opt.column_types({option: stated}, option) or {}).items():
            if name.lower() not in lowered:
                raise SourceError(f"{path}: option {option} names column {name}, which the file does not have")
            index = lowered[name.lower()]
            found[index] = (kind, _format(kind, found[index][1], options))
    return found


def numbered_rows(path: str, dialect: Dialect, options: Mapping[str, Any]) -> Iterator[tuple[int, list[str]]]:
    """All rows of a file with the line on which each starts; slow, used to say where an error is."""
    with open_input(path, opt.text(options, "compression")) as stream:
        text = io.TextIOWrapper(stream, "utf-8-sig", errors="replace")
        numbers: list[int] = []

        def lines() -> Iterator[str]:
            for number, line in without_comments(enumerate(text, 1), dialect.comment, dialect.quote):
                numbers.append(number)
                yield line

        remaining = lines()
        for _ in range(opt.count(options, "skip", 0)):
            next(remaining, None)
        numbers.clear()
        reader = dialect.rows(remaining)
        seen = 0
        for row in reader:
            yield numbers[seen], row
            seen = reader.line_num
