"""CSV detection: finds the dialect, header and column types from the start of a file, like DuckDB's sniffer.

`CsvSource` calls `sniff` for the first file (for every file with `union_by_name`). Options set by the user are kept.
The rest is found in a sample: the delimiter that gives the most columns consistently, the first row as a header if it
does not fit the types below it, and the first type that fits all sampled values of a column."""

from __future__ import annotations

import io
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tsql.backends.io import options as opt
from tsql.backends.io.csv.dialect import Dialect, find_dialect, rows_of
from tsql.backends.io.csv.input import CsvBytes, fields_of_any_length, longest_row, too_long
from tsql.backends.io.csv.lines import RawRows, without_comments
from tsql.backends.io.csv.values import detect, fits
from tsql.backends.io.files import reading
from tsql.backends.io.normalize import unique_names
from tsql.backends.io.text import ISO, TextFormat, parser
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.keywords import RESERVED
from tsql.kernels.expr.types import DOUBLE, VARCHAR, Type
from tsql.kernels.process.quick_dataclass import dataclass

COMMENT = "#"
"""The comment character that is detected if none is set."""
SAMPLE_ROWS = 20_480
SAMPLE_BYTES = 2_000_000
SHOWN_VALUES = 50
HEAD_BYTES = 4096
"""A text file has few NUL characters in its first bytes."""


@dataclass(frozen=True)
class CsvFormat:
    """Everything needed to read a file: columns in file order with their types and date formats. `empty`: there are no
    rows below the header."""

    dialect: Dialect
    skip: int
    header: bool
    names: tuple[str, ...]
    types: tuple[Type, ...]
    formats: tuple[TextFormat, ...]
    empty: bool = False


def sniff(path: str, options: Mapping[str, Any]) -> CsvFormat:
    """The format of a CSV file. The sample grows until it has two whole rows, however long they are."""
    most_bytes = longest_row(options)
    size = SAMPLE_BYTES
    with fields_of_any_length():
        while True:
            sample, whole = read_sample(path, options, size)
            found = _sniffed(path, sample, whole, options)
            if found is not None:
                break
            if size > 2 * most_bytes:
                raise too_long(path, 1 + sample[: len(sample) - len(sample.lstrip())].count("\n"), most_bytes)
            size = min(8 * size, 2 * most_bytes + 1)
        return found if sample_rows(options) == SAMPLE_ROWS else over_more_rows(path, found, options)


def _sniffed(path: str, sample: str, whole: bool, options: Mapping[str, Any]) -> CsvFormat | None:
    """The format of a file that starts with this sample; None if the sample ends before its second row does."""
    skip = opt.count(options, "skip", 0)
    padded = bool(opt.flag(options, "null_padding"))
    comment = opt.character(options, "comment")
    text, blank = _below(sample, skip, comment or "", options)
    dialect, sensible = find_dialect(text, whole, options)
    if comment is None and not sensible and COMMENT in text:
        # A comment character that was not set counts only if the file is inconsistent with the comments, and
        # consistent without them.
        plain, plain_blank = _below(sample, skip, COMMENT, options)
        other, sensible = find_dialect(plain, whole, options)
        if plain and sensible:
            text, blank, dialect, comment = plain, plain_blank, other, COMMENT
    dialect = replace(dialect, comment=comment or "")
    limit = sample_rows(options)
    rows = rows_of(text, dialect, whole, SAMPLE_ROWS if limit is None else max(limit, 2))
    width = max(map(len, rows), default=1) if padded else _width(rows)
    if width > 1:
        # Lines of white space above the first row are skipped too.
        above = next((number for number, row in enumerate(rows) if len(row) > 1 or (row and row[0].strip())), 0)
        blank += sum(1 + "".join(row).count("\n") for row in rows[:above])
        rows = rows[above:]
    rows = [row for row in rows if row or width == 1]
    if not whole and len(rows) < 2:
        return None
    if not any(rows):
        return _nothing(dialect, skip + blank, options)
    names = opt.texts(options, "nullstr") or [""]
    nulls = set(names)
    if padded:
        rows = [row + names[:1] * (width - len(row)) for row in rows]
    return _columns(path, dialect, skip + blank, rows, width, nulls, whole, options)


def _below(text: str, skip: int, comment: str, options: Mapping[str, Any]) -> tuple[str, int]:
    """A sample without comments, skipped lines and the blank lines after them; and the number of those blank lines."""
    if comment or skip:
        quote = opt.character(options, "quote")
        lines = [
            line
            for _, line in without_comments(enumerate(io.StringIO(text), 1), comment, '"' if quote is None else quote)
        ]
        text = "".join(lines[skip:])
    below = text.lstrip("\n")
    return below, len(text) - len(below)


def sample_rows(options: Mapping[str, Any]) -> int | None:
    """The number of rows to sample; None for all."""
    stated = options.get("sample_size")
    if stated is None:
        return SAMPLE_ROWS
    if isinstance(stated, bool) or not isinstance(stated, int) or (stated < 1 and stated != -1):
        raise SourceError(f"option sample_size is a number of rows, or -1 for all of them, not {stated!r}")
    return None if stated == -1 else stated


def read_sample(path: str, options: Mapping[str, Any], size: int = SAMPLE_BYTES) -> tuple[str, bool]:
    """The start of a file as text, and whether that is the entire file. Bytes that are not UTF-8 are found when
    reading."""
    with reading(path, "a CSV file"), CsvBytes(path, options) as stream:
        data = bytearray()
        while len(data) <= size and (part := stream.read(size + 1 - len(data))):
            data += part
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise SourceError(f"{path}: this file is UTF-16", hint="encoding => 'utf-16' reads it")
    if data.count(0, 0, HEAD_BYTES) * 8 > len(data[:HEAD_BYTES]):
        raise SourceError(
            f"{path}: this is not a text file (it holds NUL bytes), expected CSV",
            hint="encoding => 'utf-16' reads text with two bytes a character",
        )
    whole = len(data) <= size
    text = bytes(data[:size]).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n"), whole


def _width(rows: list[list[str]]) -> int:
    widths = Counter(len(row) for row in rows if row)
    return widths.most_common(1)[0][0] if widths else 1


def _nothing(dialect: Dialect, skip: int, options: Mapping[str, Any]) -> CsvFormat:
    """The format of a file without rows: the columns that the user sets, or one column0 (as in DuckDB)."""
    stated = opt.column_types(options, "columns") or {
        name: VARCHAR for name in opt.column_names(options, "names") or ["column0"]
    }
    return CsvFormat(
        dialect, skip, False, tuple(unique_names(list(stated))), tuple(stated.values()), (ISO,) * len(stated), True
    )


def _columns(
    path: str,
    dialect: Dialect,
    skip: int,
    rows: list[list[str]],
    width: int,
    nulls: set[str],
    whole: bool,
    options: Mapping[str, Any],
) -> CsvFormat:
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
        # The first row comes last: the rows below have decided the kind of the column, and it fits them.
        found = [_type([*below, first], i, nulls, options) for i in range(width)]
    if header and len(rows) == 1 and stated is None:
        found = [(VARCHAR, ISO)] * width
    names = list(stated) if stated is not None else _names(first if header else [], width, options)
    found = _override(path, names, found, options)
    return CsvFormat(
        dialect,
        skip,
        header,
        tuple(names),
        tuple(kind for kind, _ in found),
        tuple(format for _, format in found),
        header and whole and len(rows) == 1,
    )


def _type(rows: list[list[str]], index: int, nulls: set[str], options: Mapping[str, Any]) -> tuple[Type, TextFormat]:
    return type_of([row[index] for row in rows if index < len(row) and row[index] not in nulls], options)


def type_of(values: list[str], options: Mapping[str, Any]) -> tuple[Type, TextFormat]:
    """The type of a column with these values (without NULLs), and how they are written."""
    if opt.flag(options, "all_varchar"):
        return VARCHAR, ISO
    for option, written in (("dateformat", "DATE"), ("timestampformat", "TIMESTAMP")):
        stated = opt.text(options, option)
        if stated is not None and values:
            format = TextFormat(strptime=stated)
            read = parser(opt.one_type(option, written), format)
            if all(read(value) is not None for value in values):
                return opt.one_type(option, written), format
    numbers = number_format(options)
    if numbers.thousands:
        kind, _ = detect(_numbers(values, numbers))
        return (kind, numbers) if kind.is_numeric else detect(values)
    kind, format = detect(values)
    if (
        numbers.decimal == ","
        and kind == VARCHAR
        and values
        and all(map(_COMMA_NUMBER.fullmatch, (value.strip() for value in values)))
    ):
        return DOUBLE, numbers
    return kind, format


_COMMA_NUMBER = re.compile(
    r"[+-]?(?:[0-9]+(?:,[0-9]*)?|,[0-9]+)(?:e[+-]?[0-9]+)?|-?(?:nan|inf(?:inity)?)", re.IGNORECASE
)


def _numbers(values: list[str], format: TextFormat) -> list[str]:
    """The values without thousands separators and with a decimal point."""
    plain = [value.replace(format.thousands, "") for value in values]
    return [value.replace(",", ".") for value in plain] if format.decimal == "," else plain


def number_format(options: Mapping[str, Any]) -> TextFormat:
    """How numbers are written: the decimal separator, and the thousands separator."""
    decimal, thousands = opt.text(options, "decimal_separator") or ".", opt.character(options, "thousands") or ""
    if decimal not in (".", ","):
        raise SourceError(f"option decimal_separator is '.' or ',', not {decimal!r}")
    if thousands == decimal:
        raise SourceError(
            f"option thousands is {thousands!r}, which is also the decimal separator",
            hint="decimal_separator => ',' changes that",
        )
    return TextFormat(decimal=decimal, thousands=thousands)


def _format(kind: Type, seen: TextFormat, options: Mapping[str, Any]) -> TextFormat:
    option = {"DATE": "dateformat", "TIMESTAMP": "timestampformat", "TIMESTAMPTZ": "timestampformat"}.get(kind.name)
    stated = opt.text(options, option) if option else None
    if stated is not None:
        return TextFormat(strptime=stated)
    if kind.is_numeric:
        return number_format(options)
    return seen if option else ISO


def _is_header(first: list[str], found: list[tuple[Type, TextFormat]], nulls: set[str]) -> bool:
    """Whether the first row is a header: all columns are text, or it does not fit their types, or it is all NULL."""
    cells = list(zip(first, found, strict=True))
    if all(kind == VARCHAR for _, (kind, _) in cells) or all(cell in nulls for cell, _ in cells):
        return True
    return any(cell not in nulls and kind != VARCHAR and not fits(cell, kind, format) for cell, (kind, format) in cells)


def _names(header: list[str], width: int, options: Mapping[str, Any]) -> list[str]:
    stated = opt.column_names(options, "names")
    if len(stated) > width:
        raise SourceError(f"option names has {len(stated)} names, the file has {width} columns")
    plain = _plain_name if opt.flag(options, "normalize_names") else str.strip
    digits = len(str(width - 1))
    found = []
    for i in range(width):
        name = stated[i] if i < len(stated) else plain(header[i]) if i < len(header) and header[i] else ""
        found.append(name or f"column{i:0{digits}d}")
    again = {name.lower() for name in stated} & {name.lower() for name in found[len(stated) :]}
    if again:
        raise SourceError(
            f'option names: the file has a column "{min(again)}" of its own',
            hint="name all columns, or choose another name",
        )
    return unique_names(found)


def _plain_name(name: str) -> str:
    """A name that needs no quotes, as DuckDB makes it: letters without accents, digits, `_` for white space, and `_`
    before a digit or a keyword."""
    letters = [
        c if c.isspace() else c if c.isascii() and (c.isalnum() or c == "_") else ""
        for c in unicodedata.normalize("NFKD", name)
    ]
    found = "_".join("".join(letters).split()).lower() or "_"
    return "_" + found if found[0].isdigit() or found in RESERVED else found


def _override(
    path: str, names: list[str], found: list[tuple[Type, TextFormat]], options: Mapping[str, Any]
) -> list[tuple[Type, TextFormat]]:
    for index, kind in _stated_types(names, options, path):
        found[index] = (kind, _format(kind, found[index][1], options))
    return found


def _stated_types(names: Sequence[str], options: Mapping[str, Any], path: str = "") -> Iterator[tuple[int, Type]]:
    """The columns whose types the options state."""
    lowered = {name.lower(): i for i, name in enumerate(names)}
    for option in ("types", "dtypes"):
        stated = options.get(option)
        if isinstance(stated, list | tuple):
            stated = dict(zip(names, stated, strict=False))
        for name, kind in (opt.column_types({option: stated}, option) or {}).items():
            if name.lower() not in lowered:
                raise SourceError(f"{path}: option {option} names column {name}, which the file does not have")
            yield lowered[name.lower()], kind


def over_more_rows(path: str, format: CsvFormat, options: Mapping[str, Any]) -> CsvFormat:
    """The format with types that fit all rows, or as many as sample_size says. The sample has decided the rest.

    Some values that show the type of a column so far are kept. Values that disagree with them are added, and all of
    them decide the new type. Earlier rows may not have been checked against it (dates with the day first or last), so
    the rows are read again until nothing changes."""
    limit = sample_rows(options)
    if format.empty or "columns" in options or (limit is not None and limit < SAMPLE_ROWS):
        return format
    nulls = set(opt.texts(options, "nullstr") or [""])
    stated = {i for i, _ in _stated_types(format.names, options)}
    found = list(zip(format.types, format.formats, strict=True))
    shown: list[list[str]] = [[] for _ in found]
    changed = True
    while changed:
        changed = False
        with reading(path, "a CSV file"), RawRows(path, format.dialect, format.skip, options) as rows:
            numbered = itertools.islice(rows, int(format.header), None if limit is None else limit + format.header)
            while chunk := [row.texts() for row in itertools.islice(numbered, SAMPLE_ROWS)]:
                for i, known in enumerate(found):
                    if known[0] == VARCHAR or i in stated:
                        continue
                    values = list(dict.fromkeys(row[i] for row in chunk if i < len(row) and row[i] not in nulls))
                    if not values:
                        continue
                    now = type_of([*shown[i], *values], options)
                    if now != known:
                        shown[i] += values
                        found[i], changed = now, True
                    elif not shown[i]:
                        shown[i] = values[:SHOWN_VALUES] if type_of(values[:SHOWN_VALUES], options) == known else values
    return replace(format, types=tuple(kind for kind, _ in found), formats=tuple(how for _, how in found))
