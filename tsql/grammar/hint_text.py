"""Reads the text of a hint, `/*+ NAME(argument, option => value), .. */`, into `Hint`s; `analyze` calls it.

The text is read here rather than by sqlglot, which keeps a hint whose name is a keyword (JOIN) as one raw string.
"""

from __future__ import annotations

import re
from typing import Any

from tsql.kernels.expr.errors import ParseError
from tsql.planner.hints.constraints import Hint

_WORD = r'[A-Za-z_]\w*|"(?:[^"]|"")*"'
_TOKEN = re.compile(
    rf"\s*(?:(?P<word>{_WORD})|(?P<text>'(?:[^']|'')*')|(?P<number>[+-]?\d+(?:\.\d+)?)|(?P<mark>=>|[(),=]))"
)


class HintReader:
    """One hint comment; `start` is where its inside begins in the whole text."""

    def __init__(self, inside: str, start: int):
        self.inside, self.start, self.at = inside, start, 0

    def read(self) -> list[Hint]:
        found: list[Hint] = []
        while not self._ended():
            if found:
                self._skip(",")
            found.append(self._hint())
        return found

    def _ended(self) -> bool:
        return not self.inside[self.at :].strip()

    def _peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self.inside, self.at)

    def _skip(self, mark: str) -> bool:
        """Pass over a mark if it is next."""
        token = self._peek()
        if token is None or token["mark"] != mark:
            return False
        self.at = token.end()
        return True

    def _error(self) -> ParseError:
        position = self.start + self.at + len(self.inside[self.at :]) - len(self.inside[self.at :].lstrip())
        return ParseError("cannot read this hint: hints are names with arguments, as in SHARDS(16)", position=position)

    def _hint(self) -> Hint:
        token = self._peek()
        if token is None or token["word"] is None:
            raise self._error()
        self.at = token.end()
        args: list[Any] = []
        options: list[tuple[str, Any]] = []
        if self._skip("(") and not self._skip(")"):
            while True:
                self._argument(args, options)
                if self._skip(")"):
                    break
                if not self._skip(","):
                    raise self._error()
        return Hint(_name(token["word"]).upper(), tuple(args), tuple(options), self.start + token.start("word"))

    def _argument(self, args: list[Any], options: list[tuple[str, Any]]) -> None:
        token = self._peek()
        value = self._value()
        if token is not None and token["word"] is not None and (self._skip("=>") or self._skip("=")):
            options.append((value.lower(), self._value()))
        else:
            args.append(value)

    def _value(self) -> Any:
        token = self._peek()
        if token is None or token["mark"] is not None:
            raise self._error()
        self.at = token.end()
        if token["word"] is not None:
            return _name(token["word"])
        if token["text"] is not None:
            return token["text"][1:-1].replace("''", "'")
        return float(token["number"]) if "." in token["number"] else int(token["number"])


def _name(word: str) -> str:
    return word[1:-1].replace('""', '"') if word.startswith('"') else word
