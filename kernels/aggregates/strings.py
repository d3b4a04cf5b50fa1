"""string_agg: joins the texts of a group in the order of the input, or of the ORDER BY in the call."""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateState
from tsql.kernels.aggregates.records import RecordBody, Records, ordered_records
from tsql.kernels.aggregates.registry import aggregate
from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel, scratch_alloc
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import VARCHAR
from tsql.kernels.functions.casts.cast import emit_cast
from tsql.kernels.runtime.lists import HEADER, list_room
from tsql.kernels.runtime.select import sort_pointers


class RecordList(RecordBody):
    """Keeps a record per row. State: the block of records, the block of their text."""

    @property
    def records(self) -> Records:
        return ordered_records((self.inputs[0].type,), self.order_keys)

    def add(self, k: PipelineKernel, state: AggregateState, values: tuple[Datum, ...]) -> None:
        records = self.records
        block = list_room(k, k.ctx, state.get(0), k.i64(records.end))
        state.set(0, block)
        count = k.load("i64", block)
        state.set(
            1, records.store(k, k.offset(block, count * records.end + HEADER), state.get(1), self.position, values)
        )
        k.store(block, count + 1)

    def sorted(self, k: PipelineKernel, block: Val, text: Val) -> Val:
        """A malloc'ed array with the addresses of all records, in order."""
        records = self.records
        pointers = record_pointers(k, block, k.i64(records.end))
        sort_pointers(k, records.name, pointers, k.load("i64", block), text, records.before)
        return pointers

    def release(self) -> tuple[int, ...]:
        return (0, 1)


@routine("record_pointers", ("ptr", "i64"), "ptr")
def record_pointers(k: Kernel, block: Val, record_bytes: Val) -> None:
    """The addresses of the records of a block, and room for as many again."""
    count = k.load("i64", block)
    pointers = k.call("malloc", count * 16)
    with k.range(count) as i:
        k.store(pointers, k.offset(block, i * record_bytes + HEADER), i)
    k.ret(pointers)


@routine("joined_bytes", ("ptr", "i64", "i64", "i64"), "i64")
def joined_bytes(k: Kernel, pointers: Val, count: Val, length_at: Val, separator_bytes: Val) -> None:
    """How long the join of the texts is."""
    total = k.var((count - 1) * separator_bytes)
    with k.range(count) as i:
        total.set(total.value + k.load("i64", k.offset(k.load("ptr", pointers, i), length_at)))
    k.ret(total.value)


@routine("join_texts", ("ptr", "ptr", "i64", "ptr", "i64", "ptr", "i64", "i64"), "ptr")
def join_texts(
    k: Kernel,
    ctx: Val,
    pointers: Val,
    count: Val,
    text: Val,
    offset_at: Val,
    separator: Val,
    separator_bytes: Val,
    total: Val,
) -> None:
    """The texts of records, one behind the other with a separator between, in scratch memory. The length is behind the
    offset."""
    result = scratch_alloc(k, ctx, total)
    at = k.var(result)
    with k.range(count) as i:
        with k.when((i > 0) & (separator_bytes > 0)):
            k.call("memcpy", at.value, separator, separator_bytes)
            at.set(at.value + separator_bytes)
        place = k.offset(k.load("ptr", pointers, i), offset_at)
        length = k.load("i64", place, 1)
        with k.when(length > 0):
            k.call("memcpy", at.value, k.offset(text, k.load("i64", place) + HEADER), length)
            at.set(at.value + length)
    k.ret(result)


@aggregate("string_agg", "group_concat", "listagg", args=("any",), returns=VARCHAR, ordered=True)
@aggregate("string_agg", "group_concat", "listagg", args=("any", VARCHAR), returns=VARCHAR, constant=(1,), ordered=True)
class StringAgg(RecordList):
    """The texts of the values with a separator (a comma by default) between them; NULL if there are none."""

    @property
    def records(self) -> Records:
        return ordered_records((VARCHAR,), self.order_keys)

    def update(self, k: PipelineKernel, state: AggregateState, args: tuple[Datum, ...], mask: Val | None) -> None:
        value = emit_cast(k, args[0].with_valid(None), VARCHAR, False)
        self.add(k, state, (value, *(self.order if self.order_keys else ())))

    def _separator(self, k: PipelineKernel) -> tuple[Val, Val]:
        from tsql.kernels.emit.expressions import emit_literal

        if len(self.inputs) == 1:
            return k.static(b","), k.i64(1)
        return emit_literal(k, self.inputs[1].literal).text

    def finish(self, k: PipelineKernel, state: AggregateState) -> Datum:
        block, text = state.get(0), state.get(1)
        separator, separator_bytes = self._separator(k)
        value, length = k.var(k.null), k.var(k.i64(0))
        offset_at = self.records.offsets[0][0]
        k.uses_scratch = True
        with k.when(block != k.null):
            count = k.load("i64", block)
            pointers = self.sorted(k, block, text)
            length.set(joined_bytes(k, pointers, count, k.i64(offset_at + 8), separator_bytes))
            value.set(
                join_texts(k, k.ctx, pointers, count, text, k.i64(offset_at), separator, separator_bytes, length.value)
            )
            k.call("free", pointers)
        return Datum(VARCHAR, (value.value, length.value), block != k.null)
