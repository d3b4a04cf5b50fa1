"""Row patterns as frozen trees, and their text, which reads back to an equal tree: plan steps hold it.

`tsql/analyze/time/match.py` makes them of the syntax tree; `program.py` compiles them.
"""

from __future__ import annotations

import re

from tsql.kernels.process.quick_dataclass import dataclass

MAX_NESTING = 200
"""Levels of parentheses; SQL allows no more."""


@dataclass(frozen=True)
class Pattern:
    """Base of patterns. `fewest`: the least number of rows that it takes."""

    @property
    def fewest(self) -> int:
        return 0

    def variables(self) -> tuple[str, ...]:
        """The names of its variables, each once, in the order of the text."""
        return ()

    def text(self) -> str:
        raise NotImplementedError

    def part_text(self) -> str:
        """The text as a part of a sequence."""
        return self.text()

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True)
class Variable(Pattern):
    """One row that satisfies the variable's condition."""

    name: str

    @property
    def fewest(self) -> int:
        return 1

    def variables(self) -> tuple[str, ...]:
        return (self.name,)

    def text(self) -> str:
        return self.name if re.fullmatch(r"[^\W\d]\w*", self.name) else '"{}"'.format(self.name.replace('"', '""'))


@dataclass(frozen=True)
class Anchor(Pattern):
    """`^`, before the first row of the partition, or `$`, behind its last."""

    at_end: bool

    def text(self) -> str:
        return "$" if self.at_end else "^"


@dataclass(frozen=True)
class Sequence(Pattern):
    """Patterns one after the other; none is the empty pattern."""

    parts: tuple[Pattern, ...]

    @property
    def fewest(self) -> int:
        return sum(part.fewest for part in self.parts)

    def variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts for name in part.variables()))

    def text(self) -> str:
        return " ".join(part.part_text() for part in self.parts) or "()"


@dataclass(frozen=True)
class Choice(Pattern):
    """The first of the parts that leads to a match."""

    parts: tuple[Pattern, ...]

    @property
    def fewest(self) -> int:
        return min(part.fewest for part in self.parts)

    def variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts for name in part.variables()))

    def text(self) -> str:
        return " | ".join(part.text() for part in self.parts)

    def part_text(self) -> str:
        return f"({self.text()})"


@dataclass(frozen=True)
class Repeat(Pattern):
    """A pattern `least` to `most` times (None: no limit), most first unless `reluctant`."""

    part: Pattern
    least: int
    most: int | None
    reluctant: bool = False

    @property
    def fewest(self) -> int:
        return self.least * self.part.fewest

    def variables(self) -> tuple[str, ...]:
        return self.part.variables()

    def text(self) -> str:
        inner = self.part.text()
        grouped = isinstance(self.part, Repeat | Choice) or (isinstance(self.part, Sequence) and self.part.parts)
        bounds = (
            f"{self.least}" if self.least == self.most else f"{self.least},{'' if self.most is None else self.most}"
        )
        sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((self.least, self.most), f"{{{bounds}}}")
        return f"{f'({inner})' if grouped else inner}{sign}{'?' if self.reluctant else ''}"


_TOKEN = re.compile(
    r'\s*(?:(?P<name>[^\W\d]\w*)|"(?P<quoted>(?:[^"]|"")*)"|(?P<bounds>\{\d*,?\d*\})|(?P<sign>[()|*+?^$]))'
)


def read_pattern(text: str) -> Pattern:
    """The pattern of a text that `Pattern.text` wrote, or a person in a plan file; raises ValueError for any other."""
    reader = _Reader(text)
    pattern = reader.choice(0)
    if reader.sign:
        raise ValueError(f"unexpected {reader.sign} in the pattern")
    return pattern


class _Reader:
    """Reads a pattern; `sign`, `name` or `bounds` is the token at hand."""

    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.advance()

    def advance(self) -> None:
        self.sign, self.name, self.bounds = "", None, ""
        if not self.text[self.at :].strip():
            return
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            raise ValueError(f"the pattern cannot be read at {self.text[self.at :].strip()[:20]!r}")
        self.at = found.end()
        quoted = found["quoted"]
        self.name = found["name"] if quoted is None else quoted.replace('""', '"')
        self.sign, self.bounds = found["sign"] or found["bounds"] or "", found["bounds"] or ""

    def choice(self, depth: int) -> Pattern:
        if depth > MAX_NESTING:
            raise ValueError("the pattern is nested too deeply")
        parts = [self.sequence(depth)]
        while self.sign == "|":
            self.advance()
            parts.append(self.sequence(depth))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def sequence(self, depth: int) -> Pattern:
        parts: list[Pattern] = []
        while self.name is not None or self.sign in ("(", "^", "$"):
            parts.append(self.repeat(depth))
        if not parts:
            raise ValueError(f"a variable is missing before {self.sign or 'the end'} in the pattern")
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def repeat(self, depth: int) -> Pattern:
        part = self.primary(depth)
        if self.bounds:
            low, comma, high = self.bounds[1:-1].partition(",")
            least = int(low or 0)
            most = int(high) if high else None if comma else least
            if not (low or high) or (most is not None and most < max(least, 1)):
                raise ValueError(f"the quantifier {self.bounds} has no sense")
        elif self.sign in ("*", "+", "?"):
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self.sign]
        else:
            return part
        self.advance()
        reluctant = self.sign == "?"
        if reluctant:
            self.advance()
        return Repeat(part, least, most, reluctant)

    def primary(self, depth: int) -> Pattern:
        name, sign = self.name, self.sign
        self.advance()
        if name is not None:
            return Variable(name)
        if sign in ("^", "$"):
            return Anchor(sign == "$")
        inner = Sequence(()) if self.sign == ")" else self.choice(depth + 1)
        if self.sign != ")":
            raise ValueError("a ) is missing in the pattern")
        self.advance()
        return inner
