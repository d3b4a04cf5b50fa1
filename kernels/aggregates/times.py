"""avg of times and of intervals."""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateState, Body
from tsql.kernels.aggregates.registry import aggregate
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, DATE, HUGEINT, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ, Type
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.functions.datetime.arithmetic import timestamp_of

DAY_US = 86_400_000_000
MONTH_DAYS = 30


class Sums(Body):
    """State: count, then exact sums."""

    fields: tuple[str, ...] = ("i64", "i128")
    removable = True

    def add(self, state: AggregateState, count: Val, *terms: Val) -> None:
        state.set(0, state.get(0) + count)
        for index, term in enumerate(terms, 1):
            state.set(index, state.get(index) + term.to("i128"))

    def terms(self, k: PipelineKernel, d: Datum) -> tuple[Val, ...]:
        """What a value adds to the sums."""
        return (number(d).value,)

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        self.add(state, k.i64(1), *self.terms(k, args[0]))

    def remove(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        with k.when(k.true if mask is None else mask):
            self.add(state, k.i64(-1), *(-term.to("i128") for term in self.terms(k, args[0])))

    def divisor(self, k: PipelineKernel, state: AggregateState) -> Val:
        """The count, or 1 if there is nothing to divide."""
        return k.max(state.get(0), k.i64(1))

    def exported(self) -> tuple[Type, ...]:
        return (BIGINT, *(HUGEINT for _ in self.fields[1:]))

    def export(self, k: PipelineKernel, state: AggregateState) -> tuple[Datum, ...]:
        return tuple(Datum(t, (state.get(i),)) for i, t in enumerate(self.exported()))

    def absorb(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        self.add(state, *(d.wide().value for d in exported))

    def difference(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        self.add(state, *(-d.wide().value for d in exported))


@aggregate("avg", "mean", args=(TIMESTAMP,), returns=TIMESTAMP)
@aggregate("avg", "mean", args=(TIMESTAMPTZ,), returns=TIMESTAMPTZ)
@aggregate("avg", "mean", args=(DATE,), returns=TIMESTAMP)
@aggregate("avg", "mean", args=(TIME,), returns=TIME)
class AvgTime(Sums):
    """The mean time. What is left of the division rounds positive means up and never negative ones, as in DuckDB."""

    def terms(self, k: PipelineKernel, d: Datum) -> tuple[Val, ...]:
        return (timestamp_of(k, d) if d.type == DATE else number(d).value,)

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        total = state.get(1)
        count = self.divisor(k, state).to("i128")
        mean = total // count + (total % count > count // k.i128(2)).uto("i128")
        return Datum(self.result, (mean.to("i64"),), state.get(0) > 0)


@aggregate("avg", "mean", args=(INTERVAL,), returns=INTERVAL)
class AvgInterval(Sums):
    """The mean interval: what is left of months becomes days, what is left of days becomes microseconds, and what is
    left of those is added, as DuckDB does."""

    fields = ("i64", "i128", "i128", "i128")

    def terms(self, k: PipelineKernel, d: Datum) -> tuple[Val, ...]:
        return d.parts

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        count = self.divisor(k, state).to("i128")
        months, days, micros = (state.get(i) for i in (1, 2, 3))
        rest = months % count * MONTH_DAYS
        whole_days = days // count + rest // count
        micros = micros // count + micros % count + (days % count + rest % count) * DAY_US // count
        return Datum(INTERVAL, ((months // count).to("i32"), whole_days.to("i32"), micros.to("i64")), state.get(0) > 0)
