"""The bytes of a CSV file for a parser: decompressed, converted to UTF-8, and checked for completeness.

`CsvSource` passes a `CsvBytes` to pyarrow. The sniffer reads its sample from one, and so does the search for the line
of an error."""

from __future__ import annotations

import atexit
import codecs
import csv
import io
import re
import secrets
import string
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tsql.backends.io import options as opt
from tsql.backends.io.files import check_whole, open_input
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.process import forks

LARGEST_LINE_BYTES = 1 << 26
"""The most bytes of a row, unless max_line_size is set."""
PART_BYTES = 1 << 20
_UTF8 = "utf-8"
_LINE_END = re.compile(rb"\r\n|\r|\n")


def encoding_of(options: Mapping[str, Any]) -> str:
    """Python's name for the encoding of the file."""
    stated = opt.text(options, "encoding")
    if stated is None:
        return _UTF8
    try:
        found = codecs.lookup(stated)
        "".encode(stated)  # refuses codecs that are no encodings of text, such as base64
    except (LookupError, ValueError):
        raise SourceError(
            f"unknown encoding {stated!r}",
            hint="encodings are 'utf-8', 'utf-16', 'latin-1' and others that Python knows",
        ) from None
    return found.name


def longest_row(options: Mapping[str, Any]) -> int:
    """The most bytes that a row may have."""
    return opt.count(options, "max_line_size", 0) or LARGEST_LINE_BYTES


def too_long(path: str, line: int, most_bytes: int) -> SourceError:
    """The error for a row that does not end."""
    return SourceError(
        (
            f"{path}: line {line}: the row that starts here has more than {most_bytes} bytes, or a quote in it "
            "is never closed"
        ),
        hint="max_line_size => n reads longer rows, quote => '' takes quotes as they are",
    )


class CsvBytes(io.RawIOBase):
    """The bytes of a file as UTF-8 without its first `skip` lines. The result of `ending` for the last byte is appended
    at the end.

    A file that has shrunk since it was opened is an error: its last row would be cut silently."""

    def __init__(
        self, path: str, options: Mapping[str, Any], skip: int = 0, ending: Callable[[bytes], bytes] | None = None
    ):
        super().__init__()
        self.path, self._skip, self._ending = path, skip, ending
        self._stream = open_input(path, opt.text(options, "compression"))
        self._encoding = encoding_of(options)
        self._decode = None if self._encoding == _UTF8 else codecs.getincrementaldecoder(self._encoding)().decode
        self._lines = 1
        self._last = b""
        self._ended, self._first = False, True
        self._rest = b""
        in_use(self)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(PART_BYTES), b""))
        if self._skip:
            self._skip_lines(size)
        if self._rest:
            part, self._rest = self._rest[:size], self._rest[size:]
        else:
            part = self._part(size)
        if self._first:
            # pyarrow needs the whole header in the first block, with its line end.
            self._first = False
            while part and len(part) < size and (more := self._part(size - len(part))):
                part += more
            if len(part) < size:
                return part + self._end(part[-1:])
        if part:
            self._last = part[-1:]
            return part
        return self._end(self._last)

    def _end(self, last: bytes) -> bytes:
        """What is appended after the last byte of the file, once."""
        if self._ended or self._ending is None:
            return b""
        self._ended = True
        return self._ending(last)

    def read_buffer(self, size: int) -> Any:
        """As `read`, in pyarrow's memory if the bytes are those of the file: it reuses its memory, and pyarrow tries
        this first."""
        if self._decode is not None or self._first or self._rest or self._ended:
            return self.read(size)
        part = self._stream.read_buffer(size)
        if not part.size:
            return self.read(size)
        self._last = part.slice(part.size - 1).to_pybytes()
        in_use(part)
        return part

    def readinto(self, buffer: Any) -> int:
        part = self.read(len(buffer))
        if len(part) > len(buffer):
            part, self._rest = part[: len(buffer)], part[len(buffer) :] + self._rest
        buffer[: len(part)] = part
        return len(part)

    def _part(self, size: int) -> bytes:
        """Some bytes as UTF-8; empty at the end of the file."""
        if self._decode is None:
            part = self._stream.read(size)
            if not part:
                check_whole(self.path, self._stream)
            return part
        while True:
            raw = self._stream.read(max(size, 16))
            if not raw:
                check_whole(self.path, self._stream)
            try:
                text = self._decode(raw, not raw)
            except UnicodeDecodeError as error:
                line = self._lines + error.object[: error.start].count(b"\n")
                raise SourceError(
                    f"{self.path}: after line {line}: the file is not valid {self._encoding}",
                    hint="encoding => '..' names another encoding",
                ) from None
            self._lines += text.count("\n")
            # Half of a surrogate pair is not text in any encoding.
            part = text.encode("utf-8", "replace")
            if part or not raw:
                return part

    def _skip_lines(self, size: int) -> None:
        skip, self._skip = self._skip, 0
        while skip and (part := self._with_whole_ends(size)):
            for end in _LINE_END.finditer(part):
                skip -= 1
                if not skip:
                    self._rest = part[end.end() :]
                    break

    def _with_whole_ends(self, size: int) -> bytes:
        """Some bytes that do not end inside a line end."""
        part = self._part(size)
        while part.endswith(b"\r") and (more := self._part(size)):
            part += more
        return part

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


class EndMark:
    """A row appended to a file that must come back from the parser. If it does not, a quote was open at the end, and
    the rest of the file would be one value. It has one field too many, so the parser reports it instead of reading it
    as data."""

    def __init__(self, delimiter: str, width: int, *others: str):
        letters = [c for c in string.ascii_lowercase if c not in (delimiter, *others)]
        self.text = "".join(secrets.choice(letters) for _ in range(16)) + delimiter * width
        self.seen = False

    def ending(self, last: bytes) -> bytes:
        """What is appended after the last byte of the file."""
        return (b"" if last in (b"", b"\n", b"\r") else b"\n") + self.text.encode() + b"\n"


_in_use: dict[int, weakref.ref[Any]] = {}
EXIT_SECONDS = 0.2


def in_use(thing: Any) -> None:
    """Remember an object that pyarrow threads may hold. If a thread dropped it during interpreter shutdown, the process
    would abort ("terminate called without an active exception"), so the exit waits a moment for those that are left."""
    key = id(thing)
    _in_use[key] = weakref.ref(thing, lambda _: _in_use.pop(key, None))


@atexit.register
def _wait_for_threads() -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    while _in_use and time.monotonic() < deadline:
        time.sleep(0.0005)


_fields = forks.lock()
_users = 0
_before = 0


@contextmanager
def fields_of_any_length() -> Iterator[None]:
    """Lift the limit of Python's csv module (131,072 characters per field) while this context is open. The limit is
    global to the process. It is restored when the last user leaves, unless somebody else has changed it meanwhile.
    Reading does not continue in the child of a fork, so the users of the parent do not count there."""
    global _users, _before
    generation = forks.generation()
    with _fields:
        _users += 1
        if _users == 1:
            _before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        with _fields:
            if forks.generation() == generation:
                _users -= 1
                if not _users:
                    _restore_limit()


def _restore_limit() -> None:
    if csv.field_size_limit() == sys.maxsize:
        csv.field_size_limit(_before)


def _in_child() -> None:
    global _users
    before, _users = _users, 0
    if before:
        _restore_limit()


forks.in_child(_in_child)
