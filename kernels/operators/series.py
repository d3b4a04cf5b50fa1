"""Series: for each row, one row per value of a series; and a source that makes a series without an input.

Integers are counted before the loop in unsigned arithmetic, so a series may span all of BIGINT. Times are added step by
step, since a step of months depends on the previous value."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.batch import Layout, SourceColumn
from tsql.kernels.emit.context import SCRATCH, PipelineKernel
from tsql.kernels.emit.datum import Datum, all_valid
from tsql.kernels.emit.expressions import emit
from tsql.kernels.emit.pipeline import Operator, Push
from tsql.kernels.emit.rows import POSITION, CachedRow, ValueRow
from tsql.kernels.expr.nodes import Call, Column, Expr
from tsql.kernels.expr.types import BIGINT, INTERVAL, Type

ZERO_STEP = "interval cannot be 0!"
MIXED_SIGNS = "RANGE with composite interval that has mixed signs is not supported"
INFINITE = "RANGE with infinite bounds is not supported"
INFINITY = 2**63 - 1
"""The stored value of the time `infinity`; that of `-infinity` is its negative."""


class SeriesRow(CachedRow):
    """A row with a value of the series beside it."""

    def __init__(self, parent: CachedRow, name: str, value: Datum):
        super().__init__()
        self.parent, self.name, self.value = parent, name, value
        self.mask = parent.mask

    def make(self, k: PipelineKernel, name: str) -> Datum:
        return self.value if name == self.name else self.parent.column(k, name)


class Series(Operator):
    """Adds the column `name`. NULL bounds or a NULL step drop the row."""

    multiplies = True

    def __init__(self, name: str, start: Expr, stop: Expr, step: Expr, inclusive: bool):
        self.name, self.start, self.stop, self.step, self.inclusive = name, start, stop, step, inclusive

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        start, stop, step = (emit(k, e, row).wide() for e in (self.start, self.stop, self.step))
        known = all_valid([start, stop, step])
        valid = k.true if known is None else known
        with k.guarded(valid, getattr(self.step, "position", None)):
            loop = self._numbers if start.type == BIGINT else self._times
            loop(k, start, stop, step, valid, lambda value: self._push(k, row, value, push))

    def _push(self, k: PipelineKernel, row: CachedRow, value: Datum, push: Push) -> None:
        """Pass on one row. The scratch memory that it took is free for the next."""
        used_at = k.offset(k.ctx, SCRATCH + 8)
        used = k.load("i64", used_at)
        push(k, SeriesRow(row, self.name, value))
        if k.uses_scratch:
            k.store(used_at, used)

    def _numbers(
        self, k: PipelineKernel, start: Datum, stop: Datum, step: Datum, valid: Val, each: Callable[[Datum], None]
    ) -> None:
        first, last, by = start.value, stop.value, step.value
        k.fail(by == 0, ZERO_STEP)
        up = by > 0
        span = k.select(up, last - first, first - last)
        some = k.select(up, first < last, first > last)
        if self.inclusive:
            some = some | (first == last)
        size = k.select(by == 0, k.i64(1), k.select(up, by, -by))
        count = (span if self.inclusive else span - 1).udiv(size) + 1
        count = k.select(count < 0, k.i64(2**63 - 1), count)
        with k.rows(k.select(valid & some & (by != 0), count, k.i64(0))) as i:
            each(Datum(BIGINT, (first + i * by,)))

    def _times(
        self, k: PipelineKernel, start: Datum, stop: Datum, step: Datum, valid: Val, each: Callable[[Datum], None]
    ) -> None:
        last = stop.value
        months, days, micros = step.parts
        up = (months > 0) | (days > 0) | (micros > 0)
        down = (months < 0) | (days < 0) | (micros < 0)
        k.fail(~up & ~down, ZERO_STEP)
        k.fail(up & down, MIXED_SIGNS)
        for bound in (start.value, last):
            k.fail((bound == INFINITY) | (bound == -INFINITY), INFINITE)
        current = k.var(start.value)
        with k.when(valid):
            with k.forever() as loop:
                value = current.value
                past = (
                    k.select(up, value > last, value < last)
                    if self.inclusive
                    else k.select(up, value >= last, value <= last)
                )
                k.check()
                loop.stop_if(past | k.is_done())
                each(Datum(start.type, (value,)))
                if self.inclusive:
                    # The value after the last may not be a valid time.
                    loop.stop_if(value == last)
                current.set(self._next(k, start.type, value, step))

    def _next(self, k: PipelineKernel, dtype: Type, value: Val, step: Datum) -> Val:
        row = ValueRow({"value": Datum(dtype, (value,)), "step": Datum(INTERVAL, step.parts)})
        return (
            emit(k, Call("+", (Column("value", dtype, False), Column("step", INTERVAL, False)), dtype), row)
            .wide()
            .value
        )

    def describe(self) -> str:
        return f"series {self.name} from {self.start} to {self.stop} by {self.step}" + (
            " inclusive" if self.inclusive else ""
        )


class NumberRow(CachedRow):
    """A value of a series that has no input."""

    def __init__(self, name: str, value: Datum, position: Val):
        super().__init__()
        self.name, self.value, self.position = name, value, position

    def make(self, k: PipelineKernel, name: str) -> Datum:
        return Datum(BIGINT, (self.position,)) if name == POSITION else self.value


class SeriesScan:
    """Makes the values of a series in registers. A morsel holds its first value and the step in the words of the
    column."""

    def __init__(self, name: str, dtype: Type, bounds: tuple[int, int] | None):
        self.columns = (SourceColumn(name, dtype, Layout("fixed", "i64", False), bounds),)

    def produce(self, k: PipelineKernel, record: Val, rows: Val, each: Callable[[CachedRow], None]) -> None:
        position, first, step = (k.load("i64", record, word) for word in (1, 2, 3))
        (column,) = self.columns
        with k.rows(rows) as i:
            each(
                NumberRow(
                    column.name, Datum(column.type, (first + i * step,), None, column.range, stable=True), position + i
                )
            )

    def describe(self) -> str:
        return f"values of {self.columns[0].name}"
