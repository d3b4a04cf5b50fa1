"""Statistics of pairs (y, x): covariance, correlation, linear regression. A pair with a NULL in it does not count."""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateState
from tsql.kernels.aggregates.registry import aggregate
from tsql.kernels.aggregates.statistics import Moments
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import DOUBLE, UINTEGER

PAIR = (DOUBLE, DOUBLE)
COUNT, MEAN_X, MEAN_Y, CO_MOMENT, SQUARES_X, SQUARES_Y = range(6)


class Pairs(Moments):
    """State: count, means of x and y, sum of the products of differences, sums of squared differences of x and of y."""

    fields: tuple[str, ...] = ("i64", "f64", "f64", "f64", "f64", "f64")

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        y, x = args[0].value, args[1].value
        count = state.get(COUNT) + 1
        n = count.to("f64")
        mean_x, mean_y = state.get(MEAN_X), state.get(MEAN_Y)
        moved_x, moved_y = mean_x + (x - mean_x) / n, mean_y + (y - mean_y) / n
        state.set(COUNT, count)
        state.set(MEAN_X, moved_x)
        state.set(MEAN_Y, moved_y)
        state.set(CO_MOMENT, state.get(CO_MOMENT) + (x - mean_x) * (y - moved_y))
        state.set(SQUARES_X, state.get(SQUARES_X) + (x - moved_x) * (x - mean_x))
        state.set(SQUARES_Y, state.get(SQUARES_Y) + (y - moved_y) * (y - mean_y))

    def merge(self, k: PipelineKernel, state: AggregateState, other: list[Val]) -> None:
        mine, theirs = state.get(COUNT).to("f64"), other[COUNT].to("f64")
        total = mine + theirs
        weight = theirs * mine / total
        delta_x, delta_y = other[MEAN_X] - state.get(MEAN_X), other[MEAN_Y] - state.get(MEAN_Y)
        for index, gap in (
            (CO_MOMENT, delta_x * delta_y),
            (SQUARES_X, delta_x * delta_x),
            (SQUARES_Y, delta_y * delta_y),
        ):
            state.set(index, other[index] + state.get(index) + gap * weight)
        for index in (MEAN_X, MEAN_Y):
            state.set(index, (theirs * other[index] + mine * state.get(index)) / total)
        state.set(COUNT, state.get(COUNT) + other[COUNT])

    def per_row(self, k: PipelineKernel, state: AggregateState, index: int) -> Val:
        """A sum of the state over the count; of squares it is exactly 0 for a single pair."""
        count = state.get(COUNT)
        mean = state.get(index) / count.to("f64")
        return mean if index == CO_MOMENT else k.select(count > 1, mean, k.f64(0.0))

    def any(self, state: AggregateState) -> Val:
        return state.get(COUNT) > 0


@aggregate("covar_pop", args=PAIR, returns=DOUBLE)
class CovarPop(Pairs):
    """Covariance of a whole population."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(DOUBLE, (self.per_row(k, state, CO_MOMENT),), self.any(state))


@aggregate("covar_samp", args=PAIR, returns=DOUBLE)
class CovarSamp(Pairs):
    """Covariance estimated from a sample; NULL for fewer than two pairs."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        count = state.get(COUNT)
        return Datum(DOUBLE, (state.get(CO_MOMENT) / (count - 1).to("f64"),), count > 1)


class Correlated(Pairs):
    """Aggregates that need the coefficient of correlation; NaN where a side does not vary."""

    def correlation(self, k: PipelineKernel, state: AggregateState) -> Val:
        deviations = k.unary("sqrt", self.per_row(k, state, SQUARES_X)) * k.unary(
            "sqrt", self.per_row(k, state, SQUARES_Y)
        )
        value = self.per_row(k, state, CO_MOMENT) / deviations
        return k.select(deviations == 0.0, k.f64(float("nan")), value)


@aggregate("corr", args=PAIR, returns=DOUBLE)
class Correlation(Correlated):
    """Coefficient of correlation."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(DOUBLE, (self.correlation(k, state),), self.any(state))


@aggregate("regr_r2", args=PAIR, returns=DOUBLE)
class Determination(Correlated):
    """Coefficient of determination: NULL where x does not vary, 1 where only y does not."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        value = self.correlation(k, state)
        value = k.select(self.per_row(k, state, SQUARES_Y) == 0.0, k.f64(1.0), value * value)
        return Datum(DOUBLE, (value,), self.any(state) & (self.per_row(k, state, SQUARES_X) != 0.0))


class Line(Pairs):
    """Aggregates that need the slope of the regression line; NaN where x does not vary."""

    def slope(self, k: PipelineKernel, state: AggregateState) -> Val:
        variance = self.per_row(k, state, SQUARES_X)
        return k.select(variance == 0.0, k.f64(float("nan")), self.per_row(k, state, CO_MOMENT) / variance)


@aggregate("regr_slope", args=PAIR, returns=DOUBLE)
class Slope(Line):
    """Slope of the regression line of y over x."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(DOUBLE, (self.slope(k, state),), self.any(state))


@aggregate("regr_sxx", args=PAIR, returns=DOUBLE)
class SquaresX(Pairs):
    """Sum of the squared differences of x from its mean."""

    index = SQUARES_X

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(DOUBLE, (self.per_row(k, state, self.index) * state.get(COUNT).to("f64"),), self.any(state))


@aggregate("regr_syy", args=PAIR, returns=DOUBLE)
class SquaresY(SquaresX):
    """Sum of the squared differences of y from its mean."""

    index = SQUARES_Y


@aggregate("regr_sxy", args=PAIR, returns=DOUBLE)
class Products(SquaresX):
    """Sum of the products of the differences of x and y from their means."""

    index = CO_MOMENT


@aggregate("regr_intercept", args=PAIR, returns=DOUBLE)
class Intercept(Line):
    """Where the regression line meets the axis of y. The means are those of plain sums, two more fields of the
    state."""

    fields = (*Pairs.fields, "f64", "f64")

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        super().update(k, state, args, mask)
        state.set(6, state.get(6) + args[0].value)
        state.set(7, state.get(7) + args[1].value)

    def merge(self, k: PipelineKernel, state: AggregateState, other: list[Val]) -> None:
        super().merge(k, state, other)
        for index in (6, 7):
            state.set(index, state.get(index) + other[index])

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        n, slope = state.get(COUNT).to("f64"), self.slope(k, state)
        return Datum(DOUBLE, (state.get(6) / n - slope * (state.get(7) / n),), self.any(state) & (slope == slope))


class PairSums(Moments):
    """State: count of pairs, sum of one side."""

    fields = ("i64", "f64")
    side = 0

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        state.set(0, state.get(0) + 1)
        state.set(1, state.get(1) + args[self.side].value)

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(DOUBLE, (state.get(1) / state.get(0).to("f64"),), state.get(0) > 0)


@aggregate("regr_avgy", args=PAIR, returns=DOUBLE)
class AverageY(PairSums):
    """Mean of y over the pairs."""


@aggregate("regr_avgx", args=PAIR, returns=DOUBLE)
class AverageX(PairSums):
    """Mean of x over the pairs."""

    side = 1


@aggregate("regr_count", args=PAIR, returns=UINTEGER)
class PairCount(Moments):
    """Number of pairs."""

    fields = ("i64",)
    removable = True

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        state.set(0, state.get(0) + 1)

    def remove(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        state.set(0, state.get(0) - (k.i64(1) if mask is None else mask.uto("i64")))

    def difference(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        state.set(0, state.get(0) - exported[0].wide().value)

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(UINTEGER, (state.get(0).to("i32"),))
