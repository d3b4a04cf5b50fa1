"""Rewrites text that pyarrow's reader cannot read directly: comments, short rows, stray quotes.

`CsvSource` puts a `PlainCsv` stream between the file and the reader if the options (or the sniffer) need it. It
processes rows in Python, so it is far slower than a plain file. `RawRows` works the same way, to locate an error."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from tsql.backends.io.csv.input import CsvBytes, fields_of_any_length
from tsql.kernels.expr.errors import SourceError

if TYPE_CHECKING:
    from tsql.backends.io.csv.dialect import Dialect

PART_ROWS = 1000

Numbered = tuple[Any, str]
"""A line and its number in the file, or other location."""


def without_comments(lines: Iterable[Numbered], comment: str, quote: str) -> Iterator[Numbered]:
    """The lines up to a comment mark outside quotes. A line with nothing else is dropped."""
    inside = False
    for number, line in lines:
        if not comment or comment not in line:
            inside ^= bool(quote) and line.count(quote) % 2 == 1
            yield number, line
            continue
        begun_inside, end = inside, len(line)
        for at, character in enumerate(line):
            if quote and character == quote:
                inside = not inside
            elif character == comment and not inside:
                end = at
                break
        if end == len(line):
            yield number, line
        elif begun_inside or line[:end].strip():
            yield number, line[:end] + "\n"


def shorter(lines: Iterable[Numbered], most_bytes: int, path: str, skip: bool) -> Iterator[Numbered]:
    """The lines of at most `most_bytes` bytes. A longer one is an error, or is skipped."""
    for number, line in lines:
        size = len(line.rstrip("\r\n").encode())
        if size <= most_bytes:
            yield number, line
        elif not skip:
            raise SourceError(
                f"{path}: line {number}: {size} bytes, more than max_line_size ({most_bytes})",
                hint="raise max_line_size, or skip such lines with ignore_errors => true",
            )


class LooseRows:
    """Rows of a file with unescaped quotes: a quote ends a field only before a delimiter or the end of the line."""

    def __init__(self, lines: Iterable[str], delimiter: str, quote: str) -> None:
        self.lines, self.delimiter, self.quote = iter(lines), delimiter, quote
        self.line_num = 0

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        text = self._line()
        fields: list[str] = []
        at = 0
        while True:
            if not text.startswith(self.quote, at):
                end = text.find(self.delimiter, at)
                fields.append(text[at:] if end < 0 else text[at:end])
            else:
                text, closing = self._closed(text, at + 1)
                fields.append(text[at + 1 : closing].replace(self.quote * 2, self.quote))
                end = closing + 1 if closing + 1 < len(text) else -1
            if end < 0:
                return fields if fields != [""] else []
            at = end + 1

    def _closed(self, text: str, start: int) -> tuple[str, int]:
        """The text with as many more lines as the field starting here needs, and where it ends."""
        closing = self._closing(text, start)
        if closing is not None:
            return text, closing
        lines, length = [text], len(text)
        while (more := self._line(None)) is not None:
            lines.append(more)
            closing = self._closing(more, 0)
            if closing is not None:
                return "\n".join(lines), length + 1 + closing
            length += 1 + len(more)
        text = "\n".join(lines)
        return text, len(text)

    def _closing(self, text: str, start: int) -> int | None:
        at = text.find(self.quote, start)
        while at >= 0:
            after = text[at + 1 : at + 2]
            if after == "" or after == self.delimiter:
                return at
            at = text.find(self.quote, at + (2 if after == self.quote else 1))
        return None

    def _line(self, *default: None) -> Any:
        line = next(self.lines, *default)
        if line is not None:
            self.line_num += 1
            line = line.rstrip("\r\n")
        return line


class PlainCsv(io.RawIOBase):
    """The rows of a file as CSV text with every quote doubled, which pyarrow reads best. If the file ends inside
    quotes, `unclosed` is called and decides whether the last row counts."""

    def __init__(
        self,
        stream: CsvBytes,
        dialect: Dialect,
        clean: Callable[[Iterable[Numbered]], Iterator[Numbered]],
        width: int | None,
        filler: str,
        unclosed: Callable[[], bool],
    ) -> None:
        super().__init__()
        self._open = ExitStack()
        self._open.enter_context(fields_of_any_length())
        text = self._open.enter_context(
            io.TextIOWrapper(io.BufferedReader(stream, 1 << 16), "utf-8-sig", errors="surrogateescape", newline="")
        )
        self._rows = _closed_rows(dialect, (line for _, line in clean(enumerate(_lines(text), 1))), unclosed)
        self._delimiter, self._width, self._filler = dialect.delimiter, width, filler
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            part = self._part()
            if not part:
                return 0
            self._ready = part
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _part(self) -> bytes:
        """The text of the next rows, padded."""
        text = io.StringIO()
        writer = csv.writer(
            text, delimiter=self._delimiter, lineterminator="\r\n"
        )  # what is in here is quoted in values
        for _, row in zip(range(PART_ROWS), self._rows, strict=False):
            if self._width is not None and row:
                row = row + [self._filler] * (self._width - len(row))
            writer.writerow(row) if row else text.write("\n")
        return text.getvalue().encode("utf-8", "surrogateescape")

    def close(self) -> None:
        if not self.closed:
            self._open.close()
        super().close()


def _closed_rows(dialect: Dialect, lines: Iterable[str], unclosed: Callable[[], bool]) -> Iterator[list[str]]:
    """The rows. If the text ends inside quotes, `unclosed` decides about the last one. Loose quotes need not be
    closed."""
    if dialect.loose or not dialect.quote:
        yield from dialect.rows(lines)
        return
    ended = False

    def marked() -> Iterator[str]:
        nonlocal ended
        yield from lines
        ended = True
        yield "\n"

    for row in dialect.rows(marked()):
        if not ended:
            yield row
        elif row and unclosed():
            # The empty line after the end is part of this row, so the row had not ended.
            yield [*row[:-1], row[-1].removesuffix("\n")]


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Lines with any line end, as the csv module wants them."""
    for line in text:
        yield line if line.endswith(("\n", "\r")) else line + "\n"


def plain_stream(raw: PlainCsv) -> pa.NativeFile:
    """The stream as pyarrow reads it."""
    return pa.PythonFile(io.BufferedReader(raw, 1 << 16), "r")


class RawRow(NamedTuple):
    """A row as it is in the file: its first line, the byte where that starts, its bytes, and its fields as bytes in
    latin-1."""

    line: int
    position: int
    text: str
    fields: list[str]

    def texts(self) -> list[str]:
        """The fields as text. Bytes that are not UTF-8 are replaced."""
        return [
            field if field.isascii() else field.encode("latin-1").decode("utf-8", "replace") for field in self.fields
        ]


class RawRows:
    """All rows of a file with their locations; slow. Latin-1 has one character per byte, so counting characters counts
    bytes."""

    def __init__(self, path: str, dialect: Dialect, skip: int, options: Mapping[str, Any]):
        self._open = ExitStack()
        self._open.enter_context(fields_of_any_length())
        stream = self._open.enter_context(CsvBytes(path, options))
        self._text = io.TextIOWrapper(io.BufferedReader(stream, 1 << 16), "latin-1", newline="")
        self._taken: list[Numbered] = []
        self._lines = self._taking(without_comments(self._placed(), dialect.comment, dialect.quote))
        for _ in range(skip):
            next(self._lines, None)
        self._taken.clear()
        self._rows = dialect.rows(self._lines)

    def _placed(self) -> Iterator[Numbered]:
        position = 0
        for number, line in enumerate(self._text, 1):
            length = len(line)
            if number == 1 and line.startswith("\xef\xbb\xbf"):
                line = line[3:]
            yield (number, position), line
            position += length

    def _taking(self, lines: Iterator[Numbered]) -> Iterator[str]:
        for place, line in lines:
            self._taken.append((place, line))
            yield line

    def __iter__(self) -> RawRows:
        return self

    def __next__(self) -> RawRow:
        fields = next(self._rows)
        (line, position), text = self._taken[0]
        if len(self._taken) > 1:
            text = "".join(part for _, part in self._taken)
        self._taken.clear()
        return RawRow(line, position, text, fields)

    def next_line(self) -> int | None:
        """The number of the next line that is not blank. The line is consumed: no row can be read after it."""
        for line in self._lines:
            if line.strip("\r\n"):
                return self._taken[-1][0][0]
        return None

    def __enter__(self) -> RawRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
