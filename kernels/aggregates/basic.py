"""count, sum, avg, min, max, bool_and, bool_or: the aggregates that most queries use."""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateArgument, AggregateState, Body, ValueBody
from tsql.kernels.aggregates.registry import aggregate
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DECIMAL, DOUBLE, FLOAT, HUGEINT, Type
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.functions.comparison import compare


def masked(k: PipelineKernel, mask: Val | None, value: Val, otherwise: Val) -> Val:
    return value if mask is None else k.select(mask, value, otherwise)


@aggregate("count_star", args=(), returns=BIGINT)
@aggregate("count", args=(), returns=BIGINT)
class CountStar(Body):
    """count(*): rows."""

    fields = ("i64",)
    branchless = True
    counter = 0
    removable = True

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        state.set(0, state.get(0) + (k.i64(1) if mask is None else mask.uto("i64")))

    def remove(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        state.set(0, state.get(0) - (k.i64(1) if mask is None else mask.uto("i64")))

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(BIGINT, (state.get(0),))

    def exported(self) -> tuple[Type, ...]:
        return (BIGINT,)

    def export(self, k: PipelineKernel, state: AggregateState) -> tuple[Datum, ...]:
        return (Datum(BIGINT, (state.get(0),)),)

    def absorb(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        state.set(0, state.get(0) + exported[0].wide().value)

    def difference(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        state.set(0, state.get(0) - exported[0].wide().value)


@aggregate("count", args=("any",), returns=BIGINT)
class CountAggregate(CountStar):
    """count(x): rows in which x is not NULL."""


def sum_type(t: Type) -> Type:
    """DuckDB's type of a sum."""
    if t.is_decimal:
        return DECIMAL(38, t.scale)
    return HUGEINT if t.is_integer or t == BOOLEAN else DOUBLE


def greatest_sum(input: AggregateArgument, rows: int | None) -> int:
    """An upper bound of the absolute value of an exact sum: the argument's bounds times the number of rows."""
    if rows is None:
        return 2**127
    bounds = input.range if input.range is not None else (0, 1) if input.type == BOOLEAN else input.type.bounds
    return max(abs(bounds[0]), abs(bounds[1])) * max(rows, 1)


class ExactSum(Body):
    """The sum of integers or decimals, with the number of rows (an empty sum is NULL).

    A sum of 128-bit values that may overflow has a third field: the net number of overflows (upwards minus downwards).
    So a sum that returns into its range is correct in whatever order rows and states are added, and rows can be
    removed."""

    branchless = True
    counter = 1
    family: str | None = "exact sum"
    removable = True

    def __init__(self, inputs: tuple[AggregateArgument, ...], result: Type, rows: int | None):
        super().__init__(inputs, result, rows)
        self.machine = "i64" if greatest_sum(inputs[0], rows) < 2**63 else "i128"
        self.carries = self._is_wide() and greatest_sum(inputs[0], rows) >= 2**127
        self.fields = (self.machine, "i64", "i64") if self.carries else (self.machine, "i64")

    def _is_wide(self) -> bool:
        return self.inputs[0].type.bits == 128

    def _value(self, d: Datum) -> Val:
        return d.value.uto(self.machine) if d.type == BOOLEAN else number(d).value.to(self.machine)

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        self._add(k, state, masked(k, mask, self._value(args[0]), k.const(self.machine, 0)))
        state.set(1, state.get(1) + (k.i64(1) if mask is None else mask.uto("i64")))

    def remove(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        self._take_out(k, state, masked(k, mask, self._value(args[0]), k.const(self.machine, 0)))
        state.set(1, state.get(1) - (k.i64(1) if mask is None else mask.uto("i64")))

    def _add(self, k: PipelineKernel, state: AggregateState, value: Val) -> None:
        total = state.get(0)
        if self.carries:
            step = k.select(value < 0, k.i64(-1), k.i64(1))
            state.set(2, state.get(2) + k.select(k.overflows("add", total, value), step, k.i64(0)))
        state.set(0, total + value)

    def _take_out(self, k: PipelineKernel, state: AggregateState, value: Val) -> None:
        total = state.get(0)
        if self.carries:
            step = k.select(value < 0, k.i64(1), k.i64(-1))
            state.set(2, state.get(2) + k.select(k.overflows("sub", total, value), step, k.i64(0)))
        state.set(0, total - value)

    def _check(self, k: PipelineKernel, state: AggregateState) -> None:
        if self.carries:
            k.fail(state.get(2) != 0, "Overflow in sum")

    def _total(self) -> Type:
        return sum_type(self.inputs[0].type)

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        self._check(k, state)
        value = state.get(0)
        if self.result.is_decimal and self.machine == "i128":
            low, high = self.result.bounds
            k.fail((value < low) | (value > high), f"Overflow in sum of {self.inputs[0].type}")
        return Datum(
            self.result,
            (value,),
            state.get(1) > 0,
            (-(2**63), 2**63 - 1) if self.machine == "i64" else self.result.bounds,
        )

    def exported(self) -> tuple[Type, ...]:
        # The same for all bounds of a type: the kernels that export and absorb a state may know different bounds.
        return (self._total(), BIGINT, BIGINT) if self._is_wide() else (self._total(), BIGINT)

    def export(self, k: PipelineKernel, state: AggregateState) -> tuple[Datum, ...]:
        bounds = (-(2**63), 2**63 - 1) if self.machine == "i64" else None
        carried = (Datum(BIGINT, (state.get(2) if self.carries else k.i64(0),)),) if self._is_wide() else ()
        return Datum(self._total(), (state.get(0),), None, bounds), Datum(BIGINT, (state.get(1),)), *carried

    def absorb(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        self._add(k, state, exported[0].value.to(self.machine))
        state.set(1, state.get(1) + exported[1].wide().value)
        if self.carries:
            state.set(2, state.get(2) + exported[2].wide().value)

    def difference(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        self._take_out(k, state, exported[0].value.to(self.machine))
        state.set(1, state.get(1) - exported[1].wide().value)
        if self.carries:
            state.set(2, state.get(2) - exported[2].wide().value)

    def compact(self) -> Body:
        return (
            OneWordSum(self.inputs, self.result, self.rows) if greatest_sum(self.inputs[0], self.rows) < BIAS else self
        )


BIAS = 2**62


class OneWordSum(ExactSum):
    """A sum without its number of rows: 0 before the first one, then the sum plus BIAS. An array of sums that exceeds
    the caches uses half as many cache lines. It exports a count of states instead of rows, which also tells empty from
    non-empty."""

    fields = ("i64",)
    counter = 0
    family = None
    removable = False

    def __init__(self, inputs: tuple[AggregateArgument, ...], result: Type, rows: int | None):
        Body.__init__(self, inputs, result, rows)
        self.machine, self.carries = "i64", False

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        self._take(k, state, self._value(args[0]), mask)

    def _take(self, k: PipelineKernel, state: AggregateState, value: Val, mask: Val | None) -> None:
        word = state.get(0)
        # Arithmetic instead of a choice: the processor would have to guess which groups are new.
        begun = (
            word | BIAS
            if self.inputs[0].range is not None and self.inputs[0].range[0] >= 0
            else word + ((word == 0).uto("i64") << 62)
        )
        state.set(0, masked(k, mask, begun + value, word))

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        word = state.get(0)
        return Datum(self.result, (word - BIAS,), word != 0, (-(2**63), 2**63 - 1))

    def export(self, k: PipelineKernel, state: AggregateState) -> tuple[Datum, ...]:
        word = state.get(0)
        total = k.select(word == 0, k.i64(0), word - BIAS)
        carried = (Datum(BIGINT, (k.i64(0),)),) if self._is_wide() else ()
        return (
            Datum(self._total(), (total,), None, (-(2**63), 2**63 - 1)),
            Datum(BIGINT, ((word != 0).uto("i64"),)),
            *carried,
        )

    def absorb(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        self._take(k, state, exported[0].value.to("i64"), exported[1].wide().value != 0)

    def compact(self) -> Body:
        return self


class InexactSum(Body):
    """The sum of floats."""

    fields = ("f64", "i64")
    branchless = True
    counter = 1
    family = "float sum"

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        state.set(0, state.get(0) + masked(k, mask, args[0].value.to("f64"), k.f64(-0.0)))
        state.set(1, state.get(1) + (k.i64(1) if mask is None else mask.uto("i64")))

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(self.result, (state.get(0),), state.get(1) > 0)

    def exported(self) -> tuple[Type, ...]:
        return (DOUBLE, BIGINT)

    def export(self, k: PipelineKernel, state: AggregateState) -> tuple[Datum, ...]:
        return Datum(DOUBLE, (state.get(0),)), Datum(BIGINT, (state.get(1),))

    def absorb(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        state.set(0, state.get(0) + exported[0].value)
        state.set(1, state.get(1) + exported[1].wide().value)


@aggregate("sum", "sum_no_overflow", args=("integer",), returns=sum_type)
@aggregate("sum", "sum_no_overflow", args=("decimal",), returns=sum_type)
@aggregate("sum", args=(BOOLEAN,), returns=sum_type)
class SumExact(ExactSum):
    """sum(x)."""


@aggregate("count_if", "countif", args=(BOOLEAN,), returns=HUGEINT)
class CountIf(ExactSum):
    """Rows in which the argument is true; HUGEINT, and NULL if it always is, as in DuckDB."""


@aggregate("sum", args=(DOUBLE,), returns=DOUBLE)
@aggregate("sum", args=(FLOAT,), returns=DOUBLE)
class SumInexact(InexactSum):
    """sum(x)."""


@aggregate("avg", "mean", args=("integer",), returns=DOUBLE)
@aggregate("avg", "mean", args=("decimal",), returns=DOUBLE)
class AvgExact(ExactSum):
    """avg(x): the exact sum over the count, as DOUBLE."""

    def compact(self) -> Body:
        return self

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        self._check(k, state)
        count = state.get(1)
        total = state.get(0).to("f64") / count.to("f64")
        if self.inputs[0].type.is_decimal:
            total = total / float(10 ** self.inputs[0].type.scale)
        return Datum(DOUBLE, (total,), count > 0)


@aggregate("avg", "mean", args=(DOUBLE,), returns=DOUBLE)
@aggregate("avg", "mean", args=(FLOAT,), returns=DOUBLE)
class AvgInexact(InexactSum):
    """avg(x) of floats."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        count = state.get(1)
        return Datum(DOUBLE, (state.get(0) / count.to("f64"),), count > 0)


class Extreme(ValueBody):
    """min or max of a fixed-width type: the value and whether there was one. Of equal values that differ in form (0.0
    and -0.0, a month and 30 days) the last is kept, as DuckDB does."""

    branchless = True
    better = "<="

    def __init__(self, inputs: tuple[AggregateArgument, ...], result: Type, rows: int | None):
        super().__init__(inputs, result, rows)
        self.fields = (*result.parts, "i1")

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        d = args[0].wide()
        count = len(self.result.parts)
        held = Datum(self.result, tuple(state.get(i) for i in range(count)))
        seen = state.get(count)
        take = compare(k, self.better, d.with_valid(None), held) | ~seen
        if mask is not None:
            take = take & mask
        for index, (new, old) in enumerate(zip(d.parts, held.parts, strict=True)):
            state.set(index, k.select(take, new, old))
        state.set(count, seen | take)

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        count = len(self.result.parts)
        return Datum(self.result, tuple(state.get(i) for i in range(count)), state.get(count))


class StringExtreme(Body):
    """min or max of strings: the bytes are kept in memory owned by the state, which grows as needed."""

    fields = ("ptr", "i64", "i64", "i1")
    better = "<"

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        d = args[0]
        held = Datum(self.result, (state.get(0), state.get(1)))
        seen = state.get(3)
        take = k.var(~seen)
        with k.when(seen):
            take.set(compare(k, self.better, Datum(self.result, d.parts), held))
        with k.when(take.value):
            keep_string(k, state, 0, d)
            state.set(3, k.true)

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(self.result, (state.get(0), state.get(1)), state.get(3))

    def exported(self) -> tuple[Type, ...]:
        return (self.result,)

    def export(self, k: PipelineKernel, state: AggregateState) -> tuple[Datum, ...]:
        return (self.finish(k, state),)

    def absorb(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        with k.when(k.true if exported[0].valid is None else exported[0].valid):
            self.update(k, state, exported, None)

    def release(self) -> tuple[int, ...]:
        return (0,)


def keep_string(k: PipelineKernel, state: AggregateState, at: int, d: Datum) -> None:
    """Copy a string into the (pointer, length, capacity) fields from `at`; the memory is the state's."""
    capacity = state.get(at + 2)
    with k.when(d.len > capacity):
        grown = d.len * 2 + 16
        state.set(at, k.call("realloc", state.get(at), grown))
        state.set(at + 2, grown)
    with k.when(d.len > 0):
        k.call("memcpy", state.get(at), d.ptr, d.len)
    state.set(at + 1, d.len)


def same(t: Type, *rest: Type) -> Type:
    return t


@aggregate("min", args=("any",), returns=same, ignores_repeats=True)
class Min(Extreme):
    """min(x)."""


@aggregate("max", args=("any",), returns=same, ignores_repeats=True)
class Max(Extreme):
    """max(x)."""

    better = ">="


@aggregate("min", args=(Type("VARCHAR"),), returns=same, ignores_repeats=True)
@aggregate("min", args=(Type("BLOB"),), returns=same, ignores_repeats=True)
class MinString(StringExtreme):
    """min(x) of strings."""


@aggregate("max", args=(Type("VARCHAR"),), returns=same, ignores_repeats=True)
@aggregate("max", args=(Type("BLOB"),), returns=same, ignores_repeats=True)
class MaxString(StringExtreme):
    """max(x) of strings."""

    better = ">"


class Fold(Body):
    """bool_and or bool_or: the value so far, and whether there was any."""

    fields = ("i1", "i1")
    branchless = True
    start = True

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        state.set(0, k.bool(self.start))
        state.set(1, k.false)

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        value = masked(k, mask, args[0].value, k.bool(self.start))
        held = state.get(0)
        state.set(0, held & value if self.start else held | value)
        state.set(1, state.get(1) | (k.true if mask is None else mask))

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(BOOLEAN, (state.get(0),), state.get(1))

    def exported(self) -> tuple[Type, ...]:
        return (BOOLEAN,)

    def export(self, k: PipelineKernel, state: AggregateState) -> tuple[Datum, ...]:
        return (self.finish(k, state),)

    def absorb(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        self.update(k, state, exported, exported[0].valid)


@aggregate("bool_and", "every", args=(BOOLEAN,), returns=BOOLEAN, ignores_repeats=True)
class BoolAnd(Fold):
    """bool_and(x)."""


@aggregate("bool_or", args=(BOOLEAN,), returns=BOOLEAN, ignores_repeats=True)
class BoolOr(Fold):
    """bool_or(x)."""

    start = False
