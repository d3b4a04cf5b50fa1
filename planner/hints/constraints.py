"""Hints: what a query's `/*+ .. */` demands of its plan. They are constraints: one that cannot hold is an error that
says why.

`make_plan` reads them into a `Constraints`; the rules and the enumerator ask it and tell it where each was applied, and
what is left unapplied in the end is refused. The plan's notes list every hint with its place, and `explain` prints the
notes.

    SHARDS(n)                                       the plan has n shards
    AGG('one_phase'|'two_phase'|'two_phase_gather') how groups are made: rows placed by key first; partial groups placed
                                                    by key; partial groups merged on one shard
    REDISTRIBUTE(table, column, .. [, scope => 'local'|'global'])   the table's rows are placed by these columns
    BROADCAST, LEADING, JOIN                        are about joins: `join_hints.py`

A table is named by its alias, or else by its own name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from tsql.kernels.expr.errors import PlanError
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.hints.hint import Hint, HintTarget, find_relation
from tsql.planner.hints.join_hints import Demand, JoinHints, leaves_of, why_apart
from tsql.planner.logical.nodes import Join, Node, Scan
from tsql.planner.logical.tree import nodes
from tsql.planner.physical.properties import MAX_SHARDS

HINTS = ("SHARDS", "AGG", "REDISTRIBUTE", "BROADCAST", "LEADING", "JOIN")
NEED_JOIN = ("BROADCAST", "LEADING", "JOIN")
ONCE = ("SHARDS", "AGG")
AGGREGATIONS = ("one_phase", "two_phase", "two_phase_gather")


@dataclass(frozen=True)
class Placement:
    """The demand that the rows of a table are placed by columns; no scope means the target's own."""

    hint: Hint
    relation: HintTarget
    columns: tuple[str, ...]
    scope: str | None


@dataclass(frozen=True)
class Aggregation:
    """The demand that groups are made in one of the AGGREGATIONS."""

    hint: Hint
    how: str

    def refuse(self, reason: str) -> PlanError:
        return self.hint.refuse(reason, "use AGG('one_phase')")


@dataclass
class Constraints:
    """The hints of one query, checked against its tables."""

    hints: tuple[Hint, ...] = ()
    shards: int | None = None
    aggregation: Aggregation | None = None
    placements: list[Placement] = field(default_factory=list)
    joins: JoinHints = field(default_factory=JoinHints)
    demands: dict[int, Demand] = field(default_factory=dict)
    """The demands on single joins, by id of the node; `locate` fills it."""

    applied: dict[Hint, list[str]] = field(default_factory=dict)

    def leaves_open(self, node: Node) -> bool:
        """Whether no hint says how the rows of a node meet."""
        return self.aggregation is None and not any(
            id(part) in self.demands or (isinstance(part, Scan) and self.placement(part) is not None)
            for part in node.walk()
        )

    def apply(self, hint: Hint, place: str) -> None:
        """Remember that a hint was obeyed at a place."""
        places = self.applied.setdefault(hint, [])
        if place not in places:
            places.append(place)

    def placement(self, scan: Scan) -> Placement | None:
        """How the rows of a scan are to be placed."""
        return next((p for p in self.placements if p.relation.reads(scan)), None)

    def lead(self, leaves: list[Node]) -> list[int]:
        """Which of the relations that inner joins connect are joined first, in order: their places; none if no hint is
        about them."""
        chosen: list[int] = []
        for leading in self.joins.leadings:
            places = leaves_of(leading, leaves)
            if places is None:
                continue
            if chosen:
                raise leading.hint.refuse("another LEADING says which relations of the same joins come first")
            chosen = places
            self.apply(leading.hint, f"{', '.join(r.name for r in leading.relations)} are joined first, in this order")
        return chosen

    def locate(self, plan: Node) -> None:
        """Find the joins that hints are about, in a plan whose joins have their order."""
        for leading in self.joins.leadings:
            if leading.hint not in self.applied:
                raise why_apart(leading, plan)
        self.demands = self.joins.locate(plan)

    def notes(self) -> tuple[str, ...]:
        """A line per hint and place; raises for a hint that was applied nowhere."""
        lines = []
        for hint in self.hints:
            if hint not in self.applied:
                raise hint.refuse(_UNUSED.get(hint.name, "the plan does not have the join"))
            lines += [f"hint {hint}: {place}" for place in self.applied[hint]]
        return tuple(lines)


_UNUSED = {
    "AGG": "the query has no grouping or aggregate",
    "REDISTRIBUTE": "the plan does not read the table",
    "SHARDS": "the plan has no shards",
}


def constraints(hints: Iterable[Hint], plan: Node) -> Constraints:
    """The hints, each checked by itself: known, with arguments that fit, over tables and columns that the query
    reads."""
    found = Constraints(tuple(hints))
    if not found.hints:
        return found
    scans = [node for node in nodes(plan) if isinstance(node, Scan)]
    has_join = any(isinstance(node, Join) for node in nodes(plan))
    seen: set[str] = set()
    for hint in found.hints:
        if hint.name not in HINTS:
            raise _unknown(hint)
        if hint.name in NEED_JOIN and not has_join:
            raise hint.error(f"{hint.name} needs a join, and this query has none")
        if hint.name in seen and hint.name in ONCE:
            raise hint.error(f"the hint {hint.name} is given twice")
        seen.add(hint.name)
        match hint.name:
            case "SHARDS":
                found.shards = _shards(hint)
                found.apply(hint, "the number of shards of the plan")
            case "AGG":
                found.aggregation = Aggregation(hint, _aggregation(hint))
            case "REDISTRIBUTE":
                found.placements.append(_placement(hint, scans, found))
            case _:
                found.joins.read(hint, scans)
    return found


def _unknown(hint: Hint) -> PlanError:
    near = difflib.get_close_matches(hint.name, HINTS, 1)
    return hint.error(
        f"unknown hint {hint.name}", f"did you mean {near[0]}?" if near else f"hints are {', '.join(HINTS)}"
    )


def _shards(hint: Hint) -> int:
    hint.allow()
    if len(hint.args) != 1 or type(hint.args[0]) is not int or not 1 <= hint.args[0] <= MAX_SHARDS:
        raise hint.error(f"SHARDS takes one number from 1 to {MAX_SHARDS}")
    return hint.args[0]


def _aggregation(hint: Hint) -> str:
    hint.allow()
    if len(hint.args) != 1 or hint.args[0] not in AGGREGATIONS:
        raise hint.error(f"AGG takes one of {', '.join(repr(a) for a in AGGREGATIONS)}")
    return str(hint.args[0])


def _placement(hint: Hint, scans: list[Scan], known: Constraints) -> Placement:
    hint.allow("scope")
    if len(hint.args) < 2:
        raise hint.error("REDISTRIBUTE takes a table and the columns to place its rows by: REDISTRIBUTE(clicks, ad_id)")
    table, *columns = hint.args
    relation = find_relation(hint, table, scans)
    own = [scan for scan in scans if relation.reads(scan)]
    found = []
    for column in columns:
        name = _column(column, own[0])
        if name is None:
            raise hint.error(
                f"{hint}: table {own[0].table} has no column {column}",
                f"its columns are {', '.join(f.name for f in own[0].source.schema)}",
            )
        found.append(name)
    if len(set(found)) != len(found):
        raise hint.error(f"{hint}: a column is given twice")
    for scan in own:
        other = known.placement(scan)
        if other is not None:
            raise hint.error(f"{hint}: the rows of {table} are already placed by {other.hint}")
    return Placement(hint, relation, tuple(found), hint.scope())


def _column(name: Any, scan: Scan) -> str | None:
    """A column of a table by its name as SQL compares it: without case."""
    return next((f.name for f in scan.source.schema if isinstance(name, str) and f.name.lower() == name.lower()), None)


__all__ = ["Constraints", "Hint", "constraints"]
