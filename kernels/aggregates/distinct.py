"""Aggregates over distinct values: mode and entropy count each, approx_count_distinct sketches them."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.aggregates.base import AggregateState, Body
from tsql.kernels.aggregates.basic import same
from tsql.kernels.aggregates.records import RecordBody, Records, ordered_records
from tsql.kernels.aggregates.registry import aggregate
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.keys import KeyField
from tsql.kernels.expr.types import BIGINT, BLOB, DOUBLE, Type
from tsql.kernels.functions.comparison import compare
from tsql.kernels.runtime.counts import ENTRY_HEADER, count_value, counts_room, each_entry
from tsql.kernels.runtime.sketch import sketch_add, sketch_bytes, sketch_estimate, sketch_merge
from tsql.kernels.runtime.text.strings import mix64


def hash_value(k: PipelineKernel, d: Datum) -> Val:
    """A hash of a value that is not NULL; equal values have equal hashes."""
    key = KeyField("value", d.type, False)
    hash = k.i64(0x51ED27)
    for word in key.hash_words(k, key.words(k, d.wide().with_valid(None))):
        hash = mix64(k, (hash * -0x61C8864680B583EB) ^ word)
    return hash


class ValueCounts(RecordBody):
    """Counts each distinct value. State: the table of counts, the block of text. An entry keeps the first row of its
    value."""

    @property
    def records(self) -> Records:
        return ordered_records((self.inputs[0].type,), self.order_keys, ENTRY_HEADER)

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        records, value = self.records, args[0].wide().with_valid(None)
        values = (value, *(self.order if self.order_keys else ()))
        block = counts_room(k, k.ctx, state.get(0), k.i64(records.end))
        state.set(0, block)

        def equal(entry: Val) -> Val:
            return compare(k, "=", value, records.value(k, entry, state.get(1), 0).with_valid(None))

        def fill(entry: Val) -> None:
            state.set(1, records.store(k, entry, state.get(1), self.position, values))

        def again(entry: Val) -> None:
            text = state.get(1)
            with k.when(
                records.precedes(
                    k,
                    lambda i: values[i],
                    self.position,
                    lambda i: records.value(k, entry, text, i),
                    records.position(k, entry),
                )
            ):
                fill(entry)

        count_value(k, block, hash_value(k, value), records.end, equal, fill, again)

    def each(self, k: PipelineKernel, block: Val, body: Callable[[Val, Val], None]) -> None:
        with k.when(block != k.null):
            each_entry(k, block, self.records.end, body)

    def release(self) -> tuple[int, ...]:
        return (0, 1)


@aggregate("mode", args=("any",), returns=same, ordered=True)
class Mode(ValueCounts):
    """The most frequent value; of several, the one that comes first."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        block, text, records = state.get(0), state.get(1), self.records
        best, most = k.var(k.null), k.var(k.i64(0))

        def offer(entry: Val, count: Val) -> None:
            better = k.var(count > most.value)
            with k.when(count == most.value):
                better.set(records.before(k, entry, best.value, text))
            with k.when(better.value):
                best.set(entry)
                most.set(count)

        self.each(k, block, offer)
        slots = [k.var(k.const(t, 0)) for t in self.result.parts]
        with k.when(block != k.null):
            for slot, part in zip(slots, records.value(k, best.value, text, 0).parts, strict=True):
                slot.set(part)
        return Datum(self.result, tuple(s.value for s in slots), block != k.null)


@aggregate("entropy", args=("any",), returns=DOUBLE)
class Entropy(ValueCounts):
    """The entropy of the distribution of values, in bits; 0 if there are none."""

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        block = state.get(0)
        rows, total = k.var(k.i64(0)), k.var(k.f64(0.0))
        self.each(k, block, lambda entry, count: rows.set(rows.value + count))

        def add(entry: Val, count: Val) -> None:
            n, c = rows.value.to("f64"), count.to("f64")
            total.set(total.value + c / n * k.call("log2", n / c))

        self.each(k, block, add)
        return Datum(DOUBLE, (total.value,))


@aggregate("approx_count_distinct", args=("any",), returns=BIGINT)
class ApproxCountDistinct(Body):
    """About how many distinct values there are: exact up to a thousand, then within a percent or two."""

    fields = ("ptr",)

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        state.set(0, sketch_add(k, k.ctx, state.get(0), hash_value(k, args[0])))

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        return Datum(BIGINT, (sketch_estimate(k, state.get(0)),))

    def exported(self) -> tuple[Type, ...]:
        return (BLOB,)

    def export(self, k: PipelineKernel, state: AggregateState) -> tuple[Datum, ...]:
        return (Datum(BLOB, (state.get(0), sketch_bytes(k, state.get(0)))),)

    def absorb(self, k: PipelineKernel, state: AggregateState, exported: tuple[Datum, ...]) -> None:
        with k.when(exported[0].len > 0):
            state.set(0, sketch_merge(k, k.ctx, state.get(0), exported[0].ptr))

    def release(self) -> tuple[int, ...]:
        return (0,)
