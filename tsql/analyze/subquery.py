"""Subqueries in expressions: `(SELECT ..)`, EXISTS, IN, ANY, ALL become `Apply` nodes below the operator that uses
their column.

While a clause is bound, a subquery is a `Pending` column (`Level.bind`, which the binder calls). When the plan below
the clause is known, `Level.attach` adds the Apply there and the expression reads its column. In between, a grouping,
window functions or UNNEST may have changed the columns of the query: `Pending.over` rewrites the subquery over their
result.

Names: no column of a subquery's plan has the name of a column of an enclosing relation (`Frame.taken`), so an `Outer`
is never ambiguous. For the same reason, columns that subqueries add are unique in their query."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze.outer_columns import as_outer, map_outers, map_value, names_in, outers
from tsql.analyze.scope import AnalyzedRelation, Life, Names, integer_of
from tsql.analyze.time.lifetime_joins import TemporalSide, pieces
from tsql.analyze.time.lifetimes import kept, without_lifetime
from tsql.analyze.time.misplaced import misplaced
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Aggregate, Call, Column, Expr, Outer, rewrite
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BOOLEAN, Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.binder import Binder
from tsql.planner.bind.operators import COMPARISON
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.subquery import listed_query, quantified
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.types import coerce, comparison_type
from tsql.planner.logical import nodes as logical

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer

_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(eq=False)
class Subquery:
    """A subquery that is not in the plan yet: the right side of its Apply, and the Apply's attributes. `condition` is
    over columns of the enclosing query and `Inner` columns of the plan. `life` is set if it is a temporal relation:
    `time/select.py`."""

    level: Level
    kind: str
    plan: logical.Node
    column: str
    dtype: Type
    condition: Expr | None = None
    life: Life | None = None
    _over: dict[Callable[[Expr], Expr], Subquery] = field(default_factory=dict, init=False, repr=False)

    def over(self, change: Callable[[Expr], Expr]) -> Subquery:
        """The same subquery over, for example, the result of a grouping; `change` rewrites an expression. The result is
        cached per `change`."""
        if change not in self._over:

            def put(outer: Outer) -> Expr:
                value = self.level.own(outer)
                return outer if value is None else self.level.to_outer(change(value))

            condition = None if self.condition is None else change(self.condition)
            self._over[change] = replace(self, plan=map_outers(self.plan, put), condition=condition)
        return self._over[change]

    def needs(self) -> list[Subquery]:
        """The subqueries of the same query whose columns this one reads."""
        return [column.subquery for column in self.own_columns() if isinstance(column, Pending)]

    def own_columns(self) -> list[Column]:
        """The columns of its query that it names."""
        values = [value for value in map(self.level.own, outers(self.plan)) if value is not None]
        values += [self.condition] if self.condition is not None else []
        return [e for value in values for e in value.walk() if isinstance(e, Column) and not isinstance(e, Inner)]

    def columns_read(self) -> list[Column]:
        """The columns of its query that it names, and those of the subqueries that it needs."""
        return [*self.own_columns(), *(column for other in self.needs() for column in other.columns_read())]


@dataclass(frozen=True)
class Pending(Column):
    """The column of a subquery that is not in the plan yet."""

    subquery: Subquery = None  # type: ignore[assignment]

    def over(self, change: Callable[[Expr], Expr]) -> Pending:
        return replace(self, subquery=self.subquery.over(change))

    def columns_read(self) -> list[Column]:
        """The columns of its query on which the subquery depends."""
        return self.subquery.columns_read()


@dataclass(frozen=True)
class Inner(Column):
    """In the condition of a subquery: a column of its own plan."""


@dataclass(frozen=True)
class Deferred(Outer):
    """A value of an outer query that is not a column of its plan yet: an aggregate, a subquery or an alias there."""

    value: Expr = None  # type: ignore[assignment]
    level: Level = None  # type: ignore[assignment]


@dataclass(eq=False)
class OuterClause:
    """The clause around a subquery, as the subquery sees it: its names, and whether it allows an aggregate over
    them."""

    level: Level
    find: Callable[[exp.Column], Expr | None]
    aggregate: Callable[[Aggregate, exp.Expr], Expr] | None = None
    clause: str = "FROM"
    used: bool = False

    @property
    def taken(self) -> frozenset[str]:
        """The names of all columns of the relations around."""
        above = self.level.outer
        return frozenset(self.level.visible) | (above.taken if above is not None else frozenset())


class Level:
    """The subqueries of one query: of a SELECT, of the condition of a join, of an ORDER BY."""

    def __init__(self, queries: QueryAnalyzer, environment: Any, columns: Iterable[str]):
        self.queries = queries
        self.environment = environment
        self.outer: OuterClause | None = queries.outer
        self.visible = set(columns)
        self.used: set[str] = set()
        self._names = Names(self.visible | queries.taken)
        self._known: list[tuple[exp.Expr, OuterClause, Expr]] = []
        self._done: dict[Subquery, Column] = {}

    def avoid(self, names: Iterable[str]) -> None:
        """Give the columns of subqueries other names than these."""
        self._names.take(names)

    def binder(
        self, find: Callable[[exp.Column], Expr | None], aggregate: Any, clause: str
    ) -> Callable[[Binder, exp.Expr], Expr]:
        """What a Binder of a clause calls for its subqueries. `find` is what a name means in the clause, before the
        queries around."""
        frame = OuterClause(self, find, aggregate, clause)
        return lambda binder, node: self.bind(frame, binder, node)

    def outside(self, node: exp.Column) -> Expr | None:
        """The meaning of a name that is no column here, in the queries around."""
        frame = self.outer
        while frame is not None:
            found = frame.find(node)
            if found is not None:
                frame.used = True
                return frame.level.to_outer(found)
            frame = frame.level.outer
        return None

    def to_outer(self, expr: Expr) -> Expr:
        """An expression of this query, as a query inside of it says it."""
        columns = [e for e in expr.walk() if isinstance(e, Column)]
        if not columns or (isinstance(expr, Column) and not expr.name.startswith("\0")):
            return as_outer(expr)
        return Deferred("\0value", expr.type, True, columns[0].position, expr, self)

    def own(self, outer: Outer) -> Expr | None:
        """What an outer column means in this query; None if it belongs to another one."""
        if isinstance(outer, Deferred):
            return outer.value if outer.level is self else None
        return Column(outer.name, outer.dtype, outer.nullable, outer.position) if outer.name in self.visible else None

    def outer_aggregate(self, call: Aggregate, node: exp.Expr) -> Expr | None:
        """An aggregate over outer columns alone belongs to the nearest query that has them. None for other
        aggregates."""
        parts = [e for expr in call.expressions() for e in expr.walk()]
        named = [e for e in parts if isinstance(e, Outer)]
        if not named or any(isinstance(e, Column) for e in parts):
            return None
        frame = self.outer
        while frame is not None and not any(frame.level.own(outer) is not None for outer in named):
            frame = frame.level.outer
        if frame is None:
            return None
        level = frame.level
        if frame.aggregate is None:
            raise self.queries.error(f"an aggregate is not allowed in {frame.clause}", node)

        def inside(expr: Expr) -> Expr:
            return rewrite(expr, lambda e: (level.own(e) or e) if isinstance(e, Outer) else e)

        return level.to_outer(frame.aggregate(map_value(call, inside), node))

    def bind(self, frame: OuterClause, binder: Binder, node: exp.Expr) -> Expr:
        """A subquery in an expression of `frame`'s clause. Equal subqueries are one, so that GROUP BY recognizes
        them."""
        for known, where, expr in self._known:
            if known == node and (where is frame or self._is_same_place(where, frame)):
                return expr
        expr = self._bind(frame, binder, node)
        self._known.append((node, frame, expr))
        return expr

    def _is_same_place(self, a: OuterClause, b: OuterClause) -> bool:
        """Whether names mean the same: not in HAVING, which prefers aliases."""
        return "HAVING" not in (a.clause, b.clause)

    def _bind(self, frame: OuterClause, binder: Binder, node: exp.Expr) -> Expr:
        match node:
            case exp.Exists():
                relation = self._query(frame, _unlimited(node.this))
                return self._pending("mark", relation, "found", BOOLEAN, None, node)
            case exp.In():
                return self._compared(frame, binder, "=", node.this, listed_query(node), node)
            case exp.Binary():
                op = COMPARISON[type(node)]
                query, is_all = quantified(node.expression)
                if op not in _OPPOSITE:
                    raise self.queries.error("ANY and ALL take =, <>, <, <=, > or >=", node)
                if is_all:
                    found = self._compared(frame, binder, _OPPOSITE[op], node.this, query, node)
                    return Call("not", (found,), BOOLEAN, position_of(node))
                return self._compared(frame, binder, op, node.this, query, node)
        relation = self._query(frame, node)
        self._expect(relation, 1, node)
        (only,) = relation.fields
        return self._pending("single", relation, only.to_column(position_of(node)).name, only.type, None, node)

    def _query(self, frame: OuterClause, node: exp.Expr) -> AnalyzedRelation:
        """The relation of the subquery, with exactly the columns that it shows."""
        relation = without_lifetime(self.queries.inside(frame).query(node, self.environment))
        lifetime = () if relation.life is None else relation.life.columns
        shown = dict.fromkeys((*(f.column for f in relation.readable), *lifetime))
        if tuple(shown) == relation.plan.schema.names:
            return relation
        return replace(relation, plan=logical.Project(relation.plan, tuple(kept(relation.plan, shown))))

    def _expect(self, relation: AnalyzedRelation, columns: int, node: exp.Expr) -> None:
        if len(relation.fields) != columns:
            raise self.queries.error(f"Subquery returns {len(relation.fields)} columns - expected {columns}", node)

    def _pending(
        self, kind: str, relation: AnalyzedRelation, name: str, dtype: Type, condition: Expr | None, node: exp.Expr
    ) -> Pending:
        plan = relation.plan
        if kind == "single" and relation.life is not None:
            raise misplaced(self.queries, node)
        if kind == "mark":
            self._names.take(plan.schema.names)
        column = self._names.unique(name)
        if kind == "single" and column != name:
            plan = logical.Project(plan, ((column, Column(name, dtype)),))
        self.visible.add(column)
        inside = names_in(plan)
        self.used |= {column, *inside}
        self._names.take(inside)
        return Pending(
            f"\0{column}",
            dtype,
            True,
            position_of(node),
            Subquery(self, kind, plan, column, dtype, condition, relation.life),
        )

    def _compared(
        self, frame: OuterClause, binder: Binder, op: str, value: exp.Expr, query: exp.Expr, node: exp.Expr
    ) -> Expr:
        values = row_values(value)
        operands = [binder.operand(v) for v in values]
        relation = self._query(frame, query)
        self._expect(relation, len(operands), node)
        if len(operands) > 1 and op not in ("=", "<>"):
            raise self.queries.error(f"rows are compared by = and <>, not by {op}", node)
        inner = [Inner(f.to_column(position_of(node)).name, f.type, f.nullable) for f in relation.fields]
        equal = [
            self._comparison("=" if len(operands) > 1 else op, left, right, node)
            for left, right in zip(operands, inner, strict=True)
        ]
        condition = equal[0] if len(equal) == 1 else Call("and", tuple(equal), BOOLEAN, position_of(node))
        if len(equal) > 1 and op == "<>":
            condition = Call("not", (condition,), BOOLEAN, position_of(node))
        return self._pending("mark", relation, "is_in" if op == "=" else "is_any", BOOLEAN, condition, node)

    def _comparison(self, op: str, left: Expr, right: Expr, node: exp.Expr) -> Expr:
        both = comparison_type(left, right, equality=False)
        if both is None:
            raise self.queries.error(
                (
                    f"Cannot compare values of type {left.type} and {right.type} in IN/ANY/ALL clause - an "
                    "explicit cast is required"
                ),
                node,
            )
        return Call(op, (coerce(left, both), coerce(right, both)), BOOLEAN, position_of(node))

    def attach(
        self, plan: logical.Node, exprs: Iterable[Expr], change: Callable[[Expr], Expr] | None = None
    ) -> logical.Node:
        """The plan with an Apply for each subquery that the expressions wait for; `settle` then gives the expressions.
        `change` is for columns in the conditions that are not of this plan."""
        for expr in exprs:
            for pending in pendings(expr):
                if pending.subquery.life is not None:
                    raise misplaced(self.queries, pending.position)
                plan = self._attach(plan, pending.subquery, change)
        return plan

    def _attach(self, plan: logical.Node, subquery: Subquery, change: Callable[[Expr], Expr] | None) -> logical.Node:
        if subquery in self._done:
            return plan
        for other in subquery.needs():
            plan = self._attach(plan, other, change)
        self._check_placed(subquery)
        right = map_outers(subquery.plan, self._settled_outer)
        condition = None if subquery.condition is None else self.settle(subquery.condition)
        if condition is not None and change is not None:
            condition = rewrite(condition, change)
        self._done[subquery] = Column(subquery.column, subquery.dtype)
        return logical.Apply(
            subquery.kind, plan, right, condition, subquery.column if subquery.kind == "mark" else None
        )

    def _check_placed(self, subquery: Subquery) -> None:
        """Refuse a subquery below the window functions or the UNNEST that it reads."""
        for column in subquery.own_columns():
            if column.name.startswith("\0") and not isinstance(column, Pending):
                raise BindError(
                    "a subquery cannot depend on UNNEST or a window function here",
                    position=column.position,
                    text=self.queries.source.text,
                )

    def pieces(self, kind: str, left: TemporalSide, subquery: Subquery) -> TemporalSide:
        """What a temporal subquery leaves of the rows of a plan: the parts in which it has a row (semi), or none
        (anti)."""
        for other in subquery.needs():
            left = TemporalSide(self._attach(left.plan, other, None), left.life)
        right = TemporalSide(map_outers(subquery.plan, self._settled_outer), subquery.life)
        condition = None if subquery.condition is None else self.settle(subquery.condition)
        return pieces(kind, left, right, condition, (*self.queries.taken, *self.used, *self.visible))

    def settle(self, expr: Expr) -> Expr:
        """The expression over the columns of the plan that `attach` gave."""

        def put(e: Expr) -> Expr:
            if isinstance(e, Pending):
                return replace(self._done[e.subquery], position=e.position)
            return Column(e.name, e.dtype, e.nullable, e.position) if isinstance(e, Inner) else e

        return rewrite(expr, put)

    def _settled_outer(self, outer: Outer) -> Expr:
        if isinstance(outer, Deferred) and outer.level is self:
            return as_outer(self.settle(outer.value))
        return outer

    def regroup(self) -> None:
        """Forget the columns that are below a grouping."""
        self._done = {}


def pendings(expr: Expr) -> list[Pending]:
    """The subqueries of an expression that have no place yet."""
    return [e for e in expr.walk() if isinstance(e, Pending)]


def columns_read(expr: Expr) -> list[Column]:
    """The columns that an expression names, in itself or in its subqueries."""
    named = [e for e in expr.walk() if isinstance(e, Column)]
    return named + [column for e in named if isinstance(e, Pending) for column in e.columns_read()]


def computed_rows(level: Level, rows: Iterable[tuple[Expr, ...]], columns: list[str]) -> logical.Node:
    """The rows of a VALUES that are no constants: one relation for each, in order."""
    plans: list[logical.Node] = []
    for row in rows:
        level.regroup()
        plan = level.attach(logical.Values(((),), Schema(())), row)
        plans.append(
            logical.Project(plan, tuple((name, level.settle(value)) for name, value in zip(columns, row, strict=True)))
        )
    while len(plans) > 1:
        pairs = [plans[i : i + 2] for i in range(0, len(plans), 2)]
        plans = [logical.SetOperation("union", True, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return plans[0]


def row_values(node: exp.Expr) -> list[exp.Expr]:
    """The values of a row `(a, b)`; any other expression is one value."""
    inner = node
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.Tuple) or (isinstance(inner, CallNode) and inner.name == "row"):
        return inner.expressions
    return [node]


def _unlimited(query: exp.Expr) -> exp.Expr:
    """The query of EXISTS without a LIMIT of one row or more, which changes nothing there."""
    limit = query.args.get("limit")
    if not isinstance(limit, exp.Limit) or limit.args.get("limit_options") or query.args.get("offset"):
        return query
    if (integer_of(limit.expression) or 0) < 1:
        return query
    query = query.copy()
    query.set("limit", None)
    return query
