"""Aggregates over distinct values on a cluster, in two groupings: the tasks first make the values distinct, so neither
one task nor the driver gets the rows of a group. `grouping.group` compares it with one phase.

    aggregate by=(g) n=count(DISTINCT x) s=sum(y)    ->    aggregate by=(g) n=count(x) s=sum(s)
      rows                                                   aggregate by=(g, x) s=sum(y)
                                                               rows

Each value of a group is then in one row, so the outer call needs no DISTINCT and can be split like others. Several
different arguments need a copy of the rows for each: a grouping set per argument, and one for calls without DISTINCT.

It is not done for calls that keep values for other reasons (`median`, `mode`), whose parts cannot be put together, and
not beside sums of floats, whose last digits would then depend on how many values there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tsql.kernels.aggregates.bodies import plain_body
from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, Literal, substitute
from tsql.kernels.expr.types import BIGINT, BOOLEAN, HUGEINT
from tsql.planner.choose.choice import Choice
from tsql.planner.logical.aggregate_states import can_split
from tsql.planner.logical.calls import map_call
from tsql.planner.physical.operators.expand import Expand
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.step import Step

Keys = tuple[tuple[str, Expr], ...]
Calls = tuple[tuple[str, AggregateCall], ...]
Group = Callable[[Choice, Step, Keys, Calls, float], Step]

COUNTS = ("count", "count_star")
MERGEABLE = (*COUNTS, "sum", "min", "max")
COPIED = ("grouping_id", "grouping_set")
"""The columns that copies of rows get. Those of the query's own grouping sets take other names."""
MOST_ARGUMENTS = 4
"""Rows are copied for each different argument."""


def by_values(choice: Choice, source: Step, keys: Keys, calls: Calls, groups: float, group: Group) -> Step | None:
    """The two groupings; None if a call does not allow them. group: makes a grouping."""
    distinct = [call for _, call in calls if call.distinct]
    arguments = list(dict.fromkeys(call.args[0] for call in distinct if len(call.args) == 1))
    others = [(name, call) for name, call in calls if not call.distinct]
    if not 0 < len(arguments) <= MOST_ARGUMENTS or not all(map(_is_plain, distinct)):
        return None
    several = len(arguments) > 1
    if several and any(name in COPIED for name, _ in keys):
        return None  # the rows are copies for grouping sets already
    if not all(_is_mergeable(call) for _, call in others):
        return None
    taken = {*source.schema.names, *(name for name, _ in keys), *(name for name, _ in calls)}
    values = [_fresh(f"value_{number}", taken) for number in range(len(arguments))]
    parts = {name: _fresh(f"{name}_part", taken) for name, _ in others}
    inner_keys = (*keys, *zip(values, arguments, strict=True))
    inner_calls = tuple((parts[name], call) for name, call in others)
    rows = _rows(choice, source, arguments, groups)
    if several:
        source, inner_keys, inner_calls = _copied(source, keys, values, arguments, inner_calls, taken)
    inner = group(choice, source, inner_keys, inner_calls, rows)
    outer = tuple(
        (name, _of_values(call, values, arguments, several) if call.distinct else _of_parts(call, parts[name]))
        for name, call in calls
    )
    total = group(choice, inner, tuple((name, Column(name, e.type)) for name, e in keys), outer, groups)
    columns = [(name, Column(name, e.type)) for name, e in keys] + [(name, _result(name, call)) for name, call in calls]
    return Project((total,), columns=tuple(columns))


def _is_plain(call: AggregateCall) -> bool:
    """Whether a call over distinct values is one without DISTINCT over rows whose values are distinct."""
    if len(call.args) != 1 or call.filter is not None or call.order:
        return False
    plain = replace(call, distinct=False)
    ordered = any(function.ordered for function in AGGREGATES.overloads.get(call.name, ()))
    return can_split(plain) and plain_body(plain).skips_nulls and not ordered


def _is_mergeable(call: AggregateCall) -> bool:
    return call.name in MERGEABLE and can_split(call) and not (call.name == "sum" and call.type.is_float)


def _copied(
    source: Step, keys: Keys, values: list[str], arguments: Sequence[Expr], calls: Calls, taken: set[str]
) -> tuple[Step, Keys, Calls]:
    """The rows once for each argument, where the others are NULL, and once for the calls without DISTINCT."""
    named = tuple((_fresh(name, taken), e) for name, e in keys)
    own = {f.name: _fresh(f.name, taken) if f.name in COPIED else f.name for f in source.schema}
    columns = [(own[f.name], Column(f.name, f.type, f.nullable)) for f in source.schema]
    below: dict[str, Expr] = {f.name: Column(own[f.name], f.type, f.nullable) for f in source.schema}
    calls = tuple((name, map_call(call, lambda e: substitute(e, below))) for name, call in calls)
    computed = Project((source,), columns=(*columns, *named, *zip(values, arguments, strict=True)))
    every = tuple(range(len(named)))
    sets = [(*every, len(named) + number) for number in range(len(values))] + ([every] if calls else [])
    expanded = Expand((computed,), keys=(*(name for name, _ in named), *values), sets=tuple(sets))
    is_last = Call("=", (Column("grouping_set", BIGINT, False), Literal(len(values), BIGINT)), BOOLEAN)
    limited = tuple(
        (
            name,
            replace(call, filter=is_last if call.filter is None else Call("and", (is_last, call.filter), BOOLEAN)),
        )
        for name, call in calls
    )
    inner = tuple((name, Column(own, e.type)) for (name, e), (own, _) in zip(keys, named, strict=True))
    inner += tuple((name, Column(name, e.type)) for name, e in zip(values, arguments, strict=True))
    return expanded, (*inner, ("grouping_set", Column("grouping_set", BIGINT, False))), limited


def _rows(choice: Choice, source: Step, arguments: Sequence[Expr], groups: float) -> float:
    """The expected rows of the inner grouping: as many as there are pairs of a group and a value."""
    given = choice.estimator.of(source)
    found = 0.0
    for argument in arguments:
        known = given.distinct(argument)
        found += given.rows if known is None else min(given.rows, max(1.0, groups) * max(1.0, known))
    return max(1.0, found)


def _of_values(call: AggregateCall, values: list[str], arguments: list[Expr], several: bool) -> AggregateCall:
    number = arguments.index(call.args[0])
    only = Call("=", (Column("grouping_set", BIGINT, False), Literal(number, BIGINT)), BOOLEAN) if several else None
    return replace(call, args=(Column(values[number], call.args[0].type),), distinct=False, filter=only)


def _of_parts(call: AggregateCall, part: str) -> AggregateCall:
    """The aggregate of the parts of a group."""
    column = Column(part, call.type)
    if call.name in COUNTS:
        return AggregateCall("sum", (column,), HUGEINT, position=call.position)
    return replace(call, args=(column,), filter=None)


def _result(name: str, call: AggregateCall) -> Expr:
    """A sum of no counts is NULL, and a count of no rows 0."""
    if call.distinct or call.name not in COUNTS:
        return Column(name, call.type)
    counted = Cast(Column(name, HUGEINT), call.type)
    return Call("coalesce", (counted, Literal(0, call.type)), call.type)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
