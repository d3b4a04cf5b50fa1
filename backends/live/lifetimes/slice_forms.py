"""Reads `spans.Spans` and `sets._copies` back from a plan: results that hold between two starts or ends."""

from __future__ import annotations

from typing import TypeGuard

from tsql.backends.live.lifetimes.forms import Users, columns_of, start_of, through_projects
from tsql.backends.live.operator import origin
from tsql.kernels.expr.nodes import Call, Column, Expr
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.windows.call import WHOLE_PARTITION
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.series import Series
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class SpanForm:
    """Steps from `rows`, with the lifetime (start, end), to `top`. last: the step that is run over a slice. times: the
    columns of `top` with the start and the end of a span."""

    top: Step
    last: Step
    rows: Step
    start: str
    end: str
    times: tuple[str, ...]


@dataclass(frozen=True)
class CopyForm:
    """The same of copies of rows. `top` shows columns of `last`: keys, among them the number of the copy, and the
    lifetime of a piece."""

    top: Step
    last: Step
    rows: Step
    start: str
    end: str
    keys: tuple[str, ...]
    piece_start: str
    piece_end: Expr
    shown: tuple[tuple[str, Expr], ...]


def spans_of(top: Step, users: Users) -> SpanForm | None:
    """The spans that a step gives: what is computed of the rows of each (a grouping, or window functions and filters),
    joined with their times."""
    if not (isinstance(top, HashJoin) and top.op == "hash_join" and top.kind == "inner"):
        return None
    for side in range(2):
        edges, columns = through_projects(top.inputs[1 - side])
        if not isinstance(edges, Window):
            continue
        names = {call.name: name for name, call in edges.calls}
        if set(names) != {"lead", "row_number"} or len(edges.order) != 1:
            continue
        distinct: Step = origin(edges.inputs[0])
        while isinstance(distinct, Aggregate) and not distinct.calls:
            distinct = origin(distinct.inputs[0])
        at = edges.order[0].expr
        if not isinstance(at, Column):
            continue
        ends = _starts_and_ends(distinct, at.name)
        if ends is None:
            continue
        used = _used_of_spans(top.inputs[side])
        if used is None or (used | _read(top, users)) & {ends[1], ends[2]}:
            continue  # The lifetimes of rows are cut to the slice.
        wanted = {names["lead"], at.name}
        times = tuple(n for n, e in columns.items() if isinstance(e, Column) and e.name in wanted)
        return SpanForm(top, top, *ends, tuple(n for n in times if n in top.schema))
    return None


def _used_of_spans(step: Step) -> set[str] | None:
    """The columns of rows of which something is computed span by span, in the steps from the repeated rows to this one;
    None if they are others."""
    steps, below = [], origin(step)
    while isinstance(below, Project | Filter | Window | Aggregate) or _is_semi_join(below):
        steps.append(below)
        below = origin(below.inputs[0])
    if not isinstance(below, Series):
        return None
    used: set[str] = set()
    for one in steps:
        by = one.by if isinstance(one, Window) else ()
        if isinstance(one, Project | Aggregate):
            by = tuple(expr for _, expr in (one.columns if isinstance(one, Project) else one.by))
        if isinstance(one, HashJoin):
            by = tuple(key.left for key in one.keys)
        if not (isinstance(one, Filter) or any(isinstance(e, Column) and e.name == below.column for e in by)):
            return None
        exprs = one.expressions()
        if isinstance(one, Project):
            exprs = tuple(e for name, e in one.columns if not (isinstance(e, Column) and e.name == name))
        used |= {name for expr in exprs for name in expr.columns()}
    return used


def _is_semi_join(step: Step) -> TypeGuard[HashJoin]:
    """Whether rows of spans are only looked up: a rule may do that before they are grouped."""
    return isinstance(step, HashJoin) and step.op == "hash_join" and step.kind == "semi"


def _read(step: Step, users: Users) -> set[str]:
    """The columns of a step that others may read."""
    mine = users.get(id(step), [])
    if not mine or not all(isinstance(user, Project | Aggregate) for user in mine):
        return set(step.schema.names)
    return {name for user in mine for expr in user.expressions() for name in expr.columns()}


def _starts_and_ends(both: Step, time: str) -> tuple[Step, str, str] | None:
    """(rows, start, end): a union of the starts and the ends of the same rows, as its column `time`."""
    if not (isinstance(both, Union) and len(both.inputs) == 2 and time in both.schema):
        return None
    place = both.schema.names.index(time)
    found = []
    for part in map(origin, both.inputs):
        expr = part.columns[place][1] if isinstance(part, Project) else None
        if not isinstance(expr, Column):
            return None
        found.append((origin(part.inputs[0]), expr.name))
    (rows, start), (others, end) = found
    return (rows, start, end) if rows is others else None


def copies_of(top: Step) -> CopyForm | None:
    """The copies of rows that a step gives."""
    if not isinstance(top, Project):
        return None
    risen = origin(top.inputs[0])
    last = origin(risen.inputs[0]) if isinstance(risen, Filter) else risen
    if not (isinstance(last, Window) and len(last.calls) == 1 and last.calls[0][1].name == "lead"):
        return None
    series = origin(last.inputs[0])
    changed = origin(series.inputs[0]) if isinstance(series, Series) and series.inputs else series
    numbers = origin(changed.inputs[0]) if isinstance(changed, Filter) else changed
    keys, time = columns_of(last.by), last.calls[0][1].args[0]
    if not (isinstance(series, Series) and isinstance(numbers, Window) and keys and isinstance(time, Column)):
        return None
    whole = [n for n, c in numbers.calls if c.name == "max" and c.frame == WHOLE_PARTITION]
    levels, _ = through_projects(numbers.inputs[0])
    levels = origin(levels.inputs[0]) if isinstance(levels, Filter) else levels
    at = start_of(levels) if isinstance(levels, Window) else None
    ends = None if at is None else _starts_and_ends(origin(levels.inputs[0]), at)
    if ends is None or len(whole) != 1 or series.column not in keys:
        return None
    until = f"coalesce({Column(last.calls[0][0], time.type).sql()}, {Column(whole[0], time.type).sql()})"
    piece_end = None
    for _, expr in top.columns:
        if isinstance(expr, Call) and expr.sql() == until:
            piece_end = expr
        elif not (isinstance(expr, Column) and expr.name in {*keys, time.name}):
            return None
    if piece_end is None:
        return None
    return CopyForm(top, risen, *ends, keys, time.name, piece_end, top.columns)
