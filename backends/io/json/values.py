"""JSON text → a stream of values with their lines, and values → columns: the layers of `JsonSource` below the schema.

Three layouts are read: one value per line (NDJSON), a top-level array, and values separated by any white space. All are
read piece by piece, so memory is bounded by the largest value, not by the file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

from tsql.backends.io.files import check_whole, open_input
from tsql.backends.io.text import parser
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.types import Type

BLOCK_BYTES = 1 << 21
CHUNK_CHARS = 1 << 18
BAD = object()
"""Stands for a value that could not be parsed, if errors are ignored: it becomes a row of NULLs."""


def layout_of(path: str, compression: str | None) -> str:
    """`array`, `newline_delimited` or `unstructured`, by the first character and the first line."""
    with open_input(path, compression) as stream:
        head = stream.read(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip()
    if head[:1] == b"[":
        first = head.split(b"\n", 1)[0]
        lines = [line for line in head.split(b"\n") if line.strip()]
        return "newline_delimited" if len(lines) > 1 and _parses(first) and lines[1][:1] == b"[" else "array"
    first = head.split(b"\n", 1)[0]
    return "newline_delimited" if len(first) == 1 << 16 or _parses(first) else "unstructured"


def _parses(line: bytes) -> bool:
    try:
        json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    return True


def values(path: str, layout: str, compression: str | None, ignore_errors: bool = False) -> Iterator[tuple[int, Any]]:
    """(line, value) for each top-level value, or each element of the top-level array."""
    if layout == "newline_delimited":
        for first_line, block in blocks(path, compression):
            yield from block_values(path, first_line, block, ignore_errors)
        return
    with open_input(path, compression) as stream:
        yield from _stream(path, stream, layout == "array")


def blocks(path: str, compression: str | None) -> Iterator[tuple[int, bytes]]:
    """A file in pieces of whole lines, each with the number of its first line."""
    line = 1
    rest: list[bytes] = []
    with open_input(path, compression) as stream:
        while part := stream.read(BLOCK_BYTES):
            if line == 1 and not rest:
                part = part.removeprefix(b"\xef\xbb\xbf")
            cut = part.rfind(b"\n") + 1
            if not cut:
                rest.append(part)
                continue
            block, rest = b"".join([*rest, part[:cut]]), [part[cut:]]
            yield line, block
            line += block.count(b"\n")
        check_whole(path, stream)
    last = b"".join(rest)
    if last.strip():
        yield line, last


def block_values(path: str, first_line: int, block: bytes, ignore_errors: bool) -> Iterator[tuple[int, Any]]:
    """(line, value) for each line of a block that is not blank."""
    for number, raw in enumerate(block.split(b"\n"), first_line):
        if not raw.strip():
            continue
        try:
            yield number, json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            if not ignore_errors:
                raise SourceError(
                    f"{path}: line {number}: malformed JSON: {_reason(error)}",
                    hint="ignore_errors => true reads such lines as NULL",
                ) from None
            yield number, BAD


def _stream(path: str, stream: Any, array: bool) -> Iterator[tuple[int, Any]]:
    text = io.TextIOWrapper(stream, "utf-8-sig")
    decode = json.JSONDecoder().raw_decode
    buffer, line, at, ended = "", 1, 0, False
    counted = 0  # the line ends before this place are in `line`

    def more() -> None:
        nonlocal buffer, line, at, ended, counted
        line += buffer.count("\n", counted, at)
        try:
            part = text.read(max(CHUNK_CHARS, len(buffer) - at))
        except UnicodeDecodeError:
            raise SourceError(f"{path}: after line {line}: not valid UTF-8") from None
        ended = not part
        if ended:
            check_whole(path, stream)
        buffer, at, counted = buffer[at:] + part, 0, 0

    def peek() -> str:
        nonlocal at
        while True:
            while at < len(buffer) and buffer[at] in " \t\r\n":
                at += 1
            if at < len(buffer) or ended:
                return buffer[at : at + 1]
            more()

    def fail(reason: str, where: int) -> SourceError:
        return SourceError(f"{path}: line {line + buffer.count(chr(10), counted, where)}: malformed JSON: {reason}")

    first = True
    if array:
        if peek() != "[":
            raise fail("expected a top-level array", at)
        at += 1
    while True:
        found = peek()
        if found == "":
            if array:
                raise fail("the array is not closed", at)
            return
        if array and found == "]" and first:
            at += 1
            break
        if array and not first:
            if found not in ",]":
                raise fail("expected , or ] between elements", at)
            at += 1
            if found == "]":
                break
            peek()
        while True:
            try:
                value, end = decode(buffer, at)
                if end < len(buffer) or ended:
                    break
            except (ValueError, RecursionError) as error:
                if ended or not _incomplete(error, len(buffer)):
                    raise fail(_reason(error), getattr(error, "pos", at)) from None
            more()
        line, counted = line + buffer.count("\n", counted, at), at
        yield line, value
        at, first = end, False
    if peek():
        raise fail("text after the end of the array", at)


def _incomplete(error: Exception, length: int) -> bool:
    """Whether a value may just be cut off by the end of the buffer."""
    return isinstance(error, json.JSONDecodeError) and (
        error.pos >= length - 16 or error.msg.startswith("Unterminated")
    )


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not valid UTF-8"
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


def as_text(value: Any) -> str:
    """A JSON value as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def reader(kind: Type, as_json: bool) -> Callable[[Any], Any]:
    """The function that converts a JSON value (not null) to the stored form of `kind`, or None if it does not fit."""
    if as_json:
        return as_text
    if kind.name == "VARCHAR":
        return lambda value: value if isinstance(value, str) else as_text(value)
    read = parser(kind)
    if kind.is_integer:
        low, high = kind.bounds

        def integer(value: Any) -> int | None:
            if isinstance(value, int):
                return int(value) if low <= value <= high else None
            return read(value) if isinstance(value, str) else read(repr(value)) if isinstance(value, float) else None

        return integer
    if kind.is_float:
        return lambda value: (
            float(value)
            if (isinstance(value, int | float) and abs(value) < 10**308) or isinstance(value, float)
            else read(value)
            if isinstance(value, str)
            else None
        )
    if kind.name == "BOOLEAN":
        return lambda value: value if isinstance(value, bool) else read(value) if isinstance(value, str) else None
    if kind.is_decimal:
        return lambda value: (
            read(value if isinstance(value, str) else repr(value))
            if not isinstance(value, bool | list | dict)
            else None
        )
    return lambda value: read(value) if isinstance(value, str) else None
