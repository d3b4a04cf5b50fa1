"""Hints: what a query's `/*+ .. */` demands of its plan. They are constraints: one that cannot hold is an error that says why.

`make_plan` reads them into a `Constraints`; the enumerator asks it and tells it where each was applied, and what is left
unapplied in the end is refused. The plan's notes list every hint with its place, and `explain` prints the notes.

    SHARDS(n)                                       the plan has n shards
    AGG('one_phase'|'two_phase'|'two_phase_gather') how groups are made: rows placed by key first; partial groups placed
                                                    by key; partial groups merged on one shard
    REDISTRIBUTE(table, column, .. [, scope => 'local'|'global'])   the table's rows are placed by these columns
    BROADCAST, LEADING, JOIN                        need a join
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tsql.kernels.errors import PlanError
from tsql.planner.logical import Node, Scan
from tsql.planner.movement import SCOPES

HINTS = ("SHARDS", "AGG", "REDISTRIBUTE", "BROADCAST", "LEADING", "JOIN")
NEED_JOIN = ("BROADCAST", "LEADING", "JOIN")
AGGREGATIONS = ("one_phase", "two_phase", "two_phase_gather")
MAX_SHARDS = 4096


@dataclass(frozen=True)
class Hint:
    """One hint of `/*+ .. */`: its name, its arguments (names or constants as written) and its named options."""

    name: str
    args: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    position: int | None = None

    def __str__(self) -> str:
        shown = [repr(a) if self.name == "AGG" else str(a) for a in self.args]
        shown += [f"{name} => {value!r}" for name, value in self.options]
        return f"{self.name}({', '.join(shown)})"


@dataclass(frozen=True)
class Placement:
    """The demand that the rows of a table are placed by columns; no scope means the target's own."""

    hint: Hint
    columns: tuple[str, ...]
    scope: str | None


@dataclass(frozen=True)
class Aggregation:
    """The demand that groups are made in one of the AGGREGATIONS."""

    hint: Hint
    how: str

    def refuse(self, reason: str) -> PlanError:
        return PlanError(f"{self.hint} cannot hold: {reason}", position=self.hint.position, hint="use AGG('one_phase')")


@dataclass
class Constraints:
    """The hints of one query, checked against its tables."""

    hints: tuple[Hint, ...] = ()
    shards: int | None = None
    aggregation: Aggregation | None = None
    placements: dict[str, Placement] = field(default_factory=dict)
    applied: dict[Hint, list[str]] = field(default_factory=dict)

    def apply(self, hint: Hint, place: str) -> None:
        """Remember that a hint was obeyed at a place."""
        places = self.applied.setdefault(hint, [])
        if place not in places:
            places.append(place)

    def notes(self) -> tuple[str, ...]:
        """A line per hint and place; raises for a hint that was applied nowhere."""
        lines = []
        for hint in self.hints:
            if hint not in self.applied:
                raise PlanError(f"{hint} cannot hold: {_UNUSED[hint.name]}", position=hint.position)
            lines += [f"hint {hint}: {place}" for place in self.applied[hint]]
        return tuple(lines)


_UNUSED = {"AGG": "the query has no grouping or aggregate", "REDISTRIBUTE": "the plan does not read the table", "SHARDS": "the plan has no shards"}


def constraints(hints: Iterable[Hint], plan: Node) -> Constraints:
    """The hints, each checked by itself: known, with arguments that fit, over tables and columns that the query reads."""
    found = Constraints(tuple(hints))
    tables = {node.table: node for node in plan.walk() if isinstance(node, Scan)}
    seen: set[str] = set()
    for hint in found.hints:
        if hint.name not in HINTS:
            raise _unknown(hint)
        if hint.name in NEED_JOIN:
            raise PlanError(f"{hint.name} needs a join, and this query has none", position=hint.position)
        if hint.name in seen and hint.name != "REDISTRIBUTE":
            raise PlanError(f"the hint {hint.name} is given twice", position=hint.position)
        seen.add(hint.name)
        match hint.name:
            case "SHARDS":
                found.shards = _shards(hint)
                found.apply(hint, "the number of shards of the plan")
            case "AGG":
                found.aggregation = Aggregation(hint, _aggregation(hint))
            case "REDISTRIBUTE":
                table, placement = _placement(hint, tables)
                if table in found.placements:
                    raise PlanError(f"{hint}: the rows of {table} are already placed by {found.placements[table].hint}", position=hint.position)
                found.placements[table] = placement
    return found


def _unknown(hint: Hint) -> PlanError:
    near = difflib.get_close_matches(hint.name, HINTS, 1)
    return PlanError(f"unknown hint {hint.name}", position=hint.position, hint=f"did you mean {near[0]}?" if near else f"hints are {', '.join(HINTS)}")


def _no_options(hint: Hint, allowed: tuple[str, ...] = ()) -> None:
    for name, _ in hint.options:
        if name not in allowed:
            raise PlanError(f"{hint.name} has no option {name}", position=hint.position)


def _shards(hint: Hint) -> int:
    _no_options(hint)
    if len(hint.args) != 1 or type(hint.args[0]) is not int or not 1 <= hint.args[0] <= MAX_SHARDS:
        raise PlanError(f"SHARDS takes one number from 1 to {MAX_SHARDS}", position=hint.position)
    return hint.args[0]


def _aggregation(hint: Hint) -> str:
    _no_options(hint)
    if len(hint.args) != 1 or hint.args[0] not in AGGREGATIONS:
        raise PlanError(f"AGG takes one of {', '.join(repr(a) for a in AGGREGATIONS)}", position=hint.position)
    return hint.args[0]


def _placement(hint: Hint, tables: dict[str, Scan]) -> tuple[str, Placement]:
    _no_options(hint, ("scope",))
    if len(hint.args) < 2:
        raise PlanError("REDISTRIBUTE takes a table and the columns to place its rows by: REDISTRIBUTE(clicks, ad_id)", position=hint.position)
    table, *columns = hint.args
    scan = _find(table, tables)
    if scan is None:
        raise PlanError(f"{hint}: the query reads no table {table}", position=hint.position, hint=f"it reads {', '.join(tables)}" if tables else None)
    known = {field.name: field.name for field in scan.source.schema}
    found = []
    for column in columns:
        name = _find(column, known)
        if name is None:
            raise PlanError(f"{hint}: table {scan.table} has no column {column}", position=hint.position, hint=f"its columns are {', '.join(known)}")
        found.append(name)
    if len(set(found)) != len(found):
        raise PlanError(f"{hint}: a column is given twice", position=hint.position)
    scope = dict(hint.options).get("scope")
    if scope is not None and scope not in SCOPES:
        raise PlanError(f"{hint}: the scope is 'local' or 'global'", position=hint.position)
    return scan.table, Placement(hint, tuple(found), scope)


def _find(name: Any, known: dict[str, Any]) -> Any:
    """A table or a column by its name as SQL compares it: without case."""
    return next((value for key, value in known.items() if isinstance(name, str) and key.lower() == name.lower()), None)
