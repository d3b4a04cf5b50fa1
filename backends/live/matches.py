"""Live row patterns (MATCH_RECOGNIZE): a match is output when no later row can change it.

Rows below the bound of the order's time are final. Behind them, each partition gets a few *end rows* at the time of the
bound. A variable of the pattern takes an ordinary row by its condition, or an end row in any case. The search tries its
ways in the order of SQL, so a match without an end row was found before any way that depends on later rows: it is
final, and so is every start before it that led to nothing. The first match that has an end row is where the search goes
on next time. WITHIN holds for end rows as for others: a match that must have ended before the bound is decided by it.

State: the rows from that place on, as many rows before it as PREV reads, and the number of matches of each partition.
Cost: when the bound moves, the search over the rows held of partitions that have such rows; a match that stays open
over many punctuations is searched again each time. Not done (these patterns wait for the end): `$`, skipping to a
variable, unmatched rows, MATCH_NUMBER() in a condition."""

from __future__ import annotations

from tsql.backends.live.fragments import Engine, Fragment, Rows, count, given
from tsql.backends.live.match_rows import BACK_OF, FROM, NUMBER, OPEN, PLACE, SEEN, MatchRows, number_of
from tsql.backends.live.operator import (
    HeldRows,
    LiveOperator,
    all_of,
    compare,
    held_bounds,
    negated,
    parameter,
    restricted,
    same_columns,
    unless_null,
)
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.kernels.patterns.reads import MatchFold, MatchNumber, Navigate
from tsql.planner.logical.predicates import JoinKey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.match import Match
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.progress import INFINITE, Progress
from tsql.planner.physical.step import Step

BEFORE = "live before"

FAR = INFINITE // 2
"""An end row behind this time might be so late that WITHIN cannot be added to it."""


class Matches(LiveOperator):
    """A match step whose pattern `match_rows.undecidable` lets pass."""

    step: Match

    def __init__(self, step: Match, engine: Engine):
        super().__init__(step, engine)
        spec, schema = step.spec, self.below[0].schema
        self.time = spec.order[0].expr
        self.rows = MatchRows(spec, schema)
        self.seen = HeldRows(schema)
        self.numbered = HeldRows(Schema((*(Field(f"of {c.name}", c.type) for c in spec.by), Field(BEFORE, BIGINT))))
        self.marks = {"tried": 0}
        passed = compare(self.time, "<", parameter("time", self.time.type))
        self.passed, self.later = self.filtered(0, passed), self.filtered(0, unless_null(negated(passed)))
        rows, known = given("new", schema), given("seen", schema)
        self.mine = Fragment(engine, HashJoin((known, self._partitions(rows)), kind="semi", keys=self._same("of ")))
        self.others = Fragment(engine, HashJoin((known, self._partitions(rows)), kind="anti", keys=self._same("of ")))
        self.placed = Fragment(engine, self.rows.placed(known, rows, with_ends=True))
        self.all_placed = Fragment(engine, self.rows.placed(known, rows, with_ends=False))
        placed = given("placed", self.placed.top.schema)
        self.found = Fragment(engine, Match((placed,), spec=self.rows.spec))
        found = given("found", self.found.top.schema)
        self.stops = Fragment(engine, self._stops(found))
        self.next = Fragment(engine, self._next(placed, given("stops", self.stops.top.schema)))
        at = given("next", self.next.top.schema)
        known = given("numbered", self.numbered.schema)
        self.final = Fragment(engine, restricted(self._numbered(found, at, known, is_last=False), step))
        self.last = Fragment(engine, restricted(self._numbered(found, at, known, is_last=True), step))
        self.waiting = Fragment(engine, restricted(self._from(placed, at, 0), self.below[0]))
        self.back = Fragment(engine, restricted(self._from(placed, at, self.rows.back), self.below[0]))
        self.counts = Fragment(engine, self._counts(at, known))
        self.bounds: dict[str, int] = {}
        self.parted: dict[tuple[int, str], tuple[Fragment, Fragment]] = {}
        self.why = "holds the rows of matches that may still change" + (
            f", and the last {self.rows.back} of each partition" if self.rows.back else ""
        )

    def tables(self) -> dict[str, HeldRows]:
        return super().tables() | {"seen": self.seen, "numbered": self.numbered}

    def _same(self, prefix: str) -> tuple[JoinKey, ...]:
        return tuple(JoinKey(c, Column(f"{prefix}{c.name}", c.type), True) for c in self.step.spec.by)

    def _partitions(self, rows: Step) -> Step:
        """The keys of rows, each once."""
        named = Project((rows,), columns=self._named("of "))
        if not self.step.spec.by:
            return named
        return Aggregate((named,), by=same_columns(named.schema))

    def _named(self, prefix: str) -> tuple[tuple[str, Expr], ...]:
        found: tuple[tuple[str, Expr], ...] = tuple((f"{prefix}{c.name}", c) for c in self.step.spec.by)
        return found or ((f"{prefix}all", Literal(0, BIGINT)),)

    def _stops(self, found: Step) -> Step:
        """For each partition, the number of the first open match and its first row, and the number of the last match. A
        pattern with ^ may have no open match behind the beginning."""
        number, is_open = Column(NUMBER, BIGINT), Column(OPEN, BOOLEAN)
        calls = (
            ("live open number", AggregateCall("min", (number,), BIGINT, filter=is_open)),
            ("live open start", AggregateCall("min", (Column(FROM, BIGINT),), BIGINT, filter=is_open)),
            ("live most", AggregateCall("max", (number,), BIGINT)),
        )
        return Aggregate((found,), by=self._named("stop "), calls=calls)

    def _next(self, placed: Step, stops: Step) -> Step:
        """For each partition, the number of the first match that is not final, the row with which the next search
        starts, and how many rows seen there are."""
        seen = AggregateCall("count_star", (), BIGINT, filter=Column(SEEN, BOOLEAN))
        rows = AggregateCall("max", (Column("live rows", BIGINT),), BIGINT)
        named = self._named("next ")
        sizes = Aggregate((placed,), by=named, calls=(("live seen", seen), ("live all", rows)))
        keys = tuple(
            JoinKey(Column(n, e.type), Column("stop " + n.removeprefix("next "), e.type), True) for n, e in named
        )
        joined = HashJoin((sizes, stops), kind="left", keys=keys)
        most = Call("coalesce", (Column("live most", BIGINT), Literal(0, BIGINT)), BIGINT)
        one = Literal(1, BIGINT)
        first = (Column("live open number", BIGINT), Call("+", (most, one), BIGINT))
        start = (Column("live open start", BIGINT), Call("+", (Column("live all", BIGINT), one), BIGINT))
        return Project(
            (joined,),
            columns=(
                *((n, Column(n, e.type)) for n, e in named),
                ("live seen", Column("live seen", BIGINT)),
                ("live stop", Call("coalesce", first, BIGINT)),
                ("live start", Call("coalesce", start, BIGINT)),
            ),
        )

    def _skipped(self) -> Expr:
        """How many matches at the beginning are not matches: where a pattern may be empty, one for each row seen."""
        return Column("live seen", BIGINT) if self.rows.may_be_empty else Literal(0, BIGINT)

    def _numbered(self, found: Step, at: Step, known: Step, is_last: bool) -> Step:
        """The final matches, with their numbers after those of earlier ones."""
        joined: Step = HashJoin((found, at), kind="left", keys=self._same("next "))
        number = Column(NUMBER, BIGINT)
        real = [compare(number, ">", self._skipped())]
        if not is_last:
            real.append(compare(number, "<", Column("live stop", BIGINT)))
        joined = Filter((joined,), predicate=all_of(list(real)))
        joined = HashJoin((joined, known), kind="left", keys=self._same("of "))
        before = Call("coalesce", (Column(BEFORE, BIGINT), Literal(0, BIGINT)), BIGINT)
        moved = Call("-", (Call("+", (number, before), BIGINT), self._skipped()), BIGINT)
        numbers = {name for name, read in self.step.spec.measures if isinstance(read, MatchNumber)}
        return Project(
            (joined,), columns=tuple((n, moved if n in numbers else e) for n, e in same_columns(self.step.schema))
        )

    def _from(self, placed: Step, at: Step, back: int) -> Step:
        """The rows from the next start on; with `back`, as many rows before it."""
        keys = tuple(JoinKey(c, Column(f"next {c.name}", c.type), True) for c in self.step.spec.by)
        joined = HashJoin((placed, at), kind="inner", keys=keys)
        place, start = Column(PLACE, BIGINT), Column("live start", BIGINT)
        first = Call("-", (start, Literal(back, BIGINT)), BIGINT)
        real = negated(Column(BACK_OF, BOOLEAN))
        inside = (
            [compare(place, ">=", first), compare(place, "<", start)]
            if back
            else [compare(place, ">=", start), negated(Column(SEEN, BOOLEAN))]
        )
        return Filter((joined,), predicate=all_of([real, *inside]))

    def _counts(self, at: Step, known: Step) -> Step:
        """The number of matches of each partition so far."""
        new = Project(
            (at,),
            columns=(
                *((f"of {c.name}", Column(f"next {c.name}", c.type)) for c in self.step.spec.by),
                (BEFORE, Call("-", (number_of("live stop", 1), self._skipped()), BIGINT)),
            ),
        )
        both = Union((new, known))
        return Aggregate(
            (both,),
            by=tuple((n, e) for n, e in same_columns(self.numbered.schema) if n != BEFORE),
            calls=((BEFORE, AggregateCall("sum", (Column(BEFORE, BIGINT),), BIGINT)),),
        )

    def _complete(self) -> Rows:
        """The matches of partitions with a key below its bound: no row of them will come."""
        keys = [(c, b) for c in self.step.spec.by if (b := self.progress[0].bounds.get(c.name)) is not None]
        found: Rows = []
        for number, (key, bound) in enumerate(keys):
            name = f"bound_{number}"
            parts = {}
            for held, prefix in ((self.held[0], ""), (self.seen, ""), (self.numbered, "of ")):
                column = Column(f"{prefix}{key.name}", key.type)
                parts[id(held)] = self._parted(held, compare(column, "<", parameter(name, key.type)), {name: bound})
            new = parts[id(self.held[0])]
            if new:
                found += self._end(new, parts[id(self.seen)], parts[id(self.numbered)])
        return found

    def _parted(self, held: HeldRows, done: Expr, values: dict[str, int]) -> Rows:
        """The rows for which a condition is true. They are no longer held."""
        if not held.rows:
            return []
        key = (id(held), str(done))
        if key not in self.parted:
            leaf, stays = given("held", held.schema), unless_null(negated(done))
            self.parted[key] = (
                Fragment(self.engine, Filter((leaf,), predicate=done)),
                Fragment(self.engine, Filter((leaf,), predicate=stays)),
            )
        passed, stay = self.parted[key]
        found = passed.rows({"held": held.rows}, **values)
        if found:
            held.rows = stay.rows({"held": held.rows}, **values)
        return found

    def advance(self) -> Rows:
        held = self.held[0]
        if self.ended:
            return self._end(held.take(), self.seen.take(), self.numbered.take())
        return self._complete() + self._search()

    def _search(self) -> Rows:
        """The matches that rows behind the bound cannot change."""
        held = self.held[0]
        time = self.progress[0].lower(self.time)
        if time is None or time > FAR or not held.rows:
            return []
        new = self.passed.rows({"side_0": held.rows}, time=time)
        if not new or (count(new) == self.marks["tried"] and self.step.spec.within is None):
            return []
        later = self.later.rows({"side_0": held.rows}, time=time)
        known = {"seen": self.seen.rows, "new": new}
        placed = {"placed": self.placed.rows({"seen": self.mine.rows(known), "new": new}, time=time)}
        found = {"found": self.found.rows(placed)}
        at = {"next": self.next.rows(placed | {"stops": self.stops.rows(found)})}
        numbered = {"numbered": self.numbered.rows}
        final = self.final.rows(found | at | numbered) if found["found"] else []
        waiting = self.waiting.rows(placed | at)
        if self.rows.back:
            self.seen.rows = [*self.others.rows(known), *self.back.rows(placed | at)]
        self.numbered.rows = self.counts.rows(at | numbered) if self.rows.counts_matches else []
        held.rows, self.marks["tried"] = [*waiting, *later], count(waiting)
        self.bounds = held_bounds(self.progress[0], held.rows, self.below[0].schema)
        return final

    def _end(self, new: Rows, seen: Rows, numbers: Rows) -> Rows:
        """The matches of whole partitions."""
        if not new:
            return []
        known, numbered = {"seen": seen, "new": new}, {"numbered": numbers}
        placed = {"placed": self.all_placed.rows({"seen": self.mine.rows(known), "new": new})}
        found = {"found": self.found.rows(placed)}
        at = {"next": self.next.rows(placed)}
        return self.last.rows(found | at | numbered) if found["found"] else []

    def promise(self) -> Progress:
        """A match to come has no row before those that are held."""
        if self.ended:
            return Progress(ended=True)
        names = self.step.schema.names
        bounds = {n: b for n, b in self.bounds.items() if n in names}
        for name, read in self.step.spec.measures:
            arg = None
            if isinstance(read, Navigate) and read.shift >= 0:
                arg = read.arg
            elif isinstance(read, MatchFold) and read.name in ("min", "max") and len(read.args) == 1:
                arg = read.args[0]
            if arg is not None and (bound := Progress(self.bounds).lower(arg)) is not None:
                bounds[name] = bound
        return Progress(bounds)

    def endless(self) -> str | None:
        if self.ended or self.progress[0].lower(self.time) is not None:
            return None
        return "the ORDER BY of MATCH_RECOGNIZE does not begin with a time that advances, so no match is ever final"
