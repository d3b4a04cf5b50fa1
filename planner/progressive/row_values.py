"""The values of a result over groups of rows of which a sample is known: what they are estimated by, and what is proven
of them."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, Literal, Parameter, substitute
from tsql.kernels.expr.types import BOOLEAN, DOUBLE
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.progressive.driven import Groups
from tsql.planner.progressive.measures import COUNTS, binary, extreme
from tsql.planner.progressive.proofs import Ends, call, interval
from tsql.planner.progressive.sampled_calls import fraction, is_smooth, power, unrounded
from tsql.planner.progressive.values import BOUND_FUNCTIONS

SCALE = "#scale"
"""All rows for one of the sample."""
REST = "#rest"
"""The rows of the scan that are not in the sample."""


@dataclass(frozen=True)
class RowValue:
    """A value of the result, in column `place`, over the groups. kind: the function that asks for its bounds, if there
    is one. quantile: the call whose quantile it is. is_replicated: replicates of the sample tell its error; grows: one
    of its aggregates grows with the input. proof: its proven bounds. is_observed: a part of the rows says little of
    it."""

    place: int
    expr: Expr
    kind: str | None
    quantile: str | None = None
    is_replicated: bool = False
    grows: bool = False
    proof: Ends | None = None
    is_observed: bool = False

    @property
    def may_have_bounds(self) -> bool:
        return self.quantile is not None or self.is_replicated or self.proof is not None


class RowValues:
    """Of these groups. `counts`: each row of the scan becomes one row of a group at most."""

    def __init__(self, groups: Groups, counts: bool):
        self.groups, self.counts = groups, counts
        self.calls = dict(groups.calls)
        self.keys = {name for name, _ in groups.by}

    def value(self, place: int, expr: Expr) -> RowValue | None:
        """What is known of a value; None for a key."""
        kind = None
        if isinstance(expr, Call) and expr.name in BOUND_FUNCTIONS:
            kind, expr = expr.name, expr.args[0]
        calls = [self.calls[name] for name in dict.fromkeys(expr.columns()) if name not in self.keys]
        if not calls:
            return None if kind is None else RowValue(place, expr, kind, proof=interval(expr, self._ends()))
        plain = unrounded(expr)
        quantile = plain.name if isinstance(plain, Column) and fraction(self.calls[plain.name]) is not None else None
        smooth = all(is_smooth(one) or fraction(one) is not None for one in calls)
        return RowValue(
            place,
            expr,
            kind,
            quantile if expr.type.is_numeric else None,
            smooth and quantile is None and expr.type.is_numeric and not _has_steps(expr),
            any(power(one) for one in calls),
            interval(expr, self._ends()) if expr.type.is_numeric else None,
            not smooth,
        )

    def _ends(self) -> dict[str, Ends]:
        """The proven bounds of aggregates and keys, over those of the sample."""
        found: dict[str, Ends] = {}
        for name, e in self.groups.by:
            if e.type.is_numeric:
                key: Expr = Cast(Column(name, e.type), DOUBLE)
                found[name] = key, key
        for name, one in self.calls.items():
            now = Cast(Column(name, one.type), DOUBLE)
            end = extreme(name, one)
            if end is not None:
                low, high = Parameter(least_end(name), DOUBLE), Parameter(most_end(name), DOUBLE)
                found[name] = (call("least", now, low), now) if end.is_least else (now, call("greatest", now, high))
            elif self.counts and one.name in COUNTS:
                most = binary("+", now, Parameter(REST, DOUBLE))
                found[name] = now, call("least", most, Parameter(most_distinct(name), DOUBLE)) if one.distinct else most
        return found

    def estimates(self, scale: Expr) -> dict[str, Expr]:
        """The estimates of aggregates, over those of a sample. scale: all rows for one of the sample."""
        return {name: _estimate(name, one, scale) for name, one in self.calls.items()}

    def estimated(self, expr: Expr, scale: Expr) -> Expr:
        """A value over the estimates of a sample, as a double."""
        return Cast(substitute(expr, self.estimates(scale)), DOUBLE)


def _has_steps(expr: Expr) -> bool:
    """Whether a condition chooses between constants: then a small change of the input is none of the value, or all of
    it."""
    branches = [value for e in expr.walk() if isinstance(e, Case) for value in (e.otherwise, *(v for _, v in e.whens))]
    return any(isinstance(value, Literal) and value.value is not None for value in branches)


def _estimate(name: str, one: AggregateCall, scale: Expr) -> Expr:
    plain, grows = Column(name, one.type), power(one)
    if not grows:
        return plain
    factor: Expr = scale if grows == 1.0 else Call("pow", (scale, Literal(grows, DOUBLE)), DOUBLE)
    whole = binary("*", factor, Cast(plain, DOUBLE))
    if one.type.is_integer:
        whole = Call("round", (whole,), DOUBLE)
    null = Call("is_null", (plain,), BOOLEAN)
    return Case(((null, Literal(None, one.type)),), whole if one.type == DOUBLE else Cast(whole, one.type))


def least_end(name: str) -> str:
    """The parameter that is below all values to come of a call's argument."""
    return f"#least end {name}"


def most_end(name: str) -> str:
    return f"#most end {name}"


def most_distinct(name: str) -> str:
    """The parameter with the most distinct values that a call's argument may have."""
    return f"#most distinct {name}"
