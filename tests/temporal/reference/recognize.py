"""MATCH_RECOGNIZE by backtracking: tries the routes of a pattern in order of preference and takes the first that every
row satisfies.

Conditions and measures are functions of a `View`, which answers SQL's questions about a match: LAST, FIRST, PREV, NEXT,
CLASSIFIER, aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.temporal.reference.pattern import Labels, Pattern, Place, parse
from tests.temporal.reference.rows import Rows, grouped, key_of

Condition = Callable[["View"], Any]


class SkipError(ValueError):
    """AFTER MATCH SKIP TO names a row that is not there, or the row at which the match started."""


@dataclass(frozen=True)
class View:
    """A match as seen from one of its rows: `current` counts from its first row. Running: what comes after `current` is
    not seen."""

    rows: Rows
    start: int
    labels: Labels
    current: int
    match_number: int

    @property
    def final(self) -> View:
        """FINAL: the match as seen from its last row."""
        return View(self.rows, self.start, self.labels, len(self.labels) - 1, self.match_number)

    def last(self, column: str, variable: str | None = None, n: int = 0) -> Any:
        """LAST(variable.column, n), which is also what plain `variable.column` means: n rows of that variable before
        its last one."""
        return self._value(self._logical(variable, n, from_end=True), 0, column)

    def first(self, column: str, variable: str | None = None, n: int = 0) -> Any:
        """FIRST(variable.column, n)"""
        return self._value(self._logical(variable, n, from_end=False), 0, column)

    def prev(self, column: str, n: int = 1, variable: str | None = None, inner: tuple[str, int] = ("last", 0)) -> Any:
        """PREV(LAST(variable.column, i), n): n rows of the partition before it, be they in the match or not. `inner` is
        ("first" or "last", i)."""
        return self._value(self._logical(variable, inner[1], from_end=inner[0] == "last"), -n, column)

    def next(self, column: str, n: int = 1, variable: str | None = None, inner: tuple[str, int] = ("last", 0)) -> Any:
        """NEXT(LAST(variable.column, i), n)"""
        return self.prev(column, -n, variable, inner)

    def mapped(self, variable: str | None = None) -> Rows:
        """The rows seen that are mapped to a variable, or all of them: what aggregates run over."""
        return [self.rows[self.start + place] for place in self._places(variable)]

    def classifier(self) -> str | None:
        """CLASSIFIER()"""
        return self.labels[self.current] if 0 <= self.current < len(self.labels) else None

    def _places(self, variable: str | None) -> list[int]:
        return [
            place
            for place, label in enumerate(self.labels[: self.current + 1])
            if variable is None or label == variable
        ]

    def _logical(self, variable: str | None, n: int, from_end: bool) -> int | None:
        places = self._places(variable)
        if n >= len(places):
            return None
        return places[-1 - n] if from_end else places[n]

    def _value(self, place: int | None, shift: int, column: str) -> Any:
        if place is None:
            return None
        position = self.start + place + shift
        return self.rows[position][column] if 0 <= position < len(self.rows) else None


def match_recognize(
    rows: Rows,
    pattern: str | Pattern,
    define: Mapping[str, Condition],
    measures: Mapping[str, Condition],
    order_by: str,
    partition_by: Sequence[str] = (),
    all_rows: bool = False,
    empty: bool = True,
    unmatched: bool = False,
    skip: str = "PAST LAST ROW",
    within: int | None = None,
) -> Rows:
    """The rows of MATCH_RECOGNIZE.

    A variable without a condition accepts every row. `all_rows`: ALL ROWS PER MATCH, with `empty` False OMIT EMPTY
    MATCHES and with `unmatched` WITH UNMATCHED ROWS. `skip` is PAST LAST ROW, TO NEXT ROW, TO FIRST x, TO LAST x or TO
    x. `within`: the last row is less than that after the first. Rows are ordered by `order_by`, NULLs last, ties as in
    the input."""
    tree = parse(pattern) if isinstance(pattern, str) else pattern
    result: Rows = []
    for partition in grouped(rows, partition_by).values():
        ordered = sorted(partition, key=lambda row: (row[order_by] is None, row[order_by] or 0))
        covered: set[int] = set()
        output: Rows = []
        position, number = 0, 1
        while position < len(ordered):
            labels = find(tree, define, ordered, position, number, order_by, within)
            if labels is None:
                position += 1
                continue
            if all_rows:
                seen = range(len(labels)) if labels else [-1] if empty else []
                for current in seen:
                    view = View(ordered, position, labels, current, number)
                    output.append(
                        ordered[position + max(current, 0)]
                        | {name: measure(view) for name, measure in measures.items()}
                    )
            else:
                view = View(ordered, position, labels, len(labels) - 1, number)
                keys = dict(zip(partition_by, key_of(ordered[position], partition_by)))
                output.append(keys | {name: measure(view) for name, measure in measures.items()})
            covered.update(range(position, position + max(len(labels), 1)))
            position, number = after_match(skip, position, labels), number + 1
        result.extend(output)
        if all_rows and unmatched:
            result.extend(
                row | {name: None for name in measures} for place, row in enumerate(ordered) if place not in covered
            )
    return result


def find(
    pattern: Pattern,
    define: Mapping[str, Condition],
    rows: Rows,
    start: int,
    number: int,
    order_by: str,
    within: int | None = None,
) -> Labels | None:
    """The preferred match that starts at a row, or None; the empty match is ()."""

    def accept(labels: Labels) -> bool:
        if within is not None and not _inside(rows, start, start + len(labels) - 1, order_by, within):
            return False
        condition = define.get(labels[-1])
        return condition is None or bool(condition(View(rows, start, labels, len(labels) - 1, number)))

    return next(pattern.routes(Place(start, len(rows)), (), accept), None)


def after_match(skip: str, start: int, labels: Labels) -> int:
    """Where the search goes on after a match. After an empty one that is always the next row."""
    if not labels or skip == "TO NEXT ROW":
        return start + 1
    if skip == "PAST LAST ROW":
        return start + len(labels)
    *_, which, variable = ["LAST", *skip.split()]
    places = [place for place, label in enumerate(labels) if label == variable]
    if not places:
        raise SkipError(f"AFTER MATCH SKIP: no row of the match is mapped to {variable}")
    place = places[0] if which == "FIRST" else places[-1]
    if place == 0:
        raise SkipError("AFTER MATCH SKIP: cannot skip to the first row of the match")
    return start + place


def less(one: Any, other: Any) -> bool | None:
    """SQL's <: NULL if a side is."""
    return None if one is None or other is None else one < other


def _inside(rows: Rows, first: int, last: int, order_by: str, within: int) -> bool:
    """Whether the row at `last` is near enough; a row without a time is near nothing, not even itself."""
    begin, end = rows[first][order_by], rows[last][order_by]
    return begin is not None and end is not None and end - begin < within
