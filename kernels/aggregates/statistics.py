"""Statistics of one variable: variance and deviation, sem, skewness, kurtosis, product, compensated sums, geometric
mean.

Variances use Welford's running mean and sum of squared differences, and merge by Chan's formula, as DuckDB does.
"""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateState, Body
from tsql.kernels.aggregates.basic import AvgInexact
from tsql.kernels.aggregates.registry import aggregate
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, DOUBLE, Type


class Moments(Body):
    """A state of one count and some doubles, exported as it is: the base of statistics."""

    def exported(self) -> tuple[Type, ...]:
        return (BIGINT, *(DOUBLE for _ in self.fields[1:]))

    def export(self, k: PipelineKernel, state: AggregateState) -> tuple[Datum, ...]:
        return tuple(Datum(t, (state.get(i),)) for i, t in enumerate(self.exported()))

    def absorb(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        other = [d.wide().value for d in exported]
        with k.when(other[0] > 0):
            with k.when(state.get(0) == 0):
                for index, value in enumerate(other):
                    state.set(index, value)
            with k.otherwise():
                self.merge(k, state, other)

    def merge(self, k: PipelineKernel, state: AggregateState, other: list[Val]) -> None:
        """Merge a state in; neither is empty. Plain sums unless overridden."""
        for index, value in enumerate(other):
            state.set(index, state.get(index) + value)


class Variance(Moments):
    """State: count, mean, sum of squared differences from the mean."""

    fields = ("i64", "f64", "f64")

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        x = args[0].value
        count = state.get(0) + 1
        mean = state.get(1)
        moved = mean + (x - mean) / count.to("f64")
        state.set(0, count)
        state.set(1, moved)
        state.set(2, state.get(2) + (x - moved) * (x - mean))

    def merge(self, k: PipelineKernel, state: AggregateState, other: list[Val]) -> None:
        mine, theirs = state.get(0).to("f64"), other[0].to("f64")
        total = mine + theirs
        delta = other[1] - state.get(1)
        state.set(2, other[2] + state.get(2) + delta * delta * theirs * mine / total)
        state.set(1, (theirs * other[1] + mine * state.get(1)) / total)
        state.set(0, state.get(0) + other[0])

    def population(self, k: PipelineKernel, state: AggregateState) -> Val:
        """The mean squared difference."""
        count = state.get(0)
        return k.select(count > 1, state.get(2) / count.to("f64"), k.f64(0.0))


@aggregate("var_pop", args=(DOUBLE,), returns=DOUBLE)
class VarPop(Variance):
    """Variance of a whole population."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(DOUBLE, (self.population(k, state),), state.get(0) > 0)


@aggregate("stddev_pop", args=(DOUBLE,), returns=DOUBLE)
class StddevPop(Variance):
    """Standard deviation of a whole population."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(DOUBLE, (k.unary("sqrt", self.population(k, state)),), state.get(0) > 0)


@aggregate("var_samp", "variance", args=(DOUBLE,), returns=DOUBLE)
class VarSamp(Variance):
    """Variance estimated from a sample; NULL for fewer than two values."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        count = state.get(0)
        return Datum(DOUBLE, (state.get(2) / (count - 1).to("f64"),), count > 1)


@aggregate("stddev_samp", "stddev", args=(DOUBLE,), returns=DOUBLE)
class StddevSamp(VarSamp):
    """Standard deviation estimated from a sample; NULL for fewer than two values."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        d = super().finish(k, state)
        return Datum(DOUBLE, (k.unary("sqrt", d.value),), d.valid)


@aggregate("sem", args=(DOUBLE,), returns=DOUBLE)
class StandardError(Variance):
    """Standard error of the mean."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        n = state.get(0).to("f64")
        return Datum(DOUBLE, (k.unary("sqrt", state.get(2) / n) / k.unary("sqrt", n),), state.get(0) > 0)


class Powers(Moments):
    """State: count, then the sums of the powers of x from the first on."""

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        x = args[0].value
        state.set(0, state.get(0) + 1)
        power = x
        for index in range(1, len(self.fields)):
            state.set(index, state.get(index) + power)
            power = power * x


def is_finite(x: Val) -> Val:
    return (x - x) == 0.0


@aggregate("skewness", args=(DOUBLE,), returns=DOUBLE)
class Skewness(Powers):
    """Skewness, corrected for bias; NULL for fewer than three values and for equal ones."""

    fields = ("i64", "f64", "f64", "f64")

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        n = state.get(0).to("f64")
        total, squares, cubes = (state.get(i) for i in (1, 2, 3))
        part = 1.0 / n
        spread = part * (squares - total * total * part)
        cubed = spread * spread * spread
        divisor = k.unary("sqrt", k.select(cubed < 0.0, k.f64(0.0), cubed))
        valid = (state.get(0) > 2) & (divisor != 0.0)
        correction = k.unary("sqrt", n * (n - 1.0)) / (n - 2.0)
        third = cubes - 3.0 * squares * total * part + 2.0 * total * total * total * part * part
        value = correction * part * third / divisor
        k.fail(valid & ~is_finite(value), "SKEW is out of range!")
        return Datum(DOUBLE, (value,), valid)


class Kurtosis(Powers):
    """Excess kurtosis."""

    fields = ("i64", "f64", "f64", "f64", "f64")
    corrected = True

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        n = state.get(0).to("f64")
        total, squares, cubes, fourths = (state.get(i) for i in (1, 2, 3, 4))
        part = 1.0 / n
        spread = squares - total * total * part
        m4 = part * (
            fourths
            - 4.0 * cubes * total * part
            + 6.0 * squares * total * total * part * part
            - 3.0 * total * total * total * total * part * part * part
        )
        m2 = part * spread
        valid = (state.get(0) > (3 if self.corrected else 1)) & (spread != 0.0) & ~(m2 <= 0.0)
        if self.corrected:
            value = (n - 1.0) * ((n + 1.0) * m4 / (m2 * m2) - 3.0 * (n - 1.0)) / ((n - 2.0) * (n - 3.0))
        else:
            value = m4 / (m2 * m2) - 3.0
        k.fail(valid & ~is_finite(value), "Kurtosis is out of range!")
        return Datum(DOUBLE, (value,), valid)


@aggregate("kurtosis", args=(DOUBLE,), returns=DOUBLE)
class KurtosisSamp(Kurtosis):
    """Excess kurtosis, corrected for bias; NULL for fewer than four values and for equal ones."""


@aggregate("kurtosis_pop", args=(DOUBLE,), returns=DOUBLE)
class KurtosisPop(Kurtosis):
    """Excess kurtosis of a whole population; NULL for a single value and for equal ones."""

    corrected = False


@aggregate("product", args=(DOUBLE,), returns=DOUBLE)
class Product(Moments):
    """The product of the values."""

    fields = ("i64", "f64")

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        state.set(0, k.i64(0))
        state.set(1, k.f64(1.0))

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        state.set(0, state.get(0) + 1)
        state.set(1, state.get(1) * args[0].value)

    def merge(self, k: PipelineKernel, state: AggregateState, other: list[Val]) -> None:
        state.set(0, state.get(0) + other[0])
        state.set(1, state.get(1) * other[1])

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(DOUBLE, (state.get(1),), state.get(0) > 0)


class Compensated(Moments):
    """Kahan's summation. State: count, sum, the part of it that was lost to rounding (which is no number for an
    infinite sum, and makes the result none)."""

    fields = ("i64", "f64", "f64")

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        state.set(0, state.get(0) + 1)
        self._add(state, args[0].value)

    def _add(self, state: AggregateState, x: Val) -> None:
        term = x - state.get(2)
        total = state.get(1)
        moved = total + term
        state.set(2, (moved - total) - term)
        state.set(1, moved)

    def _sum(self, k: PipelineKernel, state: AggregateState) -> Val:
        total = state.get(1)
        return k.select((total - total) == 0.0, total, k.f64(float("nan")))

    def merge(self, k: PipelineKernel, state: AggregateState, other: list[Val]) -> None:
        state.set(0, state.get(0) + other[0])
        self._add(state, other[1])
        self._add(state, -other[2])


@aggregate("fsum", "kahan_sum", "sumkahan", args=(DOUBLE,), returns=DOUBLE)
class CompensatedSum(Compensated):
    """The sum of floats with less rounding."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(DOUBLE, (self._sum(k, state),), state.get(0) > 0)


@aggregate("favg", args=(DOUBLE,), returns=DOUBLE)
class CompensatedAverage(Compensated):
    """The mean of floats with less rounding."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(DOUBLE, (self._sum(k, state) / state.get(0).to("f64"),), state.get(0) > 0)


@aggregate("geomean", "geometric_mean", args=(DOUBLE,), returns=DOUBLE)
class GeometricMean(AvgInexact):
    """exp(avg(ln(x))): 0 if a value is 0, NaN if one is negative."""

    branchless = False

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        x = args[0].value
        outside = k.select(x == 0.0, k.f64(float("-inf")), k.f64(float("nan")))
        logarithm = k.select(x > 0.0, k.call("log", k.select(x > 0.0, x, k.f64(1.0))), outside)
        super().update(k, state, (Datum(DOUBLE, (logarithm,)),), None)

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        mean = super().finish(k, state)
        value = k.var(k.f64(0.0))
        with k.when(k.true if mean.valid is None else mean.valid):
            value.set(k.call("exp", mean.value))
        return Datum(DOUBLE, (value.value,), mean.valid)
