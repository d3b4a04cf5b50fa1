"""Quantiles over sliding frames: a tree over the order of all values finds the n-th of those in the frame.

The host gives each value its rank (its code), and each code a row with the value.
"""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateState
from tsql.kernels.aggregates.quantiles import DiscRecords, Words
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.nodes import Column
from tsql.kernels.runtime.fenwick import fenwick_add, fenwick_nth
from tsql.kernels.windows.base import Memory, SortedRows, as_type
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.folds import At, BodyFold


class RankedFold(BodyFold):
    """The values of the frame, in order. State: their number; the tree lies beside it."""

    lasting = True

    def __init__(self, call: WindowCall, code: Column, sample: Column):
        super().__init__(call)
        self.code, self.sample = code, sample

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        super().begin(k, rows)
        self.fields, self.owns = ("i64",), False
        self.tree = Memory(k, (rows.count + 1) * 8, zeroed=True)
        if isinstance(self.body, Words):
            self.body.ranked = self._nth

    def end(self, k: PipelineKernel) -> None:
        self.tree.free(k)

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        state.set(0, k.i64(0))

    def _nth(self, k: PipelineKernel, index: Val) -> Datum:
        """The index-th value of the frame."""
        code = fenwick_nth(k, self.tree.address, self.rows.count, index)
        row = self.rows.value(k, self.sample, code).value
        return self.rows.value(k, self.call.args[0], row).with_valid(None)

    def _change(self, k: PipelineKernel, state: AggregateState, row: Val, change: int) -> None:
        _, mask = self._args(k, row)
        with k.when(k.true if mask is None else mask):
            fenwick_add(k, self.tree.address, self.rows.count, self.rows.value(k, self.code, row).value, change)
            state.set(0, state.get(0) + change)

    def add(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        self._change(k, state, row, 1)

    def remove(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        self._change(k, state, row, -1)

    def finish(self, k: PipelineKernel, state: AggregateState, place: At | None) -> Datum:
        count = state.get(0)
        slots = [k.var(k.const(t, 0)) for t in self.call.type.parts]
        with k.when(count > 0):
            if isinstance(self.body, DiscRecords):
                self.body.choose(k, slots, count, lambda index: as_type(self._nth(k, index), self.call.type).parts)
            else:
                assert isinstance(self.body, Words), f"{self.call.name} is no quantile"
                for slot, part in zip(slots, self.body.answer(k, k.null, count), strict=True):
                    slot.set(part)
        return Datum(self.call.type, tuple(s.value for s in slots), count > 0)

    def release(self, k: PipelineKernel, state: AggregateState) -> None:
        """Nothing to free: the state is a number."""
