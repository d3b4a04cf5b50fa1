"""median, quantile_cont, quantile_disc, approx_quantile, mad: aggregates that keep all values of a group.

Numbers and times are kept as integers of the same order (floats by `select.sortable`), so one selection routine serves
all; strings and intervals are kept as records and sorted. A negative fraction counts from the greatest value, as in
DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tsql.kernels.aggregates.base import AggregateArgument, AggregateState, Body
from tsql.kernels.aggregates.basic import same
from tsql.kernels.aggregates.records import Records
from tsql.kernels.aggregates.registry import aggregate
from tsql.kernels.aggregates.strings import RecordList, record_pointers
from tsql.kernels.codegen.kir import BYTES
from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.nodes import Literal
from tsql.kernels.expr.types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    HUGEINT,
    INTERVAL,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
    Type,
)
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.functions.datetime.arithmetic import timestamp_of
from tsql.kernels.runtime.lists import HEADER, list_room
from tsql.kernels.runtime.select import least, select_nth, select_pointer, sortable, unsortable

DAY_US = 86_400_000_000


def fraction_of(literal: Literal) -> Fraction:
    """The exact value of a number."""
    return Fraction(literal.value) / (10**literal.type.scale if literal.type.is_decimal else 1)


def check_fraction(literals: tuple[Any, ...]) -> str | None:
    """What is wrong with the fraction of a quantile."""
    if literals[1].value is None:
        return "The fraction of a quantile must not be NULL"
    return (
        None
        if literals[1].value == literals[1].value and -1 <= fraction_of(literals[1]) <= 1
        else "QUANTILE can only take parameters in the range [-1, 1]"
    )


def check_positive_fraction(literals: tuple[Any, ...]) -> str | None:
    """What is wrong with the fraction of an approximate quantile."""
    if literals[1].value is None:
        return "The fraction of a quantile must not be NULL"
    return (
        None
        if literals[1].value == literals[1].value and 0 <= fraction_of(literals[1]) <= 1
        else "APPROXIMATE QUANTILE can only take parameters in range [0, 1]"
    )


class Words(Body):
    """Keeps every value as a word. State: the block of words. `as_floats`: integers are kept as doubles. `ranked`:
    gives the index-th smallest value where the values are not in the block (kernels/windows/ranked.py)."""

    decomposable = False
    fields = ("ptr",)
    as_floats = False
    ranked: Callable[[PipelineKernel, Val], Datum] | None = None

    def __init__(self, inputs: tuple[AggregateArgument, ...], result: Type, rows: int | None):
        super().__init__(inputs, result, rows)
        t = inputs[0].type
        self.floats = t.is_float or (self.as_floats and t.is_integer)
        wide = t.name in ("HUGEINT", "UBIGINT") or (t.is_decimal and t.bits == 128)
        self.machine = "i128" if wide and not self.floats else "i64"

    def word(self, k: PipelineKernel, d: Datum) -> Val:
        if d.type == BOOLEAN:
            return d.value.uto("i64")
        value = d.value if d.type.is_float else number(d).value
        return sortable(k, value.to("f64")) if self.floats else value.to(self.machine)

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        block = list_room(k, k.ctx, state.get(0), k.i64(BYTES[self.machine]))
        state.set(0, block)
        count = k.load("i64", block)
        k.store(block + HEADER, self.word(k, args[0]), count)
        k.store(block, count + 1)

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        block = state.get(0)
        slots = [k.var(k.const(t, 0)) for t in self.result.parts]
        with k.when(block != k.null):
            for slot, part in zip(slots, self.answer(k, block + HEADER, k.load("i64", block)), strict=True):
                slot.set(part)
        return Datum(self.result, tuple(s.value for s in slots), block != k.null)

    def answer(self, k: PipelineKernel, words: Val, count: Val) -> tuple[Val, ...]:
        """The result of `count` words, at least one."""
        raise NotImplementedError

    def nth(self, k: PipelineKernel, words: Val, count: Val, index: Val) -> Val:
        """The index-th smallest of the words; no word after it is less."""
        if self.ranked is not None:
            return self.word(k, self.ranked(k, index))
        return select_nth(k, words, count, index, self.machine)

    def following(self, k: PipelineKernel, words: Val, count: Val, index: Val) -> Val:
        """The word after the index-th, which `nth` has just found."""
        if self.ranked is not None:
            return self.word(k, self.ranked(k, index + 1))
        return least(k, words, index + 1, count, self.machine)

    def release(self) -> tuple[int, ...]:
        return (0,)

    def plain(self, k: PipelineKernel, word: Val) -> tuple[Val, ...]:
        """The value that became `word`."""
        t = self.inputs[0].type
        if t.is_float:
            return (unsortable(k, word).to(t.parts[0]),)
        return (word.to(t.parts[0]),)


def disc_index(k: PipelineKernel, literal: Literal, count: Val) -> Val:
    """Which of `count` values in order is the discrete quantile: computed exactly for decimals, in doubles for
    others."""
    fraction = fraction_of(literal)
    size = abs(fraction)
    if literal.type.is_decimal or size.denominator == 1:
        n = count.to("i128")
        skipped = ((n * size.denominator - n * size.numerator) // k.i128(size.denominator)).to("i64")
    else:
        n = count.to("f64")
        skipped = k.unary("floor", n - n * float(size)).to("i64")
    index = k.max(count - skipped, k.i64(1)) - 1
    return count - 1 - index if fraction < 0 else index


class DiscWords(Words):
    """quantile_disc over words."""

    def answer(self, k: PipelineKernel, words: Val, count: Val) -> tuple[Val, ...]:
        return self.plain(k, self.nth(k, words, count, disc_index(k, self.inputs[1].literal, count)))


class DiscRecords(RecordList):
    """quantile_disc over records."""

    @property
    def records(self) -> Records:
        return Records((self.inputs[0].type,), ((0, False, False),))

    @property
    def wants_order(self) -> bool:
        return False

    def fraction(self) -> Literal:
        return self.inputs[1].literal

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        self.add(k, state, (args[0].with_valid(None),))

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        block, text = state.get(0), state.get(1)
        slots = [k.var(k.const(t, 0)) for t in self.result.parts]
        with k.when(block != k.null):
            records, count = self.records, k.load("i64", block)
            pointers = record_pointers(k, block, k.i64(records.end))

            def value(index: Val) -> tuple[Val, ...]:
                record = select_pointer(k, records.name, pointers, count, index, text, records.before)
                return records.value(k, record, text, 0).parts

            self.choose(k, slots, count, value)
            k.call("free", pointers)
        return Datum(self.result, tuple(s.value for s in slots), block != k.null)

    def choose(self, k: PipelineKernel, slots: list[Var], count: Val, value: Callable[[Val], tuple[Val, ...]]) -> None:
        """Set the parts of the result for `count` values; `value` gives one by its place in their order."""
        _set_parts(slots, value(disc_index(k, self.fraction(), count)))


def _set_parts(slots: list[Var], parts: tuple[Val, ...]) -> None:
    for slot, part in zip(slots, parts, strict=True):
        slot.set(part)


HALF = Literal(0.5, DOUBLE)


@aggregate("quantile_disc", "quantile", args=("any", "numeric"), returns=same, constant=(1,), check=check_fraction)
class QuantileDisc(DiscWords):
    """The value below which a fraction of all values lies; always one of them."""


@aggregate("quantile_disc", "quantile", args=(VARCHAR, "numeric"), returns=same, constant=(1,), check=check_fraction)
@aggregate("quantile_disc", "quantile", args=(BLOB, "numeric"), returns=same, constant=(1,), check=check_fraction)
@aggregate("quantile_disc", "quantile", args=(INTERVAL, "numeric"), returns=same, constant=(1,), check=check_fraction)
class QuantileDiscRecords(DiscRecords):
    """The value below which a fraction of all values lies; always one of them."""


@aggregate("median", args=(VARCHAR,), returns=same)
@aggregate("median", args=(BLOB,), returns=same)
class MedianRecords(DiscRecords):
    """The middle value; of two, the smaller."""

    def fraction(self) -> Literal:
        return HALF


@aggregate("median", args=(INTERVAL,), returns=same)
class MedianInterval(MedianRecords):
    """The middle value, or the mean of the two middle ones, counted in days of 24 hours and months of 30 days."""

    def choose(self, k: PipelineKernel, slots: list[Var], count: Val, value: Callable[[Val], tuple[Val, ...]]) -> None:
        low = value((count - 1).ushr(1))
        _set_parts(slots, low)
        with k.when((count & 1) == 0):
            _set_parts(slots, self._mean(k, low, value(count.ushr(1))))

    def _mean(self, k: PipelineKernel, low: tuple[Val, ...], high: tuple[Val, ...]) -> tuple[Val, ...]:
        a, b = (
            (months.to("i128") * 30 + days.to("i128")) * DAY_US + micros.to("i128")
            for months, days, micros in (low, high)
        )
        # The difference is not negative: half a microsecond is rounded up.
        mean = a + (b - a + 1) // 2
        days = mean // DAY_US
        k.fail((days < -(2**31)) | (days >= 2**31), "Interval value is out of range")
        return k.i32(0), days.to("i32"), (mean % DAY_US).to("i64")


@aggregate("median", args=(BOOLEAN,), returns=same)
class MedianBoolean(Words):
    """The middle value; of two, the smaller."""

    def answer(self, k: PipelineKernel, words: Val, count: Val) -> tuple[Val, ...]:
        return self.plain(k, self.nth(k, words, count, disc_index(k, HALF, count)))


class Continuous(Words):
    """Quantiles that interpolate between the two nearest values; `result` says how values become numbers again."""

    def neighbours(self, k: PipelineKernel, words: Val, count: Val, place: Val) -> tuple[Val, Val, Val]:
        """The words around a place in the order (a double from 0 to count - 1), and how far it is between them."""
        low_at = k.unary("floor", place)
        index = low_at.to("i64")
        low = self.nth(k, words, count, index)
        high = k.var(low)
        with k.when(low_at < place):
            high.set(self.following(k, words, count, index))
        return low, high.value, place - low_at

    def place(self, k: PipelineKernel, fraction: Fraction, count: Val) -> tuple[Val, bool]:
        """Where the quantile lies, and whether that is counted from the greatest value."""
        return (count - 1).to("f64") * float(abs(fraction)), fraction < 0

    def between(self, k: PipelineKernel, words: Val, count: Val, fraction: Fraction, t: Type) -> Val:
        """The quantile as a value of type `t`."""
        place, descending = self.place(k, fraction, count)
        if descending:
            # Counted from the other end, the lower neighbour is the greater value: the distance is reversed.
            from_top = k.unary("floor", place)
            step = place - from_top
            top = (count - 1).to("f64") - from_top
            low, high, _ = self.neighbours(k, words, count, k.select(step > 0.0, top - 0.5, top))
            return self.interpolate(k, high, low, step, t)
        low, high, step = self.neighbours(k, words, count, place)
        return self.interpolate(k, low, high, step, t)

    def interpolate(self, k: PipelineKernel, low: Val, high: Val, step: Val, t: Type) -> Val:
        if t == DOUBLE or t == FLOAT:
            a, b = (unsortable(k, w) if self.floats else w.to("f64") for w in (low, high))
            return k.select(step == 0.0, a, a * (1.0 - step) + b * step).to(t.parts[0])
        if self.inputs[0].type == DATE and t == TIMESTAMP:
            low, high = (timestamp_of(k, Datum(DATE, (w,))) for w in (low, high))
        a, b = low.to("f64"), high.to("f64")
        mixed = (
            a + (high - low).to("f64") * step if t.is_decimal and self.machine == "i64" else a * (1.0 - step) + b * step
        )
        value = self._inside(k, self.whole(k, mixed))
        if t.is_decimal and self.machine == "i128":
            moved = low + self._inside(k, k.unary("truncate", (high - low).to("f64") * step))
            value = k.select(k.overflows("sub", high, low), value, moved)
        # Between two equal infinite times is the same time; as doubles they would be out of range.
        return k.select((step == 0.0) | (low == high), low, value).to(t.parts[0])

    def _inside(self, k: PipelineKernel, x: Val) -> Val:
        """A double as a word; what does not fit becomes the nearest that does."""
        largest = float(2 ** (127 if self.machine == "i128" else 63) * (1 - 2**-53))
        return k.max(k.min(x, k.f64(largest)), k.f64(-largest)).to(self.machine)

    def whole(self, k: PipelineKernel, mixed: Val) -> Val:
        """An interpolated value without its fraction: times are rounded, decimals cut, as DuckDB does."""
        return k.unary("truncate", mixed) if self.inputs[0].type.is_decimal else k.call("round", mixed)


def continuous_type(t: Type, *rest: Type) -> Type:
    """The type of an interpolated value."""
    return DOUBLE if t.is_integer else TIMESTAMP if t == DATE else t


CONTINUOUS = ("integer", "decimal", "float", DATE, TIME, TIMESTAMP, TIMESTAMPTZ)


class QuantileCont(Continuous):
    """The value below which a fraction of all values lies, interpolated between the two nearest."""

    def answer(self, k: PipelineKernel, words: Val, count: Val) -> tuple[Val, ...]:
        return (self.between(k, words, count, fraction_of(self.inputs[1].literal), self.result),)


class Median(Continuous):
    """The middle value, or the mean of the two middle ones."""

    def answer(self, k: PipelineKernel, words: Val, count: Val) -> tuple[Val, ...]:
        return (self.between(k, words, count, Fraction(1, 2), self.result),)


class ApproxQuantile(Continuous):
    """A quantile by the rank of a digest's middle: exact here, where DuckDB's is approximate."""

    def place(self, k: PipelineKernel, fraction: Fraction, count: Val) -> tuple[Val, bool]:
        n = count.to("f64")
        return k.max(k.min(n * float(fraction) - 0.5, n - 1.0), k.f64(0.0)), False

    def answer(self, k: PipelineKernel, words: Val, count: Val) -> tuple[Val, ...]:
        return (self.between(k, words, count, fraction_of(self.inputs[1].literal), self.result),)

    def whole(self, k: PipelineKernel, mixed: Val) -> Val:
        return k.unary("rint", mixed)


def approximate_type(t: Type, *rest: Type) -> Type:
    """The type of an approximate quantile: numbers for which DuckDB has no overload are widened."""
    if t.is_integer and t.name not in ("SMALLINT", "INTEGER", "BIGINT", "HUGEINT"):
        return HUGEINT if t.name == "UBIGINT" else BIGINT
    return DOUBLE if t.is_float else t


class Mad(Continuous):
    """The median of the absolute differences from the median."""

    as_floats = True

    def answer(self, k: PipelineKernel, words: Val, count: Val) -> tuple[Val, ...]:
        t = self.inputs[0].type
        middle = self.between(k, words, count, Fraction(1, 2), continuous_type(t))
        copy = k.call("malloc", count * BYTES[self.machine])
        with k.range(count) as i:
            k.store(copy, self._difference(k, k.load(self.machine, words, i), middle), i)
        low, high, step = self.neighbours(k, copy, count, (count - 1).to("f64") * 0.5)
        k.call("free", copy)
        if not t.is_temporal:
            return (self.interpolate(k, low, high, step, self.result),)
        micros = low + k.call("round", (high - low).to("f64") * step).to("i64")
        return k.i32(0), (micros // DAY_US).to("i32"), micros % DAY_US

    def _difference(self, k: PipelineKernel, word: Val, middle: Val) -> Val:
        t = self.inputs[0].type
        if self.floats:
            return sortable(k, k.unary("fabs", (unsortable(k, word).to(middle.type) - middle).to("f64")))
        difference = (timestamp_of(k, Datum(DATE, (word,))) if t == DATE else word) - middle.to(self.machine)
        return k.select(difference < 0, -difference, difference)


for _pattern in CONTINUOUS:
    aggregate(
        "quantile_cont", args=(_pattern, "numeric"), returns=continuous_type, constant=(1,), check=check_fraction
    )(QuantileCont)
    aggregate("median", args=(_pattern,), returns=continuous_type)(Median)
    aggregate(
        "approx_quantile",
        args=(_pattern, "numeric"),
        returns=approximate_type,
        constant=(1,),
        check=check_positive_fraction,
    )(ApproxQuantile)
for _pattern in ("integer", "decimal", "float"):
    aggregate("mad", args=(_pattern,), returns=continuous_type)(Mad)
for _pattern in (DATE, TIME, TIMESTAMP, TIMESTAMPTZ):
    aggregate("mad", args=(_pattern,), returns=INTERVAL)(Mad)
