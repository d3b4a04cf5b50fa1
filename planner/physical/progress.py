"""Progress: lower bounds of columns for all rows to come, and how the bounds pass through expressions. Each step says
how they pass through it (`Step.promised`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, Literal
from tsql.kernels.process.quick_dataclass import dataclass

DAY_US = 86_400_000_000
INFINITE, INFINITE_DAY = 2**63 - 1, 2**31 - 1
"""The stored values of the infinite time and date; minus infinity is the negative. Adding to them does not change
them."""


@dataclass(frozen=True)
class Progress:
    """In every row to come, each column of `bounds` is NULL or at least the bound. `ended`: no more rows come. Values
    are in their stored form: microseconds for times, days for dates."""

    bounds: dict[str, int] = field(default_factory=dict)
    ended: bool = False

    def lower(self, expr: Expr) -> int | None:
        """A lower bound of an expression over the rows to come; None if nothing is known. After the end no bound is
        needed."""
        return _lower(expr, self.bounds)

    def of(self, columns: Iterable[tuple[str, Expr]]) -> Progress:
        """The progress of rows that are computed from these."""
        bounds = self.bounds
        found = {
            name: bound
            for name, expr in columns
            if (bound := bounds.get(expr.name) if type(expr) is Column else _lower(expr, bounds)) is not None
        }
        return Progress(found, self.ended)


def least(all: list[Progress]) -> Progress:
    """The progress of rows that come from several inputs with the same columns."""
    going = [p for p in all if not p.ended]
    if not going:
        return Progress(ended=True)
    names = set(going[0].bounds).intersection(*(p.bounds for p in going[1:]))
    return Progress({n: min(p.bounds[n] for p in going) for n in names})


def is_upward(value: object) -> bool:
    """Whether a step of a series goes to greater values."""
    return (min(value) >= 0) if isinstance(value, tuple) else isinstance(value, int) and value > 0


def _lower(expr: Expr, bounds: dict[str, int]) -> int | None:
    match expr:
        case Column():
            return bounds.get(expr.name)
        case Literal():
            is_bound = (
                isinstance(expr.value, int)
                and not isinstance(expr.value, bool)
                and (expr.type.is_integer or expr.type.name in ("TIMESTAMP", "TIMESTAMPTZ", "DATE"))
            )
            return expr.value if is_bound else None
        case Cast():
            return _cast(expr, bounds)
        case Case():
            return _least([value for _, value in expr.whens] + [expr.otherwise], bounds)
        case Call():
            return _call(expr, bounds)
    return None


def _least(exprs: Iterable[Expr], bounds: dict[str, int]) -> int | None:
    found = [_lower(e, bounds) for e in exprs]
    known = [bound for bound in found if bound is not None]
    return min(known) if len(known) == len(found) else None


def moved(time: int, length: int) -> int:
    """A lower bound of times that were moved by a length, from the bound before the move."""
    return time if abs(time) >= INFINITE else _in_range(time + length)


def time_of(days: int) -> int:
    """A date as a time."""
    return _in_range(days * DAY_US)


def _in_range(time: int) -> int:
    # A finite time out of range is an error of the query, so no such row comes.
    return max(-INFINITE, min(time, INFINITE))


def _cast(expr: Cast, bounds: dict[str, int]) -> int | None:
    inner = _lower(expr.arg, bounds)
    if inner is None:
        return None
    match expr.arg.type.name, expr.type.name:
        case ("DATE", "TIMESTAMP" | "TIMESTAMPTZ"):
            return time_of(inner)
        case ("TIMESTAMP" | "TIMESTAMPTZ", "DATE"):
            return inner // DAY_US if abs(inner) < INFINITE else INFINITE_DAY if inner > 0 else -INFINITE_DAY
        case ("TIMESTAMP" | "TIMESTAMPTZ", "TIMESTAMP" | "TIMESTAMPTZ"):
            return inner
    return inner if expr.arg.type.is_integer and expr.type.is_integer else None


def _call(expr: Call, bounds: dict[str, int]) -> int | None:
    match expr.name, expr.args:
        case ("+" | "-", (time, Literal(value=(0, days, micros)))) if time.type.name in ("TIMESTAMP", "TIMESTAMPTZ"):
            # An interval with months is left out: adding it may swap the order of two times.
            inner, length = _lower(time, bounds), days * DAY_US + micros
            return None if inner is None else moved(inner, length if expr.name == "+" else -length)
        case ("+", (Literal(value=(0, _, _)) as length, time)) if time.type.name in ("TIMESTAMP", "TIMESTAMPTZ"):
            return _call(Call("+", (time, length), expr.dtype), bounds)
        case ("time_floor" | "time_pane", (time, Literal(value=int() as width), Literal(value=int() as offset))) if (
            width > 0
        ):
            inner = _lower(time, bounds)
            if inner is None:
                return None
            pane = (inner - offset) // width
            return pane if expr.name == "time_pane" else _in_range(pane * width + offset)
        case ("pane_time", (pane, Literal(value=int() as width), Literal(value=int() as offset))) if width > 0:
            inner = _lower(pane, bounds)
            return None if inner is None else _in_range(inner * width + offset)
        case ("greatest" | "least" | "coalesce", args):
            # NULL arguments are skipped, so any of the others may be the result.
            return _least(args, bounds)
    return None
