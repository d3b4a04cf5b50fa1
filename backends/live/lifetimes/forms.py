"""Reads the forms that lifetimes take in a plan back, as the analyzer writes them (tsql/analyze/time/cut.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tsql.backends.live.fragments import Engine
from tsql.backends.live.operator import LiveOperator, origin
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.windows.call import WHOLE_PARTITION, Bound, Frame
from tsql.planner.logical.predicates import conjuncts
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.progress import INFINITE
from tsql.planner.physical.step import Step

Users = dict[int, list[Step]]
BEFORE = Frame("rows", Bound("unbounded"), Bound("preceding", Literal(1, BIGINT)))


@dataclass(frozen=True)
class Form:
    """A region: the steps whose rows it takes, and its operator. unread: steps whose rows it would take, and finds
    otherwise."""

    below: tuple[Step, ...]
    make: Callable[[Engine], LiveOperator]
    unread: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Islands:
    """Lifetimes merged where they overlap or touch: `first` finds the beginnings, `last` the ends. values: columns
    that must be equal too."""

    first: Window
    last: Window
    keys: tuple[str, ...]
    values: tuple[str, ...]
    start: str
    end: str

    @property
    def until(self) -> Call:
        """The end of an island, as users of the last step compute it."""
        kind = self.first.schema[self.end].type
        ends = (n for n, c in self.first.calls if c.name == "max" and c.frame == WHOLE_PARTITION)
        name = next(ends)
        return Call("coalesce", (Column(self.last.calls[0][0], kind), Column(name, kind)), kind)


def columns_of(exprs: tuple[Expr, ...]) -> tuple[str, ...] | None:
    """The names, if these are columns."""
    names = tuple(e.name for e in exprs if isinstance(e, Column))
    return names if len(names) == len(exprs) else None


def start_of(step: Window) -> str | None:
    """The column by which a window step is ordered, from early to late."""
    key = step.order[0] if step.order else None
    return key.expr.name if key is not None and isinstance(key.expr, Column) and not key.descending else None


def through_projects(step: Step) -> tuple[Step, dict[str, Expr]]:
    """The step below movement and projections, and the columns of `step` as expressions over it."""
    below = origin(step)
    columns: dict[str, Expr] = {f.name: Column(f.name, f.type, f.nullable) for f in below.schema}
    while isinstance(below, Project):
        inner = dict(below.columns)
        columns = {name: replaced(expr, inner) for name, expr in columns.items()}
        below = origin(below.inputs[0])
    return below, columns


def through_filters(step: Step) -> tuple[Step, dict[str, Expr], list[Expr]]:
    """The step below movement, projections and filters; the columns of `step`, and what the filters ask for, as
    expressions over it."""
    below, columns = through_projects(step)
    asked: list[Expr] = []
    while isinstance(below, Filter):
        asked += conjuncts(below.predicate)
        below, inner = through_projects(below.inputs[0])
        columns = {name: replaced(expr, inner) for name, expr in columns.items()}
        asked = [replaced(part, inner) for part in asked]
    return below, columns, asked


def replaced(expr: Expr, columns: dict[str, Expr]) -> Expr:
    """An expression over other expressions for its columns."""
    if isinstance(expr, Column):
        return columns.get(expr.name, expr)
    children = tuple(replaced(child, columns) for child in expr.children)
    return expr.with_children(children) if children else expr


def islands_of(step: Step) -> Islands | None:
    """The islands that end in a step."""
    if not (isinstance(step, Window) and len(step.calls) == 1 and step.calls[0][1].name == "lead"):
        return None
    chosen = origin(step.inputs[0])
    if not isinstance(chosen, Filter):
        return None
    first = origin(chosen.inputs[0])
    keys, start = columns_of(step.by), start_of(step)
    if not isinstance(first, Window) or keys is None or start is None:
        return None
    calls = dict(first.calls)
    before = step.calls[0][1].args[0]
    whole = [c for c in calls.values() if c.name == "max" and c.frame == WHOLE_PARTITION and len(c.args) == 1]
    if not (
        isinstance(before, Column) and before.name in calls and len(whole) == 1 and len(step.calls[0][1].args) == 1
    ):
        return None
    end = whole[0].args[0]
    if not (isinstance(end, Column) and columns_of(first.by) == keys and start_of(first) == start):
        return None
    found = calls[before.name]
    if found.args != whole[0].args:
        return None
    if found.name == "max" and found.frame == BEFORE and len(calls) == 2:
        is_islands = chosen.predicate.sql() == f"coalesce({before.sql()} < {Column(start, end.type).sql()}, true)"
        return Islands(first, step, keys, (), start, end.name) if is_islands else None
    values = _values(chosen.predicate, before.name, start)
    if found.name != "lag" or values is None or len(calls) != 2 + len(values):
        return None
    for name, value in values.items():
        lag = calls.get(name)
        if lag is None or lag.name != "lag" or len(lag.args) != 1 or lag.args[0].sql() != Column(value, end.type).sql():
            return None
    return Islands(first, step, keys, tuple(values.values()), start, end.name)


def _values(predicate: Expr, before: str, start: str) -> dict[str, str] | None:
    """The columns whose changes begin an island, by the names of their values in the row before."""
    found: dict[str, str] = {}
    stack, touches = [predicate], False
    while stack:
        part = stack.pop()
        match part:
            case Call(name="or", args=args):
                stack.extend(args)
            case Call(name="is_distinct_from", args=(Column() as one, Column() as other)):
                if (one.name, other.name) == (before, start):
                    touches = True
                else:
                    found[one.name] = other.name
            case _:
                return None
    return found if touches else None


def is_infinite(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value == INFINITE


def comparisons(parts: Iterable[Expr]) -> list[tuple[Expr, Expr]] | None:
    """(low, high) of conditions `low < high`; None if one is of another form."""
    found = []
    for part in parts:
        match part:
            case Call(name="<", args=(low, high)) | Call(name=">", args=(high, low)):
                found.append((low, high))
            case _:
                return None
    return found
