"""Finds the delimiter, quote and escape of a CSV file: the dialect in which a sample has the most columns consistently.

`csv_sniff` calls `find_dialect`. Callers keep `fields_of_any_length` open; otherwise a long field would end the
rows."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from tsql.backends.io import options as opt
from tsql.backends.io.csv.lines import LooseRows
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.process.quick_dataclass import dataclass

DELIMITERS = (",", "|", ";", "\t")
DIALECT_BYTES = 65_536
DIALECT_ROWS = 3
SCORED_ROWS = 2_000


class Score(NamedTuple):
    """How well a dialect fits a sample. The first three values decide; larger is better."""

    consistent: bool
    width: int
    quoted: int
    rows: int


@dataclass(frozen=True)
class Dialect:
    """How rows and fields are separated. An empty quote or escape means none. `loose`: quotes inside a quoted field
    need no escape. `comment`: text after this character is ignored, unless it is empty."""

    delimiter: str
    quote: str
    escape: str
    loose: bool = False
    comment: str = ""

    def rows(self, lines: Any, strict: bool = False) -> Any:
        """The reader of this dialect, over lines without comments."""
        if self.loose and self.quote:
            return LooseRows(lines, self.delimiter, self.quote)
        doubled = self.escape in ("", self.quote)
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote or None,
            doublequote=doubled,
            escapechar=None if doubled else self.escape,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            strict=strict,
        )


def find_dialect(text: str, whole: bool, options: Mapping[str, Any]) -> tuple[Dialect, bool]:
    """The dialect that fits a sample best, and whether all rows then have the same width. The start of the sample is
    enough, unless it has very few rows. `whole`: the sample is the entire file."""
    size = DIALECT_BYTES
    while True:
        dialect, score = _best(text[:size], whole and len(text) <= size, options)
        if score.rows >= DIALECT_ROWS or size >= len(text):
            return dialect, score.consistent
        size *= 8


def _best(text: str, whole: bool, options: Mapping[str, Any]) -> tuple[Dialect, Score]:
    delimiter = opt.character(options, "delim", "sep", "delimiter")
    quote, escape = opt.character(options, "quote"), opt.character(options, "escape")
    comment = opt.character(options, "comment")
    if delimiter == "":
        raise SourceError("option delim is empty")
    opt.check_marks(delimiter, quote, escape, comment, opt.texts(options, "nullstr") or ())
    delimiters = (
        (delimiter,)
        if delimiter is not None
        else tuple(mark for mark in DELIMITERS if mark not in (quote, escape, comment))
    )
    usual = tuple(
        mark for mark in ('"', "'") if mark not in (delimiter, comment) and (mark == '"' or mark in text)
    ) or ("",)
    quotes = (quote,) if quote is not None else usual
    padded = bool(opt.flag(options, "null_padding"))
    found: list[tuple[Score, Dialect]] = []
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
        found += [
            (score, c)
            for c in (Dialect(d, "", "") for d in delimiters)
            if (score := _score(text, c, whole, padded)) is not None
        ]
    if not found:
        return Dialect(delimiters[0], quotes[0], escape or quotes[0]), Score(False, 1, 0, 0)
    best = max(score[:3] for score, _ in found)
    return next((candidate, score) for score, candidate in found if score[:3] == best)


def _score(text: str, dialect: Dialect, whole: bool, padded: bool) -> Score | None:
    """How well a dialect fits the sample; None if its quotes do not close. `padded` rows have the width of the
    longest."""
    found = _strict_rows(text, dialect, whole)
    if found is None:
        return None
    widths = Counter(len(row) for row in found if row)
    if not widths:
        return Score(False, 1, 0, len(found))
    if padded:
        widths = Counter({max(widths): widths.total()})
    width, rows = widths.most_common(1)[0]
    consistent = len(widths) == 1
    if width == 1 or (not consistent and rows * 2 <= widths.total()):
        return Score(consistent and width > 1, 1, 0, len(found))
    quoted = text.count(dialect.delimiter + dialect.quote) + text.count("\n" + dialect.quote) if dialect.quote else 0
    return Score(consistent, width, quoted, len(found))


def _strict_rows(text: str, dialect: Dialect, whole: bool) -> list[list[str]] | None:
    """The first rows of a sample; None if a quote is never closed, or text stands between a quoted field and the next
    field."""
    if dialect.loose or not dialect.quote:
        return rows_of(text, dialect, whole, SCORED_ROWS)
    rows: list[list[str]] = []
    try:
        for row in dialect.rows(io.StringIO(text), strict=True):
            if len(rows) <= SCORED_ROWS:
                rows.append(row)
    except csv.Error as error:
        if whole or "unexpected end of data" not in str(error):
            return None
        return rows[:SCORED_ROWS]  # the row that is cut has not come
    return rows[:SCORED_ROWS] if whole or len(rows) > SCORED_ROWS else rows[:-1]


def rows_of(text: str, dialect: Dialect, whole: bool, limit: int) -> list[list[str]]:
    """The rows of a sample, at most `limit` that are not blank; without the last row if it may be cut."""
    rows: list[list[str]] = []
    found = 0
    for row in dialect.rows(io.StringIO(text)):
        found += bool(row)
        if found > limit:
            return rows
        rows.append(row)
    return rows if whole else rows[:-1]
