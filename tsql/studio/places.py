"""Where an error is in the text of the page. Lines and columns count from 1, columns and positions in UTF-16 units, as
JavaScript and the editor count.

In: an error of tsql and the text that was sent. Out: the fields of the message `error`."""

from __future__ import annotations

import re
from typing import Any

from tsql.kernels.expr.errors import TsqlError

_TOKEN = re.compile(r"\w+|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\S")


def error_fields(error: TsqlError, text: str, part: str | None = None, start: int = 0) -> dict[str, Any]:
    """An error in `text`; `part` is the statement in it that begins at `start`, if the error may count from there."""
    message, place = error.message, None
    if error.position is not None and error.text is not None:
        if error.text == text:
            place = error.position
        elif error.text == part:
            place = error.position + start
    if place is None:
        where = error.line_column
        if where is not None and error.text not in (None, text, part):
            message = f"{message} (line {where[0]}, column {where[1]} of {error.origin or 'a text behind it'})"
        elif error.origin is not None and error.text is None:
            message = f"{error.origin}: {message}"
        return _fields(message, error.hint)
    place = min(place, len(text))
    token = _TOKEN.match(text, place)
    end = place if token is None else token.end()
    return _fields(message, error.hint, *_line_column(text, place), *_line_column(text, end))


def plain_error(message: str, hint: str | None = None) -> dict[str, Any]:
    """An error without a place."""
    return _fields(message, hint)


def _fields(
    message: str,
    hint: str | None,
    line: int | None = None,
    column: int | None = None,
    end_line: int | None = None,
    end_column: int | None = None,
) -> dict[str, Any]:
    return {
        "message": message,
        "hint": hint,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
    }


def _line_column(text: str, position: int) -> tuple[int, int]:
    start = text.rfind("\n", 0, position) + 1
    return text.count("\n", 0, position) + 1, units(text[start:position]) + 1


def units(text: str) -> int:
    """The length of a text in JavaScript."""
    return len(text) + sum(character > "\uffff" for character in text)


def position_of_units(text: str, count: int) -> int:
    """Where so many UTF-16 units of a text end."""
    if text.isascii():
        return max(0, min(count, len(text)))
    passed = 0
    for position, character in enumerate(text):
        if passed >= count:
            return position
        passed += 2 if character > "\uffff" else 1
    return len(text)
