"""Row patterns as trees, and their text: what stands in PATTERN ( .. ) of MATCH_RECOGNIZE.

`routes` lists the ways in which a pattern can match, the preferred one first, as the SQL standard orders them:
alternatives from left to right, greedy quantifiers with as many repetitions as they can have, reluctant ones with as
few."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

Labels = tuple[str, ...]
"""The variables to which the rows of a match are mapped, from its first row on."""
Accept = Callable[[Labels], bool]
"""Whether the last row of these labels may be mapped as it is."""


@dataclass(frozen=True)
class Place:
    """Where a match starts in its partition and how many rows that has: what anchors have to know."""

    start: int
    rows: int


class Pattern(ABC):
    @abstractmethod
    def routes(self, place: Place, labels: Labels, accept: Accept) -> Iterator[Labels]:
        """Every way to go on after `labels`, in order of preference."""


@dataclass(frozen=True)
class Variable(Pattern):
    """One row that satisfies the variable's condition."""

    name: str

    def routes(self, place: Place, labels: Labels, accept: Accept) -> Iterator[Labels]:
        if place.start + len(labels) < place.rows and accept((*labels, self.name)):
            yield (*labels, self.name)


@dataclass(frozen=True)
class Sequence(Pattern):
    """Patterns one after the other; none of them is the empty pattern."""

    parts: tuple[Pattern, ...]

    def routes(self, place: Place, labels: Labels, accept: Accept) -> Iterator[Labels]:
        if not self.parts:
            yield labels
            return
        for so_far in self.parts[0].routes(place, labels, accept):
            yield from Sequence(self.parts[1:]).routes(place, so_far, accept)


@dataclass(frozen=True)
class Alternatives(Pattern):
    """The first that matches is preferred."""

    parts: tuple[Pattern, ...]

    def routes(self, place: Place, labels: Labels, accept: Accept) -> Iterator[Labels]:
        for part in self.parts:
            yield from part.routes(place, labels, accept)


@dataclass(frozen=True)
class Repeat(Pattern):
    """A pattern `least` to `most` times (None: no limit)."""

    part: Pattern
    least: int
    most: int | None
    greedy: bool = True

    def routes(self, place: Place, labels: Labels, accept: Accept) -> Iterator[Labels]:
        if self.least == 0 and not self.greedy:
            yield labels
        if self.most is None or self.most > 0:
            fewer = Repeat(self.part, max(self.least - 1, 0), None if self.most is None else self.most - 1, self.greedy)
            for so_far in self.part.routes(place, labels, accept):
                # A repetition that takes no row and is not asked for would go on for ever. It is no route, as in
                # ECMAScript and in an automaton.
                if len(so_far) > len(labels) or self.least > 0:
                    yield from fewer.routes(place, so_far, accept)
        if self.least == 0 and self.greedy:
            yield labels


@dataclass(frozen=True)
class Anchor(Pattern):
    """`^` before the first row of the partition, `$` after its last."""

    at_end: bool

    def routes(self, place: Place, labels: Labels, accept: Accept) -> Iterator[Labels]:
        position = place.start + len(labels)
        if position == (place.rows if self.at_end else 0):
            yield labels


TOKENS = re.compile(r"\s*(?:(?P<word>[A-Za-z_]\w*)|(?P<bounds>\{\s*\d*\s*,?\s*\d*\s*\})|(?P<sign>[()|*+?^$,]))")


def parse(text: str) -> Pattern:
    """The tree of a pattern: `A (B | C)+? D{2,} $`, `PERMUTE(A, B)`, `()`."""
    tokens: list[str] = []
    position = 0
    while text[position:].strip():
        match = TOKENS.match(text, position)
        if match is None:
            raise ValueError(f"bad pattern at {text[position:]!r}")
        tokens.append(match.group(match.lastgroup or 0).replace(" ", ""))
        position = match.end()
    pattern = _alternatives(tokens)
    if tokens:
        raise ValueError(f"bad pattern at {' '.join(tokens)!r}")
    return pattern


def _alternatives(tokens: list[str]) -> Pattern:
    parts = [_sequence(tokens)]
    while tokens[:1] == ["|"]:
        tokens.pop(0)
        parts.append(_sequence(tokens))
    return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))


def _sequence(tokens: list[str]) -> Pattern:
    parts = []
    while tokens and tokens[0] not in (")", "|", ","):
        parts.append(_quantified(tokens))
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def _quantified(tokens: list[str]) -> Pattern:
    part = _primary(tokens)
    bounds: tuple[int, int | None]
    if tokens and tokens[0] in ("*", "+", "?"):
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[tokens.pop(0)]
    elif tokens and tokens[0].startswith("{"):
        low, comma, high = tokens.pop(0)[1:-1].partition(",")
        bounds = (int(low or 0), int(high) if high else None if comma else int(low))
    else:
        return part
    greedy = tokens[:1] != ["?"]
    if not greedy:
        tokens.pop(0)
    return Repeat(part, *bounds, greedy)


def _primary(tokens: list[str]) -> Pattern:
    token = tokens.pop(0)
    if token in ("^", "$"):
        return Anchor(token == "$")
    if token.upper() == "PERMUTE" and tokens[:1] == ["("]:
        parts = []
        while tokens.pop(0) != ")":
            parts.append(_alternatives(tokens))
        return Alternatives(tuple(Sequence(order) for order in permutations(parts)))
    if token == "(":
        inside = _alternatives(tokens)
        if tokens[:1] != [")"]:
            raise ValueError("bad pattern: ) is missing")
        tokens.pop(0)
        return inside
    if not re.fullmatch(r"[A-Za-z_]\w*", token):
        raise ValueError(f"bad pattern at {token!r}")
    return Variable(token)
