"""Reads `cut.covered` and `cut.uncovered` back from a plan: the parts of rows that others match, and that none does."""

from __future__ import annotations

from tsql.backends.live.lifetimes.forms import (
    BEFORE,
    columns_of,
    comparisons,
    is_infinite,
    islands_of,
    start_of,
    through_projects,
)
from tsql.backends.live.operator import origin
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Others:
    """Rows that match, the column with their start, and their end."""

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
    end: the row's lifetime, first, last: that of a span."""

    top: HashJoin
    rows: Step
    spans_step: Step
    spans: Spans
    keys: tuple[tuple[Expr, str], ...]
    start: str
    end: str
    first: str
    last: str
    domain: dict[str, Expr]
    """The columns of the domain, over a row."""


def pieces_of(top: Step) -> PieceForm | None:
    """The pieces that a step gives."""
    if not (isinstance(top, HashJoin) and top.op == "hash_join" and top.kind == "inner"):
        return None
    for side in range(2):
        found = _pieces(top, side)
        if found is not None:
            return found
    return None


def _pieces(top: HashJoin, side: int) -> PieceForm | None:
    rows, spans_step = origin(top.inputs[side]), origin(top.inputs[1 - side])
    below, columns = through_projects(spans_step)
    spans = _gaps(below) if isinstance(below, Filter) else _covers(below)
    if spans is None or not all(key.null_safe for key in top.keys):
        return None
    keys = []
    domain: dict[str, Expr] = {}
    for key in top.keys:
        mine, other = (key.left, key.right) if side == 0 else (key.right, key.left)
        if not isinstance(other, Column):
            return None
        found = columns.get(other.name)
        if not isinstance(found, Column) or found.name not in spans.keys:
            return None
        keys.append((mine, other.name))
        if found.name in spans.of_domain:
            domain[spans.of_domain[found.name]] = mine
    if spans.domain is not None and set(domain) != set(spans.domain.schema.names):
        return None
    limits = comparisons(top.condition, top.range)
    if limits is None or len(limits) != 2:
        return None
    names = set(spans_step.schema.names)
    begins = [(a, b) for a, b in limits if isinstance(b, Column) and b.name in names]
    ends = [(a, b) for a, b in limits if isinstance(a, Column) and a.name in names]
    if len(begins) != 1 or len(ends) != 1:
        return None
    (start, last), (first, end) = begins[0], ends[0]
    times = _times(spans)
    if not (isinstance(start, Column) and isinstance(end, Column)):
        return None
    if not (isinstance(first, Column) and isinstance(last, Column)):
        return None
    if (columns[first.name].sql(), columns[last.name].sql()) != times:
        return None
    return PieceForm(top, rows, spans_step, spans, tuple(keys), start.name, end.name, first.name, last.name, domain)


def _times(spans: Spans) -> tuple[str, str]:
    """The expressions over the last step of spans that are their times."""
    start = start_of(spans.window)
    if spans.covered:
        islands = islands_of(spans.window)
        assert islands is not None and start is not None, "found by _covers"
        return Column(start, spans.window.schema[start].type).sql(), islands.until.sql()
    before = Column(spans.window.calls[0][0], spans.window.calls[0][1].type)
    return f"coalesce({before.sql()}, TIMESTAMP '-infinity')", Column(start or "", before.type).sql()


def _gaps(chosen: Filter) -> Spans | None:
    """The times without a match: between the latest end so far and the next start."""
    window = origin(chosen.inputs[0])
    if not (isinstance(window, Window) and len(window.calls) == 1):
        return None
    (before, call), keys, start = window.calls[0], columns_of(window.by), start_of(window)
    if keys is None or start is None or call.name != "max" or call.frame != BEFORE or len(call.args) != 1:
        return None
    end, kind = call.args[0], call.type
    low = f"coalesce({Column(before, kind).sql()}, TIMESTAMP '-infinity') < {Column(start, kind).sql()}"
    both = origin(window.inputs[0])
    if chosen.predicate.sql() != low or not isinstance(end, Column) or not isinstance(both, Union):
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
            matches.append((below, found))
    if domain is None or not isinstance(domain, Aggregate | Values) or not matches:
        return None
    for below, found in matches:
        other = _other(below, found, domain, start, end.name)
        if other is None:
            return None
        others.append(other)
    is_one_row = isinstance(domain, Values)
    return Spans(False, window, keys, None if is_one_row else domain, of_domain, tuple(others))


def _other(below: Step, found: dict[str, Expr], domain: Step, start: str, end: str) -> Others | None:
    """The rows of one source of matches."""
    rows, columns = below, found
    if isinstance(below, HashJoin) and below.kind == "inner":
        sides = [origin(i) for i in below.inputs]
        of_domain = [_unfiltered(s) is domain for s in sides]
        if any(of_domain):
            rows = sides[0] if of_domain[1] else sides[1]
    time, until = columns[start], columns[end]
    if not (isinstance(time, Column) and {time.name, *until.columns()} <= set(rows.schema.names)):
        return None
    return Others(rows, time.name, until)


def _unfiltered(step: Step) -> Step:
    """The step whose rows are filtered: a condition on a key may stand above the keys."""
    while isinstance(step, Filter):
        step = origin(step.inputs[0])
    return step


def _covers(last: Step) -> Spans | None:
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
            other = _other(below, columns, domain, islands.start, islands.end)
            if other is not None:
                assert isinstance(last, Window), "islands end in a window"
                return Spans(True, last, islands.keys, domain, of_domain, (other,))
    return None
