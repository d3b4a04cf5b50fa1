"""Text that pyarrow's reader does not take as it is, made plain on the way to it: comments, short rows, stray quotes.

`CsvSource` puts a `PlainCsv` stream between the file and the reader where the options (or the sniffer) ask for one of them.
It goes row by row through Python, so it is slower than a plain file by far.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from tsql.kernels.errors import SourceError

PART_ROWS = 1000

Numbered = tuple[int, str]
"""A line and its number in the file."""


def without_comments(lines: Iterable[Numbered], comment: str, quote: str) -> Iterator[Numbered]:
    """The lines up to a comment mark outside quotes; a line that holds nothing else is left out."""
    inside = False
    for number, line in lines:
        if not comment or (comment not in line and not inside):
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
    """The lines of at most so many bytes; a longer one is an error, or is skipped."""
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
    """Rows of a file whose quotes need not be escaped: one ends a field only before a delimiter or the end of the line."""

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
                closing = self._closing(text, at + 1)
                while closing is None:
                    more = self._line(None)
                    if more is None:
                        break
                    text += "\n" + more
                    closing = self._closing(text, at + 1)
                closing = len(text) if closing is None else closing
                fields.append(text[at + 1 : closing].replace(self.quote * 2, self.quote))
                end = closing + 1 if closing + 1 < len(text) else -1
            if end < 0:
                return fields if fields != [""] else []
            at = end + 1

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
    """The rows of a file as CSV text with every quote doubled, which is what pyarrow reads best."""

    def __init__(
        self,
        stream: Any,
        rows: Callable[[Iterable[str]], Iterable[list[str]]],
        clean: Callable[[Iterable[Numbered]], Iterator[Numbered]],
        delimiter: str,
        width: int | None,
        filler: str,
    ) -> None:
        text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
        self._stream = text
        self._rows = rows(line for _, line in clean(enumerate(_lines(text), 1)))
        self._delimiter, self._width, self._filler = delimiter, width, filler
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
        writer = csv.writer(text, delimiter=self._delimiter, lineterminator="\n")
        for _, row in zip(range(PART_ROWS), self._rows, strict=False):
            if self._width is not None and row:
                row = row + [self._filler] * (self._width - len(row))
            writer.writerow(row) if row else text.write("\n")
        return text.getvalue().encode("utf-8", "surrogateescape")

    def close(self) -> None:
        self._stream.close()
        super().close()


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Lines with any line end, as the csv module wants them."""
    for line in text:
        yield line if line.endswith("\n") else line + "\n"


def plain_stream(raw: PlainCsv) -> pa.NativeFile:
    """The stream as pyarrow reads it."""
    return pa.PythonFile(io.BufferedReader(raw, 1 << 16), "r")
