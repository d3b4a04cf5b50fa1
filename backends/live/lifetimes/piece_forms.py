"""Reads `cut.covered` and `cut.uncovered` back from a plan: the parts of rows that others match, and that none does.
`matches.matched` says what matches: by equalities, or, under other conditions, among those alive at the same time; the
lifetime of a row is one of the keys then."""

from __future__ import annotations

from typing import TypeGuard

from tsql.backends.live.lifetimes.forms import (
    BEFORE,
    Users,
    columns_of,
    comparisons,
    is_infinite,
    islands_of,
    replaced,
    start_of,
    through_filters,
    through_projects,
)
from tsql.backends.live.operator import held_step, origin
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.types import TIMESTAMP
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.predicates import conjunction, conjuncts
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Others:
    """Rows that match, the column with their start, and their end. The steps of the region may merge them."""

    rows: Step
    start: str
    end: Expr


@dataclass(frozen=True)
class Spans:
    """The times of each key with a match, or without one. window: the step that finds them. keys: its columns with the
    key. domain: the step with each key once, and its columns by those of the window; None if there is none."""

    covered: bool
    window: Window
    keys: tuple[str, ...]
    domain: Step | None
    of_domain: dict[str, str]
    others: tuple[Others, ...]


@dataclass(frozen=True)
class PieceForm:
    """top: the join of rows with `spans`. rows: those rows. keys: (expression over a row, column of the spans). start,
    end: the row's lifetime (a band has its end as a time after its start), first, last: that of a span."""

    top: HashJoin
    rows: Step
    spans_step: Step
    spans: Spans
    keys: tuple[tuple[Expr, str], ...]
    start: str
    end: Expr
    first: str
    last: str
    domain: dict[str, Expr]
    """The columns of the domain, over a row."""
    chosen: Expr | None
    """What rows must satisfy for their values to be in the domain."""


def pieces_of(top: Step, users: Users) -> PieceForm | None:
    """The pieces that a step gives."""
    if not (isinstance(top, HashJoin) and top.op == "hash_join" and top.kind == "inner"):
        return None
    for side in range(2):
        found = _pieces(top, side, users)
        if found is not None:
            return found
    return None


def _pieces(top: HashJoin, side: int, users: Users) -> PieceForm | None:
    rows, spans_step = origin(top.inputs[side]), origin(top.inputs[1 - side])
    below, columns, asked = through_filters(spans_step)
    spans = _gaps(below, asked, users) or _covers(below, users)
    if spans is None or not all(key.null_safe for key in top.keys):
        return None
    keys = []
    domain: dict[str, Expr] = {}
    of_rows: dict[str, Expr] = {}
    for key in top.keys:
        mine, other = (key.left, key.right) if side == 0 else (key.right, key.left)
        if not isinstance(other, Column):
            return None
        found = columns.get(other.name)
        if not isinstance(found, Column) or found.name not in spans.keys:
            return None
        keys.append((mine, other.name))
        of_rows[found.name] = mine
        if found.name in spans.of_domain:
            domain[spans.of_domain[found.name]] = mine
    if spans.domain is not None and set(domain) != set(spans.domain.schema.names):
        return None
    life = _lifetime(top, columns, asked, spans, of_rows)
    if life is None:
        return None
    named = {expr.sql(): name for name, expr in columns.items()}
    first, last = (named.get(time) for time in _times(spans))
    if first is None or last is None:
        return None
    chosen = [] if spans.domain is None else _chosen(spans.domain, rows)
    if chosen is None:
        return None
    return PieceForm(top, rows, spans_step, spans, tuple(keys), *life, first, last, domain, conjunction(chosen))


def _chosen(domain: Step, rows: Step) -> list[Expr] | None:
    """What filters between rows and a domain ask for, over these rows: a condition on a row alone stands there. None if
    the domain is not made of them."""
    source = held_step(domain, 0)
    is_partial = isinstance(source, Aggregate) and source.exports
    below, _, asked = through_filters(source.inputs[0] if is_partial else source)
    same, columns, known = through_filters(rows)
    while below is not same:
        # Rows that were merged have the keys of those before.
        islands = islands_of(same)
        if islands is None:
            return None
        same, inner, more = through_filters(islands.first.inputs[0])
        keys = {name: e for name, e in columns.items() if isinstance(e, Column) and e.name in islands.keys}
        columns, known = {name: replaced(expr, inner) for name, expr in keys.items()}, more
    names = {expr.sql(): Column(name, expr.type) for name, expr in columns.items()}
    given = {part.sql() for part in known}
    chosen = [_named(part, names) for part in asked if part.sql() not in given]
    return chosen if {name for part in chosen for name in part.columns()} <= set(columns) else None


def _named(expr: Expr, names: dict[str, Column]) -> Expr:
    """An expression over the columns that have its parts."""
    if (found := names.get(expr.sql())) is not None:
        return found
    return expr.with_children(tuple(_named(child, names) for child in expr.children)) if expr.children else expr


def _lifetime(
    top: HashJoin, columns: dict[str, Expr], asked: list[Expr], spans: Spans, of_rows: dict[str, Expr]
) -> tuple[str, Expr] | None:
    """The column of a row with its start, which lies before the end of a span, and its end, which lies after the start
    of a span. The join of rows and spans says it, or, where the lifetime of a row is among the keys, a filter of the
    spans. columns: those of the spans, over their last step, and asked: what filters ask for. of_rows: keys of the
    spans, over a row."""
    first, last = _times(spans)
    keys = set(spans.keys)
    by_join = comparisons((*top.times, *conjuncts(top.condition)))
    gap = None if spans.covered else _gap(spans.window)
    by_filters = comparisons(part for part in asked if not set(part.columns()) <= keys and part.sql() != gap)
    if by_join is None or by_filters is None:
        return None
    starts = [low for low, high in by_join if isinstance(high, Column) and _sql(columns.get(high.name)) == last]
    starts += [of_rows[low.name] for low, high in by_filters if high.sql() == last and _is_in(low, of_rows)]
    ends = [high for low, high in by_join if isinstance(low, Column) and _sql(columns.get(low.name)) == first]
    ends += [of_rows[high.name] for low, high in by_filters if low.sql() == first and _is_in(high, of_rows)]
    if len(by_join) + len(by_filters) != 2:
        return None
    match starts, ends:
        case [Column(name=start)], [end] if not set(end.columns()) & set(columns):
            return start, end
    return None


def _sql(expr: Expr | None) -> str | None:
    return None if expr is None else expr.sql()


def _is_in(expr: Expr, columns: dict[str, Expr]) -> TypeGuard[Column]:
    return isinstance(expr, Column) and expr.name in columns


def _times(spans: Spans) -> tuple[str, str]:
    """The expressions over the last step of spans that are their times."""
    start = start_of(spans.window)
    if spans.covered:
        islands = islands_of(spans.window)
        assert islands is not None and start is not None, "found by _covers"
        return Column(start, spans.window.schema[start].type).sql(), islands.until.sql()
    before = Column(spans.window.calls[0][0], spans.window.calls[0][1].type)
    return f"coalesce({before.sql()}, TIMESTAMP '-infinity')", Column(start or "", before.type).sql()


def _gap(window: Window) -> str:
    """What is asked of the times between the latest end so far and the next start."""
    name, call = window.calls[0]
    start = Column(start_of(window) or "", call.type)
    return f"coalesce({Column(name, call.type).sql()}, TIMESTAMP '-infinity') < {start.sql()}"


def _gaps(window: Step, asked: list[Expr], users: Users) -> Spans | None:
    """The times without a match: between the latest end so far and the next start. asked: what filters ask for."""
    if not (isinstance(window, Window) and len(window.calls) == 1):
        return None
    (_, call), keys, start = window.calls[0], columns_of(window.by), start_of(window)
    if keys is None or start is None or call.name != "max" or call.frame != BEFORE or len(call.args) != 1:
        return None
    end = call.args[0]
    both = origin(window.inputs[0])
    is_gap = any(part.sql() == _gap(window) for part in asked)
    if not is_gap or not isinstance(end, Column) or not isinstance(both, Union):
        return None
    names = both.schema.names
    domain: Step | None = None
    of_domain: dict[str, str] = {}
    others = []
    matches = []
    for part in both.inputs:
        below, columns = through_projects(part)
        found = {name: columns[own] for name, own in zip(names, origin(part).schema.names, strict=True)}
        if is_infinite(found[start]) and is_infinite(found[end.name]):
            if domain is not None:
                return None
            domain = below
            of_domain = {n: e.name for n, e in found.items() if n in keys and isinstance(e, Column)}
        else:
            matches.append((origin(part), below, found))
    if domain is None or not isinstance(domain, Aggregate | Values) or not matches:
        return None
    for part, below, found in matches:
        other = _other(below, found, domain, start, end.name, users)
        if other is None and not isinstance(below, HashJoin):
            # Times that are computed below, as those of SHIFT.
            names_of = dict(zip(names, part.schema.names, strict=True))
            other = Others(part, names_of[start], Column(names_of[end.name], TIMESTAMP))
        if other is None:
            return None
        others.append(other)
    is_one_row = isinstance(domain, Values)
    return Spans(False, window, keys, None if is_one_row else domain, of_domain, tuple(others))


def _other(below: Step, found: dict[str, Expr], domain: Step, start: str, end: str, users: Users) -> Others | None:
    """The rows of one source of matches."""
    rows, columns = below, found
    time, until = columns[start], columns[end]
    if isinstance(below, HashJoin) and below.kind == "inner":
        sides = [origin(i) for i in below.inputs]
        of_domain = [_unfiltered(s) is domain for s in sides]
        if any(of_domain):
            rows = sides[0] if of_domain[1] else sides[1]
            before = _before_merging(rows, time, until, users)
            if before is not None:
                return before
    if not (isinstance(time, Column) and {time.name, *until.columns()} <= set(rows.schema.names)):
        return None
    return Others(rows, time.name, until)


def _before_merging(merged: Step, time: Expr, until: Expr, users: Users) -> Others | None:
    """The rows that a source of matches merges. It may merge those that are held as well, and each is known at once
    where their island would be known only when it has ended."""
    last, columns, asked = through_filters(merged)
    islands = islands_of(last)
    if islands is None or not {name for part in asked for name in part.columns()} <= set(islands.keys):
        return None
    start = Column(islands.start, TIMESTAMP)
    if (replaced(time, columns).sql(), replaced(until, columns).sql()) != (start.sql(), islands.until.sql()):
        return None
    step = merged
    while len(users.get(id(step), ())) == 1:
        if step is last:
            return Others(origin(islands.first.inputs[0]), islands.start, Column(islands.end, TIMESTAMP))
        step = origin(step.inputs[0])
    return None


def _unfiltered(step: Step) -> Step:
    """The step whose rows are filtered: a condition on a key may stand above the keys."""
    while isinstance(step, Filter):
        step = origin(step.inputs[0])
    return step


def _covers(last: Step, users: Users) -> Spans | None:
    """The times with a match: islands of what matches each key of the domain."""
    islands = islands_of(last)
    if islands is None or islands.values:
        return None
    below, columns = through_projects(origin(islands.first.inputs[0]))
    if not (isinstance(below, HashJoin) and below.kind == "inner"):
        return None
    for side in range(2):
        domain = _unfiltered(origin(below.inputs[side]))
        if not (isinstance(domain, Aggregate) and not domain.calls and not domain.exports):
            continue
        of_domain = {n: e.name for n in islands.keys if isinstance(e := columns[n], Column) and e.name in domain.schema}
        if set(of_domain.values()) == set(domain.schema.names):
            other = _other(below, columns, domain, islands.start, islands.end, users)
            if other is not None:
                assert isinstance(last, Window), "islands end in a window"
                return Spans(True, last, islands.keys, domain, of_domain, (other,))
    return None
