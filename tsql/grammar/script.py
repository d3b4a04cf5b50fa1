"""Splits a script into its statements, and finds the parameters that it names; the session, the CLI and the shell call
it.

It understands only what is needed to find the semicolons: strings, quoted names, comments. The grammar is the parser's
job, which refuses a wrongly split statement with a position in the whole script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tsql.kernels.expr.errors import TsqlError
from tsql.kernels.process.quick_dataclass import dataclass

_TOKEN = re.compile(
    r"""
      (?P<string>[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*')
    | (?P<name>"(?:[^"]|"")*")
    | (?P<dollar>\$(?P<tag>[A-Za-z_]\w*|)\$.*?\$(?P=tag)\$)
    | (?P<open>[eE]?'|"|\$(?:[A-Za-z_]\w*|)\$)
    | (?P<comment>--[^\n]*)
    | (?P<block>/\*)
    | (?P<parameter>\$\w+|\?\d*)
    | (?P<semicolon>;)
    | (?P<word>[A-Za-z_][\w$]*|\S)
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")


@dataclass(frozen=True)
class Piece:
    """One statement of a script: its text, where it starts in the whole, and the parameters that it names."""

    text: str
    start: int
    whole: str
    origin: str | None = None
    parameters: tuple[str, ...] = ()
    places: tuple[int, ...] = ()
    """The position in the script where each parameter is first named."""

    def relocate(self, error: TsqlError) -> TsqlError:
        """Let an error whose position is in this statement point into the whole script instead."""
        if error.text is None or error.text == self.text:
            if error.position is not None and not getattr(error, "relocated", False):
                error.position += self.start
                error.relocated = True
            error.text = self.whole
        if error.origin is None:
            error.origin = self.origin
        return error


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind, start, end) of everything but blanks; an open string, name or comment reaches to the end as kind
    "open"."""
    position = 0
    while match := _TOKEN.search(text, position):
        kind, start, end = match.lastgroup, match.start(), match.end()
        if kind == "block":
            depth = 1
            while depth and (edge := _BLOCK_EDGE.search(text, end)):
                depth += 1 if edge.group() == "/*" else -1
                end = edge.end()
            kind = "open" if depth else "comment"
        if kind == "open":
            yield "open", start, len(text)
            return
        yield kind, start, end
        position = end


def _outside_patterns(text: str) -> Iterator[tuple[str, int, int]]:
    """The tokens, with a `?` in the PATTERN (..) of a MATCH_RECOGNIZE as a word: there it is a quantifier."""
    matching, depth, before = False, 0, ""
    for kind, start, end in _tokens(text):
        word = text[start:end].upper()
        if depth:
            depth += (word == "(") - (word == ")")
            kind = "word" if kind == "parameter" else kind
        elif kind == "semicolon":
            matching = False
        elif word == "(" and before == "PATTERN" and matching:
            depth = 1
        matching = matching or word == "MATCH_RECOGNIZE"
        before = before if kind == "comment" else word
        yield kind, start, end


def split(text: str, origin: str | None = None) -> list[Piece]:
    """The statements of a script, without their semicolons; pieces that hold nothing but comments are left out. The
    parameters of a PREPARE are not those of the script."""
    pieces: list[Piece] = []
    start, first, last, positional = 0, None, 0, 0
    names: dict[str, int] = {}

    def add(end: int) -> None:
        own = {} if text[first : first + 8].upper().rstrip() == "PREPARE" else names
        pieces.append(Piece(text[start:end], start, text, origin, tuple(own), tuple(own.values())))

    for kind, begin, end in _outside_patterns(text):
        if kind == "semicolon":
            if first is not None:
                add(begin)
            start, first, names, positional = end, None, {}, 0
        elif kind != "comment":
            first = begin if first is None else first
            last = end
            if kind == "parameter":
                token = text[begin:end]
                positional += token == "?"
                names.setdefault(str(positional) if token == "?" else token[1:], begin)
    if first is not None:
        add(len(text) if "--" not in text[last:] else last)
    return pieces


def is_complete(text: str) -> bool:
    """Whether the last thing in the text, comments aside, is the semicolon that ends a statement (or there is
    nothing)."""
    kind = "semicolon"
    for token, _, _ in _tokens(text):
        if token != "comment":
            kind = token
    return kind == "semicolon"
