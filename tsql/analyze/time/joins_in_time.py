"""Joins in time over plain relations: ASOF JOIN to its logical node, FOR VALID_TIME AS OF to a filter.

`tsql/analyze/from_.py` calls `asof_join`, `tsql/analyze/query.py` calls `as_of`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import floor
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze.scope import AnalyzedRelation, ScopeField
from tsql.analyze.subquery import Level, Pending, pendings
from tsql.grammar.time.nodes import AsOf
from tsql.grammar.time.nodes import AsofJoin as AsofNode
from tsql.kernels.expr.constant import evaluate
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.types import BOOLEAN, TIMESTAMP, Type
from tsql.planner.bind.binder import Binder
from tsql.planner.bind.operators import compare
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.types import coerce
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.asof import NEAREST, AsofJoin
from tsql.planner.logical.predicates import EQUALITIES, conjunction, conjuncts
from tsql.planner.physical.join_ranges import MIRROR
from tsql.planner.physical.operators.asof_join import is_sortable, is_tolerance

if TYPE_CHECKING:
    from tsql.analyze.from_ import FromAnalyzer, Joined
    from tsql.analyze.query import QueryAnalyzer

HINT = "ON l.key = r.key AND l.ts >= r.ts"
TIMES = ("TIME", "TIMESTAMP", "TIMESTAMPTZ")


def asof_join(
    owner: FromAnalyzer, left: Joined, right: Joined, node: AsofNode
) -> tuple[logical.Node, dict[str, ScopeField] | None]:
    """The plan of an ASOF join, and the columns that USING makes one of."""
    kind = (node.args.get("side") or "inner").lower()
    using = node.args.get("using")
    merged: dict[str, ScopeField] | None = None
    if using:
        condition, merged = _using(owner, left, right, using)
        plans = (left.plan, right.plan)
    else:
        condition, plans = _on(owner, kind, left, right, node.args["on"])
    return _Asof(owner, kind, plans, node).join(condition), merged


def _using(
    owner: FromAnalyzer, left: Joined, right: Joined, names: list[exp.Expr]
) -> tuple[Expr, dict[str, ScopeField]]:
    """Equalities, and of the last column `left >= right`, as in DuckDB."""
    binder = Binder(owner.source, lambda node: node, clause="USING")
    parts: list[Expr] = []
    merged: dict[str, ScopeField] = {}
    for place, name in enumerate(names, 1):
        sides = owner.side_of(name, left, "left"), owner.side_of(name, right, "right")
        position = position_of(name)
        parts.append(
            compare(
                binder, ">=" if place == len(names) else "=", *(side.to_column(position) for side in sides), position
            )
        )
        merged[name.name.lower()] = sides[0]
    return parts[0] if len(parts) == 1 else Call("and", tuple(parts), BOOLEAN), merged


def _on(
    owner: FromAnalyzer, kind: str, left: Joined, right: Joined, node: exp.Expr
) -> tuple[Expr, tuple[logical.Node, logical.Node]]:
    """The condition, and both sides with the subqueries that it names."""
    from tsql.analyze.from_ import JoinCondition

    waiting = JoinCondition(owner, kind, left, right, False)
    condition = waiting.bound(node)
    if not pendings(condition):
        return condition, (left.plan, right.plan)
    sides: tuple[list[Expr], list[Expr]] = ([], [])
    left_names, right_names = (set(side.plan.schema.names) for side in (left, right))
    for operand in _operands(condition):
        used = {
            c.name
            for e in operand.walk()
            if isinstance(e, Column)
            for c in (e.columns_read() if isinstance(e, Pending) else (e,))
        }
        if pendings(operand) and used & left_names and used & right_names:
            raise owner.queries.error(
                "a subquery in the condition of an ASOF JOIN cannot stand beside columns of both of its sides", node
            )
        sides[0 if used & left_names else 1].extend(pendings(operand))
    plans = tuple(waiting.level.attach(side.plan, found) for side, found in zip((left, right), sides, strict=True))
    return waiting.level.settle(condition), plans


def _operands(condition: Expr) -> Iterator[Expr]:
    """The sides of comparisons, and other conditions as a whole."""
    for part in conjuncts(condition):
        if isinstance(part, Call) and part.name in (*NEAREST, *EQUALITIES):
            yield from part.args
        else:
            yield part


class _Asof:
    """Sorts the parts of the condition of one ASOF join."""

    def __init__(self, owner: FromAnalyzer, kind: str, plans: tuple[logical.Node, logical.Node], node: AsofNode):
        self.queries, self.kind, self.node = owner.queries, kind, node
        self.left, self.right = plans
        self.names = tuple(set(plan.schema.names) for plan in plans)

    def join(self, condition: Expr) -> logical.Node:
        at: Call | None = None
        kept: list[Expr] = []
        filters: tuple[list[Expr], list[Expr]] = ([], [])
        for part in conjuncts(condition):
            comparison = self._comparison(part)
            if comparison is None:
                own = self._own_filter(part)
                (kept if own is None else filters[own]).append(part)
            elif at is None:
                at = comparison
            else:
                raise self._error(
                    "Multiple ASOF JOIN inequalities",
                    part,
                    (
                        "one inequality says which right row is the nearest; say how far it may be by "
                        "TOLERANCE, other conditions in WHERE"
                    ),
                )
        if at is None:
            raise self._error("Missing ASOF JOIN inequality", condition, HINT)
        left, right = (
            logical.Filter(plan, conjunction(parts)) if parts else plan
            for plan, parts in zip((self.left, self.right), filters, strict=True)
        )
        at, tolerance = self._tolerance(at)
        self._check_type(at)
        return AsofJoin(self.kind, left, right, at, conjunction(kept), tolerance, position_of(self.node))

    def _comparison(self, part: Expr) -> Call | None:
        """A comparison of both sides, with the left side first; None for any other condition."""
        if not (isinstance(part, Call) and part.name in NEAREST):
            return None
        a, b = part.args
        if self._is_of(a, 0) and self._is_of(b, 1):
            return part
        if self._is_of(a, 1) and self._is_of(b, 0):
            return Call(MIRROR[part.name], (b, a), BOOLEAN, part.position)
        return None

    def _is_of(self, expr: Expr, side: int) -> bool:
        used = expr.columns()
        return bool(used) and set(used) <= self.names[side]

    def _own_filter(self, part: Expr) -> int | None:
        """The side that a condition filters by itself; None if there is none. A left join keeps all its left rows."""
        if self._is_of(part, 1):
            return 1
        return 0 if self.kind == "inner" and not set(part.columns()) & self.names[1] else None

    def _check_type(self, at: Call) -> None:
        compared = at.args[0].type
        if not is_sortable(compared):
            raise self._error(
                f"an ASOF JOIN compares times or numbers of up to 64 bits, not {compared}",
                at,
                "cast both sides, to TIMESTAMP or BIGINT for instance",
            )

    def _tolerance(self, at: Call) -> tuple[Call, Literal | None]:
        """The comparison in a type in which distances can be told, and the tolerance in it."""
        node = self.node.args.get("tolerance")
        if node is None:
            return at, None
        if at.args[0].type.name == "DATE":
            at = Call(at.name, tuple(coerce(side, TIMESTAMP) for side in at.args), BOOLEAN, at.position)
        compared = at.args[0].type
        if node.find(exp.Placeholder) is not None:
            raise self._error(
                "TOLERANCE cannot be a parameter: the plan of the query depends on it",
                node,
                "write the value, as in INTERVAL '1 second'",
            )
        given = self.queries._constant_binder("TOLERANCE").bind(node)
        value = given if isinstance(given, Literal) else evaluate(given)
        if value is None or value.value is None:
            raise self._error("TOLERANCE takes a constant that is not NULL", node)
        is_interval = isinstance(value.value, tuple)
        if is_interval != (compared.name in TIMES) or not (is_interval or value.type.is_numeric):
            wanted = (
                "an interval, such as INTERVAL '1 second'"
                if compared.name in TIMES
                else "a number, as the two sides are numbers"
            )
            raise self._error(f"TOLERANCE takes {wanted}: {compared} and {value.type} do not go together", node)
        if is_interval and value.value[0]:
            raise self._error("TOLERANCE takes no months or years: their length differs", node, "use days")
        tolerance = value if is_interval else _in_type(value, compared)
        if tolerance is None:
            raise self._error(f"TOLERANCE {value} is out of range for {compared}", node)
        if not is_tolerance(tolerance, at.args[0]):
            raise self._error("TOLERANCE cannot be negative", node)
        return at, tolerance

    def _error(self, message: str, part: Any, hint: str | None = None) -> Exception:
        position = (
            position_of(part)
            if isinstance(part, exp.Expr)
            else next((p for e in part.walk() if (p := getattr(e, "position", None)) is not None), None)
        )
        return BindError(
            message,
            position=position_of(self.node) if position is None else position,
            text=self.queries.source.text,
            hint=hint,
        )


def _in_type(value: Literal, target: Type) -> Literal | None:
    """A number in the type of the compared values, or None if it is out of range. Digits finer than the type's unit are
    cut off, because no distance has them."""
    number: float = value.value / 10**value.type.scale if value.type.is_decimal else value.value
    if target.is_float:
        return Literal(float(number), target)
    scale = target.scale if target.is_decimal else 0
    if value.type.is_decimal:
        shift = scale - value.type.scale
        units = value.value * 10**shift if shift >= 0 else value.value // 10**-shift
    else:
        units = floor(number * 10**scale) if isinstance(number, float) else number * 10**scale
    low, high = target.bounds
    return Literal(units, target) if low <= units <= high else None


def as_of(
    queries: QueryAnalyzer,
    relation: AnalyzedRelation,
    period: tuple[str, str] | None,
    node: exp.Table,
    environment: Any,
) -> AnalyzedRelation:
    """The rows of a table whose period contains the instant of FOR VALID_TIME AS OF: `start <= x AND (end IS NULL OR x
    < end)`.

    x may name columns of preceding relations: the relation is then lateral, and the condition becomes the join's."""
    version: AsOf = node.args["version"]
    if period is None:
        raise without_period(queries, f'"{node.name}"', version)
    level = Level(queries, environment, ())
    binder = queries._constant_binder(
        "AS OF", level, hint=f"the column stands before it: FROM t JOIN {node.name} FOR VALID_TIME AS OF t.ts ON .."
    )
    instant = binder.operand(version.this)
    known = {field.name.lower(): field for field in relation.fields}
    start, end = (known[name.lower()].to_column() for name in period)
    plan = level.attach(relation.plan, (instant,))
    instant = level.settle(instant)
    position = next((p for p in (position_of(version.this), position_of(version)) if p is not None), None)
    has_begun = compare(binder, "<=", start, instant, position)
    is_open = Call("is_null", (end,), BOOLEAN, position)
    has_not_ended = compare(binder, "<", instant, end, position)
    return AnalyzedRelation(
        logical.Filter(
            plan, Call("and", (has_begun, Call("or", (is_open, has_not_ended), BOOLEAN, position)), BOOLEAN, position)
        ),
        relation.fields,
    )


def without_period(queries: QueryAnalyzer, what: str, version: AsOf) -> Exception:
    """The error of AS OF behind a relation that has no PERIOD."""
    return queries.error(f"{what} has no PERIOD: FOR VALID_TIME AS OF needs one", version, _with_period(queries))


def _with_period(queries: QueryAnalyzer) -> str:
    """A hint that names tables with a PERIOD, or how to make one."""
    names = [
        name for name in queries.catalog.names() if getattr(queries.catalog.entry(name), "period", None) is not None
    ]
    create = "CREATE TABLE .. (.., PERIOD FOR valid_time (start, end))"
    return (
        f"{', '.join(names[:3])}{', ..' if len(names) > 3 else ''} {'has' if len(names) == 1 else 'have'} one; {create}"
        if names
        else create
    )


__all__ = ["as_of", "asof_join", "without_period"]
