"""Plans of the lifetime functions in FROM: LIFETIME, SLIDE, SHIFT, EXTEND, CLIP, CHOP, STITCH, QUANTIZE, POINT_AT_END.

`query.py` calls `LifetimeFunctions` for the nodes of `tsql/grammar/time/nodes.py`, and `timed_scan` for tables under
SEQUENCED VALIDTIME. All but CHOP (a series of pieces) and STITCH (a merge) are projections with a filter that drops
rows with an empty lifetime."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze.scope import INFINITY, LIFETIME_NAMES, AnalyzedRelation, Names, Scope, ScopeField, ScopeTable
from tsql.analyze.subquery import Level
from tsql.analyze.time.lifetimes import ONE_MICROSECOND, bounds, earliest, latest, less, plus, relived, without_lifetime
from tsql.analyze.time.stitch import stitched
from tsql.grammar.time import nodes
from tsql.grammar.time.intervals import LONGEST_US, constant_interval, length_us
from tsql.grammar.time.parameters import USAGE
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.types import DATE, INTERVAL, NULL, TIMESTAMP, TIMESTAMPTZ
from tsql.planner.bind.binder import Binder
from tsql.planner.bind.types import coerce, is_bare_string
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.generating import Series

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer

TIMES = (DATE, TIMESTAMP, TIMESTAMPTZ)


class LifetimeFunctions:
    """Gives the relation of one lifetime function of a FROM clause."""

    def __init__(self, queries: QueryAnalyzer, environment: Any):
        self.queries = queries
        self.environment = environment

    def table(self, node: nodes.LifetimeFunction) -> ScopeTable:
        """The relation, under the name of its input."""
        self.node = node
        table = self.queries.table(node.this, self.environment)
        relation = without_lifetime(table.relation)
        self.scope = Scope((ScopeTable(table.alias, relation),), self.queries.source, life=relation.life)
        self.level = Level(self.queries, self.environment, relation.plan.schema.names)
        self.binder = Binder(
            self.queries.source,
            self._resolve,
            clause=f"the arguments of {node.sql_name}",
            parameters=self.queries.parameters,
        )
        return ScopeTable(table.alias, self._relation(relation))

    def _relation(self, relation: AnalyzedRelation) -> AnalyzedRelation:
        match self.node:
            case nodes.Lifetime():
                return self._lifetime(relation)
            case nodes.Slide():
                start = self._time("time")
                return self._living(relation, start, plus(start, self._interval("size")), counted=True)
        relation = self._timed(relation)
        start, end = bounds(relation.life)
        match self.node:
            case nodes.Shift():
                by = self._interval("by")
                return self._living(relation, plus(start, by), plus(end, by))
            case nodes.Extend():
                return self._living(relation, start, plus(end, self._interval("by")))
            case nodes.Clip():
                return self._living(relation, start, earliest(end, plus(start, self._interval("duration"))))
            case nodes.PointAtEnd():
                ended = AnalyzedRelation(
                    logical.Filter(relation.plan, less(end, INFINITY)), relation.fields, relation.life
                )
                return self._living(ended, end, plus(end, _us(1, self.binder.position(self.node))))
            case nodes.Quantize():
                return self._quantized(relation, start, end)
            case nodes.Chop():
                return self._chopped(relation, start, end)
        plan, life = stitched(relation, self.queries.taken)
        return AnalyzedRelation(plan, relation.fields, life)

    def _resolve(self, node: exp.Column) -> Expr:
        found = self.scope.find(node) or self.level.outside(node)
        if found is None:
            raise self.scope.unknown(node)
        return found

    def _lifetime(self, relation: AnalyzedRelation) -> AnalyzedRelation:
        if self.node.args.get("start") is None:
            return self._timed(relation)
        start, end = self._time("start"), INFINITY
        if self.node.args.get("duration") is not None:
            duration = self._interval("duration")
            # A constant that is no NULL leaves no end open: rows whose start is NULL are dropped.
            is_length = isinstance(duration, Literal) and duration.value is not None
            end = plus(start, duration) if is_length else _or_open(plus(start, duration))
        elif self.node.args.get("end") is not None:
            end = _or_open(self._time("end"))
        return self._living(relation, start, end, counted=True)

    def _timed(self, relation: AnalyzedRelation) -> AnalyzedRelation:
        """The relation with the lifetime that it has, or that its table says."""
        if relation.life is not None:
            return relation
        found = timed(self.queries, self.node.this, relation, self.environment)
        if found is None:
            given = isinstance(self.node, nodes.Lifetime)
            what = "needs start, or a table with a PERIOD" if given else "needs a temporal relation"
            call = USAGE[nodes.Lifetime] if given else f"{self.node.sql_name}(LIFETIME(t, start => ts, ..), ..)"
            raise self.queries.error(
                f"{self.node.sql_name} {what}: this one has no lifetimes", self.node, f"as in {call}"
            )
        return found

    def _living(self, relation: AnalyzedRelation, start: Expr, end: Expr, counted: bool = False) -> AnalyzedRelation:
        """The relation with another lifetime; columns that are called like it are gone."""
        plan, life = relived(relation.plan, start, end, self.queries.taken, counted)
        return AnalyzedRelation(plan, tuple(f for f in relation.fields if f.name.lower() not in LIFETIME_NAMES), life)

    def _time(self, name: str) -> Expr:
        node = self.node.args[name]
        value = self.binder.operand(node)
        if value.type not in (*TIMES, NULL) and not is_bare_string(value):
            raise self.queries.error(
                f"{name} of {self.node.sql_name} is a time, not {value.type}",
                node,
                "a number of seconds is a time with to_timestamp(..)",
            )
        return coerce(value, TIMESTAMP)

    def _interval(self, name: str) -> Expr:
        node = self.node.args[name]
        value = self.binder.operand(node)
        if value.type not in (INTERVAL, NULL) and not is_bare_string(value):
            raise self.queries.error(
                f"{name} of {self.node.sql_name} is an interval, not {value.type}", node, "as in INTERVAL '10 minutes'"
            )
        return coerce(value, INTERVAL)

    def _length(self, name: str) -> int | None:
        """A constant number of microseconds; None if it is not given."""
        node = self.node.args.get(name)
        parts = constant_interval(node)
        if node is not None and parts is None:
            raise self.queries.error(
                f"{name} of {self.node.sql_name} is a constant interval", node, "as in INTERVAL '10 minutes'"
            )
        if parts is not None and abs(length_us(parts)) > LONGEST_US:
            raise self.queries.error(f"{name} of {self.node.sql_name} is longer than 146,000 years", node)
        return None if parts is None else length_us(parts)

    def _quantized(self, relation: AnalyzedRelation, start: Expr, end: Expr) -> AnalyzedRelation:
        """Moves starts down to the grid `offset + k * step` and ends up to the grid `offset + size + k * slide`. A row
        lives at least `size`."""
        slide, offset = self._length("slide"), self._length("offset") or 0
        size, step = self._length("size") or slide, self._length("step") or slide
        at = self.binder.position(self.node)
        least_end = _floor(plus(start, _us(size, at)), slide, offset + size, at)
        return self._living(
            relation, _floor(start, step, offset, at), latest(_ceiling(end, slide, offset + size, at), least_end)
        )

    def _chopped(self, relation: AnalyzedRelation, start: Expr, end: Expr) -> AnalyzedRelation:
        """A row for each part of its lifetime between two points of the grid."""
        size, offset = self._length("size"), self._length("offset") or 0
        names = Names((*self.queries.taken, *relation.plan.schema.names))
        piece, position = names.unique("piece"), self.binder.position(self.node)
        first, closed = (
            Call(f"closed_{side}", (bound,), TIMESTAMP, position) for side, bound in (("start", start), ("end", end))
        )
        plan = Series(relation.plan, piece, _floor(first, size, offset, position), closed, _us(size, position))
        at = Column(piece, TIMESTAMP, False)
        return self._living(
            AnalyzedRelation(plan, relation.fields, relation.life),
            latest(start, at),
            earliest(end, plus(at, _us(size, position))),
        )


def timed(
    queries: QueryAnalyzer, node: exp.Expr, relation: AnalyzedRelation, environment: Any, taken: Iterable[str] = ()
) -> AnalyzedRelation | None:
    """The relation of a table that declares when its rows are valid: by its PERIOD, or as points if it is a stream.
    None for others. `taken` are names that its lifetime must not have, besides those of enclosing queries."""
    named = (
        isinstance(node, exp.Table)
        and isinstance(node.this, exp.Identifier)
        and (node.args.get("db") is not None or node.name.lower() not in environment)
    )
    return by_entry(queries, node.name, relation, taken) if named else None


def by_entry(
    queries: QueryAnalyzer, name: str, relation: AnalyzedRelation, taken: Iterable[str] = ()
) -> AnalyzedRelation | None:
    """The relation of a table of the catalog with the lifetime that the catalog says; None if it says none."""
    find = getattr(queries.catalog, "entry", queries.catalog.lookup)
    entry = find(name)
    period, event_time = getattr(entry, "period", None), getattr(entry, "event_time", None)
    if period is not None:
        start, end = (_column(relation, name) for name in period)
        end = _or_open(end)
    elif event_time is not None:
        start = _column(relation, event_time)
        end = plus(start, ONE_MICROSECOND)
    else:
        return None
    plan, life = relived(relation.plan, start, end, (*queries.taken, *taken), counted=True)
    return AnalyzedRelation(plan, relation.fields, life)


def _column(relation: AnalyzedRelation, name: str) -> Expr:
    field: ScopeField = next(f for f in relation.fields if f.name.lower() == name.lower())
    return coerce(field.to_column(), TIMESTAMP)


def _or_open(end: Expr) -> Expr:
    """An end that is open where it is NULL."""
    return Call("coalesce", (end, INFINITY), TIMESTAMP)


def _us(length: int, position: int | None) -> Expr:
    return Literal((0, 0, length), INTERVAL, position)


def _floor(time: Expr, period: int, offset: int, position: int | None) -> Expr:
    """The last point of the grid `offset + k * period` that is not after `time`; infinity stays. position: where the
    SQL asks for it."""
    return Call("time_bucket", (_us(period, position), time, Literal(offset % period, TIMESTAMP)), TIMESTAMP, position)


def _ceiling(time: Expr, period: int, offset: int, position: int | None) -> Expr:
    """The first point of the grid that is not before `time`."""
    return plus(
        _floor(Call("-", (time, ONE_MICROSECOND), TIMESTAMP, position), period, offset, position), _us(period, position)
    )
