"""A grouping of a temporal relation: one row per group and maximal time in which its results do not change. The analyzer calls
`snapshot` with the Aggregate node that the query would have over a plain relation.

Aggregates that can take a row back exactly (counts, and sums and averages of integers and sums of decimals) are running sums over
starts and ends of lifetimes: `by_changes`. Others are computed for each time between two neighbouring starts or ends of their
group, over the rows alive then: `by_spans`, whose cost is the number of rows alive in all of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tsql.analyze_scope import Life, Names
from tsql.kernels.expr import Aggregate, Call, Case, Cast, Column, Expr, Literal, SortKey
from tsql.kernels.types import BIGINT, BOOLEAN, DOUBLE, HUGEINT, TIMESTAMP
from tsql.kernels.windows.call import WindowCall
from tsql.planner import logical
from tsql.planner.bind_types import coerce
from tsql.temporal.cut import levels, merged, sum_type
from tsql.temporal.lifetimes import bound, columns_of, equal, every, kept, less

ONE, ZERO = Literal(1, BIGINT), Literal(0, BIGINT)
Calls = Sequence[tuple[str, Aggregate]]


def snapshot(node: logical.Aggregate, life: Life, taken: Iterable[str]) -> tuple[logical.Node, Life]:
    """The grouping per snapshot: the columns of `node`, and a lifetime."""
    names = Names((*taken, *node.schema.names, *node.input.schema.names))
    keys = [names.unique(f"{name}_key") for name, _ in node.keys]
    used = {column for _, call in node.aggregates for expr in call.expressions() for column in expr.columns()}
    rows = logical.Project(
        node.input,
        (
            *((key, expr) for key, (_, expr) in zip(keys, node.keys, strict=True)),
            *kept(node.input, [name for name in node.input.schema.names if name in used and name not in life.columns]),
            *kept(node.input, life.columns),
        ),
    )
    build = by_changes if all(can_take_back(call) for _, call in node.aggregates) else by_spans
    plan, span = build(rows, keys, life, node.aggregates, (*taken, *node.schema.names))
    values = [name for name, _ in node.aggregates]
    plan = merged(plan, keys, values, span, (*taken, *node.schema.names))
    shown = [(name, column) for (name, _), column in zip(node.keys, columns_of(plan, keys), strict=True)]
    return logical.Project(plan, (*shown, *kept(plan, values), *kept(plan, span.columns))), span


def can_take_back(call: Aggregate) -> bool:
    """Whether the result over fewer rows follows exactly from the result and the rows that are gone."""
    if call.distinct or call.order:
        return False
    match call.name:
        case "count" | "count_star":
            return True
        case "sum":
            return call.args[0].type.is_integer or call.args[0].type.is_decimal
        case "avg":
            return call.args[0].type.is_integer
    return False


def by_changes(rows: logical.Node, keys: Sequence[str], life: Life, calls: Calls, taken: Iterable[str]) -> tuple[logical.Node, Life]:
    """Sums over the rows alive, by adding at starts and taking away at ends."""
    names = Names((*taken, *rows.schema.names, *(name for name, _ in calls)))
    alive = names.unique("alive")
    sums: dict[Expr, str] = {ONE: alive}
    parts = [(name, _sums_of(call), call) for name, call in calls]
    for _, (count, total), _ in parts:
        for value in (count, total):
            if value is not None and value not in sums:
                sums[value] = names.unique("total" if value is total else "counted")
    plan, span = levels(rows, keys, life, [(name, value) for value, name in sums.items()], (*taken, *(name for name, _ in calls)))
    some = Call(">", (Column(alive, HUGEINT), Literal(0, HUGEINT)), BOOLEAN)

    def result(count: Expr, total: Expr | None, call: Aggregate) -> Expr:
        number = Column(sums[count], HUGEINT)
        if total is None:
            return coerce(number, call.type)
        value: Expr = Column(sums[total], sum_type(total.type))
        if call.name == "avg":
            value = Call("/", (Cast(value, DOUBLE), Cast(number, DOUBLE)), DOUBLE)
        present = Call(">", (number, Literal(0, HUGEINT)), BOOLEAN)
        return Case(((present, coerce(value, call.type)),), Literal(None, call.type))

    results = [(name, result(count, total, call)) for name, (count, total), call in parts]
    plan = logical.Project(logical.Filter(plan, some), (*kept(plan, keys), *results, *kept(plan, span.columns)))
    return plan, span


def _sums_of(call: Aggregate) -> tuple[Expr, Expr | None]:
    """What an aggregate adds for each row: 1 for a row that counts, and its value."""
    conditions = [Call("is_not_null", (arg,), BOOLEAN) for arg in call.args]
    if call.filter is not None:
        conditions.append(call.filter)
    condition = every(conditions)
    count = ONE if condition is None else Case(((condition, ONE),), ZERO)
    if call.name in ("count", "count_star"):
        return count, None
    value = call.args[0]
    if value.type.is_integer:
        value = coerce(value, HUGEINT)
    zero = Literal(0, value.type)
    return count, Case(((condition, value),), zero)


def by_spans(rows: logical.Node, keys: Sequence[str], life: Life, calls: Calls, taken: Iterable[str]) -> tuple[logical.Node, Life]:
    """The aggregates over the rows alive in each span between two neighbouring starts or ends of a group."""
    names = Names((*taken, *rows.schema.names, *(name for name, _ in calls)))
    over = [names.unique(f"{key}_of") for key in keys]
    time, until = names.unique("at"), names.unique("until")
    sides = [
        logical.Project(rows, (*((new, column) for new, column in zip(over, columns_of(rows, keys), strict=True)), (time, bound(side))))
        for side in life.columns
    ]
    edges = logical.Distinct(logical.SetOperation("union", True, *sides))
    spans: logical.Node = logical.Window(
        edges, tuple(columns_of(edges, over)), (SortKey(bound(time)),), ((until, WindowCall("lead", (bound(time),), TIMESTAMP)),)
    )
    spans = logical.Filter(spans, Call("is_not_null", (Column(until, TIMESTAMP),), BOOLEAN))
    at_time = [Call("<=", (bound(life.start), bound(time)), BOOLEAN), less(bound(time), bound(life.end))]
    joined = logical.Join("inner", rows, spans, every([*equal(columns_of(rows, keys), columns_of(spans, over)), *at_time]))
    plan = logical.Aggregate(joined, (*kept(joined, keys), *kept(joined, (time, until))), tuple(calls))
    return plan, Life(time, until)
