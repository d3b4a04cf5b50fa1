"""What `Matches` searches: the rows of a partition between rows that were searched before and end rows, and the pattern
over them."""

from __future__ import annotations

from dataclasses import replace

from tsql.backends.live.operator import all_of, any_of, compare, negated, parameter, same_columns
from tsql.backends.live.window_needs import is_in_time
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.kernels.patterns.reads import MatchNumber, Navigate, Read
from tsql.kernels.patterns.spec import MatchSpec
from tsql.kernels.patterns.tree import Anchor, Choice, Pattern, Repeat, Sequence, Variable
from tsql.kernels.windows.call import WHOLE_PARTITION, WindowCall
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.replicate import Replicate
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import Step

PLACE, SEEN, END, BACK_OF = "live place", "live seen row", "live end", "live added"
NUMBER, FROM, OPEN = "live number", "live from", "live open"
ANY_END = "live end row"
"""The variable that takes end rows."""

MOST_ENDS = 64
"""Patterns that need more rows than this to end are answered at the end of the input."""


def undecidable(spec: MatchSpec) -> str | None:
    """Why the matches of a pattern can only be told when all rows are known; None if they can be told earlier."""
    if not (is_in_time(spec.order) and isinstance(spec.order[0].expr, Column)):
        return "the ORDER BY of MATCH_RECOGNIZE does not begin with a time"
    if spec.order[0].expr in spec.by:
        return "PARTITION BY and ORDER BY of MATCH_RECOGNIZE name the same column"
    parts = list(_parts(spec.pattern))
    if any(isinstance(p, Anchor) and p.at_end for p in parts):
        return "the pattern ends at the last row ($)"
    if any(isinstance(p, Anchor) for p in parts) and not spec.pattern.fewest:
        return "the pattern has ^ and may be empty"
    if spec.skip.kind in ("to first", "to last"):
        return "AFTER MATCH SKIP TO a variable"
    if spec.output == "unmatched":
        return "rows without a match are wanted"
    if rows_to_end(spec.pattern) > MOST_ENDS:
        return f"the pattern takes more than {MOST_ENDS} rows"
    reads = [e for _, condition in spec.define for e in condition.walk()]
    inner = [e for _, read in spec.measures for child in read.children for e in child.walk()]
    if any(isinstance(e, MatchNumber) for e in (*reads, *inner)):
        return "a condition or an aggregate reads MATCH_NUMBER()"
    return None


def _parts(pattern: Pattern) -> list[Pattern]:
    match pattern:
        case Sequence(parts) | Choice(parts):
            return [pattern, *(p for part in parts for p in _parts(part))]
        case Repeat():
            return [pattern, *_parts(pattern.part)]
    return [pattern]


def rows_to_end(pattern: Pattern) -> int:
    """The most rows that any way through a pattern needs when it takes no more than it must."""
    match pattern:
        case Variable():
            return 1
        case Sequence(parts):
            return sum(map(rows_to_end, parts))
        case Choice(parts):
            return max(map(rows_to_end, parts))
        case Repeat():
            return max(pattern.least, 1) * rows_to_end(pattern.part)
    return 0


def _with_ends(pattern: Pattern) -> Pattern:
    """The pattern in which each variable may take an end row instead."""
    match pattern:
        case Variable():
            return Choice((pattern, Variable(ANY_END)))
        case Sequence(parts):
            return Sequence(tuple(map(_with_ends, parts)))
        case Choice(parts):
            return Choice(tuple(map(_with_ends, parts)))
        case Repeat():
            return replace(pattern, part=_with_ends(pattern.part))
    return pattern


def number_of(name: str, less: int) -> Expr:
    return Call("-", (Column(name, BIGINT), Literal(less, BIGINT)), BIGINT)


class MatchRows:
    """The rows and the pattern of a search. back, ahead: how many rows before a start, and after a row, are read."""

    def __init__(self, spec: MatchSpec, schema: Schema):
        self.original, self.schema = spec, schema
        reads = [e for expr in spec.expressions() for e in expr.walk() if isinstance(e, Navigate)]
        starts = any(isinstance(p, Anchor) for p in _parts(spec.pattern))
        self.back = max([0, *(-_reach(e, -1) for e in reads), int(starts)])
        self.ahead = max([0, *(_reach(e, 1) for e in reads)])
        self.may_be_empty = not spec.pattern.fewest
        self.counts_matches = any(isinstance(read, MatchNumber) for _, read in spec.measures)
        self.spec = self._spec()

    def _spec(self) -> MatchSpec:
        """The pattern over rows with `SEEN` and `END`, with measures that tell which matches are final."""
        spec = self.original
        ordinary = negated(any_of([Column(SEEN, BOOLEAN), Column(END, BOOLEAN)]))
        conditions = dict(spec.define)
        define = [
            (name, all_of([ordinary, conditions[name]]) if name in conditions else ordinary)
            for name in spec.pattern.variables()
        ]
        more: tuple[tuple[str, Read], ...] = (
            (NUMBER, MatchNumber()),
            (FROM, Navigate(Column(PLACE, BIGINT), from_last=False, final=True)),
            (OPEN, Navigate(Column(END, BOOLEAN), final=True)),
        )
        return replace(
            spec,
            pattern=_with_ends(spec.pattern),
            define=(*define, (ANY_END, Column(END, BOOLEAN))),
            measures=(*spec.measures, *more),
        )

    def placed(self, seen: Step, new: Step, with_ends: bool) -> Step:
        """The rows of each partition, numbered in order. `END`: a variable takes it in any case; these are the end rows
        and the rows whose conditions would read further than that. `BACK_OF`: an end row."""
        flags = (SEEN, BACK_OF)
        parts: list[Step] = [
            Project((rows,), columns=(*same_columns(self.schema), *_flags(flags, (is_seen, False))))
            for rows, is_seen in ((seen, True), (new, False))
        ]
        if with_ends:
            parts.append(self._ends(new, flags))
        spec = self.original
        added = Column(BACK_OF, BOOLEAN)
        ordinary = WindowCall("count_star", (), BIGINT, WHOLE_PARTITION, filter=negated(added))
        calls = ((PLACE, WindowCall("row_number", (), BIGINT)), ("live rows", ordinary))
        placed = Window((Union(tuple(parts)),), by=spec.by, order=spec.order, calls=calls)
        behind = compare(Column(PLACE, BIGINT), ">", number_of("live rows", self.ahead))
        return Project(
            (placed,), columns=(*same_columns(placed.schema), (END, behind if with_ends else Literal(False, BOOLEAN)))
        )

    def _ends(self, new: Step, flags: tuple[str, str]) -> Step:
        """The end rows of each partition that has new rows."""
        spec, time = self.original, self.original.order[0].expr
        keys: tuple[tuple[str, Expr], ...] = tuple((c.name, c) for c in spec.by)
        once = Aggregate((new,), by=keys or (("live all", Literal(0, BIGINT)),))
        columns: list[tuple[str, Expr]] = []
        for field in self.schema:
            if any(field.name == c.name for c in spec.by):
                columns.append((field.name, Column(field.name, field.type)))
            elif isinstance(time, Column) and field.name == time.name:
                columns.append((field.name, parameter("time", field.type)))
            else:
                columns.append((field.name, Literal(None, field.type)))
        rows = Project((once,), columns=(*columns, *_flags(flags, (False, True))))
        return Replicate((rows,), times=Literal(rows_to_end(spec.pattern), BIGINT))


def _flags(names: tuple[str, str], values: tuple[bool, bool]) -> list[tuple[str, Expr]]:
    return [(name, Literal(value, BOOLEAN)) for name, value in zip(names, values, strict=True)]


def _reach(read: Navigate, sign: int) -> int:
    """How far a read goes from a row of the match, in a direction."""
    return read.shift if read.shift * sign > 0 else 0
