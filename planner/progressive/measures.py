"""Measures: numbers per group that add up over the units of a sample, taken from the states of aggregates.

The total of a measure over all units is estimated from the units that were read, and its error from how much it differs
between them. Every aggregate of which more than the observed value can be said is a function of the totals of its
measures: a count is one, an average the quotient of two, a deviation a function of three."""

from __future__ import annotations

from tsql.kernels.aggregates.bodies import plain_body, state_names
from tsql.kernels.expr.nodes import Aggregate, Call, Cast, Column, Expr, Literal
from tsql.kernels.expr.types import BIGINT, DOUBLE
from tsql.kernels.process.quick_dataclass import dataclass

COUNTS = ("count", "count_star")
SUMS = ("sum", "sum_no_overflow", "count_if", "countif")
AVERAGES = ("avg", "mean")
VARIANCES = {
    "var_pop": (False, False),
    "var_samp": (False, True),
    "variance": (False, True),
    "stddev_pop": (True, False),
    "stddev_samp": (True, True),
    "stddev": (True, True),
}
"""Whether the aggregate is the root of a variance, and whether its rows are a sample."""


ONE = Literal(1, BIGINT)


@dataclass(frozen=True)
class Measure:
    """A number of a group, by name, as an expression over the columns of the group's exported state. each: what a row
    adds to it, an expression over the aggregate's input, or its square (`is_square`). counted: a row counts if this is
    not NULL. is_filtered: only some rows count."""

    name: str
    state: Expr
    each: Expr | None = None
    is_square: bool = False
    counted: Expr | None = None
    filter: Expr | None = None

    @property
    def is_filtered(self) -> bool:
        return self.filter is not None

    @property
    def content(self) -> object:
        """Measures of aggregates with the same content are the same number: the sum and the average of a column."""
        if self.each is None:
            return self.name
        nullable = self.counted is not None and not (isinstance(self.counted, Column) and not self.counted.nullable)
        return self.each, self.is_square, self.counted if nullable else None, self.filter


@dataclass(frozen=True)
class Measured:
    """An aggregate as an expression over the totals of its measures. `scales`: its value grows with the input, so the
    value of a part of the input says little before it is scaled up. The last measure of one that does not counts its
    rows."""

    measures: tuple[Measure, ...]
    value: Expr
    scales: bool


@dataclass(frozen=True)
class Extreme:
    """A minimum or a maximum: of a part of the input, the one so far. `measure` has its argument; nothing of it is
    summed up."""

    measure: Measure
    is_least: bool


def extreme(name: str, call: Aggregate) -> Extreme | None:
    """What is known of an aggregate that is a minimum or a maximum of numbers."""
    if call.name not in ("min", "max") or len(call.args) != 1 or not call.args[0].type.is_numeric:
        return None
    (arg,) = call.args
    return Extreme(Measure(f"#end {name}", arg, arg, filter=call.filter), call.name == "min")


def measured(name: str, call: Aggregate) -> Measured | None:
    """What is measured of an aggregate; None if a part of the input says nothing certain of it (a minimum, the distinct
    values, a median)."""
    if call.distinct or call.order or not call.type.is_numeric:
        # The average of times is a time, of which there is no error in doubles.
        return None
    types = plain_body(call).exported()
    states = [
        Cast(Column(column, type), DOUBLE) for column, type in zip(state_names(name, len(types)), types, strict=True)
    ]
    arg = call.args[0] if call.args else None
    plain = arg if arg is not None and arg.type.is_numeric else None
    if call.name in COUNTS:
        (total,) = _measures(name, (states[0], ONE, False, arg), filter=call.filter)
        return Measured((total,), _column(total), scales=True)
    if call.name in SUMS:
        (total,) = _measures(name, (states[0], plain, False, arg), filter=call.filter)
        return Measured((total,), _column(total), scales=True)
    if call.name in AVERAGES:
        total, count = _measures(name, (states[0], plain, False, arg), (states[1], ONE, False, arg), filter=call.filter)
        return Measured((total, count), binary("/", _column(total), _column(count)), scales=False)
    if call.name in VARIANCES:
        rows, mean, squares = states
        total, square, count = _measures(
            name,
            (binary("*", rows, mean), plain, False, arg),
            (binary("+", squares, binary("*", rows, binary("*", mean, mean))), plain, True, arg),
            (rows, ONE, False, arg),
            filter=call.filter,
        )
        middle = binary("/", _column(total), _column(count))
        value: Expr = binary("-", binary("/", _column(square), _column(count)), binary("*", middle, middle))
        is_root, is_sample = VARIANCES[call.name]
        if is_sample:
            rest = binary("-", _column(count), number(1.0))
            value = binary("*", value, binary("/", _column(count), rest))
        if is_root:
            value = Call("sqrt", (Call("greatest", (value, number(0.0)), DOUBLE),), DOUBLE)
        return Measured((total, square, count), value, scales=False)
    return None


def _measures(
    name: str, *parts: tuple[Expr, Expr | None, bool, Expr | None], filter: Expr | None
) -> tuple[Measure, ...]:
    return tuple(
        Measure(f"#{place} {name}", state, each, is_square, counted, filter)
        for place, (state, each, is_square, counted) in enumerate(parts)
    )


def _column(measure: Measure) -> Column:
    return Column(measure.name, DOUBLE, False)


def binary(op: str, left: Expr, right: Expr) -> Call:
    """Arithmetic of doubles."""
    return Call(op, (left, right), DOUBLE)


def number(value: float) -> Literal:
    return Literal(float(value), DOUBLE)
