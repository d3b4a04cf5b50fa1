"""Estimates of hopping and growing windows: of each of their panes, before `combine` adds them up.

    merged   = aggregate gathered phase=merge by=(pane) n=count(*)        the panes of all workers
    scaled   = project merged n__0=round(scale * n__0) ..                 states that grow with the input
    windows  = combine scaled .. #pane total 0 n=sum(..) #pane error 0 n=sum(..)

The error of a window is at most the sum of its panes' errors. A pane of which nothing was read may be empty or not, so
a window has bounds once all of its panes have been met."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.aggregates.bodies import plain_body, state_names
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, Literal, substitute
from tsql.kernels.expr.types import BIGINT, DOUBLE, Type
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.step import Step
from tsql.planner.progressive.driven import Groups
from tsql.planner.progressive.measures import AVERAGES, COUNTS, SUMS, VARIANCES, binary, number
from tsql.planner.progressive.proofs import call, compare
from tsql.planner.progressive.terms import SCALE, WIDTH, Terms
from tsql.planner.progressive.values import UNKNOWN, Values, pane_error, pane_total, value_name

PANES = "#panes"
"""How many panes of a window have been met."""

GROWING = {**dict.fromkeys((*COUNTS, *SUMS, *AVERAGES), (0, 1)), **dict.fromkeys(VARIANCES, (0, 2))}
"""The parts of an aggregate's state that grow with the input."""


def estimated_windows(
    gathered: Step, combine: Combine, partial: Aggregate, hidden: list[tuple[str, AggregateCall]], terms: Terms
) -> Step:
    """The windows of estimated panes, with the hidden columns of `Values` in panes. `hidden`: what travels beside the
    groups, as aggregates."""
    keys = tuple((name, Column(name, e.type)) for name, e in partial.by)
    merged = replace(partial, inputs=(gathered,), phase="merge", by=keys, calls=(*combine.calls, *hidden))
    inner = Values(Groups((), combine.calls, combine.schema), terms)
    plain = {f.name: Column(f.name, f.type, f.nullable) for f in merged.schema}
    totals: dict[str, Expr] = {name: plain[_states(name, one)[0]] for name, one in hidden}
    columns: list[tuple[str, Expr]] = list(keys)
    for name, one in combine.calls:
        columns += _scaled(name, one, terms, totals)
    extra: list[tuple[str, Expr]] = [(PANES, number(1.0))]
    for measure in inner.measures:
        error = binary("*", terms.of(WIDTH), inner.error_of_measure(measure.name))
        extra.append((pane_total(measure.name), inner.expanded(measure.name)))
        extra.append((pane_error(measure.name), Call("coalesce", (error, number(UNKNOWN)), DOUBLE)))
    for name, expr in extra:
        value, rows = state_names(name, 2)
        columns += [(value, _over(expr, totals)), (rows, Literal(1, BIGINT))]
    scaled = Project((merged,), columns=tuple((name, _over(expr, totals)) for name, expr in columns))
    sums = tuple((name, AggregateCall("sum", (Column(name, DOUBLE),), DOUBLE)) for name, _ in extra)
    windows = replace(combine, inputs=(scaled,), calls=(*combine.calls, *sums))
    shown: list[tuple[str, Expr]] = [(f.name, Column(f.name, f.type, f.nullable)) for f in combine.schema]
    errors = [pane_error(measure.name) for measure in inner.measures]
    whole = compare(">=", Column(PANES, DOUBLE), _panes(combine))
    marked: list[tuple[str, Expr]] = [
        (name, Case(((whole, Column(name, DOUBLE)),), number(UNKNOWN)) if name in errors else Column(name, DOUBLE))
        for name, _ in extra
    ]
    values = [(value_name(name), expr) for name, expr in shown]
    return Project((windows,), columns=(*shown, *marked, *values), name="estimated")


def pane_columns(values: Values) -> list[tuple[str, Type]]:
    """The hidden columns that windows have."""
    names = [name for m in values.measures for name in (pane_total(m.name), pane_error(m.name))]
    return [(PANES, DOUBLE), *((name, DOUBLE) for name in names)]


def _panes(combine: Combine) -> Expr:
    """The panes of a window: fewer, where it grows."""
    windows = combine.windows
    if windows.kind == "hop" or windows.start is None or windows.end is None:
        return number(float(windows.size or 0))
    start, end = (Cast(Call("epoch_us", (Column(n, combine.schema[n].type),), BIGINT), DOUBLE)
                  for n in (windows.start, windows.end))  # fmt: skip
    return binary("/", binary("-", end, start), number(float(windows.width or 1)))


def _scaled(name: str, one: AggregateCall, terms: Terms, totals: dict[str, Expr]) -> list[tuple[str, Expr]]:
    """The state of an aggregate, as it would be of all units."""
    types = plain_body(one).exported()
    growing = () if one.distinct or one.order else GROWING.get(one.name, ())
    found: list[tuple[str, Expr]] = []
    for place, (column, type) in enumerate(zip(state_names(name, len(types)), types, strict=True)):
        state: Expr = Column(column, type)
        if place in growing:
            whole = binary("*", terms.of(SCALE), Cast(state, DOUBLE))
            state = whole if type == DOUBLE else Cast(_whole(whole, type), type)
        found.append((column, state))
    return found


def _states(name: str, one: AggregateCall) -> tuple[str, ...]:
    return tuple(state_names(name, len(plain_body(one).exported())))


def _whole(value: Expr, type: Type) -> Expr:
    return value if type.is_float or type.is_decimal else call("round", value)


def _over(expr: Expr, totals: dict[str, Expr]) -> Expr:
    """An expression over the merged groups, whose hidden sums are states too."""
    return substitute(expr, totals)
